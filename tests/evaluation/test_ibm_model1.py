import numpy as np
import pytest

from regard.evaluation.ibm_model1 import Lexicon, dictionary_gold
from tests.generation.toy import TRANSLATED, pairs

BOOK = [
    (["das", "haus"], ["the", "house"]),
    (["das", "buch"], ["the", "book"]),
    (["ein", "buch"], ["a", "book"]),
]


def chances(rounds):
    """The probabilities of the three pairs, row by row: das→the, das→house, …"""
    lexicon = Lexicon(BOOK).learn(rounds)
    return lexicon.table.tolist()


def test_expectation_maximization_by_hand():
    # das stands with the, house, book; "the" twice, so it has half of what das gives
    assert chances(1)[:3] == pytest.approx([1 / 2, 1 / 4, 1 / 4])
    assert chances(2)[:3] == pytest.approx([7 / 11, 2 / 11, 2 / 11])
    assert chances(40)[0] == pytest.approx(1, abs=0.01)


def test_what_a_word_becomes_sums_to_one_and_posteriors_explain_each_word():
    lexicon = Lexicon(BOOK).learn()
    sums = np.bincount(lexicon._owner, lexicon.table)
    np.testing.assert_allclose(sums, 1)
    for matrix in lexicon.matrices():
        np.testing.assert_allclose(matrix.sum(axis=0), 1)


def test_links_of_a_language_with_a_known_dictionary_are_true():
    sentences = [(a.split(), b.split()) for a, b in pairs(150, seed=3)]
    n_found = n_right = 0
    for (source, target), gold in zip(sentences, dictionary_gold(sentences), strict=True):
        n_found += len(gold.sure)
        n_right += sum(TRANSLATED[source[s]] == target[t] for s, t in gold.sure)
        assert gold.asked == {t for _, t in gold.sure}
    assert n_found > 200
    assert n_right >= 0.98 * n_found


def test_empty_sentences_and_none_at_all_have_no_links():
    empty = dictionary_gold([([], []), (["a"], [])])
    assert [gold.sure for gold in empty] == [frozenset(), frozenset()]
    assert dictionary_gold([]) == []


def test_marks_and_capitals_do_not_hide_a_word():
    lines = [("Dog.", "Hund."), ("dog!", "hund"), ("cat", "Katze"), ("Cat,", "katze,")]
    golds = dictionary_gold([([a], [b]) for a, b in lines])
    assert [sorted(gold.sure) for gold in golds] == [[(0, 0)]] * 4
