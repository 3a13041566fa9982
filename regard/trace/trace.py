"""A trace: the attention sites, inner values, tokens and output of a run, in O(n · d) memory.

Names of TransformerLens for the values of a trace: "blocks.0.attn.hook_pattern".

Classic mistakes in attention, named from how a watched model called it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from regard.attention.softmax import upcast_half
from regard.errors import UnknownNameError, nearest
from regard.trace.site import Site

if TYPE_CHECKING:
    from regard.analysis.attribution import Attribution
    from regard.analysis.lens import Lens
    from regard.figures.formats import Figure
    from regard.trace.found_stream import FoundStream


IMAGE = "image"
"""Name of the value with the image (height × width × RGB bytes) in traces without their model."""
_SITE_TABLES = {"hook_pattern": "weights", "hook_attn_scores": "masked"}
_SITE_VECTORS = {"hook_q": "query", "hook_k": "key", "hook_v": "value", "hook_z": "context"}
_BLOCK_VALUES = {
    "hook_resid_pre": "before",
    "hook_resid_mid": "{site}.residual",
    "hook_resid_post": "{layer}.feed_forward.residual",
    "hook_attn_out": "{site}.output",
    "hook_mlp_out": "{layer}.feed_forward.output",
    "mlp.hook_post": "{layer}.feed_forward.activation",
}
ALIASES = (
    *(f"blocks.N.attn.{name}" for name in (*_SITE_TABLES, *_SITE_VECTORS)),
    *(f"blocks.N.{name}" for name in _BLOCK_VALUES),
)
"""All names; N counts self-attention sites from 0, in the order of computation."""


def is_alias(path: str) -> bool:
    """Return True for a name of TransformerLens."""
    return path.startswith("blocks.") and "hook_" in path


def read_alias(trace: Any, path: str) -> Tensor:
    """Return the tensor with this name in TransformerLens, in its layout.

    `trace` is a `Trace`. Tables are (batch, head, query, key), vectors of heads (batch, position,
    head, width), and other values (batch, position, width).
    """
    match = re.fullmatch(r"blocks\.(\d+)\.(.+)", path)
    number, name = (int(match[1]), match[2]) if match else (0, "")
    known = [alias.replace("N", str(number), 1) for alias in ALIASES]
    if path not in known:
        raise UnknownNameError(f"the trace has no {path!r}; {nearest(path, known)}.")
    sites = [one for one in trace.sites.values() if not (one.crosses or _is_cross(one.path))]
    if number >= len(sites):
        raise UnknownNameError(f"{path!r} does not exist: the trace has {len(sites)} blocks.")
    site, hook = sites[number], name.removeprefix("attn.")
    if hook in _SITE_TABLES:
        return _with_batch(site.all_batches(_SITE_TABLES[hook]))
    if hook in _SITE_VECTORS:
        part = _SITE_VECTORS[hook]
        vectors = site.all_batches(part) if part == "context" else getattr(site, part)
        return _with_batch(vectors).transpose(1, 2)
    found = [pair for one in trace.streams.values() for pair in one.sites.items()]
    own = next((ours for ours, theirs in found if theirs == site.path), site.path)
    layer = own.rpartition(".")[0]
    template = _BLOCK_VALUES[name]
    if template == "before":
        stack = layer.partition(".layers.")[0]
        before = f"{stack}.layers.{number - 1}.feed_forward.residual"
        template = before if number else f"{stack}.embedding.output"
    return trace.value(template.format(site=own, layer=layer))


def _is_cross(path: str) -> bool:
    """Return True for the cross-attention of regard's own models, which names it so."""
    return path.rpartition(".")[2] == "cross"


def _with_batch(tensor: Tensor) -> Tensor:
    return tensor.reshape(*(1,) * (4 - tensor.dim()), *tensor.shape)


@dataclass(frozen=True)
class CallFacts:
    """Arguments of the attention call at one site."""

    d_k: int | None
    """Width of queries and keys; None if they are not known."""
    factor: float = 1.0
    """What q · k was multiplied with, before and after the product."""
    dropout: float = 0.0
    softmax_over: str = "keys"
    """The axis whose weights sum to 1: "keys", "queries" or "heads"."""
    training: bool | None = None
    """The mode of the model; None if it is not an nn.Module."""


def check_calls(facts: Mapping[str, CallFacts]) -> list[str]:
    """Return a sentence for each mistake."""
    return [
        f"{site}: {sentence}"
        for site, one in facts.items()
        for sentence in (_softmax_axis(one), _scale(one), _dropout(one))
        if sentence
    ]


def _softmax_axis(facts: CallFacts) -> str:
    if facts.softmax_over == "keys":
        return ""
    return (
        f"the softmax is over the {facts.softmax_over}, so the weights of a query do not sum to 1; "
        "take it over the keys, which is dim=-1 for scores q @ k.transpose(-2, -1)."
    )


def _scale(facts: CallFacts) -> str:
    if facts.d_k is None or facts.d_k == 1 or not isclose(facts.factor, 1.0, rel_tol=1e-6):
        return ""
    return (
        f"the scores are not divided by √d_k = √{facts.d_k}, so they grow with the width and the "
        "softmax saturates; divide them, unless the weights were trained without it (as in T5)."
    )


def _dropout(facts: CallFacts) -> str:
    if not facts.dropout or facts.training:
        return ""
    if facts.training is None:
        return (
            f"{facts.dropout:g} of the weights are dropped, and a class that is not an nn.Module "
            "has no eval(): pass training=False to F.dropout when the model is used."
        )
    return (
        f"{facts.dropout:g} of the weights are dropped although the model is in eval mode; pass "
        "training=self.training to F.dropout, or dropout_p=0.0 in eval mode."
    )


@dataclass(repr=False, eq=False)
class Trace:
    """Everything that a run computed: attention sites by path, other values, tokens and output."""

    sites: dict[str, Site] = field(default_factory=dict)
    values: dict[str, Tensor] = field(default_factory=dict)
    """All other tapped values by path: residual streams, embeddings, logits, …"""
    tokens: dict[str, list[str]] = field(default_factory=dict)
    """Text of each token (or position of each patch) by side: "source", "target", "output"."""
    output: Any = None
    words: dict[str, list[int | None]] = field(default_factory=dict)
    """Index of the word that each token belongs to, by side; None for special tokens."""
    origin: Any = None
    """The model that ran, if known; it is not saved with the trace."""
    later_parts: "list[Trace]" = field(default_factory=list)
    """The traces of the following parts of a text that was translated in several."""

    unwatched: list[str] = field(default_factory=list)
    """Softmax calls of a watched model that looked like attention and were not understood."""
    facts: dict[str, CallFacts] = field(default_factory=dict)
    """How a watched model called attention, by site; they are not saved with the trace."""
    streams: "dict[str, FoundStream]" = field(default_factory=dict)
    """The residual streams that were found in a model that is not regard's, by side; not saved."""
    stream_problem: str = ""
    """Why no residual stream was found there."""
    note: str = ""
    """Why nothing was recorded, if that is so."""
    gradients: dict[str, Tensor] = field(default_factory=dict)
    """Gradients of a logit with respect to every value it depends on, by path, if requested."""

    @property
    def parts(self) -> "list[Trace]":
        """The traces of all parts of the text, this one first; often there is one."""
        return [self, *self.later_parts]

    def __repr__(self) -> str:
        first = f', trace["{next(iter(self))}"] first' if self.sites else ""
        note = f": {self.note}" if self.note else ""
        return (
            f"<Trace of {len(self.sites)} sites{first}, and {len(self.values)} other values{note}>"
        )

    def __getitem__(self, path: str) -> Any:
        """Return the `Site` of this path, the value, or the tensor with a TransformerLens name."""
        if is_alias(path) and path not in self.sites:
            return read_alias(self, path)
        if path in self.values and path not in self.sites:
            return self.values[path]
        return self._find(self.sites, "attention site", path)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the paths of the sites in the order of computation."""
        return iter(self.sites)

    def __len__(self) -> int:
        return len(self.sites)

    def site_path(self, path: str) -> str | None:
        """Return the path of a site, also for the name that regard's own models give it."""
        if path in self.sites:
            return path
        return next((x.sites[path] for x in self.streams.values() if path in x.sites), None)

    def value(self, path: str) -> Tensor:
        """Return a value that does not belong to an attention site, by its whole path."""
        return self._find(self.values, "value", path)

    def _find(self, entries: dict[str, Any], what: str, path: str) -> Any:
        if path not in entries:
            why = self.note or nearest(path, entries)
            raise UnknownNameError(f"the trace has no {what} {path!r}; {why}.")
        return entries[path]

    def check(self) -> list[str]:
        """Return a sentence for each classic mistake that a watched model makes.

        These are a softmax over the wrong axis, scores that are not divided by √d_k, and dropout
        that is on outside training. An empty list means that none was found.
        """
        return check_calls(self.facts)

    def to_dict(self) -> dict[str, np.ndarray]:
        """Return everything as NumPy arrays by path, with the weights and contexts of all sites."""
        found = dict(self.values)
        for path, site in self.sites.items():
            found |= {f"{path}.{name}": getattr(site, name) for name in ("query", "key", "value")}
            for name in ("weights", "context"):
                found[f"{path}.{name}"] = site.all_batches(name)
        return {path: upcast_half(x.detach()).cpu().numpy() for path, x in found.items()}

    def save(self, path: str | Path) -> None:
        """Write the trace to a safetensors file."""
        from regard.trace.serialization import save_trace

        save_trace(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read a trace; its tensors are mapped from the file, not read into memory."""
        from regard.trace.serialization import load_trace

        return load_trace(Path(path))

    def html(
        self, path: str | Path, *, title: str = "", megabytes: float | None = None, batch: int = 0
    ) -> None:
        """Write the explorer with this trace to an HTML file that needs no network.

        Args:
            title: name of the model on the page.
            megabytes: size limit; numbers are rounded, and the page shows fewer digits, to keep
                to it. By default all numbers have at least the precision of float16.
            batch: index of the sequence in the batch.
        """
        # By name, because the server and figures packages import this one.
        import_module("regard.server.html_export").write_html(
            self, Path(path), title=title, megabytes=megabytes, batch=batch
        )

    def figure(  # noqa: PLR0913  one option for each thing to choose
        self,
        kind: str,
        *,
        site: str | None = None,
        head: int | None = None,
        query: int | None = None,
        key: int | None = None,
        style: str | None = None,
        queries: str = "rows",
        hide_special: bool = False,
        other: "Trace | None" = None,
        other_site: str | None = None,
        other_head: int | None = None,
        language: str = "en",
    ) -> "Figure":
        """Draw a figure to `save` as .svg, .png, .pdf, and .gif, .webp or .mp4 if it moves.

        Args:
            kind: a kind of `regard figure --help` that shows a model at work, or "architecture".
            site: path of an attention site; the most readable one by default.
            query: index of the query of figures that show one, of the position of "attribution", or
                of the first position of "lens".
            key: index of the word that the query of "reference" may refer to.
            style: "circles" or "heat", for "pattern".
            queries: "rows" or "columns", where grids have their queries.
            hide_special: leave out tokens that belong to no word, such as [CLS].
            other: another run, for "compare"; with `other_site` and `other_head` another head.
            language: "en" or "ko".
        """
        figures = import_module("regard.figures.kinds")
        view = figures.HeadView(
            self, site, head, query, style, language, key, queries, hide_special=hide_special
        )
        return figures.head_figure(
            kind, view, other=other, other_site=other_site, other_head=other_head
        )

    def lens(self, *, count: int = 5, rows: slice | None = None, batch: int = 0) -> "Lens":
        """Return the most probable tokens or classes if the model stopped after each sub-layer.

        Args:
            count: number of tokens or classes at each station and position.
            rows: the positions to read; all by default.
            batch: index of the sequence in the batch.
        """
        read = import_module("regard.analysis.lens").lens
        return read(self, count=count, rows=rows, batch=batch)

    def attribution(
        self,
        token: str | int | None = None,
        *,
        position: int | None = None,
        relative_to: str | int | None = None,
        batch: int = 0,
    ) -> "Attribution":
        """Return how much each part of the model adds to the logit of a token or class.

        Args:
            token: an id, a token of the vocabulary or a class; what was answered by default.
            position: where it is predicted; by default the last token of a language model, the
                first gap of a masked text, the first token of a translation.
            relative_to: another token, whose logit is subtracted.
            batch: index of the sequence in the batch.
        """
        split = import_module("regard.analysis.attribution").attribution
        return split(self, token, position=position, relative_to=relative_to, batch=batch)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Show the explorer in a notebook."""
        return import_module("regard.server.html_export").mimebundle(self)
