"""Sites: tiles of what was computed, equal to the explicit computation, in little memory."""

from math import inf

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
from regard.errors import InputError, UnknownNameError
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
from regard.trace.trace import watch
from tests.listeners import Everybody

STEPS = ("compared", "scores", "masked", "weights", "context")
N_QUERY, N_KEY = 7, 9


def inputs(*lead: int, dtype=torch.float32, n_query=N_QUERY, n_key=N_KEY) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(n_query, 4), (n_key, 4), (n_key, 5)]
    return [torch.randn(*lead, *shape, generator=generator).to(dtype) for shape in shapes]


def site_of(given, *, edits=(), **options) -> Site:
    """The site of an attention whose steps nobody asked for, so that the fused kernel may run."""
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
        for batch in range(site.lead[0] if len(site.lead) > 1 else 1):
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
    assert_close(site.log_totals, torch.tensor([4.0]).log())


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
def test_every_step_of_a_site_is_that_of_the_definition(lead, mask):
    given, allowed = inputs(*lead), MASKS[mask](lead)
    steps = steps_of(given, allowed=allowed)
    check_whole_site(site_of(given, allowed=allowed), steps)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("heat", [0.3, 5.0])
def test_every_similarity_comes_back(similarity, heat):
    options = {"similarity": SIMILARITIES[similarity], "temperature": heat, "allowed": causal()}
    with torch.no_grad():
        steps = steps_of(inputs(2, 3), **options)
    check_whole_site(site_of(inputs(2, 3), **options), steps)


def test_alibi_comes_back_in_tiles_too():
    options = {"similarity": Alibi(3), "allowed": causal()}
    site, steps = site_of(inputs(2, 3), **options), steps_of(inputs(2, 3), **options)
    check_whole_site(site, steps)
    tile = site.weights(head=1, batch=1, rows=(4, 7), columns=(2, 5))
    assert_close(tile, steps["weights"][1, 1, 4:7, 2:5])


@pytest.mark.parametrize(
    "heat",
    [0.0, 1e-46, 1e-3, 1.0, 1e300, inf, torch.tensor([0.0, 0.5, inf]).view(3, 1, 1),
     torch.linspace(0.1, 1, N_QUERY).view(N_QUERY, 1)],
    ids=["0", "1e-46", "1e-3", "1", "1e300", "inf", "by head", "by query"],
)  # fmt: skip
def test_every_temperature_comes_back_whole_and_in_tiles(heat):
    options = {"temperature": heat, "allowed": causal(1)}
    given = inputs(2, 3, dtype=torch.float64)
    site, steps = site_of(given, **options), steps_of(given, **options)
    tile = site.weights(head=2, batch=1, rows=[1, 3], columns=(0, 4))
    assert_close(tile.double(), steps["weights"][1, 2][[1, 3], :4], atol=1e-5, rtol=1e-5)
    check_whole_site(site, steps)
    assert site.log_totals.shape == (2, 3, N_QUERY)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_every_type_of_numbers_comes_back(dtype):
    given = inputs(2, 3, dtype=dtype)
    site, steps = site_of(given, allowed=causal()), steps_of(given, allowed=causal())
    check_whole_site(site, steps, tolerance=1e-5 if dtype == torch.float64 else 0.02)
    assert site.context().dtype == dtype


EDITS = {
    "ablate": lambda: [ablate("attention", head=1)],
    "mean": lambda: [ablate("attention", head=0, to="mean")],
    "ablate all": lambda: [ablate("*")],
    "forbid": lambda: [forbid("attention", query=2, key=1)],
    "forbid for all": lambda: [forbid("attention", key=0, head=2)],
    "forbid a query": lambda: [forbid("attention", query=3)],
    "temperature": lambda: [temperature("attention", 0.4)],
    "cold": lambda: [temperature("attention", 0.0)],
    "temperature of a head": lambda: [temperature("attention", 3.0, head=1)],
    "unscaled": lambda: [unscaled("attention")],
    "scores": lambda: [set_scores("attention", 2.0, query=1, key=0)],
    "scores of a head": lambda: [set_scores("attention", torch.rand(N_QUERY, N_KEY), head=2)],
    "score -inf": lambda: [set_scores("attention", -inf, query=1, key=0)],
    "weights": lambda: [set_weights("attention", 0.5, query=4, head=0)],
    "query": lambda: [set_value("attention.query", lambda q: q * 2)],
    "key": lambda: [set_value("attention.key", 0.5)],
    "value": lambda: [set_value("attention.value", torch.ones(5))],
    "compared": lambda: [set_value("attention.compared", lambda c: c.square())],
    "masked": lambda: [set_value("attention.masked", lambda m: m - 1)],
    "a mask": lambda: [set_value("attention.allowed", window(1))],
    "a table": lambda: [set_value("attention.allowed", torch.eye(N_QUERY, N_KEY).bool())],
    "similarity": lambda: [set_value("attention.similarity", "cosine")],
    "scale": lambda: [set_value("attention.scale", -1.0)],
    "context": lambda: [set_value("attention.context", 7.0)],
    "compared and scores": lambda: [set_value("attention.compared", 1.0),
                                    set_scores("attention", 3.0, key=2)],
    "scores and weights": lambda: [set_scores("attention", 1.0, head=0),
                                   set_weights("attention", 0.1, key=1)],
    "many": lambda: [temperature("attention", 2.0), forbid("attention", query=0, key=1),
                     set_scores("attention", 1.0, query=5), ablate("attention", head=2)],
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_under_any_edit_the_site_is_what_was_computed(edit):
    edits, options = EDITS[edit](), {"allowed": causal(2)}
    site = site_of(inputs(2, 3), edits=edits, **options)
    steps = steps_of(inputs(2, 3), edits=edits, **options)
    check_whole_site(site, steps)
    tile = site.weights(head=1, batch=1, rows=(1, 5), columns=(2, 6))
    assert_close(tile, steps["weights"][1, 1, 1:5, 2:6], atol=1e-5, rtol=1e-5)
    expected = steps["context"][1, 1, 1:5]
    assert_close(site.context(head=1, batch=1, rows=(1, 5)), expected, atol=1e-5, rtol=1e-5)


SPANS = [
    None, 3, (1, 4), (2, 2), slice(1, 6, 2), slice(-2, None), slice(3, 99), slice(None, None, -1),
    range(2, 5), range(5, 1, -2), [0, 4, 5], [], [4, 1, 6], [2, 2, 0], torch.tensor([1, 3]),
    (0, 3, 5),
]  # fmt: skip


def meant(span, n: int) -> list[int]:
    """The positions a span means, said in plain Python."""
    if span is None:
        return list(range(n))
    if isinstance(span, slice):
        return list(range(n))[span]
    if isinstance(span, int):
        return [span]
    if isinstance(span, tuple) and len(span) == 2:
        return list(range(n))[slice(*span)]
    return [int(i) for i in span]


@pytest.fixture(scope="module", params=["table", "edges", "mixed", "padding"])
def masked(request):
    """A mask, and every step of an attention with it."""
    allowed = MASKS[request.param]((2, 3))
    return allowed, steps_of(inputs(2, 3), allowed=allowed)


@pytest.mark.parametrize("rows", SPANS, ids=str)
def test_rows_and_columns_may_be_any_span(rows, masked):
    allowed, steps = masked
    picked = meant(rows, N_QUERY)
    for columns in ((2, 5), [8, 0, 0, 3], list(reversed(range(N_KEY)))):
        keys = meant(columns, N_KEY)
        site = site_of(inputs(2, 3), allowed=allowed)
        for name in ("weights", "masked"):
            found = getattr(site, name)(head=2, batch=1, rows=rows, columns=columns)
            assert found.shape == (len(picked), len(keys))
            expected = steps[name][1, 2][picked][:, keys]
            assert_close(found, expected, atol=1e-5, rtol=1e-5)
        whole = site.weights(head=2, batch=1)  # nothing wrong was kept on the way
        assert_close(whole, steps["weights"][1, 2], atol=1e-5, rtol=1e-5)
    context = site.context(head=2, batch=1, rows=rows)
    assert_close(context, steps["context"][1, 2][picked], atol=1e-5, rtol=1e-5)


ROW, COLUMN = st.integers(0, N_QUERY), st.integers(0, N_KEY)


@given(
    st.lists(st.tuples(ROW, ROW, COLUMN, COLUMN), max_size=5),
    st.sampled_from(["none", "causal", "mixed"]),
)
def test_tiles_asked_for_in_any_order_are_cut_from_one_picture(corners, mask):
    pattern = ExactPattern(as_similarity("dot"), 1.0, 1.0, as_mask(MASKS[mask](())))
    query, key, value = inputs()
    site = Site("attention", query, key, value, pattern)
    scores = (query @ key.mT).masked_fill(~pattern.allowed.tensor(N_QUERY, N_KEY), -inf)
    whole = scores.softmax(-1).nan_to_num(0.0)
    for top, bottom, left, right in corners:
        tile = site.weights(rows=(top, bottom), columns=(left, right))
        assert_close(tile, whole[top:bottom, left:right], atol=1e-5, rtol=1e-5)


def test_no_head_means_all_of_them_stacked():
    site = site_of(inputs(2, 3))
    assert site.weights(batch=1).shape == (3, N_QUERY, N_KEY)
    assert torch.equal(site.weights(batch=1)[2], site.weights(head=2, batch=1))
    assert site.context(rows=(0, 2)).shape == (3, 2, 5)
    assert site_of(inputs()).weights().shape == (N_QUERY, N_KEY)
    assert site_of(inputs()).weights(head=0).shape == (N_QUERY, N_KEY)


def test_a_sequence_is_named_by_its_place_in_the_batch():
    given = inputs(2, 3)
    site = site_of(given)
    for batch in range(2):
        alone = site_of([x[batch] for x in given])
        assert_close(site.weights(head=1, batch=batch), alone.weights(head=1))


def test_keys_that_all_queries_share_are_found_for_every_head():
    query, key, value = inputs(2, 3)
    given = (query, key[:1, :1], value[0, 0])
    site, steps = site_of(given, allowed=padding([4, 9])), steps_of(given, allowed=padding([4, 9]))
    check_whole_site(site, steps)


def test_values_may_have_axes_that_the_scores_do_not_have():
    query, key, _ = inputs(3)
    value = inputs(2, 3)[2]
    mask = padding([4, 9, 0])
    site, steps = (form((query, key, value), allowed=mask) for form in (site_of, steps_of))
    assert site.lead == (2, 3)
    for batch in range(2):
        for name in ("scores", "masked", "weights"):
            assert_close(getattr(site, name)(batch=batch), steps[name], atol=1e-5, rtol=1e-5)
        assert_close(site.context(batch=batch), steps["context"][batch], atol=1e-5, rtol=1e-5)


def test_log_totals_are_torchs_and_appear_as_they_are_needed():
    given, heat = inputs(2, 3), 0.7
    site = site_of(given, temperature=heat, allowed=causal())
    assert site.log_totals.isnan().all()
    site.weights(head=1, batch=0, rows=(2, 5), columns=(0, 1))
    known = ~site.log_totals.isnan()
    assert known.nonzero().tolist() == [[0, 1, row] for row in (2, 3, 4)]
    for batch in range(2):
        site.weights(batch=batch)
    masked = steps_of(given, temperature=heat, allowed=causal())["masked"]
    assert_close(site.log_totals, torch.logsumexp(masked / heat, -1))


def test_weights_of_a_query_that_sees_nothing_are_zero():
    site = site_of(inputs(2, 3), allowed=padding([0, 3]))
    assert (site.weights(batch=0) == 0).all()
    assert (site.weights(batch=0, rows=(1, 2), columns=(3, 4)) == 0).all()
    assert (site.context(batch=0) == 0).all()
    assert_close(site.weights(batch=1).sum(-1), torch.ones(3, N_QUERY))


def test_what_a_site_says_of_itself():
    site = site_of(inputs(2, 3), allowed=causal())
    assert (site.n_query, site.n_key, site.n_heads, site.lead) == (N_QUERY, N_KEY, 3, (2, 3))
    assert site.path == "attention"
    assert site.allowed == causal()
    assert repr(site) == "Site('attention': 3 heads, 7 queries × 9 keys, causal())"
    query, key, value = inputs(2, 3)
    assert torch.equal(site.query, query)
    assert torch.equal(site.key, key)
    assert torch.equal(site.value, value)


def test_what_a_site_gives_needs_no_gradient():
    given = [x.requires_grad_() for x in inputs(2, 3)]
    site = site_of(given, similarity=General(4, 4))
    for name in STEPS:
        assert not getattr(site, name)().requires_grad


def test_efficient_attention_has_weights_and_a_context_but_no_scores():
    given = inputs(2, 3, n_query=N_KEY)
    with watch() as trace:
        context = efficient_attention(*given, allowed=causal(), site="attention")
    site = trace["attention"]
    assert_close(site.context(batch=1), context[1], atol=1e-5, rtol=1e-5)
    assert_close(site.weights(head=0).sum(-1), torch.ones(N_KEY))
    sentence = (
        r"^attention is Efficient attention, which has no scores of all pairs: "
        r"ask for its weights, which are those it implies\.$"
    )
    with pytest.raises(InputError, match=sentence):
        site.scores()


@pytest.mark.parametrize("head", [3, -1])
def test_a_head_that_is_not_there_is_refused(head):
    with pytest.raises(
        UnknownNameError, match=rf"^attention has no head {head}; it has 3, 0 to 2\.$"
    ):
        site_of(inputs(2, 3)).weights(head=head)
    with pytest.raises(UnknownNameError, match=rf"^attention has no head {head}"):
        site_of(inputs(2, 3)).thumbnail(head)


def test_a_head_of_a_site_without_heads_is_refused():
    with pytest.raises(UnknownNameError, match=r"^attention has no head 1; it has one, head 0\.$"):
        site_of(inputs()).weights(head=1)


@pytest.mark.parametrize("batch", [2, -1])
def test_a_sequence_that_is_not_there_is_refused(batch):
    sentence = rf"^attention has no sequence {batch}; the batch has 2, 0 to 1\.$"
    with pytest.raises(UnknownNameError, match=sentence):
        site_of(inputs(2, 3)).weights(head=0, batch=batch)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rows": 7}, "rows 7 to 7 were asked for; there are 7, 0 to 6."),
        ({"rows": [0, -1]}, "rows -1 to 0 were asked for; there are 7, 0 to 6."),
        ({"columns": range(8, 12)}, "columns 8 to 11 were asked for; there are 9, 0 to 8."),
    ],
)
def test_positions_that_are_not_there_are_refused(options, sentence):
    with pytest.raises(InputError) as caught:
        site_of(inputs()).weights(**options)
    assert str(caught.value) == sentence


def test_masks_are_kept_as_descriptions():
    table = torch.rand(N_QUERY, N_KEY) < 0.5
    assert repr(site_of(inputs(2, 3), allowed=table).allowed) == "table(7, 9)"
    assert site_of(inputs(2, 3)).allowed == as_mask(None)
