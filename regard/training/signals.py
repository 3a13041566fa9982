"""Signals that ask a run to stop: the step is ended and saved first."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Request:
    """Whether somebody has asked to stop, and by which signal."""

    signal: int = 0


@contextmanager
def stop_requests() -> Iterator[Request]:
    """Note Ctrl-C and SIGTERM instead of dying of them; a second one works as usual.

    In a thread that is not the main one there are no signals, and nothing is noted.
    """
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before: dict[int, Any] = {}

    def note(number: int, frame: object) -> None:
        del frame
        request.signal = number
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
