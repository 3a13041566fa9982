"""Softmax over the keys of each query, with a temperature."""

from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import InputError

Temperature = float | int | Tensor


def check_temperature(temperature: Temperature) -> None:
    """Refuse a negative temperature, or one that differs between keys."""
    if isinstance(temperature, Tensor) and temperature.dim() and temperature.shape[-1:] != (1,):
        raise InputError(
            f"temperature has shape {tuple(temperature.shape)}; give one number, or a tensor whose "
            "last axis (keys) is 1, such as (head, 1, 1) for one temperature per head."
        )
    if torch.compiler.is_compiling() or (
        isinstance(temperature, Tensor) and not temperature.numel()
    ):
        return  # no queries have no temperature
    low = float(temperature.detach().min() if isinstance(temperature, Tensor) else temperature)
    if not low >= 0:  # also true of NaN
        raise InputError(
            f"temperature is {low}; it must be 0 (all weight on the best key) or larger "
            "(1 leaves the scores as they are)."
        )


def softmax_over_keys(
    scores: Float[Tensor, "*batch query key"], temperature: Temperature = 1.0
) -> Float[Tensor, "*batch query key"]:
    """Turn each query's scores into weights that sum to 1: softmax(scores / temperature).

    A query whose scores are all -inf gets weights of 0, not NaN. Temperature 0 puts all weight on
    the largest score (shared equally among equals), which is also the limit.
    """
    check_temperature(temperature)
    peak = finite(scores.detach().amax(dim=-1, keepdim=True))
    if isinstance(temperature, Tensor):
        cold = temperature == 0
        warm = _normalize(torch.exp(_cool(scores - peak, temperature.masked_fill(cold, 1.0))))
        return torch.where(cold, _best_keys(scores, peak), warm)
    if temperature == 0:
        return _best_keys(scores, peak)
    return _normalize(torch.exp(_cool(scores - peak, temperature)))


def finite(peak: Tensor) -> Tensor:
    """Return 0 where the peak is -inf, because -inf - -inf would be NaN."""
    return peak.masked_fill(peak == -inf, 0.0)


def upcast_half(x: Tensor) -> Tensor:
    """Return half-precision numbers as float32, whose sums keep more digits; others unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _cool(scores: Tensor, temperature: Temperature) -> Tensor:
    """Return scores / temperature, keeping -inf: -inf / inf and its gradient would be NaN."""
    hidden = scores == -inf
    least = torch.finfo(scores.dtype).tiny  # a smaller temperature may be flushed to 0
    if isinstance(temperature, Tensor):
        temperature = temperature.to(scores.dtype).clamp(min=least)
    else:
        temperature = max(temperature, least)
    return (scores.masked_fill(hidden, 0.0) / temperature).masked_fill(hidden, -inf)


def _best_keys(scores: Tensor, peak: Tensor) -> Tensor:
    best = _normalize((scores.detach() == peak).to(scores.dtype))
    return torch.where(best >= 0, best, scores)  # always the former: gradients are 0, not absent


def _normalize(parts: Tensor) -> Tensor:
    total = parts.sum(dim=-1, keepdim=True)
    return parts / total.masked_fill(total == 0, 1.0)
