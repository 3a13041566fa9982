"""Threads, memory and speed of the machine."""

import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard import hardware
from regard.cli.main import app
from regard.errors import InputError
from regard.hardware import SINGLE_THREAD_LIMIT, limit_threads, matmul_rate, peak_memory

CPU = torch.device("cpu")


@pytest.fixture
def counts(monkeypatch):
    """The thread counts that were set, on a machine with two threads."""
    now = [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[-1])
    monkeypatch.setattr(torch, "set_num_threads", now.append)
    return now


def test_small_work_runs_on_one_thread_and_restores_the_count(counts):
    with limit_threads(SINGLE_THREAD_LIMIT - 1):
        assert counts[-1] == 1
    assert counts == [2, 1, 2]


def test_large_work_keeps_all_threads(counts):
    with limit_threads(SINGLE_THREAD_LIMIT):
        pass
    assert counts == [2]


def test_thread_count_is_restored_after_an_error(counts):
    def fail():
        with limit_threads(0):
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert counts[-1] == 2


def test_processes_of_one_host_share_its_cores(counts, monkeypatch):
    monkeypatch.setattr(hardware, "cpu_count", lambda: 6)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert (hardware.set_threads(), hardware.set_threads(5)) == (3, 5)
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert (hardware.set_threads(), hardware.set_threads(5)) == (2, 5)
    assert counts[1:] == [3, 5, 2, 5]


def test_a_single_text_gets_the_idle_cores_only(monkeypatch):
    monkeypatch.setattr(hardware, "cpu_count", lambda: 8)
    monkeypatch.setattr(hardware.os, "cpu_count", lambda: 8)
    for busy, threads in ((0, 4), (5, 3), (7, 1), (30, 1)):
        monkeypatch.setattr(hardware, "_busy_threads", lambda busy=busy: busy)
        assert hardware.single_request_threads() == threads


def test_matmul_rate_by_hand():
    # a product of 8 × 8 matrices has 2 · 8³ operations; the faster of two takes 1 s
    ticks = iter([0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 3.0, 9.0])
    assert matmul_rate(CPU, seconds=5.0, size=8, clock=lambda: next(ticks)) == 2 * 8**3
    assert matmul_rate(CPU, seconds=0.01, size=64) > 0


def test_peak_memory_grows_and_never_shrinks():
    before = peak_memory(CPU)
    large = torch.ones(before // 4 + 16_000_000)  # more than the peak so far
    after = peak_memory(CPU)
    del large
    assert after - before > 50_000_000
    assert peak_memory(CPU) >= after


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_freed_memory_stays_with_the_process():
    code = (
        "import re, numpy\n"
        "from regard.hardware import keep_freed_memory\n"
        "assert keep_freed_memory()\n"
        "x = numpy.ones(25_000_000)\n"
        "del x\n"
        "status = open('/proc/self/status').read()\n"
        "print(int(re.search(r'VmRSS:\\s+(\\d+)', status)[1]) > 190_000)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "True"


def test_a_device_that_is_not_here_is_refused_and_others_keep_engines_of_the_cpu_away():
    with pytest.raises(InputError, match=r"device is 'magic', and torch finds cpu.* here"):
        regard.load("dates", device="magic")
    with pytest.raises(InputError, match="stays on its device"):
        regard.load(torch.nn.Identity(), device="cpu")
    elsewhere = regard.load("dates-transformer").to("meta")  # every torch has this device
    with pytest.raises(InputError, match=r"CTranslate2 .* a model on meta"):
        elsewhere.translate("1 May 2020", engine="ctranslate2")


def test_the_option_device_holds_for_every_command_that_runs_a_model(monkeypatch):
    monkeypatch.setattr(hardware, "_DEVICE", ["cpu"])
    for words in (
        ("translate", "dates", "1 May 2020"),
        ("generate", "shakespeare", "ROMEO:"),
        ("classify", "digits", "digit.png"),
        ("show", "dates", "1 May 2020"),
    ):
        refused = CliRunner().invoke(app, [*words, "--device", "magic"]).exception
        assert isinstance(refused, InputError), words
        assert "device is 'magic'" in str(refused)
    words = ["translate", "dates-transformer", "1 May 2020", "--device", "magic", "--cluster"]
    assert "--cluster run on CPUs" in str(CliRunner().invoke(app, words).exception)


def test_memory_of_freed_buffers_between_used_ones_goes_back_to_the_system():
    program = """
import torch
from regard.hardware import keep_freed_memory, release_freed_memory
def held():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
supported = keep_freed_memory()
buffers = [torch.zeros(250_000) for _ in range(200)]
used = buffers[::20]
buffers.clear()
before = held()
release_freed_memory()
print(supported, before - held())
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    supported, freed = ran.stdout.split()
    assert supported == "False" or int(freed) > 150e6
