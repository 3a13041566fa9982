"""Pictures that people have sent, for as long as there is room; links name them by their hash."""

import hashlib
from collections import OrderedDict
from threading import Lock

from regard.errors import UnknownNameError

PREFIX = "upload:"
LIMIT = 128 * 2**20
"""Bytes that pictures may take."""


class Uploads:
    """Pictures by name; the one not asked for longest goes first."""

    def __init__(self, limit: int = LIMIT) -> None:
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
