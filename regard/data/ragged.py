"""Lists of ids of different lengths in files that are mapped into memory, not read into it."""

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import SupportsIndex

import numpy as np

from regard.errors import FileError


def smallest_type(size: int) -> np.dtype:
    """The narrowest type for ids below `size`."""
    return np.dtype(np.uint16 if size <= 2**16 else np.uint32)


class RaggedWriter:
    """Appends lists of ids to files; memory does not grow with them."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype):
        self._dtype = dtype
        self.total = 0
        ids, offsets, lengths = paths_of(folder, name)
        self._ids = ids.open("wb")
        self._offsets = offsets.open("wb")
        self._lengths = lengths.open("wb")
        self._offsets.write(np.zeros(1, np.int64).tobytes())

    def append(self, lists: Sequence[Sequence[int]]) -> None:
        """Add lists at the end."""
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        flat = (id for one in lists for id in one)
        self._ids.write(np.fromiter(flat, self._dtype, int(lengths.sum())).tobytes())
        self._offsets.write((np.cumsum(lengths) + self.total).tobytes())
        self._lengths.write(lengths.astype(np.uint32).tobytes())
        self.total += int(lengths.sum())

    def close(self) -> None:
        """Finish the files."""
        for stream in (self._ids, self._offsets, self._lengths):
            stream.close()


class Ragged:
    """Lists of ids that lie in files; opening costs nothing, and only what is used is read."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype, *, count: int, total: int):
        ids, offsets, lengths = paths_of(folder, name)
        self.flat = mapped(ids, dtype, total)
        self._offsets = mapped(offsets, np.dtype(np.int64), count + 1)
        self.lengths = mapped(lengths, np.dtype(np.uint32), count)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: SupportsIndex) -> np.ndarray:
        place = operator.index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"There is no list {place}; there are {len(self)}.")
        place %= len(self)
        return self.flat[self._offsets[place] : self._offsets[place + 1]]


def paths_of(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """The files of ids, offsets and lengths."""
    return folder / f"{name}.ids", folder / f"{name}.offsets", folder / f"{name}.lengths"


def mapped(path: Path, dtype: np.dtype, count: int) -> np.ndarray:
    """A file as an array that cannot be written to; its size must be right."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}.") from error
    if size != count * dtype.itemsize:
        raise FileError(
            f"{path} has {size:,} bytes where {count * dtype.itemsize:,} belong: it is damaged; "
            "delete its folder, and it will be made again."
        )
    if count == 0:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r", shape=(count,))
