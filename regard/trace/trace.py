"""A trace: the attention sites, inner values, tokens and output of a run, in O(n · d) memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from regard.attention.softmax import upcast_half
from regard.errors import UnknownNameError, nearest
from regard.trace.aliases import is_alias, read_alias
from regard.trace.checks import CallFacts, check_calls
from regard.trace.site import Site

if TYPE_CHECKING:
    from regard.analysis.attribution import Attribution
    from regard.analysis.lens import Lens
    from regard.figures.formats import Figure
    from regard.trace.found_stream import FoundStream


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
        """Return the `Site` of this path, or the tensor with this name in TransformerLens."""
        if is_alias(path) and path not in self.sites:
            return read_alias(self, path)
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
        """Draw a figure to `save` as .svg, .png, .pdf, and .gif or .webp if it moves.

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
        draw = import_module("regard.figures.kinds").trace_figure
        return draw(
            self,
            kind,
            site=site,
            head=head,
            query=query,
            key=key,
            style=style,
            queries=queries,
            hide_special=hide_special,
            other=other,
            other_site=other_site,
            other_head=other_head,
            language=language,
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
