"""A small tokenizer and small files for the tests of reading, checking and batching."""

import pytest

from regard.text.tokenizer_training import train_tokenizer

PAIRS = [
    ("A dog runs.", "Ein Hund läuft."),
    ("Two children play in the sand.", "Zwei Kinder spielen im Sand."),
    ("The sun shines.", "Die Sonne scheint."),
    ("저는 학생입니다.", "Ich bin Student."),
]


@pytest.fixture(scope="session")
def pairs():
    return PAIRS


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(
        [text for pair in PAIRS for text in pair], kind="byte-bpe", vocab_size=300
    )


@pytest.fixture
def write(tmp_path):
    """Write a file into the test's folder and give its path."""

    def write_file(name, contents):
        path = tmp_path / name
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return str(path)

    return write_file
