"""Steps of BPE and WordPiece end with the tokens of the tokenizer itself."""

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE, Unigram, WordPiece

import regard
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_training import split_words


def test_merges_by_hand():
    vocabulary = {piece: i for i, piece in enumerate(["l", "o", "w", "e", "lo", "low", "we"])}
    backend = Backend(BPE(vocabulary, [("l", "o"), ("w", "e"), ("lo", "w")]))
    (word,) = split_words(Tokenizer(backend), "lowe")
    assert [step.pieces for step in word.steps] == [tuple("lowe"), ("lo", "w", "e"), ("lo", "we")]
    assert [step.rank for step in word.steps] == [None, 1, 2]


def test_longest_pieces_come_first_and_unknown_words_become_one_token():
    vocabulary = {piece: i for i, piece in enumerate(["[UNK]", "un", "##able", "##a", "u"])}
    tokenizer = Tokenizer(Backend(WordPiece(vocabulary, unk_token="[UNK]")))
    assert split_words(tokenizer, "unable")[0].steps[-1].pieces == ("un", "##able")
    assert split_words(tokenizer, "unx")[0].steps[-1].pieces == ("[UNK]",)


@pytest.mark.parametrize("text", ["The dangerous snake", "Wolkenkratzer"])
def test_the_last_step_is_what_the_tokenizer_says(text):
    tokenizer = regard.load("en-de").tokenizer
    pieces = [piece for word in split_words(tokenizer, text) for piece in word.steps[-1].pieces]
    assert pieces == tokenizer.backend.encode(text, add_special_tokens=False).tokens


def test_other_tokenizers_are_refused():
    with pytest.raises(InputError, match="a Unigram model, which has no merges"):
        split_words(Tokenizer(Backend(Unigram([("a", 0.0)], 0, False))), "a")
