"""The kinds of masks: by hand, their laws, their memory and refusals."""

import pytest
import torch

from regard.attention.attend import attend
from regard.attention.mask import (
    Connection,
    Everything,
    causal,
    edges,
    padding,
    split_causal,
    window,
)
from regard.attention.tile import Grid
from regard.errors import MaskError

MILLION = 10**6


def test_causal_by_hand():
    assert causal().draw(3) == "● · ·\n● ● ·\n● ● ●"
    assert causal(offset=2).draw(2, 4) == "● ● ● ·\n● ● ● ●"
    assert causal(offset=-1).draw(3) == "· · ·\n● · ·\n● ● ·"


def test_causal_with_other_numbers_of_queries_and_keys_counts_both_from_zero():
    assert causal().draw(2, 4) == "● · · ·\n● ● · ·"
    assert causal().draw(4, 2) == "● ·\n● ●\n● ●\n● ●"


def test_window_by_hand():
    assert window(1).draw(4) == "● ● · ·\n● ● ● ·\n· ● ● ●\n· · ● ●"
    assert torch.equal(window(0).tensor(3), torch.eye(3, dtype=torch.bool))
    assert window(MILLION).tensor(3).all()


def test_padding_of_lengths_five_eight_and_three_by_hand():
    mask = padding([5, 8, 3])
    assert mask.draw(1, 8, lead=(3,)).split("\n\n") == [
        "● ● ● ● ● · · ·",
        "● ● ● ● ● ● ● ●",
        "● ● ● · · · · ·",
    ]
    assert padding([5, 8, 3], side="left").draw(1, 8, lead=(3,)).split("\n\n") == [
        "· · · ● ● ● ● ●",
        "● ● ● ● ● ● ● ●",
        "· · · · · ● ● ●",
    ]


def test_edges_by_hand():
    assert edges([(0, 2), (1, 0), (1, 0)]).draw(2, 3) == "· · ●\n● · ·"
    assert edges(torch.tensor([[1, 1]])).draw(2) == "· ·\n· ●"
    assert edges([]).draw(2) == "· ·\n· ·"
    assert edges((i, i) for i in range(2)).draw(2) == "● ·\n· ●"


def test_connections_by_hand():
    assert Connection(query=1, key=0).draw(2) == "· ·\n● ·"
    assert Connection(key=1).draw(2) == "· ●\n· ●"
    assert Connection(query=0).draw(2) == "● ●\n· ·"
    heads = Connection(query=0, key=0, head=1).tensor(2, lead=(2,))
    assert heads.tolist() == [[[False] * 2] * 2, [[True, False], [False, False]]]


@pytest.mark.parametrize(
    ("mask", "written"),
    [
        (causal(), "causal()"),
        (causal(offset=4), "causal(offset=4)"),
        (window(3), "window(3)"),
        (padding([5, 8, 3]), "padding([5, 8, 3])"),
        (padding([5], side="left"), "padding([5], side='left')"),
        (padding(range(9)), "padding([0, 1, 2, 3, 4, 5, … 9 in all])"),
        (edges([(0, 1)]), "edges([(0, 1)])"),
        (edges([(i, i) for i in range(20)][:7]), "edges([(0, 0), (1, 1), (2, 2), (3, 3), "),
        (Connection(query=1, head=0), "connection(query=1, head=0)"),
    ],
)
def test_kinds_print_as_they_are_written(mask, written):
    assert repr(mask).startswith(written)
    assert repr(mask).count("(") == repr(mask).count(")")


def test_masks_stay_descriptions_however_long_the_sequence(largest):
    middle = torch.arange(MILLION // 2, MILLION // 2 + 3)
    with largest:
        mask = (causal() & padding([MILLION, 7])) | ~window(4) | causal(offset=MILLION)
        repr(mask)
        tile = mask.on(Grid((2, 8), MILLION, MILLION, middle, middle))
    assert tile.shape == (2, 1, 3, 3)
    assert largest.numbers <= 2 * 3 * 3


def test_a_tile_of_edges_costs_no_more_than_the_sequence(largest):
    middle = torch.arange(MILLION // 2, MILLION // 2 + 3)
    with largest:
        mask = edges([(MILLION // 2, MILLION // 2 + 1), (0, MILLION - 1)])
        tile = mask.on(Grid((), MILLION, MILLION, middle, middle))
    assert tile.tolist() == [[False, True, False], [False] * 3, [False] * 3]
    assert largest.numbers <= MILLION


@pytest.mark.parametrize("sequence", range(3))
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_padded_sequence_gets_what_it_gets_alone(sequence, side):
    lengths = [5, 8, 3]
    query, key, value = torch.randn(3, 3, 2, 8, 4).unbind()
    length = lengths[sequence]
    real = slice(0, length) if side == "right" else slice(8 - length, 8)
    together = attend(query, key, value, allowed=padding(lengths, side=side))[sequence]
    alone = attend(query[sequence], key[sequence, :, real], value[sequence, :, real])
    torch.testing.assert_close(together, alone)


def test_the_future_does_not_change_the_past():
    query, key, value = torch.randn(3, 2, 6, 4).unbind()
    before = attend(query, key, value, allowed=causal())
    key[:, 4:], value[:, 4:] = 99.0, -99.0
    after = attend(query, key, value, allowed=causal())
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_a_causal_part_is_split_off():
    rest = padding([3, 4])
    assert split_causal(causal()) == (True, Everything())
    assert split_causal(causal() & rest) == (True, rest)
    assert split_causal(rest & causal()) == (True, rest)
    assert split_causal(causal() & causal()) == (True, Everything())
    assert split_causal(Everything() & Everything()) == (False, Everything())
    is_causal, both = split_causal(window(1) & causal() & rest)
    assert is_causal
    assert repr(both) == "window(1) & padding([3, 4])"


@pytest.mark.parametrize(
    "mask", [causal(offset=1), ~causal(), causal() | window(1), window(2), padding([2])], ids=repr
)
def test_other_masks_are_not_split(mask):
    assert split_causal(mask) == (False, mask)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        *((lambda r=r: window(r), f"window needs a radius of 0, 1, 2, …, not {r!r}.")
          for r in (-1, 1.5, True, "2", None)),
        (lambda: causal(1.5), "causal needs an integer offset, not 1.5."),
        (lambda: padding([1], side="middle"), "padding has side='right' or side='left', not 'mi"),
        (lambda: padding([1, -2]), "padding was given the length -2; lengths are 0 or more."),
        (lambda: padding(torch.tensor([1.5])), "padding needs one integer for each sequence of "
         "the batch, but was given a torch.float32 tensor of shape (1,)."),
        (lambda: padding([[1, 2]]), "padding needs one integer for each sequence of the batch, "
         "but was given a torch.int64 tensor of shape (1, 2)."),
        (lambda: padding([5, 9, 3]).tensor(8, lead=(3,)), "padding was given a length of 9, but "
         "there are only 8 keys: a length must not exceed the number of keys."),
        (lambda: padding([5, 8]).tensor(8, lead=(3, 2)), "padding has 2 lengths, but the scores "
         "have a batch of 3 sequences: give one length for each sequence, along the first axis."),
        (lambda: padding([5]).tensor(8), "padding has 1 lengths, but the scores have no batch"),
        (lambda: edges([(0, 1, 2)]), "edges needs (query, key) pairs of integers, but was given a "
         "torch.int64 tensor of shape (1, 3)."),
        (lambda: edges([(0.5, 1)]), "edges needs (query, key) pairs of integers, but was given a "
         "torch.float32 tensor of shape (1, 2)."),
        (lambda: edges([(0, -1)]), "edges count queries and keys from 0, but -1 was given."),
        (lambda: edges([(0, 0), (0, 3)]).tensor(2, 3), "edges reach query 0 and key 3, but there "
         "are 2 queries and 3 keys, counted from 0."),
        (lambda: Connection(head=2).tensor(3, lead=(2,)), "head 2 does not exist: there are 2"),
        (lambda: Connection(head=0).tensor(3), "head 0 does not exist: there are 0"),
    ],
)  # fmt: skip
def test_bad_masks_are_refused(call, sentence, no_shape_checks):
    with pytest.raises(MaskError) as caught:
        call()
    assert str(caught.value).startswith(sentence)
