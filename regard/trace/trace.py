"""A trace: everything a run computed that is worth looking at, in O(n · d) memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import NotFiniteError, UnknownNameError, nearest
from regard.tap import Tapped, listen, split_path
from regard.trace.editor import Editor
from regard.trace.edits import Edit
from regard.trace.site import Site
from regard.trace.stepwise import Step, joined_pattern, joined_table

_OF_SITES = frozenset({"query", "key", "value", "pattern"})
_DESCRIBED = frozenset({"similarity", "scale", "temperature", "allowed"})  # by the pattern
_TABLES = ("compared", "scores", "masked", "weights")
_CHANGEABLE = (*_TABLES, "context")  # in the order of computation
_NOT_KEPT = _OF_SITES | _DESCRIBED | {*_TABLES}
_MAY_FORBID = frozenset({"compared", "scores", "masked"})  # by being -inf


@dataclass(repr=False)
class Trace:
    """What a run computed: attention sites by path, other inner values, tokens and output."""

    sites: dict[str, Site] = field(default_factory=dict)
    values: dict[str, Tensor] = field(default_factory=dict)
    """Every other tapped value, by its whole path: residual streams, embeddings, logits, …"""
    tokens: dict[str, list[str]] = field(default_factory=dict)
    """The pieces of text (or patches) that positions stand for, by side: "source", "target"."""
    output: Any = None
    words: dict[str, list[int | None]] = field(default_factory=dict)
    """The number of the word that each token belongs to, by side; None for special tokens."""
    origin: Any = None
    """The bundle that ran, where it is known; it is not saved with the trace."""

    def __repr__(self) -> str:
        return f"Trace({len(self.sites)} attention sites, {len(self.values)} other values)"

    def __getitem__(self, path: str) -> Site:
        if path not in self.sites:
            raise UnknownNameError(
                f"the trace has no attention site {path!r}; {nearest(path, self.sites)}."
            )
        return self.sites[path]

    def __iter__(self) -> Iterator[str]:
        """The sites' paths in the order of computation."""
        return iter(self.sites)

    def __len__(self) -> int:
        return len(self.sites)

    def value(self, path: str) -> Tensor:
        """Any other inner value, by its whole path."""
        if path not in self.values:
            raise UnknownNameError(
                f"the trace has no value {path!r}; {nearest(path, self.values)}."
            )
        return self.values[path]

    def save(self, path: str | Path) -> None:
        """Write the trace to one safetensors file."""
        from regard.trace.serialization import save_trace

        save_trace(self, Path(path))

    def html(self, path: str | Path, **options: Any) -> None:
        """Write the explorer with this trace as one page that needs no network; see write_html."""
        # By name, for what draws stands above what is drawn, and is loaded only when needed.
        import_module("regard.server.html_export").write_html(self, Path(path), **options)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """The interactive view in a notebook."""
        del options
        return import_module("regard.server.notebook").mimebundle(self)

    def figure(self, kind: str, **options: Any) -> Any:
        """A picture of one head or site to `save` as .svg, .png or .pdf; see draw_trace."""
        return import_module("regard.figures.kinds").draw_trace(self, kind, **options)

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read a trace back; tensors stay on disk until they are looked at."""
        from regard.trace.serialization import load_trace

        return load_trace(Path(path))


@contextmanager
def watch(*, edits: Sequence[Edit] = ()) -> Iterator[Trace]:
    """Record everything that is computed inside the block, changed by `edits`.

    with regard.watch(edits=[regard.ablate("encoder.layers.0.self", head=1)]) as trace:
        trace.output = model(x)
    """
    recorder, editor = Recorder(), Editor(edits)
    with listen(editor, recorder):
        yield recorder.trace
    recorder.finish()
    editor.finish()


class Recorder:
    """The listener that fills a trace, and stops at the first value that is not finite."""

    changes = False

    def __init__(self) -> None:
        self.trace = Trace()
        self._parts: dict[str, dict[str, Any]] = {}
        self._previous = ""

    def wants(self, path: str) -> bool:
        del path
        return False  # whatever n × n values it needs can be computed afterwards

    def see(self, tapped: Tapped) -> Any:
        site, first, name = split_path(tapped.path)
        value = tapped.value
        if isinstance(value, Tensor):
            self._check_finite(tapped.path, name, value)
            value = value.detach()
        if name in _OF_SITES or (name in _CHANGEABLE and tapped.changed):
            self._keep(site, first, name, value)
        if isinstance(value, Tensor) and name not in _NOT_KEPT:
            path = f"{site}.{name}" if site else name
            self.trace.values[path] = _joined(self.trace.values.get(path), value, first)
        return tapped.value

    def finish(self) -> None:
        """Make sites of the parts."""
        for path, parts in self._parts.items():
            query, key, value = (parts[x] for x in ("query", "key", "value"))
            lead = tuple(torch.broadcast_shapes(query.shape[:-2], key.shape[:-2]))
            site = Site(path, query, key, value, joined_pattern(parts["pattern"], lead))
            for name in _CHANGEABLE:
                if name in parts:
                    site.changed[name] = joined_table(site, name, parts[name])
            self.trace.sites[path] = site

    def _keep(self, site: str, first: int, name: str, value: Any) -> None:
        if first == 0 and name == "query":
            self._parts.pop(site, None)  # the site is computed anew: the last time counts
        parts = self._parts.setdefault(site, {})
        if name == "query":
            parts[name] = _joined(parts.get(name), value, first)
        elif name == "pattern":
            parts.setdefault(name, []).append(Step(first, parts["key"].size(-2), value))
        elif name in _CHANGEABLE:
            parts.setdefault(name, {})[first] = value
        else:
            parts[name] = value

    def _check_finite(self, path: str, name: str, value: Tensor) -> None:
        finite = torch.isfinite(value)
        if name in _MAY_FORBID:
            finite = finite | (value == -inf)
        if name == "temperature" or finite.all():
            self._previous = path
            return
        place = (~finite).nonzero()[0].tolist()
        before = (
            f"what feeds it ({self._previous} was still finite)" if self._previous else "the inputs"
        )
        raise NotFiniteError(
            f"{path} is {value[tuple(place)].item()} at {place}, the first value that is not "
            f"finite: look at {before}."
        )


def _joined(before: Tensor | None, value: Tensor, first: int) -> Tensor:
    """Queries of this step after those of the steps before."""
    if before is None or first == 0:
        return value
    return torch.cat([before[..., :first, :], value], dim=-2)
