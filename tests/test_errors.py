"""The error tree: who catches what, and how a sentence ends with the nearest names."""

import pytest

from regard import errors
from regard.errors import FileError, InputError, MissingExtraError, RegardError, nearest

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, RegardError) and kind is not RegardError
]


def test_there_are_kinds_of_errors_to_check():
    assert {"ShapeError", "MaskError", "NotFiniteError", "UnknownNameError", "FileError"} <= {
        kind.__name__ for kind in KINDS
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_ours_and_also_one_that_python_programs_expect(kind):
    assert issubclass(kind, ValueError | OSError | ImportError)


def test_bad_values_are_value_errors_and_bad_files_os_errors():
    assert issubclass(InputError, ValueError)
    assert issubclass(FileError, OSError)
    assert issubclass(MissingExtraError, ImportError)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_prints_as_its_sentence(kind):
    assert str(kind("one clear sentence.")) == "one clear sentence."


def test_the_nearest_names_are_listed_best_first():
    sites = ["encoder.layers.0.self", "encoder.layers.1.self", "decoder.layers.0.cross"]
    assert nearest("encoder.layer.1.self", sites).startswith(
        "the nearest are encoder.layers.1.self, encoder.layers.0.self"
    )


def test_a_single_candidate_is_spoken_of_in_the_singular():
    assert nearest("atention", ["attention"]) == "the nearest is attention"


def test_when_nothing_is_alike_the_first_names_are_shown_all_the_same():
    assert nearest("zzz", ["b", "a", "d", "c"]) == "the nearest are a, b, c"


def test_where_there_is_nothing_to_choose_from_that_is_said():
    assert nearest("anything", []) == "there are none"


def test_a_name_given_twice_is_listed_once():
    assert nearest("site", ["site", "site"]) == "the nearest is site"


def test_no_more_names_than_asked_for():
    assert nearest("head", [f"head{i}" for i in range(9)], count=2).count("head") == 2
