"""A small translator with random weights, and what it computes on one sentence."""

import pytest

from regard.model import Model
from regard.trace.capture import trace_model
from tests.analysis.translators import small_translator


@pytest.fixture(scope="session")
def translator() -> Model:
    return small_translator(seed=7, vocab_size=70)


@pytest.fixture(scope="session")
def trace(translator):
    return trace_model(translator, "the dog is sleeping", "der Hund schläft")
