"""Tokenizers from outside get the start and end tokens that they do not add themselves."""

import json

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors

from regard.errors import InputError
from regard.text.tokenizer import Tokenizer, with_start_and_end

WORDS = {"<s>": 0, "</s>": 1, "<unk>": 2, "a": 3, "dog": 4, "<en>": 5}


def words(*single, vocabulary=WORDS):
    """A tokenizer of whole words that puts these tokens around a text, $A."""
    backend = Backend(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if single:
        special = [(name, vocabulary[name]) for name in single if name != "$A"]
        backend.post_processor = processors.TemplateProcessing(
            single=list(single), special_tokens=special
        )
    return Tokenizer(backend)


@pytest.mark.parametrize(
    ("single", "ids"),
    [
        ((), [0, 3, 4, 1]),
        (("<s>", "$A"), [0, 3, 4, 1]),
        (("$A", "</s>"), [0, 3, 4, 1]),
        (("<en>", "$A", "</s>"), [0, 5, 3, 4, 1]),
    ],
)
def test_what_is_missing_is_added_and_what_is_there_stays(single, ids):
    before = words(*single)
    found = with_start_and_end(before)
    assert found.encode("a dog") == ids
    assert found.encode_batch(["a dog"], literal=True) == [ids]
    assert found.encode("a dog", specials=False) == [3, 4] == before.encode("a dog", specials=False)
    assert found.encode("") == [*ids[: ids.index(3)], 1]
    assert with_start_and_end(found) is found


def test_nothing_is_changed_where_both_are_there(trained):
    assert all(with_start_and_end(one) is one for one in trained.values())
    both = words("<s>", "$A", "</s>")
    assert with_start_and_end(both) is both


def test_the_ends_of_a_vocabulary_that_has_no_letter_of_the_probe():
    vocabulary = {name: id for name, id in WORDS.items() if name not in ("a", "<unk>")}
    backend = Backend(models.BPE(vocabulary, []))
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    assert with_start_and_end(Tokenizer(backend)).encode("") == [0, 1]


def test_files_of_byte_level_bpe_get_both_and_keep_them_when_saved(tmp_path):
    letters = {letter: id for id, letter in enumerate(["<s>", "</s>", "d", "o", "g"])}
    (tmp_path / "vocab.json").write_text(json.dumps(letters))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    found = with_start_and_end(Tokenizer.load(tmp_path))
    found.save(tmp_path / "saved.json")
    for tokenizer in (found, Tokenizer.load(tmp_path / "saved.json")):
        assert tokenizer.encode("dog") == [0, 2, 3, 4, 1]
        assert tokenizer.decode([0, 2, 3, 4, 1]) == "dog"


def test_a_vocabulary_without_an_end_is_refused():
    vocabulary = {name: id for name, id in WORDS.items() if name != "</s>"}
    with pytest.raises(InputError, match="has no end token, which translation needs: name one"):
        with_start_and_end(words(vocabulary=vocabulary))
