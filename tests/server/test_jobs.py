"""The queue of a model: clients take turns, jobs report progress and can be canceled."""

from threading import Event

import pytest

from regard.server import jobs
from regard.server.error_codes import ApiError, JobCanceledError
from regard.server.jobs import Job, ModelWorker, ProgressListener
from regard.server.settings import LIMITS
from regard.tap import listen, tap

TIMEOUT = 10


@pytest.fixture
def worker():
    worker = ModelWorker("test")
    yield worker
    worker.close()


@pytest.fixture
def release(worker):
    """The event that ends the job that now occupies the worker."""
    started, release = Event(), Event()

    def work(job):
        started.set()
        release.wait(TIMEOUT)

    worker.submit(Job(work, "holder"))
    assert started.wait(TIMEOUT)
    yield release
    release.set()


def test_clients_take_turns(worker, release):
    order, names = [], ["a1", "a2", "a3", "b1", "c1", "b2"]
    waiting = [Job(lambda job, name=name: order.append(name), client=name[0]) for name in names]
    for job in waiting:
        worker.submit(job)
    release.set()
    for job in waiting:
        job.future.result(TIMEOUT)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_job_canceled_in_the_queue_never_starts(worker, release):
    ran = []
    worker.submit(Job(lambda job: ran.append(1))).cancel()
    after = worker.submit(Job(lambda job: "done"))
    release.set()
    assert after.future.result(TIMEOUT) == "done"
    assert ran == []


def test_a_running_job_ends_at_its_next_check(worker):
    started, release = Event(), Event()

    def work(job):
        started.set()
        release.wait(TIMEOUT)
        with listen(ProgressListener(job, "tracing")):
            tap("encoder.layers.0.self.context", 1.0, "")
        return "too far"

    job = worker.submit(Job(work))
    started.wait(TIMEOUT)
    job.cancel()
    release.set()
    with pytest.raises(JobCanceledError):
        job.future.result(TIMEOUT)


def test_an_error_does_not_stop_the_worker(worker):
    def work(job):
        raise ValueError("mine")

    first, second = worker.submit(Job(work)), worker.submit(Job(lambda job: 2))
    with pytest.raises(ValueError, match="mine"):
        first.future.result(TIMEOUT)
    assert second.future.result(TIMEOUT) == 2


def test_attention_sites_are_counted(worker, monkeypatch):
    monkeypatch.setattr(jobs, "_REPORT_INTERVAL", -1.0)
    reports = []

    def work(job):
        with listen(ProgressListener(job, "tracing", 2)):
            for layer in range(2):
                tap(f"encoder.layers.{layer}.self.query", 1.0, "")
                tap(f"encoder.layers.{layer}.self.context", 1.0, "")

    worker.submit(Job(work, on_progress=reports.append)).future.result(TIMEOUT)
    assert [(x.doing, x.done, x.of) for x in reports] == [("tracing", 1, 2), ("tracing", 2, 2)]


def test_a_full_queue_refuses_jobs(worker, release, monkeypatch):
    monkeypatch.setattr(jobs, "LIMITS", LIMITS.model_copy(update={"waiting_jobs": 2}))
    worker.submit(Job(lambda job: None))
    worker.submit(Job(lambda job: None))
    with pytest.raises(ApiError, match="too many requests"):
        worker.submit(Job(lambda job: None))


def test_a_closed_worker_cancels_waiting_jobs(worker, release):
    waiting = worker.submit(Job(lambda job: None))
    worker.close()
    assert waiting.future.cancelled()
    with pytest.raises(ApiError):
        worker.submit(Job(lambda job: None))
