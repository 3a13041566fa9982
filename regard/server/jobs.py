"""Jobs: work that runs in a thread while its client waits, with progress and cancellation.

Each model has one worker thread with a queue. A client that disconnects cancels its job. With
"Accept: text/event-stream" the response is a stream of server-sent events: `progress` (doing,
done, of, text), then `result` or `error`.
"""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Event, Thread
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from regard.errors import RegardError
from regard.server.error_codes import ApiError, ErrorResponse, JobCanceledError, describe_error
from regard.server.settings import LIMITS
from regard.tap import Tapped

_REPORT_INTERVAL = 0.05
"""Seconds between two progress reports of a job."""
_KEEP_ALIVE = 15.0
"""Seconds after which an idle event stream sends a comment."""
_LOG = logging.getLogger("regard.server")
EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}
"""OpenAPI description of responses that can be a stream of events."""


class JobProgress(BaseModel):
    """Progress of a job."""

    doing: str
    """"loading", "writing" or "tracing"."""
    done: int
    of: int | None = None
    """Total of what is counted; None if unknown."""
    text: str | None = None
    """Text written so far, if the job writes one."""


@dataclass(eq=False)
class Job:
    """A computation, its future result and its client."""

    work: Callable[["Job"], Any]
    client: str = ""
    on_progress: Callable[[JobProgress], None] | None = None
    """Called with progress from the worker's thread."""
    future: Future[Any] = field(default_factory=Future)
    _stopped: Event = field(default_factory=Event)
    _reported: float = 0.0

    def cancel(self) -> None:
        """Stop at the next check, or never start."""
        self._stopped.set()
        self.future.cancel()

    def check(self) -> None:
        """Raise `JobCanceledError` if the job was canceled."""
        if self._stopped.is_set():
            raise JobCanceledError

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
        """Do the work and set the future's result or exception."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.work(self))
        except BaseException as error:
            self.future.set_exception(error)


class ProgressListener:
    """Tap listener that counts attention sites and stops the model if its job was canceled."""

    changes = False

    def __init__(self, job: Job, doing: str, of: int | None = None) -> None:
        self.job, self.doing, self.of = job, doing, of
        self.done = 0

    def wants(self, path: str) -> bool:
        del path
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
        self._closed = False

    def submit(self, job: Job) -> Job:
        """Append a job to the queue.

        Raises:
            ApiError: the queue is full or closed.
        """
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
            for jobs in self._waiting.values():
                for job in jobs:
                    job.cancel()
            self._waiting.clear()
            self._changed.notify()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            job.run()
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
            return job


def client_of(request: Request) -> str:
    """Return the name under which a request takes turns: the page's own, or the address."""
    host = request.client.host if request.client else ""
    return request.headers.get("x-regard-client", "")[:64] or host


async def wait_for(request: Request, submit: Callable[[Job], Job], job: Job) -> Any:
    """Return the result of a job; cancel it and raise if the client disconnects."""
    submit(job)
    result = asyncio.ensure_future(asyncio.wrap_future(job.future))
    disconnected = asyncio.ensure_future(_disconnect(request))
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


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


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
                progress = await asyncio.wait_for(queue.get(), _KEEP_ALIVE)
            except TimeoutError:
                yield ": keep-alive\n\n"
                continue
            if progress is None:
                break
            yield _event("progress", progress.model_dump_json())
        try:
            yield _event("result", job.future.result())
        except Exception as error:
            if not isinstance(error, RegardError):
                _LOG.exception("a job failed")
            yield _event("error", ErrorResponse(error=describe_error(error)).model_dump_json())
    finally:
        job.cancel()  # no effect on a job that is done


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"
