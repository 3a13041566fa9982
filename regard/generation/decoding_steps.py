"""Decoding one token at a time: what the model predicted, what was kept of it, what was chosen.

The steps are those of the search or the sampling itself, so they end at the answer that
`model.translate` and `model.generate` give.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.generation.beam import beam_search
from regard.generation.predictions import decoder_prompt
from regard.generation.sampling import sample, shape
from regard.generation.search import (
    BeamTree,
    Hypothesis,
    SamplingOptions,
    SearchOptions,
    build_tree,
)
from regard.generation.stepper import (
    DecoderStepper,
    Stepper,
    SuppressingStepper,
    TranslationStepper,
)
from regard.generation.torch_engine import ArraySteps, pad_ids
from regard.generation.tracing import steppable
from regard.generation.translator import translator_limits
from regard.model import Model
from regard.tap import listen
from regard.text.tokenizer import TokenTexts, suppressed_ids
from regard.trace.capture import TolerantEditor
from regard.trace.edit import Edit

N_CANDIDATES = 8


@dataclass(frozen=True)
class StepCandidate:
    """One possible token of a step."""

    id: int
    rank: int  # 0 is the most probable token
    log_prob: float  # as the model predicts it
    scaled: float | None  # divided by the temperature; None at temperature 0
    cut: str  # "top_k" or "top_p" if that option excludes it, otherwise empty
    probability: float  # after temperature, top-k and top-p


@dataclass(frozen=True)
class DecodingStep:
    """The most probable tokens of one step, and the one that was written."""

    chosen: int
    candidates: tuple[StepCandidate, ...]  # the chosen one is last if it is not among the best


@dataclass(frozen=True)
class SampledText:
    """A text that was sampled, step by step."""

    prompt_ids: list[int]
    ids: list[int]  # written after the prompt, without the end token
    finished: bool  # True if the model ended the text itself
    steps: tuple[DecodingStep, ...]  # of each id, and of the end token if the model wrote it


@dataclass(frozen=True)
class SearchedText:
    """The result of a beam search, and every sequence it considered."""

    best: Hypothesis
    tree: BeamTree


def describe_step(
    log_probs: Float[Tensor, "vocab"],
    chosen: int,
    text: Sequence[int] = (),
    options: SamplingOptions | None = None,
    *,
    count: int = N_CANDIDATES,
) -> DecodingStep:
    """Return the best candidates of a distribution and what sampling options make of them."""
    options = options or SamplingOptions()
    known = log_probs.float().cpu().numpy()
    final = shape(known, text, options)
    only_k = SamplingOptions(temperature=options.temperature, top_k=options.top_k)
    after_k = shape(known, text, only_k)
    best = log_probs.topk(min(count, len(log_probs))).indices.tolist()
    ids: list[int] = [id for id in best if known[id] > -inf]
    ids += [] if chosen in ids else [chosen]
    heat = options.temperature

    def candidate(id: int) -> StepCandidate:
        value, kept = float(log_probs[id]), float(final[id]) > -inf
        cut = "" if kept or heat == 0 else "top_k" if after_k[id] == -inf else "top_p"
        rank = int((log_probs > log_probs[id]).sum())
        scaled = None if heat == 0 else value / heat
        return StepCandidate(id, rank, value, scaled, cut, exp(float(final[id])))

    return DecodingStep(chosen, tuple(candidate(id) for id in ids))


class _ForcingStepper(Stepper):
    """One row that remembers its predictions, starts with forced tokens and has no barred ones."""

    def __init__(self, inner: Stepper, forced: Sequence[int], barred: Sequence[int]) -> None:
        self.inner, self.forced = inner, list(forced)
        self.barred = torch.tensor(barred, dtype=torch.long, device=inner.device)
        self.n_rows, self.device = inner.n_rows, inner.device
        self.predicted: list[Tensor] = []

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        log_probs = self.inner.step(ids).index_fill(1, self.barred, -inf)
        self.predicted.append(log_probs[0])
        if len(self.predicted) > len(self.forced):
            return log_probs
        certain = torch.full_like(log_probs, -inf)
        certain[:, self.forced[len(self.predicted) - 1]] = 0.0
        return certain

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        self.inner.keep(rows)
        self.n_rows = len(rows)


@torch.inference_mode()
def sample_steps(
    model: Model,
    prompt: str,
    options: SamplingOptions,
    *,
    forced: Sequence[int] = (),
    edits: Sequence[Edit] = (),
    count: int = N_CANDIDATES,
) -> SampledText:
    """Continue a prompt as `model.generate` does, and record every step.

    Args:
        forced: tokens to write first. They use up as many random numbers as drawn ones, so forcing
            what would have been drawn changes nothing.
        count: most probable candidates to record in each step.
    """
    tokenizer, ids = decoder_prompt(model, prompt, options)
    editors = [TolerantEditor(edit) for edit in edits]
    lengths = torch.tensor([len(ids)], device=model.device)
    suppressed = suppressed_ids(tokenizer, model.config.n_vocab)
    barred = [id for id in suppressed if id not in forced]  # a reader may force any token
    stepper = _ForcingStepper(DecoderStepper(steppable(model, editors), lengths), forced, barred)
    with listen(*editors):
        (found,) = sample(ArraySteps(stepper), [ids], options, end_id=tokenizer.end_id)
    end = [] if tokenizer.end_id is None or not found.finished else [tokenizer.end_id]
    written = [*found.ids, *end]
    steps = tuple(
        describe_step(predicted, id, [*ids, *found.ids[:i]], options, count=count)
        for i, (predicted, id) in enumerate(zip(stepper.predicted, written, strict=False))
    )
    return SampledText(ids, found.ids, found.finished, steps)


@torch.inference_mode()
def search_tree(
    model: Model,
    source_ids: Sequence[int],
    *,
    prefix: Sequence[int] = (),
    edits: Sequence[Edit] = (),
    search: SearchOptions,
) -> SearchedText:
    """Translate one source as `model.translate` does, and record every sequence considered.

    Args:
        prefix: tokens with which the translation must start, without the start token.
    """
    _, tokenizer = model.translation_tokenizers()
    editors = [TolerantEditor(edit) for edit in edits]
    limits = translator_limits(model.extras, model.config.to_dict())
    options = replace(search, beam_tree=True).with_defaults(
        limits["ratios"], limits["max_positions"]
    )
    start_id, end_id = tokenizer.required_id("start"), tokenizer.required_id("end")
    ends: dict[str, Any] = {"start_id": start_id, "end_id": end_id}
    prefix = prefix or getattr(model.module, "forced_ids", ())
    if prefix and prefix[-1] == end_id:  # nothing is left to search
        return SearchedText(Hypothesis(list(prefix[:-1]), [], 0.0), BeamTree(()))
    with listen(*editors):
        inner = TranslationStepper(
            steppable(model, editors), *pad_ids([list(source_ids)], model.device)
        )
        stepper = SuppressingStepper(
            inner,
            suppressed_ids(tokenizer, model.config.n_vocab),
            end_id=end_id,
            min_length=options.min_length(len(source_ids)),
        )
        forced = torch.tensor([list(prefix)], device=model.device) if prefix else None
        limit = options.limit(len(source_ids))
        (found,) = beam_search(stepper, [limit], options, **ends, prefix=forced)
    return SearchedText(found[0], build_tree(found[0].events, TokenTexts(tokenizer)))


@torch.inference_mode()
def target_steps(
    model: Model,
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    *,
    edits: Sequence[Edit] = (),
    count: int = N_CANDIDATES,
) -> tuple[DecodingStep, ...]:
    """Return the distribution at each token of a translation, given the tokens before it."""
    _, tokenizer = model.translation_tokenizers()
    editors = [TolerantEditor(edit) for edit in edits]
    read = [tokenizer.required_id("start"), *target_ids]
    source, target = (torch.tensor([list(x)], device=model.device) for x in (source_ids, read))
    with listen(*editors):
        log_probs = torch.log_softmax(model.module.eval()(source, target)[0].float(), dim=-1)
    return tuple(
        describe_step(line, id, count=count) for line, id in zip(log_probs, target_ids, strict=True)
    )
