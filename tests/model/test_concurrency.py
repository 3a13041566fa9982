"""One loaded model in several threads, in copies, in pickles and in forked processes."""

import copy
import os
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import regard

pytestmark = pytest.mark.long

TEXTS = [f"{day} August 2021" for day in range(1, 9)]


@pytest.fixture(scope="module")
def model():
    return regard.load("dates-transformer")


def edit(number):
    return regard.ablate("decoder.layers.0.cross", head=number % 4)


def test_eight_threads_get_the_answers_of_one(model):
    def work(number):
        """Translate, trace, and trace with an edit of one's own."""
        text = TEXTS[number % 8]
        traced = model.trace(text)
        edited = model.trace(text, edits=[edit(number)])
        site = edited["decoder.layers.0.cross"]
        return model.translate(text).text, traced.output.text, edited.output.text, site.context()

    expected = [work(number) for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(work, range(16)))
    for number, one in enumerate(found):
        alone = expected[number % 8]
        assert one[:3] == alone[:3]
        # float sums of other threads may differ in their last digits
        torch.testing.assert_close(one[3], alone[3], atol=1e-5, rtol=1e-5)
        assert not one[3][number % 4].any()  # this thread's head is off, no other's


@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_and_pickles_of_a_model_in_use_give_the_same_answers(model, again):
    expected = [one.text for one in model.translate(TEXTS)]  # opens an engine, which has threads
    other = again(model)
    assert other.open_engines == {}
    assert [one.text for one in other.translate(TEXTS)] == expected
    weights = zip(model.module.parameters(), other.module.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in weights)


def test_a_forked_process_uses_the_model_of_its_parent(model):
    expected = [one.text for one in model.translate(TEXTS)]
    child = os.fork()
    if child == 0:  # no assertion here: pytest must not run on in the child
        signal.alarm(300)  # ends a child that waits for threads of its parent
        same = [one.text for one in model.translate(TEXTS)] == expected
        same = same and model.trace(TEXTS[0]).output.text == expected[0]
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [one.text for one in model.translate(TEXTS)] == expected
