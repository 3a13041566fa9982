"""The queue of a model: clients take turns, jobs tell how far they are and can be canceled."""

from threading import Event

import pytest

from regard.server import jobs as working
from regard.server.jobs import Busy, Canceled, Job, Watching, Worker
from regard.tap import listen, tap

PATIENCE = 10


@pytest.fixture
def worker():
    made = Worker("test")
    yield made
    made.close()


def held(worker):
    """A job that keeps the worker until it is let go."""
    begun, go_on = Event(), Event()

    def work(job):
        begun.set()
        go_on.wait(PATIENCE)

    worker.submit(Job(work, "holder"))
    assert begun.wait(PATIENCE)
    return go_on


def test_clients_take_turns_whoever_came_first(worker):
    go_on, order = held(worker), []
    names = ["a1", "a2", "a3", "b1", "c1", "b2"]
    jobs = [Job(lambda job, name=name: order.append(name), client=name[0]) for name in names]
    for job in jobs:
        worker.submit(job)
    go_on.set()
    for job in jobs:
        job.future.result(PATIENCE)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_job_that_is_canceled_in_the_queue_never_begins(worker):
    go_on, ran = held(worker), []
    job = worker.submit(Job(lambda job: ran.append(1)))
    job.cancel()
    after = worker.submit(Job(lambda job: "done"))
    go_on.set()
    assert after.future.result(PATIENCE) == "done"
    assert ran == []


def test_a_job_that_runs_ends_at_its_next_check(worker):
    begun, go_on = Event(), Event()

    def work(job):
        begun.set()
        go_on.wait(PATIENCE)
        with listen(Watching(job, "tracing")):
            tap("encoder.layers.0.self.context", 1.0, "")
        return "too far"

    job = worker.submit(Job(work))
    begun.wait(PATIENCE)
    job.cancel()
    go_on.set()
    with pytest.raises(Canceled):
        job.future.result(PATIENCE)


def test_a_fault_in_one_job_is_its_own(worker):
    def work(job):
        raise ValueError("mine")

    first, second = worker.submit(Job(work)), worker.submit(Job(lambda job: 2))
    with pytest.raises(ValueError, match="mine"):
        first.future.result(PATIENCE)
    assert second.future.result(PATIENCE) == 2


def test_sites_are_counted_while_a_model_runs(worker, monkeypatch):
    monkeypatch.setattr(working, "_PAUSE", -1.0)
    told = []

    def work(job):
        with listen(Watching(job, "tracing", 2)):
            for layer in range(2):
                tap(f"encoder.layers.{layer}.self.query", 1.0, "")
                tap(f"encoder.layers.{layer}.self.context", 1.0, "")

    worker.submit(Job(work, tell=told.append)).future.result(PATIENCE)
    assert [(one.doing, one.done, one.of) for one in told] == [("tracing", 1, 2), ("tracing", 2, 2)]


def test_more_jobs_than_can_be_done_are_refused(worker, monkeypatch):
    monkeypatch.setattr(working, "MOST_WAITING", 2)
    go_on = held(worker)
    worker.submit(Job(lambda job: None))
    worker.submit(Job(lambda job: None))
    with pytest.raises(Busy):
        worker.submit(Job(lambda job: None))
    go_on.set()


def test_a_worker_that_is_closed_begins_nothing_more(worker):
    go_on = held(worker)
    waiting = worker.submit(Job(lambda job: None))
    worker.close()
    go_on.set()
    assert waiting.future.canceled()
    with pytest.raises(Busy):
        worker.submit(Job(lambda job: None))
