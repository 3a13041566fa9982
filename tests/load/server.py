"""A server of regard in a separate process, and a small HTTP client for thousands of requests."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil


class ServerProcess:
    """`regard serve` on a free port; its log goes to a file."""

    def __init__(self, models, folder):
        self.log = Path(folder) / "server.log"
        command = [sys.executable, "-m", "regard", "serve", *models]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--port", "0", "--log-format", "json"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r":(\d+)", line)
        if found is None:
            raise RuntimeError(f"the server did not start: {self.log.read_text()}")
        self.port = int(found[1])
        self.status = psutil.Process(self.process.pid)

    def sample(self):
        """Megabytes, threads and open files."""
        with self.status.oneshot():
            megabytes = self.status.memory_info().rss / 1e6
            return megabytes, self.status.num_threads(), self.status.num_fds()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@dataclass
class Answer:
    """An answer: its status, headers and body, and the seconds until it was there."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float


class Client:
    """One connection, opened again when the server has closed it."""

    def __init__(self, port, name="load"):
        self.port, self.name, self.streams = port, name, None

    async def ask(self, method, path, body=b"", kind="application/json"):
        """Send a request and read the whole answer; a closed connection is tried again."""
        start = time.monotonic()
        for attempt in (0, 1):
            try:
                await self._send(method, path, body, kind)
                return await self._read(start)
            except (ConnectionError, asyncio.IncompleteReadError):
                fresh = self.streams is not None and self.fresh
                await self.close()
                if attempt or fresh:
                    raise
        raise ConnectionError

    async def leave(self, method, path, body=b"", after=0.0):
        """Send a request or a part of it, and close the connection."""
        await self.close()
        await self._send(method, path, body, "application/json", part=after == 0)
        await asyncio.sleep(after)
        await self.close()

    async def close(self):
        if self.streams is not None:
            self.streams[1].transport.abort()
            self.streams = None

    async def _send(self, method, path, body, kind, part=False):
        self.fresh = self.streams is None
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\ncontent-type: {kind}"
        head += f"\r\nx-regard-client: {self.name}\r\ncontent-length: {len(body)}\r\n\r\n"
        sent = head.encode("utf-8", "surrogatepass") + body
        self.streams[1].write(sent[: len(sent) // 2] if part else sent)
        await self.streams[1].drain()

    async def _read(self, start):
        assert self.streams is not None
        reader = self.streams[0]
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])
        }
        body = await reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            await self.close()
        return Answer(int(head[0].split()[1]), headers, body, time.monotonic() - start)


def is_same(found, expected):
    """Return True for equal bytes, or for JSON whose numbers differ by rounding only."""
    if found == expected or _parts(found) == _parts(expected):
        return True
    try:
        return _close(json.loads(found), json.loads(expected))
    except ValueError:
        return False


def _parts(data):
    """Return header and numbers of a safetensors file: its metadata have no order."""
    size = int.from_bytes(data[:8], "little")
    try:
        return json.loads(data[8 : 8 + size]), data[8 + size :]
    except ValueError:
        return data


def _close(one, other):
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-4 * max(1, abs(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    return one == other
