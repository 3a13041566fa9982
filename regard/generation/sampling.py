"""Sampling: each next token is drawn from the model's probabilities, shaped by options."""

from collections.abc import Callable, Sequence
from math import inf

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.generation.search import Hypothesis, SamplingOptions
from regard.generation.stepper import Stepper


def sample(
    stepper: Stepper,
    prompts: Int[Tensor, "rows token"],
    options: SamplingOptions,
    *,
    end_id: int | None = None,
    seen: Sequence[Sequence[int]] | None = None,
    on_token: Callable[[int, int], None] | None = None,
) -> list[Hypothesis]:
    """Continue each prompt; a row's result does not depend on the other rows.

    Args:
        stepper: has one row for each prompt.
        prompts: padded on the left if their lengths differ.
        end_id: the token that ends a text, if the model has one.
        seen: the prompts without padding, for the repetition options.
        on_token: called with (row, token) after each token.
    """
    before = list(seen) if seen is not None else prompts.tolist()
    generators = [torch.Generator().manual_seed(options.seed + row) for row in range(len(prompts))]
    texts: list[list[int]] = [[] for _ in before]
    log_probs: list[list[float]] = [[] for _ in before]
    active, ids = list(range(len(before))), prompts
    for _ in range(options.max_tokens):
        predicted = stepper.step(ids)
        shaped = shape(predicted, [[*before[row], *texts[row]] for row in active], options)
        kept: list[tuple[int, int, int]] = []  # index among the active rows, row, token
        for index, row in enumerate(active):
            if not bool(shaped[index].isfinite().any()):  # no token is left: the text ends here
                continue
            token = draw(shaped[index], generators[row])
            log_probs[row].append(float(predicted[index, token]))
            if token == end_id:
                continue
            texts[row].append(token)
            kept.append((index, row, token))
            if on_token is not None:
                on_token(row, token)
        if not kept:
            break
        if len(kept) < len(active):
            stepper.keep(torch.tensor([index for index, _, _ in kept], device=ids.device))
        active = [row for _, row, _ in kept]
        ids = torch.tensor([[token] for _, _, token in kept], device=ids.device)
    return [
        Hypothesis(text, parts, sum(parts), finished=len(parts) > len(text))
        for text, parts in zip(texts, log_probs, strict=True)
    ]


def shape(
    log_probs: Float[Tensor, "rows vocab"], texts: Sequence[Sequence[int]], options: SamplingOptions
) -> Float[Tensor, "rows vocab"]:
    """Apply the repetition options, then temperature, top-k and top-p."""
    shaped = log_probs.clone()
    for row, text in enumerate(texts):
        if options.repetition_penalty != 1.0 and text:
            known = torch.tensor(sorted(set(text)), device=shaped.device)
            shaped[row, known] *= options.repetition_penalty
        shaped[row, _repeating(text, options.no_repeat)] = -inf
    if options.temperature == 0:
        value, best = shaped.max(dim=-1, keepdim=True)
        certain = torch.where(value.isneginf(), value, 0.0)  # -inf if every token is barred
        return torch.full_like(shaped, -inf).scatter(-1, best, certain)
    shaped = torch.log_softmax(shaped / options.temperature, dim=-1)
    if options.top_k is not None and options.top_k < shaped.size(-1):
        least = shaped.topk(options.top_k, dim=-1).values[:, -1:]
        shaped = shaped.masked_fill(shaped < least, -inf)
    if options.top_p is not None and options.top_p < 1:
        shaped = _nucleus(torch.log_softmax(shaped, dim=-1), options.top_p)
    return torch.log_softmax(shaped, dim=-1)


def draw(log_probs: Float[Tensor, "vocab"], generator: torch.Generator) -> int:
    """Draw one token."""
    return int(torch.multinomial(log_probs.exp().cpu(), 1, generator=generator))


def _nucleus(log_probs: Tensor, p: float) -> Tensor:
    """Keep the fewest tokens whose probabilities sum to at least p (Holtzman et al. 2020)."""
    ordered, places = log_probs.sort(dim=-1, descending=True)
    before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    return torch.full_like(log_probs, -inf).scatter(
        -1, places, ordered.masked_fill(before >= p, -inf)
    )


def _repeating(text: Sequence[int], n: int) -> list[int]:
    """Return the tokens that would complete an n-gram that the text already contains."""
    if n < 1:
        return []
    tail = tuple(text[len(text) - n + 1 :]) if n > 1 else ()
    starts = range(len(text) - n + 1)
    return [text[i + n - 1] for i in starts if tuple(text[i : i + n - 1]) == tail]
