import zlib
from base64 import b64decode

import numpy as np
import pytest

from regard.server.html_export import Steps, least_size, pack


def unpack(packed):
    """What the page does, in Python."""
    data = zlib.decompress(b64decode(packed["data"]), -zlib.MAX_WBITS)
    n, shape = int(np.prod(packed["shape"])), packed["shape"]
    gather = {"float32": 4, "float16": 2}.get(packed["dtype"])
    if gather:
        planes = np.frombuffer(data, np.uint8).reshape(gather, n)
        return np.ascontiguousarray(planes.T).view(f"<f{gather}").reshape(shape)
    if packed["dtype"] == "uint8":
        return np.frombuffer(data, np.uint8).reshape(shape)
    rows = n // shape[-1]
    planes = np.frombuffer(data[: 2 * rows], np.uint8).reshape(2, rows)
    steps = np.ascontiguousarray(planes.T).view("<f2").astype(np.float32)
    return (np.frombuffer(data[2 * rows :], np.int8).reshape(rows, -1) * steps).reshape(shape)


NUMBERS = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)


def test_exact_numbers_come_back_bit_by_bit():
    assert (unpack(pack(NUMBERS, "float32")) == NUMBERS).all()


def test_half_numbers_are_numpys_halves():
    assert (unpack(pack(NUMBERS, "float16")) == NUMBERS.astype(np.float16)).all()


@pytest.mark.parametrize("most", [127, 64])
def test_counts_are_off_by_half_a_step_at_most(most):
    found = unpack(pack(NUMBERS, Steps(most)))
    step = np.abs(NUMBERS).max(-1, keepdims=True) / most
    assert (np.abs(found - NUMBERS) <= 0.502 * step + 1e-3 * np.abs(NUMBERS)).all()


def test_counts_by_hand():
    # the largest of the row is 127 steps of 1/64
    row = np.array([[127 / 64, -1.0, 0.0, 1 / 64]], np.float32)
    assert unpack(pack(row, Steps(127))).tolist() == row.tolist()


def test_rows_of_zeros_and_bytes_come_back():
    zeros = np.zeros((2, 3), np.float32)
    assert (unpack(pack(zeros, Steps(127))) == 0).all()
    bytes_ = np.arange(12, dtype=np.uint8).reshape(3, 4)
    packed = pack(bytes_, Steps(127))
    assert packed["dtype"] == "uint8"
    assert (unpack(packed) == bytes_).all()


def test_numbers_beyond_16_bits_stay_finite():
    assert np.isfinite(unpack(pack(np.array([1e6, -1e6], np.float32), "float16"))).all()


@pytest.mark.parametrize("kind", ["float32", "float16", Steps(127), Steps(64)])
def test_the_least_size_is_below_the_real_one_but_near(kind):
    many = np.random.default_rng(1).normal(size=(40, 64, 32)).astype(np.float32)
    size = len(pack(many, kind)["data"])
    assert 0.85 * size < least_size(many, kind) < 1.02 * size
