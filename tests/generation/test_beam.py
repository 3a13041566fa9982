from math import inf, log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.errors import InputError
from regard.generation.beam import BeamOptions, beam_search
from regard.generation.search import LengthPenalty
from regard.generation.stepper import Ensemble, TranslationStepper
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.transformer import Transformer, TransformerConfig
from tests.generation.tables import END, START, Tables, every_sequence


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    limit=st.integers(1, 4),
    kind=st.sampled_from(["gnmt", "average", "none"]),
)
def test_a_beam_that_holds_everything_finds_what_exhaustive_search_finds(seed, limit, kind):
    penalty = LengthPenalty(kind, 0.8)
    options = BeamOptions(START, END, beam=300, n_best=5, penalty=penalty, stop="bound")
    (found,) = beam_search(Tables([seed]), [limit], options)
    every = every_sequence(seed, limit, penalty)
    assert len(found) == min(5, len(every))
    assert len({tuple(hypothesis.ids) for hypothesis in found}) == len(found)
    own = {tuple(ids): score for score, ids in every}
    for hypothesis, (score, _) in zip(found, every, strict=False):
        assert hypothesis.score == pytest.approx(score, abs=1e-5)
        # the same steps in another order are a tie, which rounding decides
        assert own[tuple(hypothesis.ids)] == pytest.approx(score, abs=1e-5)


def test_scores_by_hand():
    # one word (token 2) with probability 1/2, then the end with 1/4: log(1/8) over ((5+2)/6)^0.6
    class Coin(Tables):
        def __init__(self):
            super().__init__([0], 3)
            table = torch.full((3, 3, 3), -inf)
            table[:, START] = torch.tensor([-inf, -inf, log(0.5)])
            table[:, 2] = torch.tensor([-inf, log(0.25), -inf])
            self.tables = table[None]

    (found,) = beam_search(Coin(), [5], BeamOptions(START, END, beam=2))
    assert found[0].ids == [2]
    assert found[0].log_probs == pytest.approx([log(0.5), log(0.25)])
    assert found[0].score == pytest.approx(log(1 / 8) / (7 / 6) ** 0.6)
    assert found[0].finished


@pytest.mark.parametrize("stop", ["beam", "bound", "first"])
@pytest.mark.parametrize("beam", [1, 2, 5])
def test_a_sentence_is_searched_alike_alone_and_in_company(beam, stop):
    seeds, limits = list(range(9)), [3, 6, 2, 9, 4, 1, 7, 5, 8]
    options = BeamOptions(START, END, beam=beam, n_best=min(2, beam), stop=stop)
    together = beam_search(Tables(seeds), limits, options)
    for seed, limit, found in zip(seeds, limits, together, strict=True):
        assert beam_search(Tables([seed]), [limit], options) == [found]


def test_a_beam_of_one_is_greedy_search():
    for seed in range(20):
        (found,) = beam_search(Tables([seed]), [8], BeamOptions(START, END, beam=1))
        stepper, token, ids = Tables([seed]), START, []
        for _ in range(8):
            token = int(stepper.step(torch.tensor([[token]])).argmax())
            if token == END:
                break
            ids.append(token)
        assert found[0].ids == ids


def test_a_wider_beam_never_scores_worse_when_it_may_search_to_the_end():
    for seed in range(30):
        scores = [
            beam_search(Tables([seed]), [5], BeamOptions(START, END, beam=b, stop="bound"))[0][
                0
            ].score
            for b in (1, 100)
        ]
        assert scores[1] >= scores[0] - 1e-6


def test_the_record_tells_every_sequence_and_why_it_died():
    record = []
    options = BeamOptions(START, END, beam=3, n_best=2, stop="bound")
    (found,) = beam_search(Tables([4]), [6], options, record=record)
    (events,) = record
    finished = {event.ids: event.score for event in events if event.fate == "finished"}
    for hypothesis in found:
        ids = (*hypothesis.ids, END) if hypothesis.finished else tuple(hypothesis.ids)
        assert finished[ids] == pytest.approx(hypothesis.score)
    kept = {event.ids for event in events if event.fate == "kept"}
    for event in events:  # every sequence grew out of one that was kept
        assert event.step == 1 or event.ids[:-1] in kept
        assert event.fate in ("kept", "finished", "pruned", "overtaken")
    assert {event.fate for event in events} >= {"kept", "finished", "pruned"}


def test_a_forced_prefix_begins_every_sequence_and_the_rest_is_the_best_after_it():
    (found,) = beam_search(
        Tables([3]),
        [4],
        BeamOptions(START, END, beam=200, stop="bound"),
        prefix=torch.tensor([[3, 2]]),
    )
    wanted = [ids for _, ids in every_sequence(3, 4, LengthPenalty("none")) if ids[:2] == [3, 2]]
    assert found[0].ids[:2] == [3, 2]
    assert found[0].ids in wanted


def test_shortest_and_never_are_obeyed():
    options = BeamOptions(START, END, beam=4, n_best=4, shortest=3, never=(2,))
    for hypothesis in beam_search(Tables([5]), [6], options)[0]:
        assert len(hypothesis.ids) >= 3
        assert 2 not in hypothesis.ids


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"beam": 0}, "beam is 0; it must be 1"),
        ({"beam": 2, "n_best": 3}, "3 best translations were asked for with a beam of 2"),
        ({"stop": "never"}, "stop is 'never'; it can be beam or bound or first"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        BeamOptions(START, END, **options)


def models():
    torch.manual_seed(1)
    transformer = Transformer(
        TransformerConfig(
            n_vocab=13, d_model=16, n_heads=2, d_ff=32, n_encoder_layers=1, n_decoder_layers=2
        )
    )
    rnn = Seq2Seq(Seq2SeqConfig(n_vocab=13))
    for model in (transformer, rnn):
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    return [transformer.double().eval(), rnn.double().eval()]


@pytest.mark.parametrize("model", models(), ids=["transformer", "rnn"])
@torch.no_grad()
def test_cached_batched_search_equals_scoring_by_the_whole_model(model):
    torch.manual_seed(2)
    source, lengths = torch.randint(2, 13, (5, 7)), torch.tensor([7, 2, 5, 1, 4])
    options = BeamOptions(START, END, beam=3, n_best=2)
    found = beam_search(TranslationStepper(model, source, lengths), [9] * 5, options)
    for i, hypotheses in enumerate(found):
        alone = TranslationStepper(model, source[i : i + 1, : lengths[i]], lengths[i : i + 1])
        (again,) = beam_search(alone, [9], options)
        assert [h.ids for h in again] == [h.ids for h in hypotheses]
        for h in hypotheses:
            target = [START, *h.ids, END] if h.finished else [START, *h.ids]
            logits = model(source[i : i + 1, : lengths[i]], torch.tensor([target]))
            scores = torch.log_softmax(logits[0], -1)[torch.arange(len(target) - 1), target[1:]]
            assert_close(torch.tensor(h.log_probs).double(), scores, atol=1e-6, rtol=1e-6)


def test_an_ensemble_averages_probabilities():
    one, two = Tables([1]), Tables([2])
    both = Ensemble([Tables([1]), Tables([2])]).step(torch.tensor([[START]]))
    mean = (one.step(torch.tensor([[START]])).exp() + two.step(torch.tensor([[START]])).exp()) / 2
    assert_close(both.exp(), mean)
    twins = beam_search(Ensemble([Tables([3]), Tables([3])]), [6], BeamOptions(START, END))
    assert [h.ids for h in twins[0]] == [
        h.ids for h in beam_search(Tables([3]), [6], BeamOptions(START, END))[0]
    ]
