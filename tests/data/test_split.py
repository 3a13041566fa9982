"""Merges undone by chance: the text stays, its pieces do not, and nothing else decides on them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from regard.data.token_augmentation import MergeDropout
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_training import train_tokenizer

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


def test_what_every_token_was_merged_from():
    parents = MergeDropout.of(BY_HAND, share=0.5).parents
    assert parents.tolist() == [[-1, -1]] * 4 + [[0, 1], [2, 3], [4, 5]]


def test_nearly_certain_cuts_leave_single_letters_and_no_chance_changes_nothing():
    assert [one.tolist() for one in split([[6, 3], [5]], 1 - 1e-12)] == [[0, 1, 2, 3, 3], [2, 3]]
    assert [one.tolist() for one in split([[6, 3], [], [5]], 0.0)] == [[6, 3], [], [5]]


def test_tokens_are_cut_as_often_as_the_share_says():
    pieces = split([[6] * 20_000], 0.3, longest=80_000)[0]
    counts = np.bincount(pieces, minlength=7)
    assert counts[6] == pytest.approx(0.7 * 20_000, rel=0.02)
    halves = 0.3 * 20_000  # of each kind, of which 0.3 are cut again
    assert counts[4] == pytest.approx(0.7 * halves, rel=0.05)
    assert counts[:4].tolist() == pytest.approx([0.3 * halves] * 4, rel=0.1)


def test_what_would_become_too_long_stays_whole():
    assert [one.tolist() for one in split([[6], [5]], 1 - 1e-12, longest=3)] == [[6], [2, 3]]


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe"])
@given(texts=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4), epoch=st.integers(0, 9))
def test_the_text_is_the_same_and_neighbors_do_not_matter(kind, texts, epoch):
    tokenizer = _learned(kind)
    lists = [tokenizer.encode(text) for text in texts]
    pieces = split(lists, 0.5, tokenizer=tokenizer, epoch=epoch)
    assert [tokenizer.decode(one.tolist()) for one in pieces] == [
        tokenizer.decode(one) for one in lists
    ]
    for number, ids in enumerate(lists):
        alone = split([ids], 0.5, tokenizer=tokenizer, epoch=epoch, examples=[number])[0]
        assert alone.tolist() == pieces[number].tolist()


def test_every_epoch_and_example_has_pieces_of_its_own():
    tokenizer = _learned("bpe")
    lists = [tokenizer.encode(TEXTS[0])] * 8
    first = [tuple(one) for one in split(lists, 0.5, tokenizer=tokenizer)]
    second = [tuple(one) for one in split(lists, 0.5, tokenizer=tokenizer, epoch=1)]
    assert len(set(first)) > 4
    assert first != second


def test_a_tokenizer_without_merges_is_refused():
    with pytest.raises(InputError, match=r"tokenizer\.split is 0\.1, but .* no merges"):
        MergeDropout.of(train_tokenizer(TEXTS, kind="wordpiece", vocab_size=60), share=0.1)


_KEPT: dict[str, Tokenizer] = {}


def _learned(kind: str) -> Tokenizer:
    if kind not in _KEPT:
        _KEPT[kind] = train_tokenizer(TEXTS * 3, kind=kind, vocab_size=400)
    return _KEPT[kind]
