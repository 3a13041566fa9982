"""Small tokenizers of every kind, trained once on sentences written for these tests."""

import pytest

from regard.text.tokenizer_training import train_tokenizer

SENTENCES = [
    "A dog runs along the beach, and the other dogs follow.",
    'Ein Hund läuft am Strand entlang; die anderen "Hunde" folgen.',
    "저는 학생입니다. 오늘은 날씨가 좋습니다!",
    "강아지가 바닷가를 달립니다. 저는 강아지를 좋아합니다.",
    "The year 2024 has 366 days - don't forget (or do?).",
]


@pytest.fixture(scope="session")
def sentences():
    return SENTENCES


@pytest.fixture(scope="session")
def trained():
    """A tokenizer for each kind, by its name."""
    sizes = {"bpe": 300, "byte-bpe": 400, "wordpiece": 400, "characters": 200}
    return {
        kind: train_tokenizer(SENTENCES, kind=kind, vocab_size=size, min_frequency=1)
        for kind, size in sizes.items()
    }
