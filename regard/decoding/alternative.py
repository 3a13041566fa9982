"""What else a model could have written at a position, and how it would have gone on."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from regard.decoding.beam import BeamOptions, beam_search
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.stepper import Stepper, without


@dataclass(frozen=True)
class Alternative:
    """One token that could stand at the position, and the text that begins with it."""

    token: int
    log_prob: float
    continuation: Hypothesis


def alternatives(
    make: Callable[[int], Stepper],
    prefix: list[int],
    options: BeamOptions,
    *,
    count: int = 5,
    limit: int = 200,
) -> list[Alternative]:
    """The `count` most probable tokens after `prefix`, each with its best continuation.

    Args:
        make: gives a fresh stepper with this many equal rows for the sentence.
        prefix: the tokens before the position, without the start token.
    """
    stepper = make(1)
    read = torch.tensor([[options.start_id, *prefix]], device=stepper.device)
    line = without(stepper.step(read), options.never)[0]
    log_probs, tokens = line.topk(min(count, len(line)))
    going_on = [token for token in tokens.tolist() if token != options.end_id]
    texts: dict[int, Hypothesis] = {}
    if going_on:
        begun = torch.tensor([[*prefix, token] for token in going_on], device=stepper.device)
        limits = [limit] * len(going_on)
        found = beam_search(make(len(going_on)), limits, options, prefix=begun)
        texts = {token: best[0] for token, best in zip(going_on, found, strict=True)}
    ended = Hypothesis(list(prefix), [], 0.0, finished=True)
    pairs = zip(tokens.tolist(), log_probs.tolist(), strict=True)
    return [Alternative(token, chance, texts.get(token, ended)) for token, chance in pairs]
