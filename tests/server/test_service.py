"""Caches of stored traces and uploads."""

from threading import Barrier, Thread

import torch

from regard.server.answers import Answer
from regard.server.catalog import Catalog
from regard.server.service import Service, SizedCache, StoredTrace, count_bytes
from regard.trace.trace import Trace


def test_the_same_request_has_the_same_id_only_on_the_same_server(service):
    id = service.id_of({"a": 1, "b": 2})
    assert id == service.id_of({"b": 2, "a": 1})
    assert len(id) == 32
    assert service.id_of({"a": 1, "b": 3}) != id
    other = Service(Catalog())
    assert other.id_of({"a": 1, "b": 2}) != id  # ids cannot be computed elsewhere
    other.close()


def test_the_least_recently_used_entry_is_dropped_first():
    cache = SizedCache(3)
    for name in "abc":
        cache.put(name, name.upper(), 1)
    assert (cache.get("a"), cache.n_bytes) == ("A", 3)
    cache.put("d", "D", 1)
    assert [cache.get(name) for name in "abcd"] == ["A", None, "C", "D"]
    cache.grow("d", 2)
    assert (len(cache), cache.n_bytes) == (1, 3)


def test_an_entry_beyond_the_limit_stays_until_the_next():
    cache = SizedCache(1)
    cache.put("large", 0, 5)
    assert cache.get("large") == 0
    cache.put("small", 1, 1)
    assert cache.get("large") is None


def test_tensors_that_share_memory_count_once():
    whole, trace = torch.zeros(1000), Trace()
    trace.values = {"whole": whole, "part": whole[:10], "view": whole.view(10, 100)}
    assert count_bytes(trace) == 4000
    trace.values = {"one": whole, "other": whole.clone()}
    assert count_bytes(trace) == 8000


def test_a_value_is_computed_once_by_several_threads():
    stored, ready, calls = StoredTrace("a", {}, Trace(), Answer(kind="none")), Barrier(4), []

    def compute():
        ready.wait()
        stored.cached("name", lambda: calls.append(1) or len(calls))

    threads = [Thread(target=compute) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]
    assert stored.computed == {"name": 1}


def test_an_image_has_the_same_name_each_time(service):
    name = service.upload(b"x")
    assert name == service.upload(b"x") != service.upload(b"y")
    assert service.uploads.get(name) == b"x"
