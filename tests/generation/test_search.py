from hypothesis import given
from hypothesis import strategies as st

from regard.generation.search import SearchOptions


def test_limits_by_hand():
    options = SearchOptions(factor=2.0, extra=20)
    assert [options.limit(n) for n in (1, 16, 17, 40)] == [52, 52, 84, 116]
    assert SearchOptions(most=30).limit(100) == 30
    assert SearchOptions(factor=0.0, extra=0).limit(5) == 1


def test_lengths_are_those_of_the_training_data_unless_others_are_asked_for():
    options = SearchOptions().measured((0.5, 3.0))
    assert [options.limit(n) for n in (16, 17)] == [68, 116]
    assert [options.shortest(n) for n in (16, 17, 40)] == [1, 8, 16]
    assert SearchOptions(least=0.0, factor=1.0).measured((0.5, 3.0)).limit(16) == 36
    assert SearchOptions().measured(None).shortest(40) == 1
    assert SearchOptions(least=9.0, most=30).shortest(40) == 29


@given(st.integers(1, 500), st.integers(1, 500))
def test_sources_of_one_group_have_one_limit_and_longer_ones_no_smaller(one, other):
    options = SearchOptions()
    if options.group(one) == options.group(other):
        assert options.limit(one) == options.limit(other)
    if one <= other:
        assert options.limit(one) <= options.limit(other)
