from math import inf, log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.generation.beam import alternatives, beam_search, greedy_search, largest
from regard.generation.search import SearchOptions
from regard.generation.stepper import Ensemble, Stepper, SuppressingStepper, TranslationStepper
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.transformer import Transformer, TransformerConfig
from tests.generation.conftest import lively
from tests.generation.tables import END, START, Tables, every_sequence

ENDS = {"start_id": START, "end_id": END}


def search(stepper, limits, *, prefix=None, **options):
    return beam_search(stepper, limits, SearchOptions(**options), **ENDS, prefix=prefix)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    limit=st.integers(1, 4),
    penalty=st.sampled_from(["gnmt", "average", "none"]),
)
def test_an_exhaustive_beam_finds_the_best_sequences(seed, limit, penalty):
    options = SearchOptions(beam=300, n_best=5, penalty=penalty, alpha=0.8, stop="bound")
    (found,) = beam_search(Tables([seed]), [limit], options, **ENDS)
    every = every_sequence(seed, limit, options.length_penalty)
    assert len(found) == min(5, len(every))
    assert len({tuple(hypothesis.ids) for hypothesis in found}) == len(found)
    scores = {tuple(ids): score for score, ids in every}
    for hypothesis, (score, _) in zip(found, every, strict=False):
        assert hypothesis.score == pytest.approx(score, abs=1e-5)
        # rounding decides between sequences of the same steps in another order
        assert scores[tuple(hypothesis.ids)] == pytest.approx(score, abs=1e-5)


def test_scores_by_hand():
    # one word (token 2) with probability 1/2, then the end with 1/4: log(1/8) over ((5+2)/6)^0.6
    class Coin(Tables):
        def __init__(self):
            super().__init__([0], 3)
            table = torch.full((3, 3, 3), -inf)
            table[:, START] = torch.tensor([-inf, -inf, log(0.5)])
            table[:, 2] = torch.tensor([-inf, log(0.25), -inf])
            self.tables = table[None]

    ((found,),) = search(Coin(), [5], beam=2, penalty="gnmt", alpha=0.6)
    assert found.ids == [2]
    assert found.log_probs == pytest.approx([log(0.5), log(0.25)])
    assert found.score == pytest.approx(log(1 / 8) / (7 / 6) ** 0.6)
    assert found.finished


@pytest.mark.parametrize(("beam", "stop"), [(1, "beam"), (2, "bound"), (5, "first"), (5, "beam")])
def test_batching_does_not_change_a_search(beam, stop):
    seeds, limits = list(range(9)), [3, 6, 2, 9, 4, 1, 7, 5, 8]
    options = {"beam": beam, "n_best": min(2, beam), "stop": stop}
    together = search(Tables(seeds), limits, **options)
    for seed, limit, found in zip(seeds, limits, together, strict=True):
        assert search(Tables([seed]), [limit], **options) == [found]


def test_a_beam_of_one_is_greedy_search():
    for seed in range(20):
        ((found,),) = search(Tables([seed]), [8], beam=1)
        stepper, token, ids = Tables([seed]), START, []
        for _ in range(8):
            token = int(stepper.step(torch.tensor([[token]])).argmax())
            if token == END:
                break
            ids.append(token)
        assert found.ids == ids


def test_recorded_events_contain_every_hypothesis():
    (found,) = search(Tables([4]), [6], beam=3, n_best=2, stop="bound", beam_tree=True)
    events = found[0].events
    finished = {event.ids: event.score for event in events if event.fate == "finished"}
    for hypothesis in found:
        ids = (*hypothesis.ids, END) if hypothesis.finished else tuple(hypothesis.ids)
        assert finished[ids] == pytest.approx(hypothesis.score)
    kept = {event.ids for event in events if event.fate == "kept"}
    assert all(event.step == 1 or event.ids[:-1] in kept for event in events)
    assert {event.fate for event in events} >= {"kept", "finished", "pruned"}


def test_a_prefix_starts_every_sequence():
    prefix = torch.tensor([[3, 2]])
    ((found,),) = search(Tables([3]), [4], beam=200, stop="bound", prefix=prefix)
    every = every_sequence(3, 4, lambda length: 1.0)
    assert found.ids in [ids for _, ids in every if ids[:2] == [3, 2]]


def test_the_score_leaves_out_the_prefix_but_the_length_counts_it():
    ((found,),) = search(Tables([3]), [5], beam=1, alpha=1.0, prefix=torch.tensor([[3, 2]]))
    tokens = [START, 3, 2, *found.ids[2:], *([END] if found.finished else [])]
    table = Tables([3]).tables[0]
    total = sum(float(table[tuple(tokens[i - 2 : i + 1])]) for i in range(3, len(tokens)))
    assert len(tokens) > 3
    assert found.score == pytest.approx(total / (len(tokens) - 1), abs=1e-6)


def test_suppressed_tokens_and_early_ends_never_occur():
    stepper = SuppressingStepper(Tables([5]), [2], end_id=END, min_length=3)
    for hypothesis in search(stepper, [6], beam=4, n_best=4)[0]:
        assert len(hypothesis.ids) >= 3
        assert 2 not in hypothesis.ids


class AlwaysEnds(Stepper):
    n_rows = 1

    def step(self, ids):
        logits = torch.zeros(1, 6)
        logits[0, 2] = 60.0
        return logits.log_softmax(dim=1)

    def keep(self, rows):
        del rows


def test_suppressing_a_certain_token_leaves_a_distribution():
    found = SuppressingStepper(AlwaysEnds(), [0], end_id=2, min_length=1).step(torch.tensor([[1]]))
    assert found[0].tolist() == pytest.approx([-inf, -log(4), -inf, *[-log(4)] * 3], abs=1e-5)


def models():
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 1, "n_decoder_layers": 2}
    transformer = Transformer(TransformerConfig(n_vocab=13, **sizes))
    return [lively(one).double() for one in (transformer, Seq2Seq(Seq2SeqConfig(n_vocab=13)))]


@pytest.mark.parametrize("model", models(), ids=["transformer", "rnn"])
@torch.no_grad()
def test_cached_batched_search_equals_scoring_with_the_whole_model(model):
    torch.manual_seed(2)
    source, lengths = torch.randint(2, 13, (5, 7)), torch.tensor([7, 2, 5, 1, 4])
    found = search(TranslationStepper(model, source, lengths), [9] * 5, beam=3, n_best=2)
    for i, hypotheses in enumerate(found):
        row = source[i : i + 1, : lengths[i]]
        (again,) = search(TranslationStepper(model, row, lengths[i : i + 1]), [9], beam=3, n_best=2)
        assert [h.ids for h in again] == [h.ids for h in hypotheses]
        for h in hypotheses:
            target = [START, *h.ids, END] if h.finished else [START, *h.ids]
            scores = torch.log_softmax(model(row, torch.tensor([target]))[0], -1)
            expected = scores[torch.arange(len(target) - 1), target[1:]]
            assert_close(torch.tensor(h.log_probs).double(), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.long
@torch.no_grad()
def test_greedy_search_equals_rereading_the_whole_target():
    model = models()[0]
    sources = [[4, 5, 6, 7], [8], [9, 10]]
    padded = torch.tensor([row + [0] * (4 - len(row)) for row in sources])
    found = greedy_search(model, padded, torch.tensor([4, 1, 2]), **ENDS)
    for source, ids in zip(sources, found, strict=True):
        expected = [START]
        while len(expected) <= SearchOptions().limit(len(source)):
            states = model.decode(torch.tensor([expected]), model.encode(torch.tensor([source])))
            expected.append(int(model.project(states)[0, -1].argmax()))
            if expected[-1] == END:
                break
        assert ids == [id for id in expected[1:] if id != END]
    assert greedy_search(model, padded[:0], torch.tensor([4])[:0], **ENDS) == []


def test_an_ensemble_averages_probabilities():
    start = torch.tensor([[START]])
    both = Ensemble([Tables([1]), Tables([2])]).step(start)
    assert_close(both.exp(), (Tables([1]).step(start).exp() + Tables([2]).step(start).exp()) / 2)
    twins = search(Ensemble([Tables([3]), Tables([3])]), [6])
    assert [h.ids for h in twins[0]] == [h.ids for h in search(Tables([3]), [6])[0]]


def test_alternatives_are_the_most_probable_tokens_with_their_best_continuations():
    def make_stepper(rows):
        return Tables([7] * rows)

    options = SearchOptions(beam=2)
    found = alternatives(make_stepper, [3], 6, options, **ENDS, count=4)
    stepper = Tables([7])
    stepper.step(torch.tensor([[START]]))
    log_probs = stepper.step(torch.tensor([[3]]))[0]
    assert [a.token for a in found] == log_probs.argsort(descending=True).tolist()
    assert [a.log_prob for a in found] == pytest.approx(sorted(log_probs.tolist(), reverse=True))
    for one in found:
        expected = [3]
        if one.token != END:
            prefix = torch.tensor([[3, one.token]])
            expected = search(Tables([7]), [6], beam=2, prefix=prefix)[0][0].ids
        assert one.continuation.ids == expected


def test_largest_equals_topk():
    numbers = torch.randn(6, 2500, generator=torch.Generator().manual_seed(3))
    numbers[0, -3:] = 9.0 + torch.arange(3)  # after the last whole block
    numbers[1] = -inf
    numbers[1, 700] = 1.0
    for count in (1, 2, 7):
        found, indices = largest(numbers, count)
        assert torch.equal(found, numbers.topk(count, dim=1).values)
        assert torch.equal(numbers.gather(1, indices), found)
