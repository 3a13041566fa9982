"""A small translator with random weights, and what it computes on one sentence."""

import pytest
import torch

from regard.trace.capture import trace_model


@pytest.fixture(scope="session")
def translator(make_bundle):
    model = make_bundle("transformer", settings={"d_model": 12, "n_heads": 3})
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter *= 2  # fresh weights look everywhere alike
    return model


@pytest.fixture(scope="session")
def trace(translator):
    return trace_model(translator, "A dog runs.", "Ein Hund läuft.")


@pytest.fixture(scope="session")
def trace_of(make_bundle, trace):
    """Return a trace that a kind of figure can show."""

    def trace_for(kind):
        if kind == "image":
            return make_bundle("vision").trace(torch.rand(3, 8, 8))
        if kind == "additive":
            return trace_model(make_bundle("seq2seq"), "A dog runs.", "Ein Hund läuft.")
        return trace

    return trace_for
