"""Similarity functions of queries and keys.

Each compares every query with every key, E_ij = f(Q_i, K_j), and `scale` is the factor between the
result and the scores. Similarities that are dot products of transformed vectors return these in
`as_dot`, so that a fused kernel can compute them.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.tile import Grid, broadcast_lead
from regard.errors import InputError, ShapeError, UnknownNameError, nearest

Compare = Callable[[Tensor, Tensor], Tensor]


class Similarity:
    """Base of all similarities."""

    name = "similarity"
    widths: tuple[int, int] | None = None
    """The widths of queries and keys that trained weights were made for."""
    biased = False
    """True if scores also depend on the positions of query and key (see `bias`)."""

    def compare(
        self, query: Float[Tensor, "*#batch query d_q"], key: Float[Tensor, "*#batch key d_k"]
    ) -> Float[Tensor, "*#batch query key"]:
        """Return E_ij = f(Q_i, K_j) for every query i and key j."""
        raise NotImplementedError

    def scale(self, d_k: int) -> float:
        """Return the factor between similarities and scores."""
        return 1.0

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return vectors whose plain dot products are the similarities, if there are any."""
        return None

    def bias(self, grid: Grid) -> Tensor | None:
        """Return what is added to the scores because of the positions of query and key."""
        return None

    def check(self, d_q: int, d_k: int) -> None:
        """Refuse widths that cannot be compared."""
        if self.widths is not None and self.widths != (d_q, d_k):
            raise ShapeError(
                f"queries and keys are {d_q} and {d_k} wide, but this {self.name} similarity was "
                f"built for {self.widths[0]} and {self.widths[1]}."
            )
        if self.widths is None and d_q != d_k:
            raise ShapeError(
                f"queries are {d_q} wide and keys {d_k}, but {self.name} compares vectors of one "
                "width: project one of them, or use similarity=regard.General(d_q, d_k)."
            )


class DotProduct(Similarity):
    """Base of the similarities that are dot products of transformed vectors."""

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return query, key

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        query, key = self.as_dot(query, key)
        exact = torch.promote_types(query.dtype, torch.float32)  # as fused kernels do
        return query.to(exact) @ key.to(exact).transpose(-1, -2)


class Dot(DotProduct):
    """q · k."""

    name = "dot"


class ScaledDot(Dot):
    """q · k / sqrt(d_k), so that scores do not grow with the width (Vaswani et al. 2017, 3.2.1)."""

    name = "scaled_dot"

    def scale(self, d_k: int) -> float:
        return d_k**-0.5


class Cosine(DotProduct):
    """The cosine of the angle between q and k: the dot product of unit vectors."""

    name = "cosine"

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        # The smallest length keeps a zero vector zero, also in half precision.
        least = max(torch.finfo(query.dtype).tiny, 1e-12)
        return F.normalize(query, dim=-1, eps=least), F.normalize(key, dim=-1, eps=least)


class General(nn.Module, DotProduct):
    """q W k, a trained bilinear form (Luong et al. 2015)."""

    name = "general"

    def __init__(self, d_q: int, d_k: int) -> None:
        super().__init__()
        self.widths = (d_q, d_k)
        self.weight = nn.Parameter(torch.empty(d_q, d_k))
        nn.init.xavier_uniform_(self.weight)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return query @ self.weight, key

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.compare(query, key)


class Additive(nn.Module, Similarity):
    """v · tanh(W_q q + W_k k), a small network (Bahdanau et al. 2015)."""

    name = "additive"

    def __init__(self, d_q: int, d_k: int, d_hidden: int) -> None:
        super().__init__()
        self.widths = (d_q, d_k)
        self.to_query = nn.Linear(d_q, d_hidden, bias=False)
        self.to_key = nn.Linear(d_k, d_hidden, bias=False)
        self.to_score = nn.Linear(d_hidden, 1, bias=False)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return self.compare_projected(query, self.to_key(key))

    def compare_projected(self, query: Tensor, key: Tensor) -> Tensor:
        """Compare with keys that `to_key` has projected."""
        mixed = self.to_query(query).unsqueeze(-2) + key.unsqueeze(-3)
        return self.to_score(torch.tanh(mixed)).squeeze(-1)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.compare(query, key)


class Alibi(ScaledDot):
    """Scaled dot product minus a slope times the distance, one slope a head (Press et al. 2022)."""

    name = "alibi"
    biased = True

    def __init__(self, n_heads: int) -> None:
        self.n_heads = n_heads
        self.slopes = alibi_slopes(n_heads)

    def bias(self, grid: Grid) -> Tensor | None:
        if grid.lead[-1:] != (self.n_heads,):
            raise ShapeError(
                f"this alibi similarity was built for {self.n_heads} heads, but the scores have "
                f"shape {(*grid.lead, grid.n_query, grid.n_key)}, whose third axis from the end is "
                "the head."
            )
        # With cached keys the queries are the last of all positions.
        rows = grid.rows + (grid.n_key - grid.n_query)
        distance = (rows[:, None] - grid.columns).abs()
        return -torch.tensor(self.slopes, device=distance.device)[:, None, None] * distance


class BiasedDot(Dot):
    """q · k times a factor, plus a table: an additive mask, or a bias of relative positions.

    Args:
        factor: what dot products are multiplied with.
        table: broadcasts to the scores; None if nothing is added.
    """

    name = "biased_dot"

    def __init__(self, factor: float, table: Tensor | None = None) -> None:
        self.factor, self.table = factor, table
        self.biased = table is not None

    def scale(self, d_k: int) -> float:
        return self.factor

    def bias(self, grid: Grid) -> Tensor | None:
        if self.table is None:
            return None
        table = self.table.to(grid.rows.device)
        table = table.expand(*table.shape[:-2], grid.n_query, grid.n_key)
        return table if grid.is_whole() else table[..., grid.rows, :][..., grid.columns]


class RecordedScores(Dot):
    """Scores of a computation whose queries and keys are not known.

    The rows of scores stand for the queries, and unit vectors for the keys.
    """

    name = "recorded_scores"


class CustomSimilarity(Similarity):
    """A user's function of (queries, keys)."""

    name = "own function"

    def __init__(self, function: Compare) -> None:
        self.function = function

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        scores = self.function(query, key)
        lead = broadcast_lead(query.shape[:-2], key.shape[:-2])
        wanted = (*lead, query.size(-2), key.size(-2))
        if not isinstance(scores, Tensor) or tuple(scores.shape) != wanted:
            found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ShapeError(
                f"the similarity function returned {found}; for these queries and keys it must "
                f"return scores of shape {wanted}."
            )
        return scores

    def check(self, d_q: int, d_k: int) -> None:
        """Accept any widths."""


_BY_NAME = {one.name: one() for one in (Dot, ScaledDot, Cosine)}
_LEARNED = {"additive": "Additive(d_q, d_k, d_hidden)", "general": "General(d_q, d_k)"}
SIMILARITIES = (*_BY_NAME, *_LEARNED)


def as_similarity(given: "str | Similarity | Compare") -> Similarity:
    """Return the similarity for a name, a similarity object, or a function."""
    if isinstance(given, Similarity):
        return given
    if isinstance(given, str):
        if given in _BY_NAME:
            return _BY_NAME[given]
        if given in _LEARNED:
            raise InputError(
                f"similarity {given!r} has trainable weights: build it once with "
                f"regard.{_LEARNED[given]} and pass that object."
            )
        raise UnknownNameError(
            f"unknown similarity {given!r}; {nearest(given, SIMILARITIES)}. A function of "
            "(queries, keys) is also allowed."
        )
    if callable(given):
        return CustomSimilarity(given)
    raise InputError(
        f"similarity is a name ({', '.join(SIMILARITIES)}), a similarity object or a function of "
        f"(queries, keys), not a {type(given).__name__}."
    )


def make_similarity(name: str, *, d_q: int, d_k: int, d_hidden: int) -> Similarity:
    """Build the similarity of this name, with fresh weights if it has any."""
    if name == "additive":
        return Additive(d_q, d_k, d_hidden)
    if name == "general":
        return General(d_q, d_k)
    return as_similarity(name)


def alibi_slopes(n_heads: int) -> list[float]:
    """Return the slopes of Press et al. 2022: a geometric series from 2^(-8/n) down to 2^-8.

    If the number of heads is not a power of two, the slopes of the next smaller power come first,
    followed by every second one of the next larger power.
    """
    power = 1 << (n_heads.bit_length() - 1)
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    extra = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return slopes + extra[: n_heads - power]
