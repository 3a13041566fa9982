"""Kept traces: found again, within a bound of bytes, with ids that nobody can guess."""

from threading import Barrier, Thread

import pytest
import torch

from regard.errors import UnknownNameError
from regard.server.trace_store import Kept, Store, Uploads, count_bytes
from regard.trace.trace import Trace

MEGABYTE = 2**20


def kept(store, name, megabytes=1):
    values = {"x": torch.zeros(megabytes * MEGABYTE // 4)}
    asked = {"model": "m", "text": name}
    return Kept(store.id_of(asked), asked, Trace(values=values), {})


def test_the_same_request_has_the_same_id_and_another_another():
    store = Store()
    one, same = store.id_of({"a": 1, "b": 2}), store.id_of({"b": 2, "a": 1})
    assert one == same
    assert len(one) == 32
    assert store.id_of({"a": 1, "b": 3}) != one


def test_ids_cannot_be_worked_out_elsewhere():
    assert Store().id_of({"a": 1}) != Store().id_of({"a": 1})


def test_the_one_not_looked_at_for_longest_goes_first():
    store = Store(limit=3 * MEGABYTE)
    first, second, third, fourth = (kept(store, name) for name in "abcd")
    for one in (first, second, third):
        store.put(one)
    assert store.n_bytes == 3 * MEGABYTE
    assert store.get(first.id) is first
    store.put(fourth)
    assert store.get(second.id) is None
    assert [store.get(one.id) for one in (first, third, fourth)] == [first, third, fourth]
    assert store.n_bytes <= store.limit


def test_a_trace_that_is_larger_than_the_bound_stays_until_the_next():
    store = Store(limit=MEGABYTE)
    large, small = kept(store, "large", 5), kept(store, "small")
    store.put(large)
    assert store.get(large.id) is large
    store.put(small)
    assert store.get(large.id) is None
    assert len(store) == 1


def test_what_is_worked_out_later_counts_too():
    store = Store(limit=3 * MEGABYTE)
    first, second = kept(store, "a"), kept(store, "b")
    store.put(first)
    store.put(second)
    store.grow(second, 2 * MEGABYTE)
    assert store.get(first.id) is None
    assert store.n_bytes == 3 * MEGABYTE


def test_tensors_that_share_memory_count_once():
    whole = torch.zeros(1000)
    assert count_bytes([whole, whole[:10], whole.view(10, 100)]) == 4000
    assert count_bytes([whole, whole.clone()]) == 8000


def test_something_is_worked_out_once_however_many_ask():
    one, began, calls = kept(Store(), "a"), Barrier(4), []

    def ask():
        began.wait()
        one.work_out("name", lambda: calls.append(1) or len(calls))

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]
    assert one.known == {"name": 1}


def test_pictures_are_kept_within_a_bound_under_the_name_of_what_they_are():
    uploads = Uploads(limit=250)
    names = [uploads.put(bytes([i]) * 100) for i in range(3)]
    assert len(set(names)) == 3
    assert uploads.get(names[2]) == b"\x02" * 100
    assert uploads.put(b"\x02" * 100) == names[2]
    with pytest.raises(UnknownNameError, match="send it again"):
        uploads.get(names[0])
