"""Locks of files that several processes may write, and what killed processes left behind.

A lock is a file that is removed when the block ends; the system releases that of a killed process.
"""

import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import FileError

_MACHINE = hashlib.sha256(platform.node().encode()).hexdigest()[:6]
_TEMPORARY = re.compile(rf"\..+\.{_MACHINE}-(\d+)\.\w+\.tmp")


@contextmanager
def hold_lock(file: Path, folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file for `folder`; if another process has it, wait or refuse."""
    import fcntl  # which not every system has

    while True:
        lock = file.open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            with lock:
                lock.seek(0)
                holder = lock.read().strip() or "that just started"
            raise FileError(
                f"{folder} is being written by process {holder}: wait until it ends, or choose "
                "another folder."
            ) from error
        if file.exists() and os.fstat(lock.fileno()).st_ino == file.stat().st_ino:
            break
        lock.close()  # the process before removed the file between the two calls
    with lock:
        try:
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield
        finally:
            file.unlink(missing_ok=True)


def temporary_folder(final: Path) -> Path:
    """Make a hidden folder next to `final` that `remove_leftovers` removes if this process dies."""
    start = f".{final.name}.{_MACHINE}-{os.getpid()}."
    return Path(tempfile.mkdtemp(dir=final.parent, prefix=start, suffix=".tmp"))


def remove_leftovers(parent: Path) -> None:
    """Remove what processes that were killed left in a folder, whatever they were writing.

    These are temporary folders of processes of this machine, and half-written folders (`.x.new`)
    whose lock (`.x.lock`) no process holds.
    """
    for path in parent.glob(".*"):
        found = _TEMPORARY.fullmatch(path.name)
        if found and not is_running(int(found[1])):
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix == ".lock":
            with suppress(OSError):
                _remove_unlocked(path)


def _remove_unlocked(file: Path) -> None:
    """Remove a half-written folder and its lock, unless a process holds it."""
    half = file.with_suffix(".new")
    if half.is_symlink() or not half.is_dir():
        return
    import fcntl

    with file.open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not lock.read().isdigit() or os.fstat(lock.fileno()).st_ino != file.stat().st_ino:
            return  # not regard's, or the lock of a process that has ended meanwhile
        removed = temporary_folder(file.with_name(file.stem.removeprefix(".")))
        half.rename(removed / half.name)
        file.unlink()
    shutil.rmtree(removed, ignore_errors=True)


def is_running(pid: int) -> bool:
    """Return True if there is a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
