"""A model's architecture as a table of parts with shapes, parameters and FLOPs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from regard.attention.multi_head import MultiHeadAttention
from regard.layers.attention_forms import attention_products
from regard.layers.embedding import LearnedPositions, TokenEmbedding
from regard.layers.feed_forward import FeedForward
from regard.layers.patch import ConvolutionStem, PatchEmbedding
from regard.layers.stack import SubLayer

N_TOKEN = 128  # the length of text for which FLOPs are counted by default


@dataclass(frozen=True)
class SummaryRow:
    """One part of a model, or several equal ones."""

    path: str
    kind: str
    shape: str
    parameters: int  # parameters of all these parts together
    flops: int  # FLOPs for one token, of all these parts together; multiply-add counts as two
    count: int = 1

    def cells(self) -> dict[str, str]:
        """Return the cells of a table by column."""
        return {
            "part": self.path,
            "kind": self.kind if self.count == 1 else f"{self.count} × {self.kind}",
            "shape": self.shape,
            "parameters": f"{self.parameters:,}",
            "FLOPs/token": f"{self.flops:,}",
        }


@dataclass(frozen=True)
class Summary:
    """The parts of a model."""

    title: str
    rows: tuple[SummaryRow, ...]
    parameters: int
    memory: int  # bytes of the parameters
    n_token: int  # the length for which the FLOPs of attention are counted
    given: str = "texts"  # the input of the model: texts or images

    @property
    def flops(self) -> int:
        """FLOPs for one token (a source and a target token for encoder–decoder models)."""
        return sum(row.flops for row in self.rows)

    def __str__(self) -> str:
        head = tuple(self.rows[0].cells())
        body = [tuple(row.cells().values()) for row in self.rows]
        memory = f"{self.memory / 1e6:,.1f} MB"
        lines = [head, *body, ("total", "", memory, f"{self.parameters:,}", f"{self.flops:,}")]
        widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
        rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
        sides = "<<<>>"  # the first three columns are flush left, the numbers right
        texts = [
            "  ".join(f"{cell:{sides[i]}{widths[i]}}" for i, cell in enumerate(line))
            for line in lines
        ]
        end = f"FLOPs for {self.given} of {self.n_token} tokens"
        return "\n".join([self.title, rule, texts[0], rule, *texts[1:-1], rule, texts[-1], end])


def summarize(model: nn.Module, *, n_token: int | None = None) -> Summary:
    """Return the model's parts in order, with equal layers in one row.

    Args:
        n_token: the length for which FLOPs are counted; 128 for texts, the number of patches for
            images by default.
    """
    embeddings = [one for one in model.modules() if isinstance(one, PatchEmbedding)]
    n_token = n_token or (len(embeddings[0].learned) if embeddings else N_TOKEN)
    rows = list(_parts(model, "", n_token))
    fills = getattr(model, "fill", None) is not None
    if fills or getattr(model, "projection", model) is None:  # the embedding is the projection
        tokens = model.get_submodule("tokens")
        assert isinstance(tokens, TokenEmbedding)
        n_vocab, d_model = tokens.weight.shape
        shape, flops = f"{d_model} → {n_vocab}", 2 * n_vocab * d_model
        rows.append(SummaryRow("projection", "the embedding again", shape, 0, flops))
    parameters = list(model.parameters())
    return Summary(
        title=type(model).__name__,
        rows=tuple(_together(rows)),
        parameters=sum(p.numel() for p in parameters),
        memory=sum(p.numel() * p.element_size() for p in parameters),
        n_token=n_token,
        given="images" if embeddings else "texts",
    )


def _parts(module: nn.Module, path: str, n_token: int) -> Iterator[SummaryRow]:
    """Yield a row for each known part, and descend into the others."""
    path = getattr(module, "path", path)
    row = _row(module, path, n_token)
    if row is not None:
        yield row
        return
    for name, parameter in module.named_parameters(recurse=False):
        shape = " × ".join(str(n) for n in parameter.shape)
        yield SummaryRow(_join(path, name), "parameter", shape, parameter.numel(), 0)
    for name, child in module.named_children():
        yield from _parts(child, _join(path, name), n_token)


def _row(module: nn.Module, path: str, n_token: int) -> SummaryRow | None:
    """Return the row of a known part; None for one whose children have rows."""
    n_parameters = sum(p.numel() for p in module.parameters())
    if isinstance(module, SubLayer):
        module, path = module.inner, module.inner.path
    found = _block(module, n_token) or _leaf(module)
    if found is None:
        return None
    kind, shape, flops = found
    return SummaryRow(path, kind, shape, n_parameters, flops)


def _block(module: nn.Module, n_token: int) -> tuple[str, str, int] | None:
    """Return kind, shape and FLOPs of a part with several matrices."""
    if isinstance(module, MultiHeadAttention):
        shared = "" if module.n_kv_heads == module.n_heads else f" on {module.n_kv_heads}"
        shape = f"{module.n_heads}{shared} heads, d_k {module.d_k}, d_v {module.d_v}"
        return "attention", shape, _matrices(module) + _attention_flops(module, n_token)
    if isinstance(module, FeedForward):
        shape = f"{module.to_hidden.in_features} → {module.to_hidden.out_features}"
        return f"feed-forward, {module.activation}", shape, _matrices(module)
    if isinstance(module, ConvolutionStem):
        halvings = list(module.halvings.children())
        cells = [4**n for n in reversed(range(len(halvings)))]  # of each patch
        flops = sum(n * _matrices(one) for n, one in zip(cells, halvings, strict=True))
        widths = " → ".join(str(one.get_parameter("weight").size(0)) for one in halvings)
        return "convolutions", widths, flops + _matrices(module.mix)
    return None


def _leaf(module: nn.Module) -> tuple[str, str, int] | None:
    """Return the same of a part with one matrix or vector."""
    if isinstance(module, nn.Linear):
        return "linear", f"{module.in_features} → {module.out_features}", _matrices(module)
    if isinstance(module, TokenEmbedding | LearnedPositions | nn.Embedding):
        return _NAMES.get(type(module), "embedding"), " × ".join(map(str, module.weight.shape)), 0
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return type(module).__name__, " × ".join(map(str, module.normalized_shape)), 0
    if list(module.parameters()) and not list(module.children()):
        return type(module).__name__, module.extra_repr(), _matrices(module)
    return None


_NAMES: dict[type, str] = {TokenEmbedding: "token embedding", LearnedPositions: "learned positions"}


def _attention_flops(module: MultiHeadAttention, n_token: int) -> int:
    """Return the FLOPs of attention without its projections, for one of `n_token` tokens."""
    form: Any = module.form
    name = type(form).__name__.lower()
    sizes = {
        "linformer": lambda: form.key_projection.size(-2),
        "longformer": lambda: form.reach.radius,
        "performer": lambda: len(form.features),
        "reformer": lambda: form.chunk,
    }
    width = module.n_heads * (module.d_k + module.d_v) // 2
    options = {"size": sizes[name]()} if name in sizes else {}
    if name == "reformer":
        options["n_rounds"] = len(form.rotations)
    products = attention_products(name, n_token, width, n_heads=module.n_heads, **options)
    return round(2 * products / n_token)


def _matrices(module: nn.Module) -> int:
    """Return the FLOPs of all matrix products with one vector."""
    return sum(2 * p.numel() for p in module.parameters() if p.dim() > 1)


def _together(rows: list[SummaryRow]) -> Iterator[SummaryRow]:
    """Merge rows of equal layers into one, in the place of the first."""
    alike: dict[object, list[SummaryRow]] = {}
    for row in rows:
        pattern = re.sub(r"\blayers\.\d+", "layers.*", row.path)
        alike.setdefault((pattern, replace(row, path="")), []).append(row)
    for (pattern, _), same in alike.items():  # type: ignore[misc]
        numbers = [int(n) for row in same for n in re.findall(r"\blayers\.(\d+)", row.path)]
        path = same[0].path
        if len(same) > 1:
            path = pattern.replace("*", f"{min(numbers)}–{max(numbers)}")
        yield replace(
            same[0],
            path=path,
            parameters=sum(row.parameters for row in same),
            flops=sum(row.flops for row in same),
            count=len(same),
        )


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
