"""The error tree, and sentences that end with the nearest names."""

import pytest

from regard import errors
from regard.errors import RegardError, nearest

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, RegardError) and kind is not RegardError
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_also_one_that_python_programs_expect(kind):
    assert issubclass(kind, ValueError | OSError | ImportError)


def test_the_nearest_names_are_listed_best_first():
    sites = ["encoder.layers.0.self", "encoder.layers.1.self", "decoder.layers.0.cross"]
    assert nearest("encoder.layer.1.self", sites).startswith(
        "the nearest are encoder.layers.1.self, encoder.layers.0.self"
    )


def test_a_single_candidate_is_in_the_singular():
    assert nearest("atention", ["attention"]) == "the nearest is attention"


def test_if_no_name_is_similar_the_first_ones_are_shown():
    assert nearest("zzz", ["b", "a", "d", "c"]) == "the nearest are a, b, c"


def test_without_candidates_there_are_none():
    assert nearest("anything", []) == "there are none"


def test_a_name_given_twice_is_listed_once():
    assert nearest("site", ["site", "site"]) == "the nearest is site"


def test_the_number_of_names_is_limited():
    assert nearest("head", [f"head{i}" for i in range(9)], count=2).count("head") == 2
