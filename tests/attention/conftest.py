"""What tests of attention share: the same random numbers in every run, and a look at sizes."""

import pytest
import torch

from tests.largest import Largest


@pytest.fixture
def largest() -> Largest:
    """A context in which the largest tensor that is made is remembered."""
    return Largest()


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
