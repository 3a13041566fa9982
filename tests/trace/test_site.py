"""Sites: tiles equal the explicit computation and take little memory."""

from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.efficient import efficient_attention
from regard.attention.mask import as_mask, causal, edges, padding, window
from regard.attention.pattern import ExactPattern
from regard.attention.similarity import Additive, Alibi, General, as_similarity
from regard.errors import InputError
from regard.tap import listen
from regard.trace.edits import (
    ablate,
    forbid,
    set_scores,
    set_value,
    set_weights,
    temperature,
    unscaled,
)
from regard.trace.site import Site
from regard.trace.watch import watch
from tests.largest import Largest
from tests.listeners import Everybody

STEPS = ("compared", "scores", "masked", "weights", "context")
N_QUERY, N_KEY = 7, 9


def inputs(*lead: int, dtype=torch.float32, n_query=N_QUERY, n_key=N_KEY) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(n_query, 4), (n_key, 4), (n_key, 5)]
    return [torch.randn(*lead, *shape, generator=generator).to(dtype) for shape in shapes]


def site_of(given, *, edits=(), **options) -> Site:
    """The site of an attention whose steps were not requested, so that the fused kernel may run."""
    with watch(edits=edits) as trace:
        attend(*given, **options)
    return trace["attention"]


def steps_of(given, *, edits=(), **options) -> dict:
    """Every step of the same attention by its definition."""
    everybody = Everybody()
    with listen(everybody), watch(edits=edits):
        attend(*given, **options)
    return {path.removeprefix("attention."): value for path, value in everybody.seen.items()}


def check_whole_site(site: Site, steps: dict, *, tolerance: float = 1e-5) -> None:
    """All steps of all heads of all sequences."""
    for name in STEPS:
        expected = steps[name].float()
        expected = expected.reshape(-1, *expected.shape[-3:]) if expected.dim() > 2 else expected
        for batch in range(site.n_batch):
            found = getattr(site, name)(batch=batch).float()
            one = expected[batch] if expected.dim() > 2 else expected
            assert_close(
                found, one, atol=tolerance, rtol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
            )


def test_the_weights_of_two_keys_by_hand():
    # scores 0 and ln 3 give weights 1/4 and 3/4, and values 4 and 8 give 7
    key = torch.tensor([[0.0], [3.0]]).clamp_min(1).log()
    site = site_of((torch.ones(1, 1), key, torch.tensor([[4.0], [8.0]])))
    assert_close(site.weights(), torch.tensor([[0.25, 0.75]]))
    assert_close(site.context(), torch.tensor([[7.0]]))


MASKS = {
    "none": lambda lead: None,
    "causal": lambda lead: causal(),
    "padding": lambda lead: padding([5, 0, 3][: lead[0]]) if lead else causal(),
    "window": lambda lead: window(1),
    "edges": lambda lead: edges([(0, 1), (3, 8), (3, 2)]),
    "table": lambda lead: torch.rand(*lead, N_QUERY, N_KEY) < 0.4,
    "mixed": lambda lead: (causal() | window(2)) & ~edges([(0, 0)]),
}
SIMILARITIES = {
    "scaled_dot": "scaled_dot",
    "cosine": "cosine",
    "general": General(4, 4),
    "additive": Additive(4, 4, 3),
    "own": lambda q, k: -torch.cdist(q, k),
}


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
@pytest.mark.parametrize("mask", MASKS)
def test_every_step_equals_the_definition(lead, mask):
    given, allowed = inputs(*lead), MASKS[mask](lead)
    steps = steps_of(given, allowed=allowed)
    check_whole_site(site_of(given, allowed=allowed), steps)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("heat", [0.3, 5.0])
def test_every_similarity_equals_the_definition(similarity, heat):
    options = {"similarity": SIMILARITIES[similarity], "temperature": heat, "allowed": causal()}
    with torch.no_grad():
        steps = steps_of(inputs(2, 3), **options)
    check_whole_site(site_of(inputs(2, 3), **options), steps)


def test_alibi_equals_the_definition_in_tiles():
    options = {"similarity": Alibi(3), "allowed": causal()}
    site, steps = site_of(inputs(2, 3), **options), steps_of(inputs(2, 3), **options)
    check_whole_site(site, steps)
    tile = site.weights(head=1, batch=1, rows=slice(4, 7), columns=slice(2, 5))
    assert_close(tile, steps["weights"][1, 1, 4:7, 2:5])


@pytest.mark.parametrize(
    "heat",
    [0.0, 1e-46, 1.0, 1e300, inf, torch.tensor([0.0, 0.5, inf]).view(3, 1, 1),
     torch.linspace(0.1, 1, N_QUERY).view(N_QUERY, 1)],
    ids=["0", "1e-46", "1", "1e300", "inf", "by head", "by query"],
)  # fmt: skip
def test_every_temperature_equals_the_definition(heat):
    options = {"temperature": heat, "allowed": causal(1)}
    given = inputs(2, 3, dtype=torch.float64)
    site, steps = site_of(given, **options), steps_of(given, **options)
    tile = site.weights(head=2, batch=1, rows=[1, 3], columns=slice(0, 4))
    assert_close(tile.double(), steps["weights"][1, 2][[1, 3], :4], atol=1e-5, rtol=1e-5)
    check_whole_site(site, steps)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_every_dtype_equals_the_definition(dtype):
    given = inputs(2, 3, dtype=dtype)
    site, steps = site_of(given, allowed=causal()), steps_of(given, allowed=causal())
    check_whole_site(site, steps, tolerance=1e-5 if dtype == torch.float64 else 0.02)
    assert site.context(batch=0).dtype == dtype


EDITS = {
    "ablate": lambda: [ablate("attention", head=1)],
    "ablate to mean": lambda: [ablate("attention", head=0, to="mean")],
    "forbid": lambda: [forbid("attention", query=2, key=1), forbid("attention", query=3)],
    "forbid in a head": lambda: [forbid("attention", key=0, head=2)],
    "temperature 0": lambda: [temperature("attention", 0.0)],
    "temperature of a head": lambda: [temperature("attention", 3.0, head=1)],
    "unscaled": lambda: [unscaled("attention")],
    "scores of a head": lambda: [set_scores("attention", torch.rand(N_QUERY, N_KEY), head=2)],
    "score -inf": lambda: [set_scores("attention", -inf, query=1, key=0)],
    "weights": lambda: [set_weights("attention", 0.5, query=4, head=0)],
    "query": lambda: [set_value("attention.query", lambda q: q * 2)],
    "value": lambda: [set_value("attention.value", torch.ones(5))],
    "compared": lambda: [set_value("attention.compared", lambda c: c.square())],
    "masked": lambda: [set_value("attention.masked", lambda m: m - 1)],
    "allowed": lambda: [set_value("attention.allowed", torch.eye(N_QUERY, N_KEY).bool())],
    "similarity": lambda: [set_value("attention.similarity", "cosine")],
    "scale": lambda: [set_value("attention.scale", -1.0)],
    "context": lambda: [set_value("attention.context", 7.0)],
    "compared and scores": lambda: [set_value("attention.compared", 1.0),
                                    set_scores("attention", 3.0, key=2)],
    "many": lambda: [temperature("attention", 2.0), forbid("attention", query=0, key=1),
                     set_scores("attention", 1.0, query=5), ablate("attention", head=2)],
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_edited_sites_equal_the_edited_computation(edit):
    edits, options = EDITS[edit](), {"allowed": causal(2)}
    site = site_of(inputs(2, 3), edits=edits, **options)
    steps = steps_of(inputs(2, 3), edits=edits, **options)
    check_whole_site(site, steps)
    tile = site.weights(head=1, batch=1, rows=slice(1, 5), columns=slice(2, 6))
    assert_close(tile, steps["weights"][1, 1, 1:5, 2:6], atol=1e-5, rtol=1e-5)
    expected = steps["context"][1, 1, 1:5]
    assert_close(site.context(head=1, batch=1, rows=slice(1, 5)), expected, atol=1e-5, rtol=1e-5)


POSITIONS = [
    None, 3, -1, slice(1, 6, 2), slice(-2, None), slice(3, 99), slice(None, None, -1), slice(2, 2),
    range(5, 1, -2), [0, 4, 5], [], [4, -1, 6], [2, 2, 0], (1, 4), torch.tensor([1, 3]),
    np.array([6, 0]), np.int64(2),
]  # fmt: skip


def as_in_numpy(positions, n: int) -> list[int]:
    """The indices that NumPy would take."""
    if isinstance(positions, tuple | range | torch.Tensor):
        positions = list(positions)
    if isinstance(positions, list) and not positions:
        return []
    return np.atleast_1d(np.arange(n)[slice(None) if positions is None else positions]).tolist()


@pytest.fixture(scope="module", params=["table", "mixed"])
def masked(request):
    """A mask and every step of an attention with it."""
    allowed = MASKS[request.param]((2, 3))
    return allowed, steps_of(inputs(2, 3), allowed=allowed)


@pytest.mark.parametrize("rows", POSITIONS, ids=str)
def test_rows_and_columns_are_slices_or_indices_as_in_numpy(rows, masked):
    allowed, steps = masked
    picked = as_in_numpy(rows, N_QUERY)
    for columns in (slice(2, 5), [8, 0, 0, 3]):
        keys = as_in_numpy(columns, N_KEY)
        site = site_of(inputs(2, 3), allowed=allowed)
        for name in ("weights", "masked"):
            found = getattr(site, name)(head=2, batch=1, rows=rows, columns=columns)
            assert found.shape == (len(picked), len(keys))
            expected = steps[name][1, 2][picked][:, keys]
            assert_close(found, expected, atol=1e-5, rtol=1e-5)
        whole = site.weights(head=2, batch=1)  # the sums kept so far are right
        assert_close(whole, steps["weights"][1, 2], atol=1e-5, rtol=1e-5)
    context = site.context(head=2, batch=1, rows=rows)
    assert_close(context, steps["context"][1, 2][picked], atol=1e-5, rtol=1e-5)


ROW, COLUMN = st.integers(0, N_QUERY), st.integers(0, N_KEY)


@given(
    st.lists(st.tuples(ROW, ROW, COLUMN, COLUMN), max_size=5),
    st.sampled_from(["none", "causal", "mixed"]),
)
def test_tiles_in_any_order_are_parts_of_one_table(corners, mask):
    pattern = ExactPattern(as_similarity("dot"), 1.0, 1.0, as_mask(MASKS[mask](())))
    query, key, value = inputs()
    site = Site("attention", query, key, value, pattern)
    scores = (query @ key.mT).masked_fill(~pattern.allowed.tensor(N_QUERY, N_KEY), -inf)
    whole = scores.softmax(-1).nan_to_num(0.0)
    for top, bottom, left, right in corners:
        tile = site.weights(rows=slice(top, bottom), columns=slice(left, right))
        assert_close(tile, whole[top:bottom, left:right], atol=1e-5, rtol=1e-5)


def test_keys_and_values_are_broadcast():
    query, key, value = inputs(2, 3)
    given = (query, key[:1, :1], value[0, 0])
    site, steps = site_of(given, allowed=padding([4, 9])), steps_of(given, allowed=padding([4, 9]))
    check_whole_site(site, steps)


def test_values_may_have_more_axes_than_scores():
    query, key, _ = inputs(3)
    value = inputs(2, 3)[2]
    mask = padding([4, 9, 0])
    site, steps = (form((query, key, value), allowed=mask) for form in (site_of, steps_of))
    assert site.lead == (2, 3)
    for batch in range(2):
        for name in ("scores", "masked", "weights"):
            assert_close(getattr(site, name)(batch=batch), steps[name], atol=1e-5, rtol=1e-5)
        assert_close(site.context(batch=batch), steps["context"][batch], atol=1e-5, rtol=1e-5)


def test_weights_of_a_query_that_sees_nothing_are_zero():
    site = site_of(inputs(2, 3), allowed=padding([0, 3]))
    assert (site.weights(batch=0) == 0).all()
    assert (site.weights(batch=0, rows=slice(1, 2), columns=slice(3, 4)) == 0).all()
    assert (site.context(batch=0) == 0).all()
    assert_close(site.weights(batch=1).sum(-1), torch.ones(3, N_QUERY))


def test_efficient_attention_has_weights_and_a_context_but_no_scores():
    given = inputs(2, 3, n_query=N_KEY)
    with watch() as trace:
        context = efficient_attention(*given, allowed=causal(), site="attention")
    site = trace["attention"]
    assert_close(site.context(batch=1), context[1], atol=1e-5, rtol=1e-5)
    assert_close(site.weights(head=0, batch=0).sum(-1), torch.ones(N_KEY))
    sentence = (
        r"^attention uses EfficientPattern attention, which does not compute scores of all pairs: "
        r"use its weights\.$"
    )
    with pytest.raises(InputError, match=sentence):
        site.scores(batch=0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"head": 3, "batch": 0}, "attention has no head 3; it has 3, 0 to 2."),
        ({"head": 0, "batch": 2}, "attention has no sequence 2; the batch has 2, 0 to 1."),
        ({"head": 0}, "attention has a batch of 2 sequences: select one with batch=0 to batch=1."),
        ({"batch": 0, "rows": 7}, "rows are 7; give a slice or indices from 0 to 6 (negative ones "
         "count from the end)."),
        ({"batch": 0, "columns": range(8, 12)}, "columns are [8, 9, 10, 11]; give a slice or "
         "indices from 0 to 8 (negative ones count from the end)."),
        ({"batch": 0, "rows": [True] * 7}, "rows are [True, True, True, True, True, True, True]; "
         "give a slice or indices from 0 to 6 (negative ones count from the end)."),
    ],
)  # fmt: skip
def test_heads_sequences_and_positions_that_do_not_exist_are_refused(options, sentence):
    with pytest.raises(InputError) as caught:
        site_of(inputs(2, 3)).weights(**options)
    assert str(caught.value) == sentence


def test_a_site_describes_itself_and_compares_by_identity():
    given = [x.requires_grad_() for x in inputs(2, 3)]
    site = site_of(given, allowed=causal())
    assert repr(site) == (
        '<Site trace["attention"]: batch of 2, 3 heads, 7 queries × 9 keys, causal()>'
    )
    assert (site.n_batch, site.n_heads, site.lead) == (2, 3, (2, 3))
    assert site != site_of(given, allowed=causal())
    assert torch.equal(site.vectors("key", 2, batch=1), given[1][1, 2])
    stacked = site.weights(batch=1)
    assert stacked.shape == (3, N_QUERY, N_KEY)
    assert not stacked.requires_grad
    assert torch.equal(stacked[2], site.weights(2, batch=1))
    assert site_of(inputs()).weights(head=0).shape == site_of(inputs()).weights().shape


@pytest.mark.parametrize("columns", [None, slice(2, 5)], ids=["whole rows", "a tile"])
def test_sums_that_another_thread_has_half_written_are_computed_again(columns):
    given = inputs()
    expected = steps_of(given)["weights"][:, columns or slice(None)]
    site = site_of(given)
    site.sums[..., 0] = site.scores().amax(-1)  # its largest scores, and not yet its sums
    assert_close(site.weights(columns=columns), expected, atol=1e-6, rtol=1e-5)
    assert not site.sums.isnan().any()


def test_recording_and_reading_never_hold_a_whole_table():
    n, heads, width = 2048, 2, 8
    given = torch.randn(3, 1, heads, n, width).unbind()
    with Largest() as largest:
        site = site_of(given, allowed=causal())
        tile = site.weights(head=1, rows=slice(1000, 1256), columns=slice(500, 756))
        site.context(head=0, rows=slice(0, 300))
    assert tile.shape == (256, 256)
    assert largest.numbers <= 256 * n  # a strip of one head
    kept = [site.query, site.key, site.value, site.sums]
    assert sum(x.numel() for x in kept) <= 4 * heads * n * width
