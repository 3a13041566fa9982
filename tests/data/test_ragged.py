from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Ragged, RaggedWriter, smallest_type
from regard.errors import FileError

UINT16 = np.dtype(np.uint16)


def written(folder, chunks, dtype=UINT16):
    with closing(RaggedWriter(folder, "x", dtype)) as writer:
        for chunk in chunks:
            writer.append(chunk)
    return Ragged(folder, "x", dtype, count=sum(map(len, chunks)), total=writer.total)


@given(st.lists(st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=5), max_size=4), max_size=4))
def test_lists_come_back_as_they_were_written(tmp_path_factory, chunks):
    ragged = written(tmp_path_factory.mktemp("ragged"), chunks)
    lists = [one for chunk in chunks for one in chunk]
    assert [ragged[n].tolist() for n in range(len(ragged))] == lists
    assert ragged.lengths.tolist() == [len(one) for one in lists]
    assert ragged.flat.tolist() == [id for one in lists for id in one]


def test_numbers_from_arrays_and_from_the_end_find_their_list(tmp_path):
    ragged = written(tmp_path, [[[1], [2, 3]] + [[n] for n in range(400)]])
    assert ragged[np.uint8(1)].tolist() == [2, 3]
    assert ragged[-1].tolist() == [399]
    with pytest.raises(IndexError, match="There is no list 402; there are 402"):
        ragged[402]


def test_what_is_mapped_cannot_be_changed(tmp_path):
    ragged = written(tmp_path, [[[1, 2]]])
    with pytest.raises(ValueError, match="read-only"):
        ragged[0][0] = 7


def test_ids_take_two_bytes_while_they_fit():
    assert smallest_type(65_536) == np.uint16
    assert smallest_type(65_537) == np.uint32


def test_a_file_that_was_cut_or_lost_is_named(tmp_path):
    written(tmp_path, [[[1, 2, 3]]])
    (tmp_path / "x.ids").write_bytes(b"12345")
    with pytest.raises(FileError, match=r"x\.ids has 5 bytes where 6 belong: .*delete its folder"):
        Ragged(tmp_path, "x", UINT16, count=1, total=3)
    (tmp_path / "x.ids").unlink()
    with pytest.raises(FileError, match=r"x\.ids cannot be read: No such file"):
        Ragged(tmp_path, "x", UINT16, count=1, total=3)
