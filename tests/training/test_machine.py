"""The machine: memory that is kept, threads that are wrap_module, and a peak that is one."""

import ctypes
import platform
import sys

import psutil
import pytest
import torch

from regard import hardware as machine
from regard.hardware import (
    keep_freed_memory,
    matmul_rate,
    peak_memory,
    set_threads,
    total_matmul_rate,
)
from regard.training.distributed import World

CPU = torch.device("cpu")
MEGABYTE = 2**20


@pytest.fixture(autouse=True)
def threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_threads_are_those_wanted_or_an_even_share_of_the_cores(monkeypatch):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda process: set(range(8)))
    assert set_threads(3) == 3 == torch.get_num_threads()
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert set_threads() == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert set_threads() == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "100")
    assert set_threads() == 1


@pytest.mark.parametrize(("there", "threads"), [(6, 6), (None, 1)])
def test_all_cores_are_counted_where_nobody_says_which_are_ours(monkeypatch, there, threads):
    monkeypatch.delattr(machine.os, "sched_getaffinity")  # as on macOS
    monkeypatch.setattr(machine.os, "cpu_count", lambda: there)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert set_threads() == threads


def test_the_peak_of_a_team_is_the_sum_over_its_processes():
    class WithAFastOne(World):
        def total(self, *numbers):
            return [number + 1e18 for number in numbers]

    assert 1e18 < total_matmul_rate(WithAFastOne()) < 2e18


def test_the_peak_is_operations_over_the_shortest_time():
    ticks = iter([0.0, 0.0, 1.0, 3.0, 3.0, 4.0, 4.5, 9.0])  # products of 2 s and 0.5 s
    found = matmul_rate(CPU, seconds=5.0, size=10, clock=lambda: next(ticks))
    assert found == 2 * 10**3 / 0.5


def test_a_larger_time_gives_no_smaller_peak_on_a_real_clock():
    assert matmul_rate(CPU, seconds=0.01, size=64) > 1e6


def test_the_peak_of_memory_grows_with_what_is_held_and_never_falls():
    before = peak_memory(CPU)
    assert before > 50 * MEGABYTE
    room = before - psutil.Process().memory_info().rss  # what was held once and is not now
    # what the allocator has kept for later counts as held now, and may be given out again
    held = torch.ones((room + 600 * MEGABYTE) // 4)
    with_it = peak_memory(CPU)
    assert with_it > before + 40 * MEGABYTE
    del held
    assert peak_memory(CPU) >= with_it


def test_freed_memory_is_kept_where_the_allocator_is_glibc(monkeypatch):
    told = []

    class Libc:
        def mallopt(self, which, size):
            told.append((which, size))
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Libc())
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert keep_freed_memory()
    assert told == [(-3, 2**30), (-1, 2**31 - 1)]  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD


@pytest.mark.parametrize(("system", "libc"), [("darwin", ""), ("linux", "musl")])
def test_elsewhere_the_allocator_is_left_alone(monkeypatch, system, libc):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "libc_ver", lambda: (libc, ""))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("asked for the allocator"))
    assert not keep_freed_memory()
