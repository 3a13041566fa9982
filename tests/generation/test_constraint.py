from math import inf

import pytest
import torch

from regard.errors import InputError
from regard.generation.beam import BeamOptions, alternatives, beam_search
from regard.generation.constraints import Progress, constrained_search
from regard.generation.search import LengthPenalty
from tests.generation.tables import END, START, Tables, every_sequence


def contains(ids, phrase):
    return any(ids[i : i + len(phrase)] == phrase for i in range(len(ids) - len(phrase) + 1))


@pytest.mark.parametrize("phrases", [[[2]], [[3, 2]], [[2], [3]], [[3, 3], [2]]])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_sequence_with_the_phrases_is_found_as_by_exhaustive_search(seed, phrases):
    penalty = LengthPenalty("average", 1.0)
    options = BeamOptions(START, END, beam=400, penalty=penalty)
    found = constrained_search(Tables([seed]), 4, options, phrases)
    wanted = [
        (score, ids)
        for score, ids in every_sequence(seed, 4, penalty)
        if all(contains(ids, phrase) for phrase in phrases)
    ]
    assert found[0].score == pytest.approx(wanted[0][0], abs=1e-5)
    assert found[0].ids == wanted[0][1]


@pytest.mark.parametrize("beam", [1, 2, 4])
def test_phrases_appear_however_narrow_the_beam_is(beam):
    for seed in range(20):
        found = constrained_search(
            Tables([seed]), 12, BeamOptions(START, END, beam=beam), [[3, 2], [2, 2]]
        )
        assert found
        assert contains(found[0].ids, [3, 2])
        assert contains(found[0].ids, [2, 2])


def test_progress_by_hand():
    progress = Progress(((5, 6, 7), (6,)))
    assert progress.wanted() == [5, 6]
    inside = progress.after(5).after(6)
    assert (inside.tokens_met, inside.wanted()) == (2, [7])
    assert inside.after(7).tokens_met == 3
    broken = inside.after(9)
    assert (broken.tokens_met, broken.complete) == (0, False)
    assert inside.after(7).after(6).complete


def test_no_room_for_the_phrases_gives_nothing_and_empty_phrases_are_refused():
    assert constrained_search(Tables([1]), 2, BeamOptions(START, END), [[2, 3, 2]]) == []
    with pytest.raises(InputError, match="has no tokens"):
        constrained_search(Tables([1]), 2, BeamOptions(START, END), [[]])


def test_alternatives_are_the_most_probable_tokens_with_their_own_continuations():
    options = BeamOptions(START, END, beam=2)

    def make(rows):
        return Tables([7] * rows)

    found = alternatives(make, [3], options, count=4, limit=6)
    line = Tables([7])
    line.step(torch.tensor([[START]]))
    log_probs = line.step(torch.tensor([[3]]))[0]
    assert [a.token for a in found] == log_probs.argsort(descending=True).tolist()
    assert [a.log_prob for a in found] == pytest.approx(sorted(log_probs.tolist(), reverse=True))
    for one in found:
        if one.token == END:
            assert one.continuation.ids == [3]
            continue
        (alone,) = beam_search(Tables([7]), [6], options, prefix=torch.tensor([[3, one.token]]))
        assert one.continuation == alone[0]
    assert min(a.log_prob for a in found) > -inf
