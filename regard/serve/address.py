"""Where the server listens: a free port, the address to open, and a browser if there is one."""

import contextlib
import errno
import os
import socket
import sys
import webbrowser
from ipaddress import ip_address

import uvicorn
from starlette.types import ASGIApp

from regard.errors import InputError

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
