"""A small translator with random weights, and what it computes on one sentence."""

import pytest
import torch

from regard.model import Model
from regard.trace.capture import trace_model
from tests.analysis.families import MODELS
from tests.analysis.translators import small_translator


@pytest.fixture(scope="session")
def translator() -> Model:
    return small_translator(seed=7, vocab_size=70)


@pytest.fixture(scope="session")
def trace(translator):
    return trace_model(translator, "the dog is sleeping", "der Hund schläft")


@pytest.fixture(params=MODELS)
def any_model(request, make_bundle):
    """A model of each family with a residual stream, in pre-norm and post-norm."""
    family, settings = MODELS[request.param]
    classifies = "n_classes" in settings
    more = {"task": "classification", "labels": ("a", "b", "c")} if classifies else {}
    found = make_bundle(family, settings=settings, **more)
    with torch.no_grad():  # biases and norms that are not those of a fresh model
        for weight in found.module.parameters():
            weight += 0.1 * torch.randn(weight.shape)
    return found
