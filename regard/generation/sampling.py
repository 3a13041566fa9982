"""Sampling: each next token is drawn from the model's probabilities, shaped by options.

This is the one definition for all engines that report probabilities (NumPy and torch), so a seed
gives the same text on them; it needs no torch.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol, runtime_checkable

import numpy as np

from regard.generation.search import Hypothesis, SamplingOptions

OnToken = Callable[[int, int], bool | None]
"""Called with the number of a prompt and its next token; True ends the text."""


@runtime_checkable
class TokenStepper(Protocol):
    """Rows of unfinished texts, each extended by one token at a time."""

    def step(self, ids: np.ndarray) -> np.ndarray:
        """Append `ids` (rows, new) to each row; return log-probabilities (rows, vocabulary)."""
        ...

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        ...


def sample(
    stepper: TokenStepper,
    prompts: Sequence[Sequence[int]],
    options: SamplingOptions,
    *,
    end_id: int | None = None,
    barred: Sequence[int] = (),
    seeds: Sequence[int] | None = None,
    on_token: OnToken | None = None,
) -> list[Hypothesis]:
    """Continue each prompt; a row's result does not depend on the other rows.

    Args:
        prompts: read with padding on the left if their lengths differ.
        barred: tokens that are never chosen.
        seeds: of each row; by default the options' seed plus the number of the row.
        on_token: called with (row, token) after each token; True ends the row.
    """
    given = range(options.seed, options.seed + len(prompts)) if seeds is None else seeds
    # Any integer is a seed, also a negative one.
    generators = [np.random.default_rng(seed % 2**64) for seed in given]
    texts: list[list[int]] = [[] for _ in prompts]
    log_probs: list[list[float]] = [[] for _ in prompts]
    active, ids = list(range(len(prompts))), left_padded(prompts)
    never = np.asarray(barred, np.int64)
    for _ in range(options.max_tokens):
        predicted = stepper.step(ids)
        predicted[:, never] = -inf
        kept: list[tuple[int, int]] = []  # index among the active rows, row
        for index, row in enumerate(active):
            token = choose_token(
                predicted[index], [*prompts[row], *texts[row]], options, generators[row]
            )
            if token is None:  # no token is left: the text ends here
                continue
            log_probs[row].append(float(predicted[index, token]))
            if token == end_id:
                continue
            texts[row].append(token)
            if on_token is None or not on_token(row, token):
                kept.append((index, row))
        if not kept:
            break
        if len(kept) < len(active):
            stepper.keep([index for index, _ in kept])
        active = [row for _, row in kept]
        ids = np.array([[texts[row][-1]] for row in active])
    return [
        Hypothesis(text, parts, sum(parts), finished=len(parts) > len(text))
        for text, parts in zip(texts, log_probs, strict=True)
    ]


def left_padded(prompts: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the ids of all prompts, padded on the left with 0."""
    longest = max(map(len, prompts))
    return np.array([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])


def choose_token(
    log_probs: np.ndarray,
    text: Sequence[int],
    options: SamplingOptions,
    generator: np.random.Generator,
) -> int | None:
    """Return the next token of a text; None if the options allow none."""
    if options.temperature == 0:
        allowed = without_repetition(log_probs, text, options)
        best = int(allowed.argmax())
        return best if allowed[best] > -inf else None
    shaped = shape(log_probs, text, options)
    if not np.isfinite(shaped).any():
        return None
    return draw(shaped, generator)


def shape(log_probs: np.ndarray, text: Sequence[int], options: SamplingOptions) -> np.ndarray:
    """Apply the repetition options, then temperature, top-k and top-p to one distribution."""
    shaped = without_repetition(log_probs, text, options)
    if options.temperature == 0:
        certain = np.full_like(shaped, -inf)
        best = int(shaped.argmax())
        certain[best] = 0.0 if shaped[best] > -inf else -inf
        return certain
    if not np.isfinite(shaped).any():
        return shaped
    # From the best token down, so that a tiny temperature gives 0 and -inf instead of NaN.
    wide = shaped.astype(np.float64)
    with np.errstate(over="ignore"):
        shaped = _log_softmax((wide - wide.max()) / options.temperature)
    if options.top_k is not None and options.top_k < len(shaped):
        least = np.partition(shaped, -options.top_k)[-options.top_k]
        shaped = np.where(shaped < least, -inf, shaped)
    if options.top_p is not None and options.top_p < 1:
        shaped = _nucleus(_log_softmax(shaped), options.top_p)
    return _log_softmax(shaped)


def without_repetition(
    log_probs: np.ndarray, text: Sequence[int], options: SamplingOptions
) -> np.ndarray:
    """Multiply the log-probabilities of tokens in the text, and bar repeated n-grams."""
    if options.repetition_penalty == 1.0 and options.no_repeat == 0:
        return log_probs
    shaped = log_probs.copy()
    if options.repetition_penalty != 1.0:
        shaped[sorted(set(text))] *= options.repetition_penalty
    shaped[repeating(text, options.no_repeat)] = -inf
    return shaped


def draw(log_probs: np.ndarray, generator: np.random.Generator) -> int:
    """Draw one token by its probability, with one random number."""
    sums = np.exp(log_probs).cumsum()
    drawn = int(np.searchsorted(sums, generator.random() * sums[-1], side="right"))
    return min(drawn, int(np.flatnonzero(np.isfinite(log_probs))[-1]))


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max()
    return shifted - np.log(np.exp(shifted).sum())


def _nucleus(log_probs: np.ndarray, p: float) -> np.ndarray:
    """Keep the fewest tokens whose probabilities sum to at least p (Holtzman et al. 2020)."""
    order = np.argsort(-log_probs, kind="stable")
    ordered = np.exp(log_probs[order])
    before = ordered.cumsum() - ordered
    kept = order[before < p]
    shaped = np.full_like(log_probs, -inf)
    shaped[kept] = log_probs[kept]
    return shaped


def repeating(text: Sequence[int], n: int) -> list[int]:
    """Return the tokens that would complete an n-gram that the text already contains."""
    if n < 1:
        return []
    tail = tuple(text[len(text) - n + 1 :]) if n > 1 else ()
    starts = range(len(text) - n + 1)
    return [text[i + n - 1] for i in starts if tuple(text[i : i + n - 1]) == tail]
