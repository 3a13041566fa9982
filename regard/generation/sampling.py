"""Writing by chance: each next token is drawn from the model's probabilities, shaped by options."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.generation.search import Hypothesis, SampleOptions
from regard.generation.stepper import Stepper, without


@torch.no_grad()
def greedy(
    model: Any,
    source_ids: Int[Tensor, "batch source"],
    source_lengths: Int[Tensor, " batch"],
    *,
    start_id: int,
    end_id: int,
    max_length: int,
) -> list[list[int]]:
    """What the model writes for each source, without start and end tokens.

    Rows that are finished leave the batch, so the others go on faster. A row that has not ended
    after `max_length` tokens is cut there.
    """
    memory = model.encode(source_ids, source_lengths)
    cache = model.new_cache()
    written: list[list[int]] = [[] for _ in source_ids]
    rows = torch.arange(len(source_ids), device=source_ids.device)
    newest = torch.full_like(rows, start_id)
    for position in range(max_length):
        if not len(rows):
            break
        states = model.decode(newest[:, None], memory, source_lengths, cache=cache)
        newest = model.project(states[:, -1], first=position).argmax(dim=-1)
        for row, token in zip(rows.tolist(), newest.tolist(), strict=True):
            if token != end_id:
                written[row].append(token)
        going = (newest != end_id).nonzero().squeeze(1)
        if len(going) < len(rows):
            rows, newest = rows[going], newest[going]
            memory, source_lengths = memory[going], source_lengths[going]
            for site in cache.values():
                site.keep(going)
    return written


def sample(
    stepper: Stepper,
    prompts: Int[Tensor, "rows token"],
    options: SampleOptions,
    *,
    seen: Sequence[Sequence[int]] | None = None,
    on_token: Callable[[int, int], None] | None = None,
) -> list[Hypothesis]:
    """One text after each prompt.

    Args:
        stepper: with one row for each prompt.
        prompts: padded on the left where they differ in length.
        seen: the prompts without padding, for the repetition options.
        on_token: called with (row, token) as soon as a token is written.
    """
    begun = list(seen) if seen is not None else prompts.tolist()
    draws = [torch.Generator().manual_seed(options.seed + row) for row in range(len(prompts))]
    texts: list[list[int]] = [[] for _ in begun]
    log_probs: list[list[float]] = [[] for _ in begun]
    open_rows, ids = list(range(len(begun))), prompts
    for _ in range(options.max_tokens):
        probable = without(stepper.step(ids), options.never)
        written = [[*begun[row], *texts[row]] for row in open_rows]
        shaped = shape(probable, written, options)
        possible = shaped.isfinite().any(dim=-1).tolist()
        tokens = [
            draw(line, draws[row]) if can else -1
            for line, row, can in zip(shaped, open_rows, possible, strict=True)
        ]
        going_on = []
        for place, (row, token) in enumerate(zip(open_rows, tokens, strict=True)):
            if token < 0:  # whatever could come next is barred: the text ends here
                continue
            log_probs[row].append(float(probable[place, token]))
            if token == options.end_id:
                continue
            texts[row].append(token)
            going_on.append(place)
            if on_token is not None:
                on_token(row, token)
        if len(going_on) < len(open_rows):
            stepper.keep(torch.tensor(going_on, dtype=torch.long, device=ids.device))
        open_rows = [open_rows[place] for place in going_on]
        if not open_rows:
            break
        ids = torch.tensor([[tokens[place]] for place in going_on], device=ids.device)
    return [
        Hypothesis(text, parts, sum(parts), finished=len(parts) > len(text))
        for text, parts in zip(texts, log_probs, strict=True)
    ]


def shape(
    log_probs: Float[Tensor, "rows vocab"], written: Sequence[Sequence[int]], options: SampleOptions
) -> Float[Tensor, "rows vocab"]:
    """Log-probabilities to draw from: repetition, then temperature, top-k and top-p."""
    shaped = log_probs.clone()
    for row, before in enumerate(written):
        if options.repetition_penalty != 1.0 and before:
            known = torch.tensor(sorted(set(before)), device=shaped.device)
            shaped[row, known] *= options.repetition_penalty
        for token in _would_repeat(before, options.no_repeat):
            shaped[row, token] = -inf
    if options.temperature == 0:
        chance, best = shaped.max(dim=-1, keepdim=True)
        certain = torch.where(chance.isneginf(), chance, 0.0)  # unless everything is barred
        return torch.full_like(shaped, -inf).scatter(-1, best, certain)
    shaped = torch.log_softmax(shaped / options.temperature, dim=-1)
    if options.top_k is not None and options.top_k < shaped.size(-1):
        least = shaped.topk(options.top_k, dim=-1).values[:, -1:]
        shaped = shaped.masked_fill(shaped < least, -inf)
    if options.top_p is not None and options.top_p < 1:
        shaped = _nucleus(torch.log_softmax(shaped, dim=-1), options.top_p)
    return torch.log_softmax(shaped, dim=-1)


def draw(log_probs: Float[Tensor, "vocab"], generator: torch.Generator) -> int:
    """One token by these probabilities."""
    return int(torch.multinomial(log_probs.exp().cpu(), 1, generator=generator))


def _nucleus(log_probs: Tensor, p: float) -> Tensor:
    """The fewest tokens whose probabilities sum to at least p (Holtzman et al. 2020)."""
    ordered, places = log_probs.sort(dim=-1, descending=True)
    before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    return torch.full_like(log_probs, -inf).scatter(
        -1, places, ordered.masked_fill(before >= p, -inf)
    )


def _would_repeat(written: Sequence[int], run: int) -> list[int]:
    """The tokens that would complete a run that was written before."""
    if run < 1 or len(written) < run - 1:
        return []
    tail = list(written[len(written) - run + 1 :]) if run > 1 else []
    starts = range(len(written) - run + 1)
    return [written[i + run - 1] for i in starts if list(written[i : i + run - 1]) == tail]
