"""A model's architecture as a table: what it is made of, with shapes, parameters and FLOPs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import nn

from regard.attention.multi_head import MultiHeadAttention
from regard.layers.embedding import TokenEmbedding
from regard.layers.feed_forward import FeedForward
from regard.layers.patch import ConvolutionStem, PatchEmbedding
from regard.layers.position import LearnedPositions
from regard.layers.stack import SubLayer

N_TOKEN = 128
"""The length of text for which FLOPs are counted unless another is named."""


@dataclass(frozen=True)
class SummaryRow:
    """One part of a model, or several that are alike."""

    path: str
    kind: str
    shape: str
    parameters: int
    """Of all these parts together."""
    flops: int
    """For one token, of all these parts together: a multiplication and an addition make two."""
    count: int = 1


@dataclass(frozen=True)
class Summary:
    """What a model is made of."""

    title: str
    rows: tuple[SummaryRow, ...]
    parameters: int
    memory: int
    """Bytes that the parameters take."""
    n_token: int
    """The length that the FLOPs of attention are counted for."""
    given: str = "texts"
    """What the model reads."""

    @property
    def flops(self) -> int:
        """Multiplications and additions for one token (source and target token, if it has both)."""
        return sum(row.flops for row in self.rows)

    def __str__(self) -> str:
        head = ("part", "kind", "shape", "parameters", "FLOPs/token")
        body = [
            (
                row.path,
                row.kind if row.count == 1 else f"{row.count} × {row.kind}",
                row.shape,
                f"{row.parameters:,}",
                f"{row.flops:,}",
            )
            for row in self.rows
        ]
        total = ("total", "", _size(self.memory), f"{self.parameters:,}", f"{self.flops:,}")
        lines = [head, *body, total]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
        texts = [_line(line, widths) for line in lines]
        end = f"FLOPs for {self.given} of {self.n_token} tokens"
        return "\n".join([self.title, rule, texts[0], rule, *texts[1:-1], rule, texts[-1], end])


def summarize(model: nn.Module, *, n_token: int | None = None) -> Summary:
    """The model's parts in order, layers that are alike in one row.

    Args:
        n_token: the length that FLOPs are counted for: of a text 128, of an image its patches.
    """
    embeddings = [one for one in model.modules() if isinstance(one, PatchEmbedding)]
    n_token = n_token or (len(embeddings[0].learned) if embeddings else N_TOKEN)
    rows = list(_parts(model, "", n_token))
    if getattr(model, "tied", False):  # the embedding's matrix serves twice
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
    """One row for each part that is worth one; what has none of its own is looked into."""
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
    """The row of a part, or None for one that is looked into."""
    n_parameters = sum(p.numel() for p in module.parameters())
    if isinstance(module, SubLayer):
        inner = _row(module.inner, module.inner.path, n_token)
        assert inner is not None
        return replace(inner, parameters=n_parameters)
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        shape = " × ".join(str(n) for n in module.normalized_shape)
        return SummaryRow(path, type(module).__name__, shape, n_parameters, 0)
    if isinstance(module, ConvolutionStem):
        return _stem_row(module, path, n_parameters)
    return _matrix_row(module, path, n_token, n_parameters)


def _matrix_row(module: nn.Module, path: str, n_token: int, n_parameters: int) -> SummaryRow | None:
    """The row of a part that multiplies with matrices, or looks rows of one up."""
    if isinstance(module, MultiHeadAttention):
        shared = "" if module.n_kv_heads == module.n_heads else f" on {module.n_kv_heads}"
        shape = f"{module.n_heads}{shared} heads, d_k {module.d_k}, d_v {module.d_v}"
        pairs = 2 * n_token * module.n_heads * (module.d_k + module.d_v)
        return SummaryRow(path, "attention", shape, n_parameters, _matrices(module) + pairs)
    if isinstance(module, FeedForward):
        shape = f"{module.to_hidden.in_features} → {module.to_hidden.out_features}"
        kind = f"feed-forward, {module.activation}"
        return SummaryRow(path, kind, shape, n_parameters, _matrices(module))
    if isinstance(module, nn.Linear):
        shape = f"{module.in_features} → {module.out_features}"
        return SummaryRow(path, "linear", shape, n_parameters, _matrices(module))
    if isinstance(module, TokenEmbedding | LearnedPositions | nn.Embedding):
        shape = f"{module.weight.size(0)} × {module.weight.size(1)}"
        return SummaryRow(path, _NAMES.get(type(module), "embedding"), shape, n_parameters, 0)
    if n_parameters and not list(module.children()):
        kind = type(module).__name__
        return SummaryRow(path, kind, module.extra_repr(), n_parameters, _matrices(module))
    return None


def _stem_row(stem: ConvolutionStem, path: str, n_parameters: int) -> SummaryRow:
    """The row of convolutions, the first of which sees several places of each patch."""
    halvings = list(stem.halvings.children())
    places = [4**n for n in reversed(range(len(halvings)))]
    flops = sum(n * _matrices(one) for n, one in zip(places, halvings, strict=True))
    widths = " → ".join(str(one.get_parameter("weight").size(0)) for one in halvings)
    return SummaryRow(path, "convolutions", widths, n_parameters, flops + _matrices(stem.mix))


_NAMES: dict[type, str] = {TokenEmbedding: "token embedding", LearnedPositions: "learned positions"}


def _matrices(module: nn.Module) -> int:
    """FLOPs of all matrix products with one vector."""
    return sum(2 * p.numel() for p in module.parameters() if p.dim() > 1)


def _together(rows: list[SummaryRow]) -> Iterator[SummaryRow]:
    """Rows of layers that are alike, as one row where the first of them stood."""
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


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    left = [cell.ljust(width) for cell, width in zip(cells[:3], widths[:3], strict=True)]
    right = [cell.rjust(width) for cell, width in zip(cells[3:], widths[3:], strict=True)]
    return "  ".join([*left, *right]).rstrip()


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
