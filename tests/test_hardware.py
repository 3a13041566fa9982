"""Little work is done by one thread, much by all, and nothing stays changed."""

import pytest
import torch

from regard import hardware as threads
from regard.hardware import SINGLE_THREAD_LIMIT, limit_threads


@pytest.fixture
def counts(monkeypatch):
    """How many threads were set, on a machine that has two."""
    now = [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[-1])
    monkeypatch.setattr(threads.torch, "set_num_threads", now.append)
    return now


def test_little_work_has_one_thread_and_then_all_are_back(counts):
    with limit_threads(SINGLE_THREAD_LIMIT - 1):
        assert counts[-1] == 1
    assert counts == [2, 1, 2]


def test_much_work_keeps_all_threads(counts):
    with limit_threads(SINGLE_THREAD_LIMIT):
        assert counts == [2]
    assert counts == [2]


def fail_inside():
    with limit_threads(0):
        raise ValueError("as models do")


def test_an_error_inside_gives_the_threads_back(counts):
    with pytest.raises(ValueError, match="as models do"):
        fail_inside()
    assert counts[-1] == 2
