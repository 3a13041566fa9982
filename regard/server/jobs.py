"""How a request waits for a job: for its result alone, or with events that tell how far it is.

Whoever goes away cancels the job. With "Accept: text/event-stream" the answer is a stream of
server-sent events: `progress` (doing, done, of), then `result` or `error`.
"""

import asyncio
import json
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from threading import Condition, Event, Thread
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import RegardError
from regard.tap import Tapped

MOST_WAITING = 64
"""Jobs that may wait for one model."""
_PAUSE = 0.05
"""Seconds between two reports of progress."""


class Canceled(Exception):  # noqa: N818  nobody's fault
    """Nobody waits for this result any more."""


class Busy(Exception):  # noqa: N818  nobody's fault
    """More jobs wait for a model than it will get through."""


@dataclass(frozen=True)
class Progress:
    """How far a job is."""

    doing: str
    """"waiting", "loading", "writing" or "tracing", for programs."""
    done: int
    of: int | None = None
    """Of how many; None where nobody knows."""
    text: str | None = None
    """What is written so far, where a text is written."""


@dataclass(eq=False)
class Job:
    """Something to compute, and whoever waits for it."""

    work: Callable[["Job"], Any]
    client: str = ""
    tell: Callable[[Progress], None] | None = None
    """Called with progress, from the worker's thread."""
    future: Future[Any] = field(default_factory=Future)
    _stopped: Event = field(default_factory=Event)
    _told: float = 0.0

    def cancel(self) -> None:
        """Nobody waits for this any more: it ends at the next check, or never begins."""
        self._stopped.set()
        self.future.cancel()

    def check(self) -> None:
        """Stop here if the job was canceled."""
        if self._stopped.is_set():
            raise Canceled

    def report(
        self, doing: str, done: int, of: int | None = None, *, text: str | None = None
    ) -> None:
        """Say how far it is; not more often than somebody could read it."""
        self.check()
        now = time.monotonic()
        if self.tell is not None and (now - self._told > _PAUSE or done == of):
            self._told = now
            self.tell(Progress(doing, done, of, text))

    def run(self) -> None:
        """Do the work and hand over what comes of it."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.work(self))
        except BaseException as error:
            self.future.set_exception(error)


class Watching:
    """A listener that stops a model when its job was canceled, and counts attention sites."""

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


class Worker:
    """One thread that does the jobs of one model, in turns among those who ask."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._waiting: OrderedDict[str, deque[Job]] = OrderedDict()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._closed = False

    def submit(self, job: Job) -> Job:
        """Put a job into the queue."""
        with self._changed:
            if self._closed or self.n_waiting >= MOST_WAITING:
                raise Busy
            self._waiting.setdefault(job.client, deque()).append(job)
            if self._thread is None:
                self._thread = Thread(target=self._run, name=f"model {self.name}", daemon=True)
                self._thread.start()
            self._changed.notify()
        return job

    @property
    def n_waiting(self) -> int:
        """How many jobs have not begun."""
        with self._changed:
            return sum(len(jobs) for jobs in self._waiting.values())

    def close(self) -> None:
        """Begin nothing more."""
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
            del job  # its result shall not live on while nothing else comes

    def _next(self) -> Job | None:
        """The next job: of the client whose turn it is."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            client, jobs = self._waiting.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                self._waiting[client] = jobs  # at the end: others come first
            return job


_ALIVE = 15.0
"""Seconds after which a silent stream says that it is alive."""
CLIENT_GONE = 499

_LOG = logging.getLogger("regard.server")


def client_of(request: Request) -> str:
    """Who asks, as far as taking turns goes: a page names itself."""
    host = request.client.host if request.client else ""
    return request.headers.get("x-regard-client", "")[:64] or host


async def wait_for(request: Request, submit: Callable[[Job], Job], job: Job) -> Any:
    """The result of a job; None if the client has gone, which ends the job."""
    submit(job)
    result = asyncio.ensure_future(asyncio.wrap_future(job.future))
    gone = asyncio.ensure_future(_until_gone(request.receive))
    try:
        await asyncio.wait({result, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            return None
        return result.result()
    finally:
        gone.cancel()
        if not result.done():
            job.cancel()
            result.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Events:
    """A response that streams a job's progress and ends with its result."""

    def __init__(self, submit: Callable[[Job], Job], job: Job) -> None:
        self.job = job
        self.queue: asyncio.Queue[Progress | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        job.tell = lambda told: _put(loop, self.queue, told)
        job.future.add_done_callback(lambda _: _put(loop, self.queue, None))
        submit(job)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, until there are no more or nobody listens."""
        del scope
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.ensure_future(_until_gone(receive))
        finished = False
        try:
            while not finished and not gone.done():
                finished = await self._tell(send, gone)
        finally:
            gone.cancel()
            if not finished:
                self.job.cancel()
        if finished:
            await send(_part(self._last(), more=False))

    async def _tell(self, send: Send, gone: asyncio.Future[None]) -> bool:
        """Send what is told next; True when the job is done."""
        told = asyncio.ensure_future(self.queue.get())
        await asyncio.wait({told, gone}, timeout=_ALIVE, return_when=asyncio.FIRST_COMPLETED)
        if not told.done():
            told.cancel()
            if not gone.done():
                await send(_part(": still here\n\n"))
            return False
        progress = told.result()
        if progress is not None:
            await send(_part(event("progress", asdict(progress))))
        return progress is None

    def _last(self) -> str:
        try:
            return event("result", self.job.future.result())
        except RegardError as error:
            return event("error", {"error": str(error)})
        except Exception:
            _LOG.exception("a job failed")
            return event("error", {"error": BROKEN})


BROKEN = "something went wrong inside the server; its terminal says what."


def _put(loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[Any], told: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(queue.put_nowait, told)


def event(name: str, data: Any) -> str:
    """One server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


def _part(text: str, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": text.encode(), "more_body": more}


async def respond(request: Request, submit: Callable[[Job], Job], job: Job) -> ASGIApp:
    """The response to a request for long work, of the kind that the client accepts."""
    if "text/event-stream" in request.headers.get("accept", ""):
        return Events(submit, job)
    result = await wait_for(request, submit, job)
    if result is None:
        return Response(status_code=CLIENT_GONE)
    return JSONResponse(result, headers={"cache-control": "no-store"})
