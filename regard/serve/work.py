"""How a request waits for a job: for its result alone, or with events that tell how far it is.

Whoever goes away cancels the job. With "Accept: text/event-stream" the answer is a stream of
server-sent events: `progress` (doing, done, of), then `result` or `error`.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import RegardError
from regard.serve.worker import Job, Progress

_ALIVE = 15.0
"""Seconds after which a silent stream says that it is alive."""
CLIENT_GONE = 499

_LOG = logging.getLogger("regard.serve")


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
