"""THE definition of attention, and the choice of a faster kernel when nothing is recorded.

    query ──┐
    key ────┴─ compare ─ × scale ─ mask ─ softmax over keys ─┐
    value ───────────────────────────────────────────────────┴─ weighted sum ──▶ context

Every step is tapped under the site's name, so it can be recorded or changed.
"""

from collections.abc import Callable
from math import inf

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.attention.fused import fused_attention
from regard.attention.mask import Everything, Mask, as_mask
from regard.attention.pattern import ExactPattern
from regard.attention.similarity import Compare, Similarity, as_similarity
from regard.attention.softmax import Temperature, check_temperature, softmax_over_keys, upcast_half
from regard.attention.tile import Grid, broadcast_lead
from regard.errors import InputError, ShapeError, check_probabilities
from regard.tap import attending, listening, tap, wanted

WeightedSum = Callable[[Tensor, Tensor], Tensor]


def check_inputs(query: Tensor, key: Tensor, value: Tensor, measure: Similarity) -> None:
    """Refuse inputs that cannot be attended to."""
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        kinds = [type(x).__name__ for x in (query, key, value)]
        raise InputError(
            f"query, key and value are {kinds[0]}, {kinds[1]} and {kinds[2]}; give torch tensors, "
            "for example torch.as_tensor(query)."
        )
    shapes = [tuple(x.shape) for x in (query, key, value)]
    if not all(len(shape) > 1 and shape[-2] and shape[-1] for shape in shapes):
        raise ShapeError(
            f"query, key and value have shapes {shapes[0]}, {shapes[1]}, {shapes[2]}; each needs "
            "at least the two axes (position, width), both at least 1."
        )
    if not query.dtype == key.dtype == value.dtype or not query.dtype.is_floating_point:
        raise InputError(
            f"query, key and value are {query.dtype}, {key.dtype} and {value.dtype}; give all "
            "three in one floating-point type."
        )
    if shapes[1][-2] != shapes[2][-2]:
        raise ShapeError(
            f"there are {shapes[1][-2]} keys but {shapes[2][-2]} values; each key needs its value."
        )
    leads = [shape[:-2] for shape in shapes]
    if not leads[0] == leads[1] == leads[2]:
        try:
            broadcast_lead(*leads)
        except RuntimeError:
            raise ShapeError(
                f"the leading axes of query, key and value are {leads[0]}, {leads[1]} and "
                f"{leads[2]}; they must be equal, or 1 where they differ."
            ) from None
    measure.check(shapes[0][-1], shapes[1][-1])


def attend(
    query: Float[Tensor, "*#batch query d_q"] | Float[Tensor, "d_q"],
    key: Float[Tensor, "*#batch key d_k"],
    value: Float[Tensor, "*#batch key d_v"],
    allowed: Mask | Tensor | None = None,
    *,
    similarity: str | Similarity | Compare = "scaled_dot",
    temperature: Temperature = 1.0,
    dropout: float = 0.0,
    site: str = "attention",
) -> Float[Tensor, "*#batch query d_v"] | Float[Tensor, "*#batch d_v"]:
    """Return each query's sum of the values, weighted by its similarity to their keys.

    Args:
        query: with any leading axes, by convention (batch, head, query, d_q); or a single vector
            (d_q,), whose result is a single vector (d_v,).
        key: leading axes broadcast against those of the query.
        value: one for each key, of any width.
        allowed: which query may see which key: a mask object, or a boolean tensor in which True
            means "may see", with the two axes (query, key) or as many as the scores have.
        similarity: a name, a similarity object, or a function of (queries, keys).
        temperature: softmax(scores / temperature); 0 puts all weight on the best key.
        dropout: probability of setting a weight to 0; pass it only in training.
        site: the name under which the steps are tapped.
    """
    if isinstance(query, Tensor) and query.dim() == 1:
        options = {"similarity": similarity, "temperature": temperature, "dropout": dropout}
        return attend(query[None], key, value, allowed, **options, site=site)[..., 0, :]
    measure = as_similarity(similarity)
    mask = as_mask(allowed)
    check_inputs(query, key, value, measure)
    if type(temperature) is not float or not temperature > 0:
        check_temperature(temperature)
    if dropout:
        check_probabilities(dropout=dropout)
    pattern = ExactPattern(measure, measure.scale(key.size(-1)), temperature, mask)
    if not listening():
        return _fast(query, key, value, pattern, dropout, site)
    return tapped_attention(query, key, value, pattern, dropout=dropout, site=site)


def tapped_attention(
    query: Float[Tensor, "*#batch query d_q"],
    key: Float[Tensor, "*#batch key d_k"],
    value: Float[Tensor, "*#batch key d_v"],
    pattern: ExactPattern,
    *,
    site: str,
    dropout: float = 0.0,
    kernel: Callable[[], Tensor] | None = None,
    weighted_sum: WeightedSum | None = None,
) -> Float[Tensor, "*#batch query d_v"]:
    """Attend with every step tapped, so that listeners can record and replace it.

    Args:
        kernel: returns the context as long as no listener replaces or wants anything; by default
            the fused kernel.
        weighted_sum: makes the context from weights and values; by default their product.
    """
    inputs = (query, key, value)
    query = tap(f"{site}.query", query, "query d_q")
    key = tap(f"{site}.key", key, "key d_k")
    value = tap(f"{site}.value", value, "key d_v")
    measure = as_similarity(tap(f"{site}.similarity", pattern.similarity, ""))
    check_inputs(query, key, value, measure)  # a listener may have replaced them
    same = measure is pattern.similarity and key is inputs[1]
    scale = pattern.scale if same else measure.scale(key.size(-1))
    scale = tap(f"{site}.scale", scale, "")
    temperature = tap(f"{site}.temperature", pattern.temperature, "")
    check_temperature(temperature)
    mask = as_mask(tap(f"{site}.allowed", pattern.allowed, "query key"))
    used = ExactPattern(measure, scale, temperature, mask)
    tap(f"{site}.pattern", used, "")
    parts = (measure, scale, temperature, mask)
    before = (pattern.similarity, pattern.scale, pattern.temperature, pattern.allowed)
    pairs = zip((query, key, value, *parts), (*inputs, *before), strict=True)
    replaced = any(new is not old for new, old in pairs)
    # A fused kernel never holds these values, so a listener that wants one gets the definition.
    explicit = wanted(*(f"{site}.{name}" for name in ("compared", "scores", "masked", "weights")))
    with attending():
        if kernel is not None and not (explicit or replaced):
            context = kernel()
        elif explicit or weighted_sum is not None:
            options = {"dropout": dropout, "site": site, "weighted_sum": weighted_sum}
            context = explicit_attention(query, key, value, used, **options)
        else:
            context = _fast(query, key, value, used, dropout, site)
    return tap(f"{site}.context", context, "query d_v")


def explicit_attention(
    query: Float[Tensor, "*#batch query d_q"],
    key: Float[Tensor, "*#batch key d_k"],
    value: Float[Tensor, "*#batch key d_v"],
    pattern: ExactPattern,
    *,
    dropout: float = 0.0,
    site: str = "attention",
    weighted_sum: WeightedSum | None = None,
) -> Float[Tensor, "*#batch query d_v"]:
    """Attention step by step, as in the formulas: the definition that all kernels must equal."""
    compared = tap(f"{site}.compared", pattern.similarity.compare(query, key), "query key")
    scores = upcast_half(compared * pattern.scale)
    grid = Grid.whole(scores.shape[:-2], scores.size(-2), scores.size(-1), scores.device)
    bias = pattern.similarity.bias(grid)
    scores = tap(f"{site}.scores", scores if bias is None else scores + bias, "query key")
    masked = scores
    if not isinstance(pattern.allowed, Everything):
        masked = scores.masked_fill(~pattern.allowed.on(grid), -inf)
    masked = tap(f"{site}.masked", masked, "query key")
    weights = softmax_over_keys(masked, pattern.temperature)
    weights = tap(f"{site}.weights", weights, "query key").to(value.dtype)
    if weighted_sum is not None:
        return weighted_sum(weights, value)
    return F.dropout(weights, dropout) @ value if dropout else weights @ value


def _fast(
    query: Tensor, key: Tensor, value: Tensor, pattern: ExactPattern, dropout: float, site: str
) -> Tensor:
    """Run the fused kernel if it can compute this pattern, else the definition."""
    # Below 1e-3 a kernel that divides before it subtracts the peak loses digits, and 0 needs the
    # definition. A compiled graph cannot read a tensor of temperatures, so it takes that, too.
    cold = pattern.temperature < 1e-3
    if isinstance(cold, Tensor):
        cold = torch.compiler.is_compiling() or bool(cold.any())
    pair = None if cold else pattern.similarity.as_dot(query, key)
    if pair is None:
        return explicit_attention(query, key, value, pattern, dropout=dropout, site=site)
    context = fused_attention(*pair, value, pattern=pattern, dropout=dropout)
    if not isinstance(pattern.allowed, Everything) and _is_spoiled(context):
        return explicit_attention(query, key, value, pattern, dropout=dropout, site=site)
    return context


def _is_spoiled(context: Tensor) -> bool:
    """Return True if a NaN reached the context, perhaps from a key that the mask hides.

    Kernels add -inf to the score of a hidden pair, and NaN stays NaN; the definition replaces it.
    Other devices would have to wait for the answer, and compiled graphs cannot depend on it.
    """
    if torch.compiler.is_compiling() or not context.is_cpu:
        return False
    try:
        return bool(context.detach().sum().isnan())
    except RuntimeError:  # inside torch.func, which has no numbers to look at
        return False
