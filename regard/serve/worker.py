"""Who computes when: each model has one thread and one queue in which clients take turns.

A client with many jobs waits for itself, not others for it. A job tells how far it is and can be
cancelled: between two inner values of a model, or between two lines of a text.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Event, Thread
from typing import Any

from regard.tap import Tapped

MOST_WAITING = 64
"""Jobs that may wait for one model."""
_PAUSE = 0.05
"""Seconds between two reports of progress."""


class Cancelled(Exception):  # noqa: N818  nobody's fault
    """Nobody waits for this result any more."""


class Busy(Exception):  # noqa: N818  nobody's fault
    """More jobs wait for a model than it will get through."""


@dataclass(frozen=True)
class Progress:
    """How far a job is."""

    doing: str
    """"waiting", "loading", "writing" or "tracing", for programs."""
    done: int
    of: int | None = None
    """Of how many; None where nobody knows."""
    text: str | None = None
    """What is written so far, where a text is written."""


@dataclass(eq=False)
class Job:
    """Something to compute, and whoever waits for it."""

    work: Callable[["Job"], Any]
    client: str = ""
    tell: Callable[[Progress], None] | None = None
    """Called with progress, from the worker's thread."""
    future: Future[Any] = field(default_factory=Future)
    _stopped: Event = field(default_factory=Event)
    _told: float = 0.0

    def cancel(self) -> None:
        """Nobody waits for this any more: it ends at the next check, or never begins."""
        self._stopped.set()
        self.future.cancel()

    def check(self) -> None:
        """Stop here if the job was cancelled."""
        if self._stopped.is_set():
            raise Cancelled

    def report(
        self, doing: str, done: int, of: int | None = None, *, text: str | None = None
    ) -> None:
        """Say how far it is; not more often than somebody could read it."""
        self.check()
        now = time.monotonic()
        if self.tell is not None and (now - self._told > _PAUSE or done == of):
            self._told = now
            self.tell(Progress(doing, done, of, text))

    def run(self) -> None:
        """Do the work and hand over what comes of it."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.work(self))
        except BaseException as error:
            self.future.set_exception(error)


class Watching:
    """A listener that stops a model when its job was cancelled, and counts attention sites."""

    changes = False

    def __init__(self, job: Job, doing: str, of: int | None = None) -> None:
        self.job, self.doing, self.of = job, doing, of
        self.done = 0

    def wants(self, path: str) -> bool:
        del path
        return False

    def see(self, tapped: Tapped) -> Any:
        self.job.check()
        if tapped.path.endswith(".context"):
            self.done += 1
            self.job.report(self.doing, self.done, self.of)
        return tapped.value


class Worker:
    """One thread that does the jobs of one model, in turns among those who ask."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._waiting: OrderedDict[str, deque[Job]] = OrderedDict()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._closed = False

    def submit(self, job: Job) -> Job:
        """Put a job into the queue."""
        with self._changed:
            if self._closed or self.n_waiting >= MOST_WAITING:
                raise Busy
            self._waiting.setdefault(job.client, deque()).append(job)
            if self._thread is None:
                self._thread = Thread(target=self._run, name=f"model {self.name}", daemon=True)
                self._thread.start()
            self._changed.notify()
        return job

    @property
    def n_waiting(self) -> int:
        """How many jobs have not begun."""
        with self._changed:
            return sum(len(jobs) for jobs in self._waiting.values())

    def close(self) -> None:
        """Begin nothing more."""
        with self._changed:
            self._closed = True
            for jobs in self._waiting.values():
                for job in jobs:
                    job.cancel()
            self._waiting.clear()
            self._changed.notify()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            job.run()
            del job  # its result shall not live on while nothing else comes

    def _next(self) -> Job | None:
        """The next job: of the client whose turn it is."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            client, jobs = self._waiting.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                self._waiting[client] = jobs  # at the end: others come first
            return job
