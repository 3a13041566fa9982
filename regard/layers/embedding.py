"""Token embeddings, and positions: sinusoidal, learned and rotary.

Sinusoidal and learned positions are vectors added to token embeddings; rotary positions rotate
queries and keys. (ALiBi is in regard.attention.similarity.)
"""

from collections.abc import Callable
from functools import lru_cache, partial
from math import log, pi

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import InputError, ShapeError


class TokenEmbedding(nn.Module):
    """One learned vector for each token, multiplied by sqrt(d_model) if `scaled` (section 3.4).

    The matrix can also be the projection onto the vocabulary (`project`).
    """

    def __init__(self, n_vocab: int, d_model: int, *, scaled: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_vocab, d_model))
        self.scale = d_model**0.5 if scaled else 1.0
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, ids: Int[Tensor, "batch token"]) -> Float[Tensor, "batch token d_model"]:
        if torch.compiler.is_compiling():
            return self._embed(ids)
        try:
            return self._embed(ids)
        except IndexError:
            n_vocab = len(self.weight)
            raise InputError(
                f"the token ids run from {int(ids.min())} to {int(ids.max())}, but the vocabulary "
                f"has {n_vocab} tokens, 0 to {n_vocab - 1}: encode the text with the model's "
                "tokenizer."
            ) from None

    def _embed(self, ids: Tensor) -> Tensor:
        vectors = F.embedding(ids, self.weight)
        return vectors if self.scale == 1.0 else vectors * self.scale

    def project(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Return the logits of each token of the vocabulary."""
        return F.linear(states, self.weight)

    def extra_repr(self) -> str:
        return f"{self.weight.size(0)}, {self.weight.size(1)}, scale={self.scale:g}"


POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "none")
LAYOUTS = ("interleaved", "halves")


def token_positions(
    n_token: int, *, first: int = 0, lengths: Tensor | None = None, device: torch.device
) -> Int[Tensor, "rows token"]:
    """Return the position of each token: one row for all sequences, counted from `first`.

    With padding on the left, give `lengths`, the number of real tokens up to the last one here:
    then each sequence has its own row, in which its first real token has position 0.
    """
    row = torch.arange(first, first + n_token, device=device)[None]
    if lengths is None:
        return row
    missing = first + n_token - lengths.to(device)[:, None]
    return (row - missing).clamp(min=0)


def sinusoid(
    n_position: int, d_model: int, *, layout: str = "interleaved"
) -> Float[Tensor, "token d_model"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(same), in float64.

    Vaswani et al. 2017, section 3.5; the power is taken in log space. The layout "halves" has all
    sines in front of all cosines, as in Marian.
    """
    cpu = torch.device("cpu")  # not every device has float64
    steps = torch.arange(0, d_model, 2, dtype=torch.float64, device=cpu)
    where = torch.arange(n_position, dtype=torch.float64, device=cpu)
    angles = where[:, None] * torch.exp(-log(10000.0) * steps / d_model)
    sines, cosines = angles.sin(), angles.cos()[:, : d_model // 2]
    if layout == "halves":
        return torch.cat([sines, cosines], dim=-1)
    table = torch.empty(n_position, d_model, dtype=torch.float64, device=cpu)
    table[:, 0::2], table[:, 1::2] = sines, cosines
    return table


@lru_cache(maxsize=32)
def _cached_table(
    n_position: int, d_model: int, layout: str, device: torch.device, dtype: torch.dtype
) -> Tensor:
    with torch.inference_mode(False):  # a table made during inference must serve training, too
        return sinusoid(n_position, d_model, layout=layout).to(device, dtype)


class SinusoidalPositions(nn.Module):
    """The sines and cosines of Vaswani et al. 2017, for any length."""

    def __init__(self, d_model: int, *, layout: str = "interleaved") -> None:
        super().__init__()
        self.d_model, self.layout = d_model, layout

    def forward(
        self, where: Int[Tensor, "rows token"], like: Float[Tensor, "..."], *, stop: int
    ) -> Float[Tensor, "rows token d_model"]:
        """Return the vectors of positions below `stop`, with the device and dtype of `like`."""
        if torch.compiler.is_compiling():
            return sinusoid(stop, self.d_model, layout=self.layout).to(like)[where]
        capacity = 1 << max(stop - 1, 63).bit_length()  # few tables serve all lengths
        return _cached_table(capacity, self.d_model, self.layout, like.device, like.dtype)[where]

    def extra_repr(self) -> str:
        return f"{self.d_model}, layout={self.layout!r}"


def too_long(n_tokens: int, n_positions: int) -> InputError:
    """Return the error of a sequence with more tokens than a model has positions."""
    return InputError(
        f"the sequence has {n_tokens} tokens, but this model has learned only {n_positions} "
        "positions: give it shorter sequences."
    )


class LearnedPositions(nn.Module):
    """One learned vector for each of `max_positions` positions (table 3, row E)."""

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(
        self, where: Int[Tensor, "rows token"], like: Float[Tensor, "..."], *, stop: int
    ) -> Float[Tensor, "rows token d_model"]:
        """Return the vectors of these positions, all below `stop`."""
        if stop > len(self.weight):
            raise too_long(stop, len(self.weight))
        return F.embedding(where, self.weight)

    def extra_repr(self) -> str:
        return f"{self.weight.size(0)}, {self.weight.size(1)}"


class RotaryPositions:
    """Rotates queries and keys by an angle proportional to their position (Su et al. 2021).

    Pairs are numbers i and i + d/2 of the rotated part, as in Llama.

    Args:
        theta: the slowest pair rotates once in about 2π · theta positions.
        d_rotary: how many of the d_k numbers are rotated; all by default.
        scaling: Llama 3.1's (factor, low, high, original length): pairs slower than original / low
            are slowed down by the factor, those faster than original / high are unchanged.
    """

    def __init__(
        self,
        d_k: int,
        *,
        theta: float = 10000.0,
        d_rotary: int | None = None,
        scaling: tuple[float, float, float, float] | None = None,
    ) -> None:
        self.d_k, self.theta, self.scaling = d_k, theta, scaling
        self.d_rotary = d_k if d_rotary is None else d_rotary
        if not 0 < self.d_rotary <= d_k or self.d_rotary % 2:
            raise ShapeError(
                f"rotary positions cannot rotate {self.d_rotary} of a head's {d_k} numbers: choose "
                f"an even d_rotary up to {d_k}."
            )

    def __call__(
        self, x: Float[Tensor, "batch head token d_k"], first: int
    ) -> Float[Tensor, "batch head token d_k"]:
        """Rotate vectors of which the first is at position `first`."""
        return self.at(token_positions(x.size(-2), first=first, device=x.device), x)(x, first)

    def at(
        self, where: Int[Tensor, "rows token"], like: Float[Tensor, "..."]
    ) -> Callable[[Tensor, int], Tensor]:
        """Return the rotation for these positions, with angles computed once for all layers."""
        exact = torch.promote_types(like.dtype, torch.float32)
        angles = where[:, None, :, None].to(exact) * self.frequencies().to(like.device, exact)
        return partial(_rotate, angles.cos().to(like.dtype), angles.sin().to(like.dtype))

    def frequencies(self) -> Float[Tensor, "pair"]:
        """Return the angle of each pair between neighboring positions."""
        cpu = torch.device("cpu")
        steps = torch.arange(0, self.d_rotary, 2, dtype=torch.float64, device=cpu)
        speed = torch.exp(-log(self.theta) * steps / self.d_rotary)
        if self.scaling is None:
            return speed
        factor, low, high, original = self.scaling
        turns = original * speed / (2 * pi)
        keep = ((turns - low) / (high - low)).clamp(0, 1)
        return speed * (keep + (1 - keep) / factor)


def _rotate(cos: Tensor, sin: Tensor, x: Tensor, first: int) -> Tensor:
    """Rotate the first numbers of each vector in pairs; the angles already include `first`."""
    n_pairs = cos.size(-1)
    left, right = x[..., :n_pairs], x[..., n_pairs : 2 * n_pairs]
    rotated = [left * cos - right * sin, right * cos + left * sin]
    if 2 * n_pairs < x.size(-1):
        rotated.append(x[..., 2 * n_pairs :])
    return torch.cat(rotated, dim=-1).to(x.dtype)  # under autocast angles are wider than queries
