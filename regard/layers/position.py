"""Where a token stands: sinusoidal, learned and rotary positions.

Sinusoidal and learned positions are vectors that are added to the tokens' embeddings. Rotary ones
turn queries and keys. (ALiBi is a similarity, and stands with those.)
"""

from collections.abc import Callable
from functools import lru_cache, partial
from math import log, pi

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import InputError, ShapeError

POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "none")
LAYOUTS = ("interleaved", "halves")


def token_positions(
    n_token: int, *, first: int = 0, lengths: Tensor | None = None, device: torch.device
) -> Int[Tensor, "rows token"]:
    """The position of each token: one row for all sequences, counted from `first`.

    `lengths` are given where padding stands on the left, and count all tokens up to the last one
    here: then every sequence has a row of its own in which its first real token has position 0.
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
    sines in front of all cosines, as Marian does.
    """
    cpu = torch.device("cpu")  # float64 exists there, whatever the device of the model
    steps = torch.arange(0, d_model, 2, dtype=torch.float64, device=cpu)
    where = torch.arange(n_position, dtype=torch.float64, device=cpu)
    angles = where[:, None] * torch.exp(-log(10000.0) * steps / d_model)
    sines, cosines = angles.sin(), angles.cos()[:, : d_model // 2]
    if layout == "halves":
        return torch.cat([sines, cosines], dim=-1)
    table = torch.empty(n_position, d_model, dtype=torch.float64, device=cpu)
    table[:, 0::2], table[:, 1::2] = sines, cosines
    return table


def _table(
    n_position: int, d_model: int, layout: str, device: torch.device, dtype: torch.dtype
) -> Tensor:
    return sinusoid(n_position, d_model, layout=layout).to(device, dtype)


@lru_cache(maxsize=32)
def _kept_table(
    n_position: int, d_model: int, layout: str, device: torch.device, dtype: torch.dtype
) -> Tensor:
    with torch.inference_mode(False):  # a table made while writing text must serve training, too
        return _table(n_position, d_model, layout, device, dtype)


class SinusoidalPositions(nn.Module):
    """The waves of Vaswani et al. 2017, for any length."""

    def __init__(self, d_model: int, *, layout: str = "interleaved") -> None:
        super().__init__()
        self.d_model, self.layout = d_model, layout

    def forward(
        self, where: Int[Tensor, "rows token"], like: Float[Tensor, "..."], *, stop: int
    ) -> Float[Tensor, "rows token d_model"]:
        """The vectors of these positions, all below `stop`, with the device and type of `like`."""
        if torch.compiler.is_compiling():
            return _table(stop, self.d_model, self.layout, like.device, like.dtype)[where]
        room = 1 << max(stop - 1, 63).bit_length()  # few tables serve all lengths
        return _kept_table(room, self.d_model, self.layout, like.device, like.dtype)[where]

    def extra_repr(self) -> str:
        return f"{self.d_model}, layout={self.layout!r}"


class LearnedPositions(nn.Module):
    """One learned vector for each of `max_positions` positions (table 3, row E)."""

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(
        self, where: Int[Tensor, "rows token"], like: Float[Tensor, "..."], *, stop: int
    ) -> Float[Tensor, "rows token d_model"]:
        """The vectors of these positions, all below `stop`."""
        del like
        if stop > len(self.weight):
            raise InputError(
                f"the sequence reaches position {stop}, but this model has learned only "
                f"{len(self.weight)} positions: give it shorter ones."
            )
        return F.embedding(where, self.weight)

    def extra_repr(self) -> str:
        return f"{self.weight.size(0)}, {self.weight.size(1)}"


class RotaryPositions:
    """Queries and keys turned by an angle that grows with their position (Su et al. 2021).

    Pairs are number i and number i + d/2 of the rotated part, as Llama has them.

    Args:
        d_k: width of a head's queries and keys.
        theta: the slowest pair turns once in about 2π · theta positions.
        d_rotary: how many of the d_k numbers are turned; all unless given.
        scaling: Llama 3.1's (factor, low, high, original length): pairs slower than original / low
            are slowed down by the factor, those faster than original / high are left alone.
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
                f"rotary positions turn pairs: {self.d_rotary} of a head's {d_k} numbers cannot be "
                f"turned, choose an even number up to {d_k}."
            )

    def __call__(
        self, x: Float[Tensor, "batch head token d_k"], first: int
    ) -> Float[Tensor, "batch head token d_k"]:
        """The vectors turned, the first of them standing at position `first`."""
        return self.at(token_positions(x.size(-2), first=first, device=x.device), x)(x, first)

    def at(
        self, where: Int[Tensor, "rows token"], like: Float[Tensor, "..."]
    ) -> Callable[[Tensor, int], Tensor]:
        """The rotation for these positions, whose angles are computed once for all layers."""
        exact = torch.promote_types(like.dtype, torch.float32)
        angles = where[:, None, :, None].to(exact) * self.frequencies().to(like.device, exact)
        return partial(_turn, angles.cos().to(like.dtype), angles.sin().to(like.dtype))

    def frequencies(self) -> Float[Tensor, "pair"]:
        """By how much each pair turns from one position to the next."""
        cpu = torch.device("cpu")
        steps = torch.arange(0, self.d_rotary, 2, dtype=torch.float64, device=cpu)
        speed = torch.exp(-log(self.theta) * steps / self.d_rotary)
        if self.scaling is None:
            return speed
        factor, low, high, original = self.scaling
        turns = original * speed / (2 * pi)
        keep = ((turns - low) / (high - low)).clamp(0, 1)
        return speed * (keep + (1 - keep) / factor)


def _turn(cos: Tensor, sin: Tensor, x: Tensor, first: int) -> Tensor:
    """The first numbers of each vector turned in pairs; the angles know where `first` is."""
    del first
    n_pairs = cos.size(-1)
    left, right = x[..., :n_pairs], x[..., n_pairs : 2 * n_pairs]
    turned = [left * cos - right * sin, right * cos + left * sin]
    if 2 * n_pairs < x.size(-1):
        turned.append(x[..., 2 * n_pairs :])
    return torch.cat(turned, dim=-1).to(x.dtype)  # under autocast angles are wider than queries
