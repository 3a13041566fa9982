"""What the server does, without the web: models, traces and pictures in one place."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from regard.analysis.heads import GLANCE, measure_heads
from regard.analysis.worked_example import DEFAULT, worked_trace
from regard.errors import InputError, UnknownNameError
from regard.generation.translator import Translation
from regard.hardware import limit_threads
from regard.server.answers import Changes, Run, run, run_changed
from regard.server.arrays import (
    Level,
    Span,
    build_level,
    check_head,
    describe,
    is_direct,
    thumbnails,
    tile,
)
from regard.server.catalog import Catalog, Entry
from regard.server.edit_json import read_edits
from regard.server.edited_search import others
from regard.server.jobs import Job
from regard.server.model_inputs import Given, check_size, n_multiplications, read_picture
from regard.server.requests import AskGeneration, AskTrace, AskTranslation, read_image
from regard.server.trace_store import PREFIX, Kept, Store, Uploads
from regard.trace.site import Site

_EXAMPLE = "example:"
_READERS = 2
"""Threads that look at traces while models compute."""
_TEXTS_AT_ONCE = 16


class GoneError(UnknownNameError):
    """A trace that is not kept, or never was."""


class Service:
    """The models, the traces, and who works on them."""

    def __init__(
        self, catalog: Catalog, *, store: Store | None = None, uploads: Uploads | None = None
    ) -> None:
        self.catalog = catalog
        self.store = store or Store()
        self.uploads = uploads or Uploads()
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="reader")

    def close(self) -> None:
        """Begin nothing more."""
        self.catalog.close()
        self._readers.shutdown(wait=False, cancel_futures=True)

    def compute(self, entry: Entry, job: Job) -> Job:
        """Let a job wait for its model."""
        return entry.worker.submit(job)

    def read(self, job: Job) -> Job:
        """Let a job look at traces, beside whatever models do."""
        self._readers.submit(job.run)
        return job

    def example(self) -> Kept:
        """The trace of the worked example, which needs no model."""
        id = self.store.id_of({})
        kept = self.store.get(id)
        if kept is None:
            trace = worked_trace(DEFAULT)
            kept = Kept(id, {}, trace, {"kind": "none", "output": None})
            self.store.put(kept)
        return kept

    def kept(self, id: str) -> Kept:
        """The trace of this id."""
        found = self.store.get(id)
        if found is None:
            raise GoneError("this trace is not kept: ask for it again with POST /api/trace.")
        return found

    def entry_of(self, kept: Kept) -> Entry:
        """The model that made a trace."""
        return self.catalog[kept.asked["model"]]

    def named(self, ask: AskTrace) -> AskTrace:
        """The request with its picture under a short name, as links have it."""
        image = ask.image
        if image is None or image.startswith((PREFIX, _EXAMPLE)):
            return ask
        return replace(ask, image=self.uploads.put(read_image(image)))

    def trace(self, ask: AskTrace, job: Job) -> Kept:
        """The trace of a request: the one that is kept, or a new one."""
        ask = self.named(ask)
        id = self.store.id_of(ask.as_json())
        kept = self.store.get(id)
        if kept is None:
            made = self._run(ask, job)
            kept = Kept(id, ask.as_json(), made.trace, made.answer)
            self.store.put(kept)
        return kept

    def describe(self, kept: Kept) -> dict[str, Any]:
        """A trace as JSON."""
        entry = self.entry_of(kept) if kept.asked else None
        with limit_threads(_cells(kept, most=GLANCE)):
            return kept.work_out("about", lambda: describe(kept, entry))

    def translate(self, ask: AskTranslation, job: Job) -> list[dict[str, Any]]:
        """The translations of texts, a few at a time."""
        job.report("loading", 0)
        model, done = self.catalog[ask.model].model(), []
        for first in range(0, len(ask.texts), _TEXTS_AT_ONCE):
            job.report("writing", first, len(ask.texts))
            part = ask.texts[first : first + _TEXTS_AT_ONCE]
            found = model.translate(part, beam=ask.beam, n_best=ask.n_best)
            done += [_told(one) for one in found]
        return done

    def generate(self, ask: AskGeneration, job: Job) -> dict[str, Any]:
        """What a decoder-only model writes after a text; told token by token."""
        job.report("loading", 0)
        model = self.catalog[ask.model].model()
        options = {name: value for name, value in vars(ask).items() if value is not None}
        prompt = options.pop("text")
        del options["model"]
        told: list[str] = []

        def on_text(text: str) -> None:
            told.append(text)
            job.report("writing", len(told), ask.max_tokens, text="".join(told))

        return asdict(model.generate(prompt, on_text=on_text, **options))

    def alternatives(self, kept: Kept, position: int, count: int, job: Job) -> list[dict[str, Any]]:
        """What else could stand at a position of a translation, and how it would go on."""
        if position >= len(kept.answer["ids"]):
            raise InputError(
                f"there is no token {position} in the answer; it has {len(kept.answer['ids'])}."
            )
        model = self.entry_of(kept).model()
        ask = AskTrace(**kept.asked)
        edits, _ = read_edits(ask.edits)
        source = self._given(self.entry_of(kept), ask).source_ids(model)
        begun = kept.answer["ids"][:position]
        return others(model, source, begun, beam=ask.beam, edits=edits, count=count, job=job)

    def tile(
        self, kept: Kept, path: str, head: int, stage: str, spans: tuple[Span, Span], job: Job
    ) -> Any:
        """Part of a head's table."""
        site = kept.trace[path]
        check_head(site, head)
        rows = spans[0].checked(site.n_query, "rows")
        columns = spans[1].checked(site.n_key, "columns")
        if is_direct(rows, columns):
            return tile(site, head, stage, rows, columns)

        def build() -> Level:
            level = build_level(site, head, stage, check=job.check)
            self.store.grow(kept, level.table.nbytes)
            return level

        return kept.work_out(("level", path, head, stage), build).part(rows, columns)

    def measures(self, kept: Kept, paths: list[str], job: Job) -> dict[str, list[dict[str, float]]]:
        """What every head of these sites is like (of all if none is named)."""

        def work(site: Site) -> list[dict[str, float]]:
            job.check()
            return [asdict(one) for one in measure_heads(site)]

        with limit_threads(_cells(kept)):
            sites = [kept.trace[path] for path in paths or kept.trace]
            return {
                one.path: kept.work_out(("measures", one.path), partial(work, one)) for one in sites
            }

    def thumbnails(self, kept: Kept, paths: list[str], size: int, job: Job) -> dict[str, Any]:
        """A picture of every head of these sites (of all if none is named)."""
        sites = [kept.trace[path] for path in paths or kept.trace]
        made = {}
        with limit_threads(_cells(kept)):
            for site in sites:
                work = partial(thumbnails, site, size, check=job.check)
                made[site.path] = kept.work_out(("thumbnails", site.path, size), work)
        return made

    def _run(self, ask: AskTrace, job: Job) -> Run:
        job.report("loading", 0)
        entry = self.catalog[ask.model]
        model, given = entry.model(), self._given(entry, ask)
        check_size(model, given)
        changes = Changes(*read_edits(ask.edits))
        with limit_threads(n_multiplications(model, given)):
            if not changes:
                return run(model, given, ask, job)
            before = self.trace(ask.without_edits(), job)
            unchanged = Run(before.trace, before.answer)
            return run_changed(model, given, ask, changes, unchanged, job)

    def _given(self, entry: Entry, ask: AskTrace) -> Given:
        if (ask.image is None) != (entry.reads == "text"):
            reads = {"text": "a text", "image": "an image"}[entry.reads]
            raise InputError(f"{entry.name} reads {reads}: give it one.")
        if ask.image is None:
            return Given(ask.text or "", ask.target)
        if ask.target is not None:
            raise InputError(f"{entry.name} writes nothing: it takes no target.")
        if ask.image.startswith(_EXAMPLE):
            number = ask.image.removeprefix(_EXAMPLE)
            return Given(read_picture(entry.picture(_number(number)).read_bytes()))
        return Given(read_picture(self.uploads.get(ask.image)))


def _told(one: Translation) -> dict[str, Any]:
    plain = {name: getattr(one, name) for name in ("text", "score", "tokens", "source_tokens")}
    return {**plain, "alternatives": [_told(other) for other in one.alternatives]}


def _cells(kept: Kept, *, most: int | None = None) -> float:
    """How much it is to compute every weight of a trace, or those of so many queries."""
    sites = [kept.trace[path] for path in kept.trace]
    rows = [one.n_query if most is None else min(one.n_query, most) for one in sites]
    return sum(
        one.n_heads * n * one.n_key * one.key.size(-1) for one, n in zip(sites, rows, strict=True)
    )


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InputError(f"{text!r} is no number of an example; they count from 0.")
    return int(text)
