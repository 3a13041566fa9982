import numpy as np
import pytest
from numpy.testing import assert_allclose

from regard.errors import InputError
from regard.text.words import Word, word_weights, words_of


def test_pieces_are_gathered_into_words_and_specials_stand_alone(trained):
    found = words_of(trained["byte-bpe"].pieces("저는 running!"))
    assert [word.text for word in found] == ["[CLS]", "저는", "running", "!", "[SEP]"]
    assert [word.special for word in found] == [True, False, False, False, True]


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "wordpiece", "characters"])
def test_words_take_every_piece_exactly_once_in_order(trained, sentences, kind):
    for sentence in sentences:
        pieces = trained[kind].pieces(sentence)
        numbers = [number for word in words_of(pieces) for number in word.pieces]
        assert numbers == list(range(len(pieces)))


def test_words_of_generated_ids_are_those_of_their_text(trained):
    tokenizer = trained["bpe"]
    text = "The dogs follow, don't they?"
    from_text = [word.text for word in words_of(tokenizer.pieces(text))]
    from_ids = [word.text for word in words_of(tokenizer.pieces_of(tokenizer.encode(text)))]
    assert (
        from_text
        == from_ids
        == ["[CLS]", "The", "dogs", "follow", ",", "don't", "they", "?", "[SEP]"]
    )


def test_two_specials_side_by_side_are_two_words(trained):
    tokenizer = trained["bpe"]
    pieces = tokenizer.pieces_of([tokenizer.end_id, tokenizer.pad_id, tokenizer.pad_id])
    assert [word.text for word in words_of(pieces)] == ["[SEP]", "[PAD]", "[PAD]"]


def two_words():
    return [Word("one", range(2), False), Word("two", range(2, 3), False)]


def test_weights_between_words_by_hand():
    # keys: 0.1 + 0.2 and 0.7, 0.3 + 0.3 and 0.4; the first word asks with the mean of both rows
    weights = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.0, 0.5]])
    assert_allclose(word_weights(weights, two_words(), two_words()), [[0.45, 0.55], [0.5, 0.5]])


def test_rows_that_sum_to_one_still_do():
    weights = np.random.default_rng(0).random((4, 2, 3, 3))
    weights /= weights.sum(-1, keepdims=True)
    merged = word_weights(weights, two_words(), two_words())
    assert merged.shape == (4, 2, 2, 2)
    assert_allclose(merged.sum(-1), 1.0)


def test_weights_that_do_not_fit_are_refused_and_no_words_give_no_weights():
    with pytest.raises(InputError, match="4 queries and 3 keys do not fit words made of 3 and 3"):
        word_weights(np.zeros((4, 3)), two_words(), two_words())
    assert word_weights(np.zeros((0, 3)), [], two_words()).shape == (0, 2)
