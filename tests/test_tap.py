"""Taps: values pass through, listeners record or replace them, and nothing is left behind."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.tap import Tapped, listen, listening, path_at, split_path, tap, wanted


class Recorder:
    """Keeps what it sees."""

    changes = False

    def __init__(self, *wants: str):
        self.wanted = wants
        self.seen: list[Tapped] = []

    def wants(self, path: str) -> bool:
        return path in self.wanted

    def see(self, tapped: Tapped):
        self.seen.append(tapped)
        return tapped.value

    def values(self) -> list:
        return [tapped.value for tapped in self.seen]


class Changer(Recorder):
    """Puts another value in the place of what it sees."""

    changes = True

    def __init__(self, change: Callable, *wants: str):
        super().__init__(*wants)
        self.change = change

    def see(self, tapped: Tapped):
        super().see(tapped)
        return self.change(tapped.value)


def test_without_listeners_the_same_object_is_returned():
    value = torch.ones(2)
    assert tap("site.query", value, "query d_k") is value
    assert not listening()


def test_a_recorder_gets_path_value_and_axes():
    value, recorder = torch.ones(2), Recorder()
    with listen(recorder):
        assert listening()
        assert tap("site.query", value, "query d_k") is value
    (tapped,) = recorder.seen
    assert (tapped.path, tapped.axes, tapped.changed) == ("site.query", "query d_k", False)
    assert tapped.value is value


def test_a_recorder_gets_the_value_that_the_computation_continues_with():
    before, outer, after = Recorder(), Recorder(), Recorder()
    with listen(outer), listen(before, Changer(lambda x: x + 1), after):
        assert tap("x", 1, "") == 2
    assert before.values() == outer.values() == after.values() == [2]


def test_recorders_know_if_a_value_was_changed():
    recorder = Recorder()
    with listen(recorder, Changer(lambda x: x if x < 0 else 7)):
        tap("x", -1, "")
        tap("x", 1, "")
    assert [tapped.changed for tapped in recorder.seen] == [False, True]


def test_nested_blocks_add_and_remove_listeners():
    outer, inner = Recorder(), Recorder()
    with listen(outer):
        tap("a", 1, "")
        with listen(inner):
            tap("b", 2, "")
        tap("c", 3, "")
    tap("d", 4, "")
    assert outer.values() == [1, 2, 3]
    assert inner.values() == [2]


def test_nothing_is_left_behind_after_an_exception():
    recorder = Recorder()
    with pytest.raises(RuntimeError, match="in the middle"), listen(recorder):
        raise RuntimeError("in the middle")
    assert not listening()
    tap("x", 1, "")
    assert recorder.seen == []


def test_an_exception_inside_a_listener_leaves_nothing_behind_either():
    def refuse(value):
        raise ValueError("I will not")

    outer = Recorder()
    with listen(outer):
        with pytest.raises(ValueError, match="I will not"), listen(Changer(refuse)):
            tap("x", 1, "")
        assert tap("x", 2, "") == 2
    assert outer.values() == [2]
    assert not listening()


def test_threads_see_nothing_of_each_other():
    # all threads are inside their block at once, each with its own change
    barrier = threading.Barrier(4)

    def work(step: int) -> tuple[list, int]:
        recorder = Recorder()
        with listen(recorder, Changer(lambda x: x + step)):
            barrier.wait()
            result = [tap(f"thread{step}", 10 * i, "") for i in range(50)]
            barrier.wait()
        assert recorder.values() == result
        return result, len({tapped.path for tapped in recorder.seen})

    with ThreadPoolExecutor(4) as pool:
        for step, (result, n_paths) in enumerate(pool.map(work, range(4))):
            assert result == [10 * i + step for i in range(50)]
            assert n_paths == 1
    assert not listening()


def test_a_new_thread_starts_without_listeners():
    found = []
    with listen(Changer(lambda x: x + 1)):
        thread = threading.Thread(target=lambda: found.append(tap("x", 1, "")))
        thread.start()
        thread.join()
    assert found == [1]


def test_a_thread_that_inherits_the_listeners_cannot_change_them_for_the_others():
    recorder = Recorder()

    def inherit():
        with listen(Changer(lambda x: 100)):
            return tap("x", 1, "")

    with listen(recorder):
        assert copy_context().run(inherit) == 100
        assert tap("x", 2, "") == 2
    assert recorder.values() == [100, 2]


def test_tasks_that_take_turns_do_not_mix_their_listeners():
    async def work(step: int) -> list[int]:
        found = []
        with listen(Changer(lambda x: x + step)):
            for i in range(3):
                await asyncio.sleep(0)
                found.append(tap("x", 10 * i, ""))
        return found

    async def both():
        return await asyncio.gather(work(1), work(2))

    # in a separate thread, because that of the tests may already have a loop (of the browser)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: asyncio.run(both())).result() == [[1, 11, 21], [2, 12, 22]]


def test_a_value_is_wanted_if_any_listener_wants_it():
    assert not wanted("site.weights")
    with listen(Recorder("other.weights"), Changer(lambda x: x, "site.weights")):
        assert wanted("site.weights")
        assert wanted("site.nothing", "other.weights")
        assert not wanted("site.scores")
        assert not wanted()


def test_a_compiled_function_has_no_taps():
    def double(x):
        return tap("x", 2 * x, "")

    recorder = Recorder()
    with listen(recorder, Changer(lambda x: x + 1)):
        compiled = torch.compile(double, fullgraph=True, backend="eager")
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
        assert torch.equal(double(torch.ones(2)), torch.full((2,), 3.0))
    assert len(recorder.seen) == 1


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("encoder.layers.0.self.query", ("encoder.layers.0.self", 0, "query")),
        ("decoder.cross@3.query", ("decoder.cross", 3, "query")),
        ("attention.weights", ("attention", 0, "weights")),
        ("logits", ("", 0, "logits")),
    ],
)
def test_a_path_is_a_site_the_first_query_and_a_name(path, parts):
    assert split_path(path) == parts


def test_a_path_has_the_position_of_its_first_query_unless_that_is_0():
    assert path_at("decoder.cross", 0) == "decoder.cross"
    assert split_path(f"{path_at('decoder.cross', 3)}.query") == ("decoder.cross", 3, "query")


@given(st.lists(st.sampled_from([("record", 0), ("add", 1), ("add", 2), ("times", 3)]), max_size=6))
def test_any_listeners_apply_their_changes_in_order(kinds):
    changes = {"add": lambda n: lambda x: x + n, "times": lambda n: lambda x: x * n}
    listeners = [Recorder() if kind == "record" else Changer(changes[kind](n)) for kind, n in kinds]
    expected = 5
    for listener in listeners:
        expected = listener.change(expected) if listener.changes else expected
    with listen(*listeners):
        assert tap("x", 5, "") == expected
    assert all(one.values() == [expected] for one in listeners if not one.changes)
