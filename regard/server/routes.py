"""The JSON API: what each address answers. The page uses nothing else; scripts can use all of it.

Arrays are sent as safetensors files (see wire.py), errors as {"error": sentence}.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.types import ASGIApp

from regard.analysis.worked_example import DEFAULT
from regard.errors import InputError
from regard.server.answers import following
from regard.server.arrays import (
    MEDIA_TYPE,
    Span,
    exact_arrays,
    head_about,
    head_vectors,
    packed,
    pixels,
    projection_arrays,
    reduced,
    rollout_array,
    space_arrays,
    step_arrays,
)
from regard.server.jobs import CLIENT_GONE, Job, client_of, respond, wait_for
from regard.server.model_inputs import read_picture
from regard.server.replay import Runs
from regard.server.requests import (
    MOST_BYTES,
    AskGeneration,
    AskTrace,
    AskTranslation,
    read_ask,
    read_count,
    read_number,
)
from regard.server.service import Service
from regard.server.trace_store import Kept

# What an id names never changes, so nobody need ask for it twice.
_FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
_FRESH = {"cache-control": "no-cache"}
Handler = Callable[[Request], Awaitable[ASGIApp]]


class TooLargeError(InputError):
    """A request with a larger body than the server reads."""


@dataclass(frozen=True)
class Place:
    """Which head of which site of which trace a request means."""

    kept: Kept
    path: str
    head: int


class Api:
    """The handlers, by what they do; `openapi.py` says at which addresses."""

    def __init__(self, service: Service, runs: Runs | None = None) -> None:
        self.service = service
        self._runs = runs or Runs()

    async def models(self, request: Request) -> ASGIApp:
        """All models, and the worked example of a server that has none."""
        del request
        entries = [entry.describe() for entry in self.service.catalog.entries.values()]
        told = {"models": entries, "worked": DEFAULT, "example": self.service.example().id}
        return JSONResponse({**told, "runs": list(self._runs.runs)}, headers=_FRESH)

    async def runs(self, request: Request) -> ASGIApp:
        """All training runs, with the checkpoints that they have by now."""
        job = Job(
            lambda job: {"runs": [run.describe() for run in self._runs.runs.values()]},
            client_of(request),
        )
        return await respond(request, self.service.read, job)

    async def snapshot(self, request: Request) -> ASGIApp:
        """What a run's model saw in one of its texts at a checkpoint."""
        name, step = request.path_params["run"], request.path_params["number"]
        text, store = read_count(request.query_params, "text", 0), self.service.store
        job = Job(
            lambda job: self.service.describe(self._runs.snapshot(store, name, step, text)),
            client_of(request),
        )
        return await respond(request, self.service.read, job)

    async def examples(self, request: Request) -> ASGIApp:
        """What to try on a model."""
        entry = self.service.catalog[request.query_params.get("model", "")]
        return JSONResponse({"examples": entry.examples()}, headers=_FRESH)

    async def example(self, request: Request) -> ASGIApp:
        """One picture of a model's examples."""
        entry = self.service.catalog[request.path_params["model"]]
        return FileResponse(entry.picture(request.path_params["number"]), headers=_FRESH)

    async def image(self, request: Request) -> ASGIApp:
        """Keep a picture, and say by which name a request can mean it."""
        data = await read_body(request)
        read_picture(data)
        return JSONResponse({"image": self.service.uploads.put(data)})

    async def trace(self, request: Request) -> ASGIApp:
        """Trace, and describe the trace."""
        ask = read_ask(AskTrace, await read_body(request))
        describe = self.service.describe
        return await self._compute(
            request, ask.model, lambda job: describe(self.service.trace(ask, job))
        )

    async def answer(self, request: Request) -> ASGIApp:
        """Trace, and give the answer only: what a change has changed."""
        ask = read_ask(AskTrace, await read_body(request))

        def work(job: Job) -> dict[str, Any]:
            kept = self.service.trace(ask, job)
            return {"id": kept.id, "answer": kept.answer}

        return await self._compute(request, ask.model, work)

    async def translate(self, request: Request) -> ASGIApp:
        """Translate texts."""
        ask = read_ask(AskTranslation, await read_body(request))
        translate = self.service.translate
        return await self._compute(
            request, ask.model, lambda job: {"translations": translate(ask, job)}
        )

    async def generate(self, request: Request) -> ASGIApp:
        """Go on with a text."""
        ask = read_ask(AskGeneration, await read_body(request))
        return await self._compute(request, ask.model, lambda job: self.service.generate(ask, job))

    async def described(self, request: Request) -> ASGIApp:
        """The description of a trace that is kept."""
        kept = self._kept(request)
        job = Job(lambda job: self.service.describe(kept), client_of(request))
        return await respond(request, self.service.read, job)

    async def alternatives(self, request: Request) -> ASGIApp:
        """What else could stand at a position of a translation."""
        kept, given = self._kept(request), request.query_params
        position, count = read_count(given, "position"), read_count(given, "count", 5)
        check_count(count)
        if kept.answer["kind"] != "translation":
            raise InputError("only a translation has other words at its positions.")
        find = self.service.alternatives
        return await self._compute(
            request,
            kept.asked.get("model", ""),
            lambda job: {"alternatives": find(kept, position, count, job)},
        )

    async def next(self, request: Request) -> ASGIApp:
        """What may come next after a text."""
        kept, given = self._kept(request), request.query_params
        options = {"temperature": read_number(given, "temperature", 1.0)}
        count = read_count(given, "count", 5)
        check_count(count)

        def work(job: Job) -> dict[str, Any]:
            tokenizer = self.service.entry_of(kept).model().tokenizer
            return {"candidates": following(kept, tokenizer, **options, count=count)}

        return await respond(request, self.service.read, Job(work, client_of(request)))

    async def thumbnails(self, request: Request) -> ASGIApp:
        """A small picture of every head of every site, or of the sites that are named."""
        kept, given = self._kept(request), request.query_params
        paths, size = given.getlist("site"), read_count(given, "size", 64)
        about = {"coding": "root"}
        return await self._read(
            request,
            lambda job: packed(self.service.thumbnails(kept, paths, size, job), about),
        )

    async def measures(self, request: Request) -> ASGIApp:
        """What the heads of sites are like."""
        kept, paths = self._kept(request), request.query_params.getlist("site")
        job = Job(
            lambda job: {"measures": self.service.measures(kept, paths, job)}, client_of(request)
        )
        return await respond(request, self.service.read, job)

    async def vectors(self, request: Request) -> ASGIApp:
        """What one head's tables are computed from."""
        place = self._place(request)
        site = place.kept.trace[place.path]
        return await self._read(
            request, lambda job: packed(head_vectors(site, place.head), head_about(site))
        )

    async def tile(self, request: Request) -> ASGIApp:
        """Part of one head's table."""
        place, given = self._place(request), request.query_params
        spans = _span(given, "row"), _span(given, "column")
        stage, dtype = given.get("stage", "weights"), given.get("dtype", "float32")

        def work(job: Job) -> bytes:
            table = self.service.tile(place.kept, place.path, place.head, stage, spans, job)
            array, about = reduced(table, dtype)
            return packed({"tile": array}, about)

        return await self._read(request, work)

    async def steps(self, request: Request) -> ASGIApp:
        """The way to one weight."""
        place, given = self._place(request), request.query_params
        pair = read_count(given, "query"), read_count(given, "key")
        return await self._read(
            request,
            lambda job: packed(*step_arrays(place.kept, place.path, place.head, *pair)),
        )

    async def projections(self, request: Request) -> ASGIApp:
        """The matrices of one head."""
        place = self._place(request)
        return await self._read(
            request, lambda job: packed(projection_arrays(place.kept, place.path, place.head))
        )

    async def space(self, request: Request) -> ASGIApp:
        """Tokens as points, and what each head adds to them."""
        place, axes = self._place(request), read_count(request.query_params, "axes", 2)
        return await self._read(
            request, lambda job: packed(*space_arrays(place.kept, place.path, axes))
        )

    async def rollout(self, request: Request) -> ASGIApp:
        """What each token has of each token of the input."""
        place = self._place(request)
        return await self._read(request, lambda job: packed(rollout_array(place.kept, place.path)))

    async def exact(self, request: Request) -> ASGIApp:
        """What one head of an efficient form approximates."""
        place = self._place(request)
        site = place.kept.trace[place.path]
        return await self._read(request, lambda job: packed(*exact_arrays(site, place.head)))

    async def pixels(self, request: Request) -> ASGIApp:
        """The picture that a model read."""
        kept = self._kept(request)
        return await self._read(request, lambda job: packed({"pixels": pixels(kept)}))

    async def _compute(self, request: Request, model: str, work: Callable[[Job], Any]) -> ASGIApp:
        """Let a job wait for its model."""
        entry = self.service.catalog[model]
        return await respond(request, entry.worker.submit, Job(work, client_of(request)))

    async def _read(self, request: Request, work: Callable[[Job], bytes]) -> ASGIApp:
        """Bytes that follow from a trace, and from it alone."""
        data = await wait_for(request, self.service.read, Job(work, client_of(request)))
        if data is None:
            return Response(status_code=CLIENT_GONE)
        return Response(data, media_type=MEDIA_TYPE, headers=_FOREVER)

    def _kept(self, request: Request) -> Kept:
        return self.service.kept(request.path_params["id"])

    def _place(self, request: Request) -> Place:
        kept, path = self._kept(request), request.query_params.get("site", "")
        kept.trace[path]  # refuses a site that is not there
        return Place(kept, path, read_count(request.query_params, "head", 0))


def _span(given: Mapping[str, str], what: str) -> Span:
    start, stop = (read_count(given, f"{what}_{end}") for end in ("start", "stop"))
    return Span(start, stop, read_count(given, f"{what}_bins", max(1, min(stop - start, 2048))))


def check_count(count: int) -> None:
    """Refuse more possibilities than anybody reads, or none."""
    if not 1 <= count <= 50:
        raise InputError(f"count is {count}; ask for 1 to 50.")


async def read_body(request: Request) -> bytes:
    """The body of a request, unless it is too large."""
    said = request.headers.get("content-length", "")
    parts, size = [], int(said) if said.isdigit() else 0
    if size <= MOST_BYTES:
        size = 0
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                break
    if size > MOST_BYTES:
        raise TooLargeError(
            f"the request has more than {MOST_BYTES // 2**20} MB: send a shorter text or a "
            "smaller picture."
        )
    return b"".join(parts)
