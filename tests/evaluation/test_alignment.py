import numpy as np
import pytest

from regard.evaluation.alignment import (
    Alignment,
    Gold,
    WordIndices,
    alignment_of,
    error_rate,
    word_index_of_pieces,
    word_indices,
    word_weights,
)
from regard.generation.translator import TranslatedPart, Translation
from tests.generation.toy import tokenizer


def gold(*sure, possible=(), targets=None):
    known = frozenset(sure)
    return Gold(known, known | frozenset(possible), None if targets is None else frozenset(targets))


def test_weights_between_words_by_hand():
    # source: a special token, then word 0 of two tokens, then word 1; target: word 0 of two tokens
    grouping = WordIndices([None, 0, 0, 1], [0, 0, 1], 2, 2)
    weights = np.array(
        [
            [0.5, 0.2, 0.2, 0.1],  # 0.4 on word 0, 0.1 on word 1
            [0.5, 0.1, 0.1, 0.3],  # 0.2 on word 0, 0.3 on word 1
            [0.2, 0.0, 0.0, 0.8],
        ]
    )
    # word 0 of the target sends (0.6, 0.4) of what is not lost on the special token
    np.testing.assert_allclose(word_weights(weights, grouping), [[0.6, 0.4], [0.0, 1.0]])


def test_rows_sum_to_one_or_zero_for_each_head():
    grouping = WordIndices([None, 0, 1, 1, None], [0, 1, 1], 2, 2)
    weights = np.random.default_rng(0).random((3, 3, 5))
    weights[1, 0] = [1, 0, 0, 0, 0]  # sees only what is special
    tables = word_weights(weights, grouping)
    assert tables.shape == (3, 2, 2)
    sums = np.ones((3, 2))
    sums[1, 0] = 0
    np.testing.assert_allclose(tables.sum(-1), sums)
    for head in range(3):
        np.testing.assert_allclose(tables[head], word_weights(weights[head], grouping))


def test_words_are_separated_by_whitespace():
    words = tokenizer()
    text = "seven  eight, one"
    pieces = words.pieces(text)
    numbers = word_index_of_pieces(pieces, text)
    assert numbers[0] is numbers[-1] is None
    found = [
        "".join(p.text for p, n in zip(pieces, numbers, strict=True) if n == i).strip()
        for i in range(3)
    ]
    assert found[0] == "seven"
    assert found[1].startswith("eight")
    assert found[2] == "one"
    assert [n for n in numbers if n is not None] == sorted(n for n in numbers if n is not None)


def test_names_of_special_tokens_are_words():
    words = tokenizer()
    ids = words.encode("one two", literal=True)
    part = TranslatedPart("one two", "eins", ids, words.encode("eins", specials=False))
    grouping = word_indices(part, words, words)
    assert (grouping.n_source, grouping.n_target) == (2, 1)
    assert set(grouping.source) == {None, 0, 1}
    assert set(grouping.target) == {0}
    odd = TranslatedPart("[SEP] one", "eins", words.encode("[SEP] one", literal=True), part.ids)
    assert len(word_indices(odd, words, words).source) == len(odd.source_ids)


def test_hard_links_have_the_largest_weight():
    found = Alignment(["a", "b"], ["x", "y"], [(0, 0, 0.4), (1, 0, 0.6), (0, 1, 0.5), (1, 1, 0.5)])
    assert found.links == [(0, 1), (1, 0)]
    assert found.pharaoh() == "0-1 1-0"
    assert found.to_json()["soft"][0] == [0, 0, 0.4]
    assert Alignment([], [], []).pharaoh() == ""


def test_parts_are_joined_and_copies_aligned_one_by_one():
    words = tokenizer()

    def part(source, text, separator):
        return TranslatedPart(
            source,
            text,
            words.encode(source),
            words.encode(text, specials=False),
            separator=separator,
        )

    parts = (
        part("one two", "zwei eins", " "),
        TranslatedPart("🍜 🍣", "🍜 🍣", [], [], copied=True, separator=" "),
        part("three", "drei", ""),
    )
    text = "".join(one.text + one.separator for one in parts)
    tables = [table_of(parts[0], words, [(1, 0), (0, 1)]), table_of(parts[2], words, [(0, 0)])]
    found = alignment_of(Translation(text, 0.0, [], [], parts=parts), tables, (words, words))
    assert found.source_words == ["one", "two", "🍜", "🍣", "three"]
    assert found.target_words == ["zwei", "eins", "🍜", "🍣", "drei"]
    assert found.links == [(0, 1), (1, 0), (2, 2), (3, 3), (4, 4)]


def test_a_split_word_belongs_to_both_parts():
    words = tokenizer()
    ids, written = words.encode("one"), words.encode("eins", specials=False)
    parts = tuple(
        TranslatedPart("one", "eins", ids, written, separator=separator) for separator in ("", "")
    )
    tables = [table_of(part, words, [(0, 0)]) for part in parts]
    found = alignment_of(Translation("einseins", 0.0, [], [], parts=parts), tables, (words, words))
    assert found.source_words == ["oneone"]
    assert set(found.links) == {(0, 0)}


def table_of(part, words, links):
    """Weights between tokens that align words exactly so."""
    grouping = word_indices(part, words, words)
    table = np.zeros((len(grouping.target), len(grouping.source)))
    for source, target in links:
        for i, number in enumerate(grouping.target):
            for j, other in enumerate(grouping.source):
                table[i, j] += number == target and other == source
    return table


def test_the_error_rate_by_hand():
    # found 3 links, 2 of them sure, 1 more possible; 3 are sure: 1 - (2 + 3) / (3 + 3)
    found = [(0, 0), (1, 1), (2, 2)]
    truth = gold((0, 0), (1, 1), (3, 3), possible=[(2, 2)])
    assert error_rate([(found, truth)]) == pytest.approx(1 / 6)
    assert error_rate([(truth.sure, truth)]) == 0
    assert error_rate([([(5, 5)], truth)]) == 1
    assert error_rate([]) == 0


def test_only_known_targets_count():
    truth = gold((0, 0), targets=[0])
    assert error_rate([([(0, 0), (7, 1)], truth)]) == 0
    assert error_rate([([(1, 0), (7, 1)], truth)]) == 1
