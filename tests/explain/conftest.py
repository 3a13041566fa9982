"""A small translator with random weights, and what it computes on one sentence."""

import pytest

from regard.bundle.bundle import Bundle
from regard.trace.run import trace_bundle
from tests.explain.translators import small_translator


@pytest.fixture(scope="session")
def translator() -> Bundle:
    return small_translator(seed=7, vocab_size=70)


@pytest.fixture(scope="session")
def trace(translator):
    return trace_bundle(translator, "the dog is sleeping", "der Hund schläft")
