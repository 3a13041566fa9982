"""Connections: time limits below the application, draining shutdown, and one log line a request.

uvicorn waits without an end for the headers of a new connection and for clients that do not read.
"""

import asyncio
import contextlib
import json
import logging
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Literal

import uvicorn
from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.server.settings import LIMITS

LogFormat = Literal["text", "json"]
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_CANCEL_SECONDS = 5  # for requests to end after their jobs were stopped
_LAST_SECONDS = 0.5  # in which a stopping server reads requests that were sent before


class LimitedConnection(H11Protocol):
    """A connection that is closed if a request or the reading of an answer takes too long.

    If there are too many, the one that has been idle for longest is closed, so that connections
    without requests do not block others.
    """

    idle_since = 0.0
    _stopping = False
    _request_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """True if no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.idle_since = monotonic()
        self._wait_for_request()
        if len(self.connections) > LIMITS.connections:
            idle = [
                one
                for one in self.connections
                if one is not self and isinstance(one, LimitedConnection) and one.is_idle
            ]
            if idle:
                min(idle, key=lambda one: one.idle_since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_timer = _canceled(self._request_timer)
        self._read_timer = _canceled(self._read_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_idle:
            self._request_timer = _canceled(self._request_timer)
            self.cycle.keep_alive = self.cycle.keep_alive and not self._stopping
        elif self._request_timer is None:  # further bytes of a slow request do not extend it
            self._wait_for_request()

    def on_response_complete(self) -> None:
        self.idle_since = monotonic()
        super().on_response_complete()

    def shutdown(self) -> None:
        if self._stopping or not self.is_idle:
            super().shutdown()
        else:  # its request may have been sent, but not read yet
            self._stopping = True
            self.loop.call_later(_LAST_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.is_idle and not self.transport.is_closing():
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_timer = self.loop.call_later(LIMITS.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._read_timer = _canceled(self._read_timer)
        super().resume_writing()

    def _wait_for_request(self) -> None:
        self._request_timer = self.loop.call_later(LIMITS.idle_seconds, self.transport.abort)


def _canceled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


class DrainingServer(uvicorn.Server):
    """A server that answers the requests it has when it is stopped.

    After `shutdown_seconds`, `stop_jobs` ends the jobs that are left, so that their clients get an
    error instead of a cut answer.
    """

    def __init__(self, config: uvicorn.Config, stop_jobs: Callable[[], None]) -> None:
        super().__init__(config)
        self.stop_jobs = stop_jobs

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.sleep(_LAST_SECONDS)  # accept connections that were made before
        loop = asyncio.get_running_loop()
        timer = loop.call_later(LIMITS.shutdown_seconds, self.stop_jobs)
        await super().shutdown(sockets)
        timer.cancel()


def make_server(app: FastAPI, **options: Any) -> DrainingServer:
    """Return a server of an application with the limits of `settings`."""
    config = uvicorn.Config(
        app,
        http=LimitedConnection,
        ws="none",
        log_level="warning",
        access_log=False,
        h11_max_incomplete_event_size=LIMITS.header_bytes,
        timeout_keep_alive=LIMITS.idle_seconds,
        timeout_graceful_shutdown=LIMITS.shutdown_seconds + _CANCEL_SECONDS,
        **options,
    )
    return DrainingServer(config, app.state.service.stop_jobs)


def run(app: FastAPI, bound: socket.socket, log_format: LogFormat | None = None) -> None:
    """Serve until Ctrl-C."""
    server = make_server(app, lifespan="on")
    if log_format == "json":
        hide_messages()
    with contextlib.suppress(KeyboardInterrupt), bound:
        server.run(sockets=[bound])


@dataclass(frozen=True)
class RequestLog:
    """A request without anything that its client wrote: texts, addresses, tokens."""

    time: str
    method: str
    route: str  # the template, such as /api/trace/{id}/tile
    status: int
    milliseconds: float
    received_bytes: int
    sent_bytes: int

    def as_line(self, log_format: LogFormat) -> str:
        """Return the line of a log."""
        if log_format == "json":
            return json.dumps(vars(self))
        return (
            f"{self.time} {self.method} {self.route} {self.status} {self.milliseconds:.1f} ms "
            f"{self.received_bytes} B in {self.sent_bytes} B out"
        )


class Exchange:
    """A request and its answer: their sizes and their time, and a limit on the request."""

    def __init__(
        self, receive: Receive, send: Send, add_headers: Callable[[MutableHeaders], None]
    ) -> None:
        self._receive, self._send, self._add_headers = receive, send, add_headers
        self._start, self._complete = monotonic(), False
        self.n_received, self.n_sent, self.status = 0, 0, 499

    async def receive(self) -> Message:
        """Return the next part of the body; refuse one that is too slow or too large."""
        if self._complete:  # what follows is that the client leaves
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), LIMITS.idle_seconds)
        except TimeoutError:
            raise HTTPException(408) from None
        self.n_received += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self.n_received > LIMITS.body_bytes:
            raise HTTPException(413)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer, with headers added to the first."""
        self.n_sent += len(message.get("body", b""))
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._add_headers(MutableHeaders(scope=message))
        await self._send(message)

    def describe(self, scope: Scope) -> RequestLog:
        """Return the log of the request after its answer, or after its client has left (499)."""
        route = getattr(scope.get("route"), "path", None)
        return RequestLog(
            time=_now(),
            method=scope["method"] if scope["method"] in _METHODS else "other",
            route=route or ("refused or unknown" if self.status >= 400 else "file of the page"),
            status=self.status,
            milliseconds=round(1000 * (monotonic() - self._start), 1),
            received_bytes=self.n_received,
            sent_bytes=self.n_sent,
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def log_to_stderr(log_format: LogFormat) -> Callable[[RequestLog], None]:
    """Return a function that prints a line for each request."""

    def log(request: RequestLog) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed terminal
            sys.stderr.write(f"{request.as_line(log_format)}\n")

    return log


class _PlacesFormatter(logging.Formatter):
    """Formats errors as JSON with their class and places; messages could quote users' texts."""

    def format(self, record: logging.LogRecord) -> str:
        info = {"time": _now()}
        info |= {"level": record.levelname, "logger": record.name}
        if not record.exc_info or record.exc_info[1] is None:
            return json.dumps({**info, "message": record.getMessage().strip()})
        error = record.exc_info[1]
        frames = traceback.extract_tb(error.__traceback__)
        places = [f"{frame.filename}:{frame.lineno}" for frame in frames[-12:]]
        return json.dumps({**info, "error": type(error).__name__, "places": places})


def hide_messages() -> None:
    """Log internal errors as JSON with their class and places, but without their messages."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_PlacesFormatter())
    for name in ("uvicorn", "uvicorn.error", "regard.server"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], False
    for name in ("uvicorn", "regard.server"):
        logging.getLogger(name).addHandler(handler)
    logging.getLogger("uvicorn.error").propagate = True
