"""Masked tokens and undone merges: shares, reproducibility, corners."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from regard.data.token_augmentation import Masking, MergeDropout
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_training import train_tokenizer

MASKING = Masking(mask_id=4, ordinary_ids=tuple(range(5, 1000)))


def some_ids(rows=200, width=60):
    ids = np.random.default_rng(0).integers(5, 1000, (rows, width))
    ids[:, 0], ids[:, -1] = 2, 3  # start and end
    return ids


def hide(ids, **options):
    settings = {"seed": 0, "epoch": 0, "examples": range(len(ids))} | options
    return MASKING.hide(ids, **settings)


def test_fifteen_percent_are_selected_and_most_of_them_masked():
    ids = some_ids()
    hidden, selected = hide(ids)
    assert (selected.sum(axis=1) == 9).all()  # 15 % of 58 ordinary tokens is 8.7
    kinds = hidden[selected] == 4, hidden[selected] == ids[selected]
    assert kinds[0].mean() == pytest.approx(0.8, abs=0.03)
    assert kinds[1].mean() == pytest.approx(0.1, abs=0.03)
    replaced = hidden[selected & (hidden != 4) & (hidden != ids)]
    assert replaced.min() >= 5
    assert len(set(replaced.tolist())) > 0.8 * len(replaced)


def test_other_tokens_stay_and_special_tokens_are_never_hidden():
    ids = some_ids()
    hidden, selected = hide(ids)
    assert_array_equal(hidden[~selected], ids[~selected])
    assert not selected[:, [0, -1]].any()


def test_masking_does_not_depend_on_batch_or_padding():
    ids = some_ids(rows=20)
    hidden, selected = hide(ids)
    padded = np.pad(ids[7:9], ((0, 0), (0, 5)))
    again, again_selected = hide(padded, examples=[7, 8])
    assert_array_equal(again[:, :60], hidden[7:9])
    assert_array_equal(again_selected[:, :60], selected[7:9])
    assert not again_selected[:, 60:].any()


def test_epochs_and_seeds_hide_other_tokens():
    found = [hide(some_ids(), **one)[1].tobytes() for one in ({}, {"epoch": 1}, {"seed": 1})]
    assert len(set(found)) == 3
    assert hide(some_ids())[1].tobytes() == found[0]


def test_positions_are_hidden_equally_often():
    selected = np.mean(
        [hide(some_ids(), epoch=epoch)[1][:, 1:-1] for epoch in range(20)], axis=(0, 1)
    )
    assert np.abs(selected - 9 / 58).max() < 0.03


def test_one_ordinary_token_is_selected_and_none_if_there_is_none():
    assert hide(np.array([[2, 7, 3]]))[1].tolist() == [[False, True, False]]
    hidden, selected = hide(np.array([[2, 3, 0]]))
    assert hidden.tolist() == [[2, 3, 0]]
    assert not selected.any()


def test_a_tokenizer_gives_its_mask_and_its_ordinary_tokens(tokenizer):
    masking = Masking.of(tokenizer, share=0.5)
    assert (masking.mask_id, masking.share) == (4, 0.5)
    assert masking.ordinary_ids == tuple(range(5, len(tokenizer)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0.0}, r"share of hidden tokens is 0\.0"),
        ({"share": 1.5}, r"share of hidden tokens is 1\.5"),
        ({"masked": 0.95}, "is 1.05, more than 1"),
        ({"ordinary_ids": ()}, "no ordinary token"),
    ],
)
def test_invalid_masking_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        Masking(**({"mask_id": 4, "ordinary_ids": (5, 6)} | options))


def test_a_tokenizer_without_mask_is_refused():
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import WordLevel

    from regard.text.tokenizer import Tokenizer

    with pytest.raises(InputError, match="has no mask token"):
        Masking.of(Tokenizer(Backend(WordLevel({"a": 0}, unk_token="a"))))


# a b c d, then ab, cd, abcd: 0 1 2 3, 4, 5, 6
BY_HAND = Tokenizer(
    Backend(
        BPE(
            vocab={"a": 0, "b": 1, "c": 2, "d": 3, "ab": 4, "cd": 5, "abcd": 6},
            merges=[("a", "b"), ("c", "d"), ("ab", "cd")],
        )
    )
)
TEXTS = ["the old man and the sea", "한국어 문장도 있다", "there and back again", "sea, sea, sea"]


def split(lists, share, *, tokenizer=BY_HAND, epoch=0, examples=None, longest=100, seed=1):
    return MergeDropout.of(tokenizer, share=share).apply(
        [np.array(one, np.uint16) for one in lists],
        seed=seed,
        epoch=epoch,
        examples=range(len(lists)) if examples is None else examples,
        longest=longest,
    )


def test_parents_are_the_merged_tokens():
    parents = MergeDropout.of(BY_HAND, share=0.5).parents
    assert parents.tolist() == [[-1, -1]] * 4 + [[0, 1], [2, 3], [4, 5]]


def test_probability_one_leaves_single_letters_and_zero_changes_nothing():
    assert [one.tolist() for one in split([[6, 3], [5]], 1 - 1e-12)] == [[0, 1, 2, 3, 3], [2, 3]]
    assert [one.tolist() for one in split([[6, 3], [], [5]], 0.0)] == [[6, 3], [], [5]]


def test_tokens_are_split_with_the_given_probability():
    pieces = split([[6] * 20_000], 0.3, longest=80_000)[0]
    counts = np.bincount(pieces, minlength=7)
    assert counts[6] == pytest.approx(0.7 * 20_000, rel=0.02)
    halves = 0.3 * 20_000  # of each kind, of which 0.3 are cut again
    assert counts[4] == pytest.approx(0.7 * halves, rel=0.05)
    assert counts[:4].tolist() == pytest.approx([0.3 * halves] * 4, rel=0.1)


def test_examples_that_would_become_too_long_are_kept():
    assert [one.tolist() for one in split([[6], [5]], 1 - 1e-12, longest=3)] == [[6], [2, 3]]


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe"])
@given(texts=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4), epoch=st.integers(0, 9))
def test_the_text_stays_and_the_batch_does_not_matter(kind, texts, epoch):
    tokenizer = _trained(kind)
    lists = [tokenizer.encode(text) for text in texts]
    pieces = split(lists, 0.5, tokenizer=tokenizer, epoch=epoch)
    assert [tokenizer.decode(one.tolist()) for one in pieces] == [
        tokenizer.decode(one) for one in lists
    ]
    for number, ids in enumerate(lists):
        alone = split([ids], 0.5, tokenizer=tokenizer, epoch=epoch, examples=[number])[0]
        assert alone.tolist() == pieces[number].tolist()


def test_epochs_and_examples_are_split_differently():
    tokenizer = _trained("bpe")
    lists = [tokenizer.encode(TEXTS[0])] * 8
    first = [tuple(one) for one in split(lists, 0.5, tokenizer=tokenizer)]
    second = [tuple(one) for one in split(lists, 0.5, tokenizer=tokenizer, epoch=1)]
    assert len(set(first)) > 4
    assert first != second


def test_a_tokenizer_without_merges_is_refused():
    with pytest.raises(InputError, match=r"tokenizer\.split is 0\.1, but .* no merges"):
        MergeDropout.of(train_tokenizer(TEXTS, kind="wordpiece", vocab_size=60), share=0.1)


_KEPT: dict[str, Tokenizer] = {}


def _trained(kind: str) -> Tokenizer:
    if kind not in _KEPT:
        _KEPT[kind] = train_tokenizer(TEXTS * 3, kind=kind, vocab_size=400)
    return _KEPT[kind]
