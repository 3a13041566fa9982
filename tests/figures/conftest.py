"""A small translator with random weights, and what it computes on one sentence."""

import pytest
import torch

from regard.trace.run import trace_bundle


@pytest.fixture(scope="session")
def translator(make_bundle):
    bundle = make_bundle("transformer", settings={"d_model": 12, "n_heads": 3})
    with torch.no_grad():
        for parameter in bundle.model.parameters():
            parameter *= 2  # fresh weights look everywhere alike
    return bundle


@pytest.fixture(scope="session")
def trace(translator):
    return trace_bundle(translator, "A dog runs.", "Ein Hund läuft.")
