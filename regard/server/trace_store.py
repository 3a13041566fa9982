"""Traces that are kept for as long as there is room: the one not looked at for longest goes first.

A trace's id is a keyed hash of what was asked for: whoever asks the same finds the same trace, and
nobody can guess the id of what others have asked for.
"""

import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import Any

from torch import Tensor

from regard.errors import UnknownNameError
from regard.trace.trace import Trace

PREFIX = "upload:"
UPLOAD_LIMIT = 128 * 2**20
"""Bytes that pictures may take."""


class Uploads:
    """Pictures by name; the one not asked for longest goes first."""

    def __init__(self, limit: int = UPLOAD_LIMIT) -> None:
        self.limit = limit
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def put(self, data: bytes) -> str:
        """Keep a picture; the name is the same whenever the picture is."""
        name = PREFIX + hashlib.sha256(data).hexdigest()
        with self._lock:
            self._kept[name] = data
            self._kept.move_to_end(name)
            while len(self._kept) > 1 and sum(map(len, self._kept.values())) > self.limit:
                self._kept.popitem(last=False)
        return name

    def get(self, name: str) -> bytes:
        """The picture of this name."""
        with self._lock:
            if name not in self._kept:
                raise UnknownNameError("this picture is no longer here: send it again.")
            self._kept.move_to_end(name)
            return self._kept[name]


LIMIT = 2 * 2**30
"""Bytes that traces may take."""
_ID_LENGTH = 32


@dataclass
class Kept:
    """A trace, what was asked for, and what has been worked out about it since."""

    id: str
    asked: dict[str, Any]
    """The request that gives this trace again, as JSON."""
    trace: Trace
    answer: dict[str, Any]
    known: dict[Any, Any] = field(default_factory=dict)
    """Descriptions, thumbnails and pyramids, by name."""
    n_bytes: int = 0
    _locks: dict[Any, RLock] = field(default_factory=dict)

    def work_out(self, name: Any, work: Callable[[], Any]) -> Any:
        """What is known under this name, worked out the first time somebody asks."""
        with self._locks.setdefault(name, RLock()):
            if name not in self.known:
                self.known[name] = work()
            return self.known[name]


class Store:
    """The traces of a server, within a number of bytes."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._secret = secrets.token_bytes(32)
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lock = RLock()

    def id_of(self, asked: dict[str, Any]) -> str:
        """The id of what is asked for; another server gives it another."""
        plain = json.dumps(asked, sort_keys=True, ensure_ascii=False).encode()
        return hmac.new(self._secret, plain, "sha256").hexdigest()[:_ID_LENGTH]

    def get(self, id: str) -> Kept | None:
        """The trace of this id, which is now the last to go; None if it is not here."""
        with self._lock:
            if id in self._kept:
                self._kept.move_to_end(id)
            return self._kept.get(id)

    def put(self, kept: Kept) -> None:
        """Keep a trace; others go if there is no room for all. The newest always stays."""
        kept.n_bytes = count_bytes(_tensors(kept.trace))
        with self._lock:
            self._kept[kept.id] = kept
            self._kept.move_to_end(kept.id)
            self._make_room()

    def grow(self, kept: Kept, n_bytes: int) -> None:
        """Note that a trace takes so many bytes more than it did."""
        with self._lock:
            kept.n_bytes += n_bytes
            self._make_room()

    @property
    def n_bytes(self) -> int:
        """How much room all traces take."""
        with self._lock:
            return sum(kept.n_bytes for kept in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def _make_room(self) -> None:
        while len(self._kept) > 1 and self.n_bytes > self.limit:
            self._kept.popitem(last=False)


def count_bytes(tensors: Iterable[Tensor]) -> int:
    """The memory behind tensors; what several of them share counts once."""
    storages = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def _tensors(trace: Trace) -> Iterable[Tensor]:
    yield from trace.values.values()
    for site in trace.sites.values():
        yield from (site.query, site.key, site.value, site.sums, *site.changed.values())
