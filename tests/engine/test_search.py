from hypothesis import given
from hypothesis import strategies as st

from regard.engine.search import SearchOptions


def test_limits_by_hand():
    options = SearchOptions(factor=2.0, extra=20)
    assert [options.limit(n) for n in (1, 16, 17, 40)] == [52, 52, 84, 116]
    assert SearchOptions(most=30).limit(100) == 30
    assert SearchOptions(factor=0.0, extra=0).limit(5) == 1


@given(st.integers(1, 500), st.integers(1, 500))
def test_sources_of_one_group_have_one_limit_and_longer_ones_no_smaller(one, other):
    options = SearchOptions()
    if options.group(one) == options.group(other):
        assert options.limit(one) == options.limit(other)
    if one <= other:
        assert options.limit(one) <= options.limit(other)
