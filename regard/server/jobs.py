"""Jobs: work that runs in a thread while its client waits, with progress and cancellation.

With "Accept: text/event-stream" the response is a stream of server-sent events: `progress`, then
`result` or `error`.
"""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from threading import Condition, Event, Thread
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from regard.errors import RegardError
from regard.server.error_codes import ApiError, ErrorResponse, JobCanceledError, describe_error
from regard.server.settings import LIMITS
from regard.tap import Tapped

_REPORT_INTERVAL = 0.05  # seconds between two progress reports of a job
EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}
"""OpenAPI description of responses that can be a stream of events."""


class JobProgress(BaseModel):
    """Progress of a job."""

    doing: str  # "loading", "writing", "tracing" or "sweeping"
    done: int
    of: int | None = None  # total of what is counted; None if unknown
    text: str | None = None  # text written so far, if the job writes one


@dataclass(eq=False)
class Job:
    """A computation, its future result and its client."""

    work: Callable[["Job"], Any]
    client: str = ""  # the page's own name, or its address: clients take turns
    on_progress: Callable[[JobProgress], None] | None = None
    """Called with progress from the worker's thread."""
    future: Future[Any] = field(default_factory=Future)
    _stopped: Event = field(default_factory=Event)
    _reported: float = 0.0
    _deadline: float = inf

    def cancel(self) -> None:
        """Stop at the next check, or never start."""
        self._stopped.set()
        self.future.cancel()

    def stop(self, error: Exception) -> None:
        """Give the client an error now; the work ends at its next check."""
        self._stopped.set()
        with suppress(InvalidStateError):  # it is done
            self.future.set_exception(error)

    def check(self) -> None:
        """Raise an error if the job was canceled or has run for too long."""
        if self._stopped.is_set():
            raise JobCanceledError
        if time.monotonic() > self._deadline:
            raise ApiError("too_slow", limit=LIMITS.job_seconds)

    def report(
        self, doing: str, done: int, of: int | None = None, *, text: str | None = None
    ) -> None:
        """Report progress, at a limited rate, and check for cancellation."""
        self.check()
        now = time.monotonic()
        due = now - self._reported > _REPORT_INTERVAL or done == of
        if self.on_progress is not None and due:
            self._reported = now
            self.on_progress(JobProgress(doing=doing, done=done, of=of, text=text))

    def run(self) -> None:
        if self.future.done() or not self.future.set_running_or_notify_cancel():
            return
        self._deadline = time.monotonic() + LIMITS.job_seconds
        try:
            result = self.work(self)
            with suppress(InvalidStateError):  # it was stopped meanwhile
                self.future.set_result(result)
        except BaseException as error:
            self.stop(error)  # type: ignore[arg-type]


class ProgressListener:
    """Tap listener that counts attention sites and stops the model if its job was canceled."""

    changes = False

    def __init__(self, job: Job, doing: str, of: int | None = None) -> None:
        self.job, self.doing, self.of, self.done = job, doing, of, 0

    def wants(self, path: str) -> bool:
        return False

    def see(self, tapped: Tapped) -> Any:
        self.job.check()
        if tapped.path.endswith(".context"):
            self.done += 1
            self.job.report(self.doing, self.done, self.of)
        return tapped.value


class ModelWorker:
    """One thread that runs the jobs of one model; clients take turns."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._waiting: OrderedDict[str, deque[Job]] = OrderedDict()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._running: Job | None = None
        self._closed = False

    def submit(self, job: Job) -> Job:
        """Append a job to the queue, or raise ApiError if it is full or closed."""
        with self._changed:
            n_waiting = sum(len(jobs) for jobs in self._waiting.values())
            if self._closed or n_waiting >= LIMITS.waiting_jobs:
                raise ApiError("queue_full")
            self._waiting.setdefault(job.client, deque()).append(job)
            if self._thread is None:
                self._thread = Thread(target=self._run, name=f"model {self.name}", daemon=True)
                self._thread.start()
            self._changed.notify()
        return job

    def close(self) -> None:
        """Cancel all waiting jobs and end the thread after the current one."""
        with self._changed:
            self._closed = True
            for job in chain.from_iterable(self._waiting.values()):
                job.cancel()
            self._waiting.clear()
            self._changed.notify()

    def stop(self, error: Exception) -> None:
        """Answer all waiting jobs and the running one with an error."""
        with self._changed:
            jobs = [*chain.from_iterable(self._waiting.values())]
            running = self._running
            self._waiting.clear()
        for job in jobs if running is None else [running, *jobs]:
            job.stop(error)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            job.run()
            self._running = None
            del job  # do not keep the result alive while the queue is empty

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            client, jobs = self._waiting.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                self._waiting[client] = jobs  # at the end: other clients come first
            self._running = job
            return job


async def wait_for(request: Request, submit: Callable[[Job], Job], job: Job) -> Any:
    """Return the result of a job; cancel it and raise if the client disconnects."""

    async def disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    result = asyncio.wrap_future(submit(job).future)
    disconnected = asyncio.ensure_future(disconnect())
    try:
        await asyncio.wait({result, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise ApiError("canceled")
        return result.result()
    finally:
        disconnected.cancel()
        if not result.done():
            job.cancel()
            result.cancel()


async def respond(request: Request, submit: Callable[[Job], Job], job: Job) -> Response:
    """Run a job whose result is JSON text, and send it as JSON or as server-sent events."""
    headers = {"cache-control": "no-store"}
    if "text/event-stream" not in request.headers.get("accept", ""):
        text = await wait_for(request, submit, job)
        return Response(text, media_type="application/json", headers=headers)
    queue: asyncio.Queue[JobProgress | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def put(progress: JobProgress | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(queue.put_nowait, progress)

    job.on_progress = put
    job.future.add_done_callback(lambda _: put(None))
    submit(job)
    return StreamingResponse(_events(job, queue), media_type="text/event-stream", headers=headers)


async def _events(job: Job, queue: asyncio.Queue[JobProgress | None]) -> AsyncIterator[str]:
    try:
        while True:
            try:
                progress = await asyncio.wait_for(queue.get(), timeout=15)
            except TimeoutError:
                yield ": keep-alive\n\n"
                continue
            if progress is None:
                break
            yield f"event: progress\ndata: {progress.model_dump_json()}\n\n"
        try:
            yield f"event: result\ndata: {job.future.result()}\n\n"
        except Exception as error:
            if not isinstance(error, RegardError):
                logging.getLogger("regard.server").exception("a job failed")
            body = ErrorResponse(error=describe_error(error)).model_dump_json()
            yield f"event: error\ndata: {body}\n\n"
    finally:
        job.cancel()  # no effect on a job that is done
