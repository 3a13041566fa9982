import numpy as np
import pytest

from regard.evaluation.alignment import Lexicon, dictionary_links
from tests.generation.toy import TRANSLATED, pairs

BOOK = [
    (["das", "haus"], ["the", "house"]),
    (["das", "buch"], ["the", "book"]),
    (["ein", "buch"], ["a", "book"]),
]


def probabilities(rounds):
    """Probabilities row by row: das→the, das→house, …."""
    lexicon = Lexicon(BOOK).learn(rounds)
    return lexicon.table.tolist()


def test_expectation_maximization_by_hand():
    # das stands with the, house, book; "the" twice, so it has half of what das gives
    assert probabilities(1)[:3] == pytest.approx([1 / 2, 1 / 4, 1 / 4])
    assert probabilities(2)[:3] == pytest.approx([7 / 11, 2 / 11, 2 / 11])
    assert probabilities(40)[0] == pytest.approx(1, abs=0.01)


def test_probabilities_and_posteriors_sum_to_one():
    lexicon = Lexicon(BOOK).learn()
    sums = np.bincount(lexicon._owner, lexicon.table)
    np.testing.assert_allclose(sums, 1)
    for matrix in lexicon.matrices():
        np.testing.assert_allclose(matrix.sum(axis=0), 1)


def test_sure_links_are_true():
    sentences = [(a.split(), b.split()) for a, b in pairs(150, seed=3)]
    n_found = n_right = 0
    for (source, target), gold in zip(sentences, dictionary_links(sentences), strict=True):
        n_found += len(gold.sure)
        n_right += sum(TRANSLATED[source[s]] == target[t] for s, t in gold.sure)
        assert gold.known_targets == {t for _, t in gold.sure}
    assert n_found > 200
    assert n_right >= 0.98 * n_found


def test_empty_sentences_have_no_links():
    empty = dictionary_links([([], []), (["a"], [])])
    assert [gold.sure for gold in empty] == [frozenset(), frozenset()]
    assert dictionary_links([]) == []


def test_punctuation_and_case_are_ignored():
    lines = [("Dog.", "Hund."), ("dog!", "hund"), ("cat", "Katze"), ("Cat,", "katze,")]
    golds = dictionary_links([([a], [b]) for a, b in lines])
    assert [sorted(gold.sure) for gold in golds] == [[(0, 0)]] * 4
