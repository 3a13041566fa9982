from hypothesis import given
from hypothesis import strategies as st

from regard.generation.sentences import batches_by_length, rows_for, windows


def test_batches_by_hand():
    assert batches_by_length([3, 9, 2, 8], tokens=18, rows=10) == [[1, 3], [0, 2]]
    assert batches_by_length([3, 9, 2, 8], tokens=1000, rows=3) == [[1, 3, 0], [2]]
    assert batches_by_length([], tokens=10, rows=10) == []
    tens = batches_by_length([3, 9, 12, 8], tokens=99, rows=9, group=lambda length: length // 10)
    assert tens == [[2], [1, 3, 0]]


def test_few_sentences_are_shared_out_among_the_workers():
    sizes = [rows_for(n, most=64, workers=2) for n in (0, 1, 5, 100, 1000)]
    assert sizes == [1, 1, 3, 50, 64]


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 200), st.integers(1, 20))
def test_every_sentence_once_within_the_budget_longest_first(lengths, tokens, rows):
    batches = batches_by_length(lengths, tokens=tokens, rows=rows)
    flat = [index for batch in batches for index in batch]
    assert sorted(flat) == list(range(len(lengths)))
    assert [lengths[i] for i in flat] == sorted(lengths, reverse=True)
    for batch in batches:
        assert len(batch) <= rows
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= tokens


def test_windows_take_no_more_than_they_need():
    taken = []
    stream = windows((taken.append(i) or i for i in range(10)), 4)
    assert next(stream) == [0, 1, 2, 3]
    assert taken == [0, 1, 2, 3]
    assert [len(window) for window in stream] == [4, 2]
