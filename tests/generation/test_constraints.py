import pytest

from regard.errors import InputError
from regard.generation.beam import PhraseProgress, constrained_search
from regard.generation.search import SearchOptions
from tests.generation.tables import END, START, Tables, every_sequence


def search(seed, limit, phrases, **options):
    options = SearchOptions(**options)
    return constrained_search(Tables([seed]), limit, options, phrases, start_id=START, end_id=END)


def contains(ids, phrase):
    return any(ids[i : i + len(phrase)] == phrase for i in range(len(ids) - len(phrase) + 1))


@pytest.mark.parametrize("phrases", [[[2]], [[3, 2]], [[3, 3], [2]]])
@pytest.mark.parametrize("seed", range(3))
def test_an_exhaustive_beam_finds_the_best_sequence_with_the_phrases(seed, phrases):
    found = search(seed, 4, phrases, beam=400)
    score, ids = next(
        (score, ids)
        for score, ids in every_sequence(seed, 4, lambda length: length)
        if all(contains(ids, phrase) for phrase in phrases)
    )
    assert found[0].score == pytest.approx(score, abs=1e-5)
    assert found[0].ids == ids


@pytest.mark.parametrize("beam", [1, 4])
def test_phrases_appear_with_any_beam(beam):
    for seed in range(10):
        found = search(seed, 12, [[3, 2], [2, 2]], beam=beam)
        assert contains(found[0].ids, [3, 2])
        assert contains(found[0].ids, [2, 2])


def test_progress_by_hand():
    progress = PhraseProgress(((5, 6, 7), (6,)))
    assert progress.next_tokens() == [5, 6]
    inside = progress.after(5).after(6)
    assert (inside.n_tokens, inside.next_tokens()) == (2, [7])
    assert inside.after(7).n_tokens == 3
    broken = inside.after(9)
    assert (broken.n_tokens, broken.complete) == (0, False)
    assert inside.after(7).after(6).complete


def test_a_limit_too_small_gives_nothing_and_empty_phrases_are_refused():
    assert search(1, 2, [[2, 3, 2]]) == []
    with pytest.raises(InputError, match="has no tokens"):
        search(1, 2, [[]])
