"""Masks as descriptions: combinations against brute force, tiles, pictures, refusals."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention.mask import (
    BooleanMask,
    Both,
    Connection,
    Everything,
    Mask,
    as_mask,
    causal,
    edges,
    padding,
    window,
)
from regard.attention.tile import Grid
from regard.errors import MaskError

BATCH, HEADS, N_QUERY, N_KEY = 2, 3, 4, 5
LEAD = (BATCH, HEADS)
CELLS = list(product(range(BATCH), range(HEADS), range(N_QUERY), range(N_KEY)))


def whole_grid(*lead: int, n_query: int = N_QUERY, n_key: int = N_KEY) -> Grid:
    return Grid.whole(lead, n_query, n_key, torch.device("cpu"))


QUERIES, KEYS, HEAD = (st.integers(0, n - 1) for n in (N_QUERY, N_KEY, HEADS))
# Masks in plain data, so that building them is part of the test: ("window", 2), ("not", …), …
LEAVES = (
    st.tuples(st.just("everything"))
    | st.tuples(st.just("causal"), st.integers(-3, 5))
    | st.tuples(st.just("window"), st.integers(0, 6))
    | st.tuples(
        st.just("padding"),
        st.lists(st.integers(0, N_KEY), min_size=BATCH, max_size=BATCH),
        st.sampled_from(["right", "left"]),
    )
    | st.tuples(st.just("edges"), st.lists(st.tuples(QUERIES, KEYS), max_size=12))
    | st.tuples(st.just("connection"), *(st.none() | some for some in (QUERIES, KEYS, HEAD)))
    | st.tuples(
        st.just("table"),
        st.sampled_from([(), (BATCH, HEADS), (1, HEADS), (BATCH, 1), (1, 1)]),
        st.sampled_from([1, N_QUERY]),
        st.sampled_from([1, N_KEY]),
        st.integers(0, 99),
    )
)
MASKS = st.recursive(
    LEAVES,
    lambda parts: (
        st.tuples(st.just("not"), parts) | st.tuples(st.sampled_from(["and", "or"]), parts, parts)
    ),
    max_leaves=5,
)


def random_table(lead: tuple[int, ...], n_query: int, n_key: int, seed: int) -> torch.Tensor:
    return torch.rand(*lead, n_query, n_key, generator=torch.Generator().manual_seed(seed)) < 0.5


def build(plain: tuple) -> Mask:
    """The mask that the plain data describe."""
    kind, *parts = plain
    made = {
        "everything": lambda: as_mask(None),
        "causal": causal,
        "window": window,
        "padding": lambda lengths, side: padding(lengths, side=side),
        "edges": edges,
        "connection": Connection,
        "table": lambda *table: as_mask(random_table(*table)),
        "not": lambda part: ~build(part),
        "and": lambda left, right: build(left) & build(right),
        "or": lambda left, right: build(left) | build(right),
    }
    return made[kind](*parts)


def may_see(plain: tuple, batch: int, head: int, query: int, key: int) -> bool:
    """The meaning of the plain data for one pair, without the package."""
    cell = (batch, head, query, key)
    kind, *parts = plain
    means = {
        "everything": lambda: True,
        "causal": lambda offset: key <= query + offset,
        "window": lambda radius: abs(query - key) <= radius,
        "padding": lambda lengths, side: (
            key < lengths[batch] if side == "right" else key >= N_KEY - lengths[batch]
        ),
        "edges": lambda pairs: (query, key) in pairs,
        "connection": lambda q, k, h: q in (None, query) and k in (None, key) and h in (None, head),
        "table": lambda *table: random_table(*table).expand(*LEAD, N_QUERY, N_KEY)[cell].item(),
        "not": lambda part: not may_see(part, *cell),
        "and": lambda left, right: may_see(left, *cell) and may_see(right, *cell),
        "or": lambda left, right: may_see(left, *cell) or may_see(right, *cell),
    }
    return means[kind](*parts)


@given(MASKS)
def test_any_combination_equals_brute_force(plain):
    found = build(plain).tensor(N_QUERY, N_KEY, lead=LEAD)
    assert found.shape == (BATCH, HEADS, N_QUERY, N_KEY)
    expected = torch.tensor([may_see(plain, *cell) for cell in CELLS]).view(found.shape)
    assert torch.equal(found, expected)


@given(MASKS, st.sets(st.integers(0, N_QUERY - 1)), st.sets(st.integers(0, N_KEY - 1)))
def test_a_tile_is_the_same_as_cut_from_the_whole(plain, rows, columns):
    mask = build(plain)
    picked = torch.tensor(sorted(rows)).long(), torch.tensor(sorted(columns)).long()
    tile = mask.on(Grid(LEAD, N_QUERY, N_KEY, *picked))
    tile = tile.expand(*LEAD, len(rows), len(columns))
    whole = mask.tensor(N_QUERY, N_KEY, lead=LEAD)
    assert torch.equal(tile, whole[..., picked[0], :][..., picked[1]])


@given(MASKS)
def test_shortcuts_for_keys_and_for_all_pairs_equal_the_mask(plain):
    mask = build(plain)
    whole = mask.tensor(N_QUERY, N_KEY, lead=LEAD)
    keys = mask.on_keys(whole_grid(*LEAD))
    if keys is not None:
        assert keys.size(-2) == 1
        assert torch.equal(keys.expand_as(whole), whole)
    if mask.admits_all(whole_grid(*LEAD)):
        assert whole.all()


def test_masks_that_are_the_same_for_all_queries_have_one_row():
    grid = whole_grid(*LEAD)
    keys = padding([2, 4]).on_keys(grid)
    assert keys is not None
    assert keys.shape == (2, 1, 1, 5)
    both = (padding([2, 4]) & ~padding([1, 1])).on_keys(grid)
    assert both is not None
    assert both[:, 0, 0].tolist() == [
        [False, True, False, False, False],
        [False, *[True] * 3, False],
    ]
    assert causal().on_keys(grid) is None
    assert (padding([2, 4]) & causal()).on_keys(grid) is None
    assert (padding([2, 4]) | window(1)).on_keys(grid) is None
    assert (~edges([(0, 0)])).on_keys(grid) is None


def test_a_mask_knows_without_computing_that_nothing_is_forbidden():
    grid = whole_grid(*LEAD)
    assert as_mask(None).admits_all(grid)
    assert causal(offset=N_KEY - 1).admits_all(grid)
    assert (causal(offset=9) & as_mask(None)).admits_all(grid)
    assert not causal(offset=N_KEY - 2).admits_all(grid)
    assert not (causal(offset=9) & causal()).admits_all(grid)
    assert not padding([5, 5]).admits_all(grid)


def test_tensors_combine_with_masks_from_either_side():
    table = torch.tensor([[True, True], [False, True]])
    expected = [[True, False], [False, True]]
    assert (table & causal()).tensor(2).tolist() == expected
    assert (causal() & table).tensor(2).tolist() == expected
    assert (table | causal()).tensor(2).tolist() == [[True, True], [True, True]]
    assert (causal() | ~table).tensor(2).tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize(
    ("mask", "written"),
    [
        (as_mask(None), "everything()"),
        (as_mask(torch.ones(2, 3, dtype=torch.bool)), "table(2, 3)"),
        (causal() & padding([5, 8, 3]), "causal() & padding([5, 8, 3])"),
        (~(causal() & window(1)), "~(causal() & window(1))"),
        (~window(1) & causal(), "~window(1) & causal()"),
        ((causal() | window(2)) & padding([3]), "(causal() | window(2)) & padding([3])"),
        (causal() & (window(1) & window(2)), "causal() & (window(1) & window(2))"),
        (~(causal() | window(2)), "~(causal() | window(2))"),
    ],
)
def test_a_mask_prints_as_it_is_written(mask, written):
    assert repr(mask) == written


@pytest.mark.parametrize(
    ("shape", "lead"),
    [
        ((4, 1, 7), (4, 4)),  # (batch, 1, key) against (batch, head, query, key): slip 2
        ((7,) * 2, (2, 3)),
        ((5, 6), ()),
        ((2, 3, 5, 7), (3,)),
    ],
)
def test_a_table_of_the_wrong_shape_is_refused_also_where_it_would_broadcast(shape, lead):
    scores = (*lead, 5, 7)
    with pytest.raises(MaskError) as caught:
        as_mask(torch.ones(shape, dtype=torch.bool)).on(whole_grid(*lead, n_query=5, n_key=7))
    assert str(caught.value) == (
        f"the mask `allowed` has shape {shape}, but the scores have shape {scores}: give it the "
        f"two axes (query, key) or all {len(scores)} axes, each of the scores' size or 1. Other "
        "shapes would broadcast over the wrong axes."
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_a_table_that_is_not_boolean_is_refused(dtype):
    sentence = (
        rf"^`allowed` is a {dtype} tensor; give a mask such as regard.causal\(\), or a boolean "
        r"tensor in which True means that the query may see the key\.$"
    )
    with pytest.raises(MaskError, match=sentence):
        as_mask(torch.ones(3, 3, dtype=dtype))
    with pytest.raises(MaskError, match=sentence):
        causal() & torch.ones(3, 3, dtype=dtype)


def test_no_mask_means_everything_and_masks_stay_themselves():
    mask = causal()
    assert as_mask(mask) is mask
    assert as_mask(None) == Everything()
    assert isinstance(as_mask(torch.ones(2, 2, dtype=torch.bool)), BooleanMask)
    assert isinstance(mask & mask, Both)
    assert isinstance(mask, Mask)
