from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import RegardError
from regard.generation.search import SearchKeywords, SearchOptions


def test_limits_by_hand():
    options = SearchOptions(factor=2.0, extra=20)
    assert [options.limit(n) for n in (1, 16, 17, 40)] == [52, 52, 84, 116]
    assert SearchOptions(most=30).limit(100) == 30
    assert SearchOptions(factor=0.0, extra=0).limit(5) == 1


def test_length_ratios_of_the_training_data_are_defaults():
    options = SearchOptions().with_defaults((0.5, 3.0), None)
    assert [options.limit(n) for n in (16, 17)] == [68, 116]
    assert [options.min_length(n) for n in (16, 17, 40)] == [1, 8, 16]
    assert SearchOptions(least=0.0, factor=1.0).with_defaults((0.5, 3.0), None).limit(16) == 36
    assert SearchOptions().with_defaults(None, None).min_length(40) == 1
    assert SearchOptions(least=9.0, most=30).min_length(40) == 29


@given(st.integers(1, 500), st.integers(1, 500))
def test_limits_are_monotonic_and_equal_within_a_group(one, other):
    options = SearchOptions()
    if options.length_group(one) == options.length_group(other):
        assert options.limit(one) == options.limit(other)
    if one <= other:
        assert options.limit(one) <= options.limit(other)


def test_keywords_are_the_fields_of_the_options():
    assert list(SearchKeywords.__annotations__) == [field.name for field in fields(SearchOptions)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam is 0; it must be 1"),
        ({"beam": 2, "n_best": 3}, "n_best is 3 with a beam of 2"),
        ({"alpha": -0.5}, "alpha is -0.5"),
        ({"penalty": "gnmd"}, "penalty is 'gnmd'; .*the nearest is gnmt"),
        ({"stop": "never"}, "stop is 'never'; choose one of beam, bound, first"),
        ({"must": "neun"}, "must be a list of words"),
        ({"must": ["neun"], "prefix": "acht"}, "use one of them"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(RegardError, match=message):
        SearchOptions(**options)
