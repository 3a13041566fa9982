import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from regard.data.token_augmentation import Blocks, Masking, windows
from regard.errors import InputError

STREAM = np.arange(1000, dtype=np.uint16)
MASKING = Masking(mask_id=4, ordinary_ids=tuple(range(5, 1000)))


def test_a_block_is_a_stretch_of_the_stream_and_one_token_more():
    for row in Blocks(STREAM, length=8, rows=50).batch(0):
        assert_array_equal(row, np.arange(row[0], row[0] + 9))
    assert Blocks(STREAM, length=8, rows=50).batch(0).dtype == np.int64


def test_blocks_start_everywhere_and_reach_both_ends():
    starts = {
        int(row[0])
        for step in range(40)
        for row in Blocks(STREAM[:60], length=8, rows=50).batch(step)
    }
    assert starts == set(range(52))  # the last window is 51..59


def test_the_only_window_of_a_short_stream_is_always_taken():
    assert_array_equal(Blocks(STREAM[:9], length=8, rows=2).batch(5), [range(9)] * 2)
    with pytest.raises(InputError, match="The text has 8 tokens, too few for one window of 8"):
        Blocks(STREAM[:8], length=8, rows=2)


def test_going_on_after_a_stop_gives_what_no_stop_gives():
    whole = [
        batch for _, batch in zip(range(10), Blocks(STREAM, length=8, rows=3, seed=2), strict=False)
    ]
    first = Blocks(STREAM, length=8, rows=3, seed=2)
    found = [batch for _, batch in zip(range(4), first, strict=False)]
    second = Blocks(STREAM, length=8, rows=3, seed=2)
    second.resume({"epoch": 0, "position": 4})
    found += [batch for _, batch in zip(range(6), second, strict=False)]
    assert_array_equal(found, whole)


def test_the_state_counts_the_batches_that_were_handed_out():
    blocks = Blocks(STREAM, length=8, rows=3)
    iterator = iter(blocks)
    next(iterator)
    next(iterator)
    assert blocks.state() == {"epoch": 0, "position": 2}


def test_ranks_together_have_the_rows_of_one_large_batch():
    one = Blocks(STREAM, length=8, rows=6).batch(3)
    ranks = [Blocks(STREAM, length=8, rows=2, rank=rank, ranks=3).batch(3) for rank in range(3)]
    assert_array_equal(np.concatenate(ranks), one)


def test_steps_and_seeds_differ():
    batches = [
        Blocks(STREAM, length=8, rows=3, seed=seed).batch(step)
        for seed in (0, 1)
        for step in (0, 1)
    ]
    assert len({batch.tobytes() for batch in batches}) == 4


@given(st.integers(0, 60), st.integers(1, 20))
def test_windows_ask_for_every_token_but_the_first_exactly_once(size, length):
    found = list(windows(STREAM[:size], length=length))
    assert [token for window in found for token in window[1:]] == list(range(1, size))
    assert all(len(window) == length + 1 for window in found[:-1])


@pytest.mark.parametrize("options", [{"length": 0}, {"rows": 0}, {"rank": 1}, {"rank": -1}])
def test_blocks_that_cannot_be_are_refused(options):
    with pytest.raises(InputError, match="must be 1 or more, and rank"):
        Blocks(STREAM, **({"length": 8, "rows": 1} | options))


def some_ids(rows=200, width=60):
    ids = np.random.default_rng(0).integers(5, 1000, (rows, width))
    ids[:, 0], ids[:, -1] = 2, 3  # start and end
    return ids


def hide(ids, **options):
    settings = {"seed": 0, "epoch": 0, "examples": range(len(ids))} | options
    return MASKING.hide(ids, **settings)


def test_fifteen_percent_are_to_be_told_of_which_most_are_masked():
    ids = some_ids()
    hidden, told = hide(ids)
    assert (told.sum(axis=1) == 9).all()  # 15 % of 58 ordinary tokens is 8.7
    kinds = hidden[told] == 4, hidden[told] == ids[told]
    assert kinds[0].mean() == pytest.approx(0.8, abs=0.03)
    assert kinds[1].mean() == pytest.approx(0.1, abs=0.03)
    replaced = hidden[told & (hidden != 4) & (hidden != ids)]
    assert replaced.min() >= 5
    assert len(set(replaced.tolist())) > 0.8 * len(replaced)


def test_what_is_not_to_be_told_stays_and_specials_are_never_hidden():
    ids = some_ids()
    hidden, told = hide(ids)
    assert_array_equal(hidden[~told], ids[~told])
    assert not told[:, [0, -1]].any()


def test_what_is_hidden_does_not_depend_on_batch_or_padding():
    ids = some_ids(rows=20)
    hidden, told = hide(ids)
    padded = np.pad(ids[7:9], ((0, 0), (0, 5)))
    again, again_told = hide(padded, examples=[7, 8])
    assert_array_equal(again[:, :60], hidden[7:9])
    assert_array_equal(again_told[:, :60], told[7:9])
    assert not again_told[:, 60:].any()


def test_epochs_and_seeds_hide_other_tokens():
    found = [hide(some_ids(), **one)[1].tobytes() for one in ({}, {"epoch": 1}, {"seed": 1})]
    assert len(set(found)) == 3
    assert hide(some_ids())[1].tobytes() == found[0]


def test_positions_are_hidden_equally_often():
    told = np.mean([hide(some_ids(), epoch=epoch)[1][:, 1:-1] for epoch in range(20)], axis=(0, 1))
    assert np.abs(told - 9 / 58).max() < 0.03


def test_one_ordinary_token_is_told_and_none_is_none():
    assert hide(np.array([[2, 7, 3]]))[1].tolist() == [[False, True, False]]
    hidden, told = hide(np.array([[2, 3, 0]]))
    assert hidden.tolist() == [[2, 3, 0]]
    assert not told.any()


def test_a_tokenizer_gives_its_mask_and_its_ordinary_tokens(tokenizer):
    masking = Masking.of(tokenizer, share=0.5)
    assert (masking.mask_id, masking.share) == (4, 0.5)
    assert masking.ordinary_ids == tuple(range(5, len(tokenizer)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0.0}, r"share of hidden tokens is 0\.0"),
        ({"share": 1.5}, r"share of hidden tokens is 1\.5"),
        ({"masked": 0.95}, "more than 1"),
        ({"ordinary_ids": ()}, "no ordinary token"),
    ],
)
def test_masking_that_cannot_be_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        Masking(**({"mask_id": 4, "ordinary_ids": (5, 6)} | options))


def test_a_tokenizer_without_mask_is_refused():
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import WordLevel

    from regard.text.tokenizer import Tokenizer

    with pytest.raises(InputError, match="has no mask token"):
        Masking.of(Tokenizer(Backend(WordLevel({"a": 0}, unk_token="a"))))
