from hypothesis import given
from hypothesis import strategies as st

from regard.data.text_checks import SeenHashes, row_hash


def test_rows_seen_before_are_told_in_the_same_chunk_and_in_later_ones():
    seen = SeenHashes()
    assert seen.add([5, 3, 5]).tolist() == [False, False, True]
    assert seen.add([3, 4]).tolist() == [True, False]
    assert seen.add([]).tolist() == []
    assert len(seen) == 3


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=30))
def test_it_tells_what_a_set_tells(chunks):
    seen, reference = SeenHashes(), set()
    for chunk in chunks:
        expected = []
        for number in chunk:
            expected.append(number in reference)
            reference.add(number)
        assert seen.add(chunk).tolist() == expected
    assert len(seen) == len(reference)


def test_hashes_tell_sides_apart_and_are_the_same_everywhere():
    assert row_hash(["ab", "c"]) != row_hash(["a", "bc"])
    assert row_hash(["ab", "c"]) == 16542635060684481341  # no chance of the process in it
