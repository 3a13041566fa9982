"""The web application: the API, the page's files, and what holds for every answer."""

import contextlib
import errno
import logging
import os
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from ipaddress import ip_address
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import InputError, RegardError
from regard.server.html_export import PAGE
from regard.server.jobs import BROKEN, CLIENT_GONE, Busy, Canceled
from regard.server.openapi import document
from regard.server.operations import OPERATIONS
from regard.server.replay import Runs
from regard.server.routes import Api, TooLargeError
from regard.server.service import GoneError, Service

PORT = 8765
_TRIES = 50
_PATIENCE = 2
"""Seconds that open connections are given when the server ends."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at the port, or at the next one that is free; 0 takes any."""
    if not 0 <= port < 65_536:
        raise InputError(f"port is {port}; it must be 0 (any that is free) to 65535.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port, min(port + _TRIES, 65_536)) if port else (0,):
        made = socket.socket(family, socket.SOCK_STREAM)
        if os.name == "posix":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, candidate))
            made.listen(128)
        except OSError as error:
            made.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise InputError(
                f"the server cannot listen at {host}, port {candidate}: {error.strerror}. Name "
                "another with --host or --port."
            ) from error
        return made
    raise InputError(
        f"the ports {port} to {port + _TRIES - 1} are all in use: name another with --port."
    )


def address_of(bound: socket.socket, host: str) -> str:
    """What to type into a browser on this machine."""
    port = bound.getsockname()[1]
    shown = "127.0.0.1" if host in ("0.0.0.0", "") else "[::1]" if host == "::" else host
    return f"http://{f'[{shown}]' if ':' in shown and shown[0] != '[' else shown}:{port}"


def is_local(host: str) -> bool:
    """Whether only programs of this machine can reach a host name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def run(app: ASGIApp, bound: socket.socket) -> None:
    """Serve until Ctrl-C."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=_PATIENCE,
    )
    with contextlib.suppress(KeyboardInterrupt), bound:
        uvicorn.Server(config).run(sockets=[bound])


def open_browser(address: str) -> bool:
    """Open the address where there is a browser with a screen; False where there is none."""
    if sys.platform.startswith("linux") and not _has_screen():
        return False
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False


def _has_screen() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


LOCAL = ("127.0.0.1", "localhost", "::1")
_LOG = logging.getLogger("regard.server")
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
}


def make_app(
    service: Service,
    *,
    runs: Runs | None = None,
    hosts: Collection[str] | None = LOCAL,
    version: str = "",
) -> Starlette:
    """The application.

    Args:
        runs: training runs that can be replayed.
        hosts: the names under which it answers; None for all. A page from elsewhere that has its
            own name lead to this machine is so kept out.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        yield
        service.close()

    return Starlette(
        routes=_routes(Api(service, runs), version),
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={
            HTTPException: _http_fault,
            TooLargeError: _fault(413),
            GoneError: _fault(404),
            RegardError: _fault(422),
            Busy: _busy,
            Canceled: _canceled,
            Exception: _broken,
        },
        lifespan=lifespan,
    )


def _routes(api: Api, version: str) -> list[BaseRoute]:
    described = document(version)

    async def openapi(request: Request) -> JSONResponse:
        del request
        return JSONResponse(described, headers={"cache-control": "no-cache"})

    routes: list[BaseRoute] = [Route("/openapi.json", openapi)]
    for one in OPERATIONS:
        path = one.path.removeprefix("/api").replace("{number}", "{number:int}")
        routes.append(Route(path, getattr(api, one.name), methods=[one.method]))
    page = GZipMiddleware(PageFiles(directory=PAGE, html=True))
    return [Mount("/api", routes=routes), Mount("/", page)]


class PageFiles(StaticFiles):
    """The page's files; a browser asks each time whether they are still the same."""

    def file_response(self, *args: object, **options: object) -> Response:
        """A file, or the word that it has not changed."""
        made = super().file_response(*args, **options)  # type: ignore[arg-type]
        made.headers["cache-control"] = "no-cache"
        return made


class Guard:
    """Lets in only requests that mean this server, and says on every answer what pages may do."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] | None) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                extra = [(k.encode(), v.encode()) for k, v in _HEADERS.items()]
                message["headers"] = [*message["headers"], *(x for x in extra if x[0] not in given)]
            await send(message)

        said = self._refusal(Request(scope))
        app = self.app if said is None else _sentence(403, said)
        await app(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> str | None:
        host = request.headers.get("host", "")
        if self.hosts is not None and urlsplit(f"//{host}").hostname not in self.hosts:
            return f"this server answers only as {', '.join(self.hosts)}, not as {host[:100]!r}."
        origin = request.headers.get("origin")
        if request.method != "GET" and origin and urlsplit(origin).netloc != host:
            return "another page may not ask this server anything."
        return None


def _sentence(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status, headers={"cache-control": "no-store"})


def _fault(status: int):  # noqa: ANN202  a handler
    def handle(request: Request, error: Exception) -> Response:
        del request
        return _sentence(status, str(error))

    return handle


def _http_fault(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    said = {404: "there is nothing at {path}.", 405: "{path} cannot be asked with {method}."}
    text = said.get(status, "{path} cannot be answered.")
    return _sentence(status, text.format(path=request.url.path[:200], method=request.method))


def _busy(request: Request, error: Exception) -> Response:
    del request, error
    made = _sentence(503, "too many requests wait for this model: try again in a moment.")
    made.headers["retry-after"] = "2"
    return made


def _canceled(request: Request, error: Exception) -> Response:
    del request, error
    return _sentence(CLIENT_GONE, "the request was canceled.")


def _broken(request: Request, error: Exception) -> Response:
    del request, error
    return _sentence(500, BROKEN)
