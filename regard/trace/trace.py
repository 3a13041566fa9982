"""A trace: the attention sites, inner values, tokens and output of a run, in O(n · d) memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.errors import UnknownNameError, nearest
from regard.tap import listen
from regard.trace.editor import Editor
from regard.trace.edits import Edit
from regard.trace.recorder import Recorder
from regard.trace.site import Site

if TYPE_CHECKING:
    from regard.figures.formats import Figure


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

    @property
    def parts(self) -> "list[Trace]":
        """The traces of all parts of the text, this one first; often there is one."""
        return [self, *self.later_parts]

    def __repr__(self) -> str:
        first = f', trace["{next(iter(self))}"] first' if self.sites else ""
        return f"<Trace of {len(self.sites)} sites{first}, and {len(self.values)} other values>"

    def __getitem__(self, path: str) -> Site:
        return _find(self.sites, "attention site", path)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the paths of the sites in the order of computation."""
        return iter(self.sites)

    def __len__(self) -> int:
        return len(self.sites)

    def value(self, path: str) -> Tensor:
        """Return a value that does not belong to an attention site, by its whole path."""
        return _find(self.values, "value", path)

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
        self, path: str | Path, *, title: str = "", megabytes: float = 2.5, batch: int = 0
    ) -> None:
        """Write the explorer with this trace to an HTML file that needs no network.

        Args:
            title: name of the model on the page.
            megabytes: size limit; numbers are rounded, and the page says so, to keep to it.
            batch: index of the sequence in the batch.
        """
        # By name, because the server and figures packages import this one.
        import_module("regard.server.html_export").write_html(
            self, Path(path), title=title, megabytes=megabytes, batch=batch
        )

    def figure(
        self,
        kind: str,
        *,
        site: str | None = None,
        head: int | None = None,
        query: int | None = None,
        style: str | None = None,
        language: str = "en",
    ) -> "Figure":
        """Draw a figure to `save` as .svg, .png or .pdf.

        Args:
            kind: "pattern", "lines", "heads", "steps", "alignment" or "architecture".
            site: path of an attention site; the most readable one by default.
            query: index of the query of "steps".
            style: "circles" or "heat", for "pattern".
            language: "en" or "ko".
        """
        draw = import_module("regard.figures.kinds").trace_figure
        return draw(self, kind, site=site, head=head, query=query, style=style, language=language)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Show the explorer in a notebook."""
        return import_module("regard.server.html_export").mimebundle(self)


def _find(entries: dict[str, Any], what: str, path: str) -> Any:
    if path not in entries:
        raise UnknownNameError(f"the trace has no {what} {path!r}; {nearest(path, entries)}.")
    return entries[path]


@contextmanager
def watch(*, edits: Sequence[Edit] = ()) -> Iterator[Trace]:
    """Record everything that is computed inside the block, changed by `edits`.

    with regard.watch(edits=[regard.ablate("encoder.layers.0.self", head=1)]) as trace:
        trace.output = model(x)
    """
    recorder, editor = Recorder(), Editor(edits)
    trace = Trace(values=recorder.values)
    with listen(editor, recorder):
        yield trace
    trace.sites.update(recorder.sites())
    editor.finish()
