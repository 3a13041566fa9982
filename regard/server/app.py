"""The web application: routes, the page's files, request checks and error responses."""

import contextlib
import errno
import gzip
import hashlib
import hmac
import json
import os
import re
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable, Collection
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.errors import InputError, RegardError
from regard.server import (
    analysis_routes,
    array_routes,
    decoding_routes,
    error_codes,
    libretranslate_routes,
    routes,
    trace_routes,
)
from regard.server.connections import Exchange, RequestLog
from regard.server.error_codes import ApiError, ErrorResponse, JobCanceledError
from regard.server.html_export import PAGE, joined_script
from regard.server.service import Service
from regard.server.settings import LIMITS

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
_ALL_ADDRESSES = ("0.0.0.0", "::")
_PORTS_TO_TRY = 50
_COOKIE = "regard_token"
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'self'"
    ),
}
_EXPECTED = (
    RegardError,
    JobCanceledError,
    ClientDisconnect,
    HTTPException,
    RequestValidationError,
)
_EMBED = re.compile(rb"(?:^|&)embed=(?:pattern|flow)(?:&|$)")
_DESCRIPTION = (
    "Run Transformers and inspect them. Arrays are safetensors files. Long requests report "
    "progress if they accept text/event-stream: events `progress`, then `result` or `error`; "
    "closing the connection cancels the work."
)


def make_app(
    service: Service,
    *,
    hosts: Collection[str] | None = LOCAL_HOSTS,
    version: str = "",
    token: str = "",
    log: Callable[[RequestLog], None] | None = None,
) -> FastAPI:
    """Build the application.

    Args:
        hosts: host names under which it answers, None for all (see `names_of_server`).
        token: if given, requests need it: in the address once (?token=…), then in a cookie, or as
            "Authorization: Bearer …".
        log: called after each request.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="regard",
        version=version or "0",
        description=_DESCRIPTION,
        openapi_url="/api/openapi.json",
        docs_url=None,  # it would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        responses={"default": {"model": ErrorResponse, "description": "Error"}},
    )
    app.state.service = service
    for module in (
        routes,
        trace_routes,
        array_routes,
        analysis_routes,
        decoding_routes,
        libretranslate_routes,
    ):
        app.include_router(module.router)
    app.add_api_route("/health", lambda: {"status": "ok"}, include_in_schema=False)
    app.router.default = GZipMiddleware(PageFiles(directory=PAGE, html=True))
    app.add_middleware(RequestGuard, hosts=hosts, token=token, log=log)
    for kind in (*_EXPECTED, Exception):
        app.add_exception_handler(kind, _on_error)
    return app


_SCRIPT = "js/live.js"


@lru_cache(maxsize=1)
def _joined_page(stamp: int) -> tuple[bytes, str]:
    """Return the page's modules as one compressed script, and its entity tag.

    Args:
        stamp: the time of the last change of a module; a changed one is read again.
    """
    joined_script.cache_clear()
    data = joined_script(_SCRIPT).encode()
    return gzip.compress(data, mtime=0), f'"{hashlib.sha256(data).hexdigest()[:32]}"'


class PageFiles(StaticFiles):
    """The page's files, which browsers revalidate on each load.

    All modules come with the first one as one script: fewer bytes, and one request instead of 130.
    """

    async def get_response(self, path: str, scope: Scope) -> Response:
        headers = Headers(scope=scope)
        if path != _SCRIPT or "gzip" not in headers.get("accept-encoding", ""):
            return await super().get_response(path, scope)
        stamp = max(one.stat().st_mtime_ns for one in (PAGE / "js").rglob("*.js"))
        data, tag = _joined_page(stamp)
        given = {"cache-control": "no-cache", "etag": tag, "vary": "Accept-Encoding"}
        if headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=given)
        given["content-encoding"] = "gzip"
        return Response(data, headers=given, media_type="text/javascript")

    def file_response(self, *args: object, **options: object) -> Response:
        response = super().file_response(*args, **options)  # type: ignore[arg-type]
        response.headers["cache-control"] = "no-cache"
        return response


class RequestGuard:
    """Middleware that refuses foreign hosts and origins and large bodies, adds headers and logs."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] | None,
        token: str = "",
        log: Callable[[RequestLog], None] | None = None,
    ) -> None:
        self.app, self.hosts, self.token, self.log = app, hosts, token, log
        self.n_running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        refusal = self._refusal(request)
        app = self.app if refusal is None else error_response(refusal)
        exchange = Exchange(receive, send, lambda headers: self._add_headers(request, headers))
        self.n_running += 1
        try:
            await app(scope, exchange.receive, exchange.send)
        finally:
            self.n_running -= 1
            if self.log is not None:
                self.log(exchange.describe(scope))

    def _add_headers(self, request: Request, headers: MutableHeaders) -> None:
        for name, value in _headers_of(request.scope).items():
            headers.setdefault(name, value)
        if self.token and self._given_token(request, "query") == self.token:
            cookie = f"{_COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            headers.append("set-cookie", cookie)

    def _refusal(self, request: Request) -> ApiError | None:
        host = request.headers.get("host", "")
        if self.hosts is not None and not _is_among(self.hosts, _parts(f"//{host}")[0]):
            allowed = " or ".join(one for one in self.hosts if one not in _ALL_ADDRESSES)
            return ApiError("wrong_host", host=repr(host[:100]), allowed=allowed)
        if self.token and request.url.path != "/health":
            given = (self._given_token(request, place) for place in ("query", "cookie", "header"))
            if not any(hmac.compare_digest(one.encode(), self.token.encode()) for one in given):
                return ApiError("wrong_token")
        if _is_foreign(request, host):
            return ApiError("wrong_origin")
        if self.n_running >= LIMITS.connections:
            return ApiError("busy")
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > LIMITS.body_bytes:
            return ApiError("body_too_large", limit=LIMITS.body_bytes)
        return None

    def _given_token(self, request: Request, place: str) -> str:
        """Return the token that a request has in its address, its cookie or its header."""
        if place == "query":
            return request.query_params.get("token", "")
        if place == "cookie":
            return request.cookies.get(_COOKIE, "")
        return request.headers.get("authorization", "").removeprefix("Bearer ")


def _is_foreign(request: Request, host: str) -> bool:
    """Return True for requests that a page of another server makes, except that it links here."""
    headers = request.headers
    origin = headers.get("origin")
    if request.method != "GET" and origin and _parts(origin)[1] != host:
        return True
    links = headers.get("sec-fetch-mode", "navigate") == "navigate"
    return headers.get("sec-fetch-site") == "cross-site" and not links


def _is_among(hosts: Collection[str], name: str | None) -> bool:
    """Return True for one of the hosts, and for any IP address if the server listens on all."""
    if name is None:
        return False
    listens_on_all = any(one in hosts for one in _ALL_ADDRESSES)
    return name in hosts or (listens_on_all and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name))
    except ValueError:
        return False


def _parts(address: str) -> tuple[str | None, str]:
    """Return host name and network location of an address; no name for a malformed one."""
    try:
        found = urlsplit(address)
        return found.hostname, found.netloc
    except ValueError:
        return None, ""


def _headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers of a response: pages of others may frame only the page's embed views."""
    embeds = scope["path"] in ("/", "/index.html") and _EMBED.search(scope["query_string"])
    if not embeds:
        return _HEADERS
    policy = _HEADERS["content-security-policy"].removesuffix("; frame-ancestors 'self'")
    return {**_HEADERS, "content-security-policy": policy}


def error_response(error: Exception) -> Response:
    """Return the response to an error."""
    info = error_codes.describe_error(error)
    headers = {"cache-control": "no-store"}
    if info.code in error_codes.RETRIED:
        headers["retry-after"] = "2"
    # As ASCII, because messages may quote half a surrogate pair, which UTF-8 cannot encode.
    body = json.dumps(ErrorResponse(error=info).model_dump())
    status = error_codes.ERROR_CODES[info.code].status
    return Response(body, status, headers, media_type="application/json")


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        error = error_codes.validation_error(error.errors()[0])
    elif isinstance(error, HTTPException):
        params = {"path": request.url.path[:200], "method": request.method}
        limit = LIMITS.idle_seconds if error.status_code == 408 else LIMITS.body_bytes
        params |= {"limit": limit, "problem": "it is not UTF-8"}
        if error.status_code in _CODES_OF_STATUS:
            answer = error_response(ApiError(_CODES_OF_STATUS[error.status_code], **params))
            answer.headers.update(error.headers or {})  # Allow: the methods that exist
            return answer
    return error_response(error)


_CODES_OF_STATUS = {
    400: "invalid_json",
    404: "not_found",
    405: "method_not_allowed",
    408: "body_too_slow",
    413: "body_too_large",
}


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the port, or on the next free one; 0 takes any."""
    if not 0 <= port < 65_536:
        raise InputError(f"port is {port}; it must be 0 (any free port) to 65535.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port, min(port + _PORTS_TO_TRY, 65_536)) if port else (0,):
        try:
            return socket.create_server((host, candidate), family=family, backlog=128)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            reason = (error.strerror or "").partition(" (")[0]
            raise InputError(
                f"the server cannot listen on {host}, port {candidate} ({reason}): choose "
                "another address with --host and --port."
            ) from error
    raise InputError(
        f"ports {port} to {port + _PORTS_TO_TRY - 1} are all in use: choose another with --port."
    )


def address_of(bound: socket.socket, host: str) -> str:
    """Return the URL to open in a browser on this machine."""
    port = bound.getsockname()[1]
    shown = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"


def names_of_server(host: str, *, token: str, more: Collection[str] = ()) -> list[str] | None:
    """Return the names under which a server that listens on `host` answers, None for all.

    Other names are refused to keep out pages whose own name points to this machine (DNS
    rebinding). Such a page never has the token, because browsers send the cookie to the name that
    set it; so with a token and without `more` names, any name will do. An address in numbers
    cannot be pointed elsewhere.
    """
    if token and not more and not is_local(host):
        return None
    own = socket.gethostname()
    names = () if is_local(host) else (own, f"{own}.local")
    return [*dict.fromkeys(one.lower() for one in (*LOCAL_HOSTS, host or "::", *names, *more))]


def is_local(host: str) -> bool:
    """Return True if only programs on this machine can reach a host name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def open_browser(address: str) -> bool:
    """Open an address; return False without a browser and a display."""
    has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform.startswith("linux") and not has_display:
        return False
    with contextlib.suppress(webbrowser.Error):
        return webbrowser.open(address)
    return False
