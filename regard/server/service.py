"""State of a server: its models and runs, stored traces and uploads, and reader threads."""

import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import RLock
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Request, Response
from pydantic import TypeAdapter, ValidationError

from regard.analysis.flow import Predictions
from regard.analysis.site_json import plain
from regard.analysis.worked_example import DEFAULT, worked_trace
from regard.hardware import limit_threads
from regard.server import model_inputs
from regard.server.answers import Answer, AnsweredRun, answer, answer_edited
from regard.server.catalog import Catalog, ModelEntry, Runs
from regard.server.error_codes import ApiError, validation_error
from regard.server.jobs import Job, respond, wait_for
from regard.server.model_inputs import Changes, ModelInput, TraceRequest
from regard.server.settings import LIMITS
from regard.trace.edit import Patch
from regard.trace.trace import Trace

_UPLOAD, _EXAMPLE = "upload:", "example:"
T = TypeVar("T")


class SizedCache(Generic[T]):
    """Cache of at least one entry that drops the least recently used ones beyond so many bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._lock = RLock()

    def get(self, key: str) -> T | None:
        """Return an entry, now the most recently used one; None if there is none."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: str, entry: T, n_bytes: int) -> None:
        with self._lock:
            self._entries[key] = entry, n_bytes
            self._entries.move_to_end(key)
            while len(self) > 1 and self.n_bytes > self.limit:
                self._entries.popitem(last=False)

    def grow(self, key: str, n_bytes: int) -> None:
        with self._lock:
            if key in self._entries:
                entry, size = self._entries[key]
                self.put(key, entry, size + n_bytes)

    @property
    def n_bytes(self) -> int:
        with self._lock:
            return sum(size for _, size in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


@dataclass
class StoredTrace:
    """A trace, its request and answer, and what has been computed from it."""

    id: str
    request: dict[str, Any]
    """The request that gives this trace again, as JSON; empty for traces of no model."""
    trace: Trace
    answer: Answer
    predictions: Predictions | None = None
    computed: dict[Any, Any] = field(default_factory=dict)
    _locks: dict[Any, RLock] = field(default_factory=dict)

    def cached(self, key: Any, compute: Callable[[], T]) -> T:
        """Return the value of a key, computed by the first thread that needs it."""
        with self._locks.setdefault(key, RLock()):
            if key not in self.computed:
                self.computed[key] = compute()
            return self.computed[key]


class Service:
    """Models, training runs, stored traces and uploads of a server.

    A trace's id is a keyed hash of its request: the same request finds the same trace, and ids of
    the requests of others cannot be guessed.
    """

    def __init__(self, catalog: Catalog, runs: Runs | None = None) -> None:
        self.catalog = catalog
        self.runs = runs or Runs()
        self.traces: SizedCache[StoredTrace] = SizedCache(LIMITS.stored_bytes)
        self.uploads: SizedCache[bytes] = SizedCache(LIMITS.upload_bytes)
        self._secret = secrets.token_bytes(32)
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="reader")
        self._reading: set[Job] = set()

    def close(self) -> None:
        """End all threads after their current jobs."""
        self.catalog.close()
        self._readers.shutdown(wait=False, cancel_futures=True)

    def stop_jobs(self) -> None:
        """Answer all requests that wait with an error, because the server stops."""
        for entry in self.catalog.entries.values():
            entry.worker.stop(ApiError("stopping"))
        for job in list(self._reading):
            job.stop(ApiError("stopping"))

    def read(self, job: Job) -> Job:
        """Run a job in a reader thread, which does not wait for models."""
        if len(self._reading) >= LIMITS.waiting_reads:
            raise ApiError("queue_full")
        self._reading.add(job)
        job.future.add_done_callback(lambda _: self._reading.discard(job))
        self._readers.submit(job.run)
        return job

    def id_of(self, request: dict[str, Any]) -> str:
        text = json.dumps(request, sort_keys=True)  # as ASCII: it may have half a surrogate pair
        return hmac.new(self._secret, text.encode(), "sha256").hexdigest()[:32]

    def upload(self, data: bytes) -> str:
        """Store an image and return its name, which is the same for the same image."""
        name = _UPLOAD + hashlib.sha256(data).hexdigest()
        self.uploads.put(name, data, len(data))
        return name

    def worked_example(self) -> StoredTrace:
        """Return the trace of the worked example, which needs no model."""
        return self._stored({}, {}, lambda: _without_model(worked_trace(DEFAULT)))

    def snapshot(self, run: str, step: int, text: int) -> StoredTrace:
        """Return the trace of a text at a step of a training run."""
        key = {"run": run, "step": step, "text": text}
        return self._stored(key, {}, lambda: _without_model(self.runs[run].trace(step, text)))

    def trace(self, request: TraceRequest, job: Job) -> StoredTrace:
        """Return the stored trace of a request, running the model if there is none."""
        image = request.image
        if image is not None and not image.startswith((_UPLOAD, _EXAMPLE)):
            request = request.model_copy(
                update={"image": self.upload(model_inputs.decode_base64(image))}
            )
        fields = request.to_dict()
        return self._stored(fields, fields, lambda: self._run(request, job))

    def model_input(self, entry: ModelEntry, request: TraceRequest) -> ModelInput:
        """Return the text or image of a request."""
        if entry.reads != ("text" if request.image is None else "image"):
            raise ApiError(f"needs_{entry.reads}", name=entry.name)
        if request.image is None:
            return ModelInput(request.text or "", request.target)
        if request.target is not None:
            raise ApiError("no_target", name=entry.name)
        if request.image.startswith(_EXAMPLE):
            owner, _, number = request.image.removeprefix(_EXAMPLE).rpartition("/")
            data = (self.catalog[owner] if owner else entry).image(number)
        elif (data := self.uploads.get(request.image)) is None:
            raise ApiError("upload_gone")
        return ModelInput(model_inputs.read_image(data))

    def _stored(
        self, key: dict[str, Any], request: dict[str, Any], run: Callable[[], AnsweredRun]
    ) -> StoredTrace:
        id = self.id_of(key)
        stored = self.traces.get(id)
        if stored is None:
            done = run()
            stored = StoredTrace(id, request, done.trace, done.answer, done.predictions)
            self.traces.put(id, stored, count_bytes(done.trace))
        return stored

    def _run(self, request: TraceRequest, job: Job) -> AnsweredRun:
        job.report("loading", 0)
        entry = self.catalog[request.model]
        model, given = entry.model(), self.model_input(entry, request)
        model_inputs.check_size(model, given)
        of_part = model_inputs.is_translator(model) and isinstance(request.target, list)
        if of_part and model_inputs.is_divided(model, request.text or ""):
            parts = self.trace(request.without_edits(target=None), job).answer.parts or ()
            given = ModelInput(parts[request.part].source, request.target)
        with limit_threads(model_inputs.count_multiplications(model, given)):
            if not request.edits:
                return answer(model, given, request, (), job)
            before = self.trace(request.without_edits(), job)
            run = AnsweredRun(before.trace, before.answer)
            return answer_edited(model, given, request, self.changes(request, job), run, job)

    def changes(self, request: TraceRequest, job: Job) -> Changes:
        """Return the edits of a request; runs whose values they patch in are run first."""
        edits, tokens = request.parsed_edits()
        loaded = [
            self._load(edit, request, job) if isinstance(edit, Patch) else edit for edit in edits
        ]
        return loaded, tokens

    def _load(self, patch: Patch, request: TraceRequest, job: Job) -> Patch:
        try:
            other = TraceRequest.model_validate({"model": request.model, **patch.source})
        except ValidationError as error:
            found = error.errors()[0]
            raise validation_error({**found, "loc": ("", "source", *found["loc"])}) from error
        if other.edits:
            raise ApiError(
                "invalid_field", field="source.edits", value="…", problem="it must be empty"
            )
        return patch.with_trace(self.trace(other, job).trace)


def _without_model(trace: Trace) -> AnsweredRun:
    return AnsweredRun(trace, Answer(kind="none", output=plain(trace.output)))


def count_bytes(trace: Trace) -> int:
    """Return the memory behind the tensors of a trace; storage that they share counts once."""
    tensors = list(trace.values.values())
    for site in trace.sites.values():
        tensors += [site.query, site.key, site.value, site.sums, *site.changed.values()]
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


class RequestContext:
    """The service, and how a request waits for work in its threads."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.service: Service = request.app.state.service
        host = request.client.host if request.client else ""
        self.client = request.headers.get("x-regard-client", "")[:64] or host

    async def compute(self, model: str, work: Callable[[Job], Any]) -> Response:
        """Run work in the model's thread and send its result as JSON or events."""
        return await self._json(self.service.catalog[model].worker.submit, work)

    async def read(self, work: Callable[[Job], Any]) -> Response:
        """Run work in a reader thread and send its result as JSON or events."""
        return await self._json(self.service.read, work)

    async def wait(self, work: Callable[[Job], Response]) -> Response:
        """Run work in a reader thread and send its response."""
        return await wait_for(self.request, self.service.read, Job(work, self.client))

    async def _json(self, submit: Callable[[Job], Job], work: Callable[[Job], Any]) -> Response:
        def run(job: Job) -> str:
            result = work(job)
            return TypeAdapter(type(result)).dump_json(result, exclude_unset=True).decode()

        return await respond(self.request, submit, Job(run, self.client))


async def request_context(request: Request) -> RequestContext:
    """Return the context of a request."""
    return RequestContext(request)


Context = Annotated[RequestContext, Depends(request_context)]


async def stored_trace(id: str, context: Context) -> StoredTrace:
    """Return the stored trace that an address names."""
    found = context.service.traces.get(id)
    if found is None:
        raise ApiError("unknown_trace")
    return found


Stored = Annotated[StoredTrace, Depends(stored_trace)]
