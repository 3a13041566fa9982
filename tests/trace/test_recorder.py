"""Sites that are computed step by step equal those computed at once."""

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.attention.mask import Everything, causal, padding
from regard.attention.tile import Grid
from regard.errors import InputError, UnknownNameError
from regard.trace.recorder import StepwiseMask
from regard.trace.trace import Trace

N_QUERY, N_KEY = 4, 5
QUERY = torch.randn(2, 3, N_QUERY, 6, generator=torch.Generator().manual_seed(1))
KEY = torch.randn(2, 3, N_KEY, 6, generator=torch.Generator().manual_seed(2))
VALUE = torch.randn(2, 3, N_KEY, 7, generator=torch.Generator().manual_seed(3))


def at_once(edits=(), allowed=None):
    with regard.watch(edits=edits) as trace:
        context = regard.attend(QUERY, KEY, VALUE, allowed=allowed, site="cross")
    return trace["cross"], context


def by_steps(edits=(), allowed=None, sizes=(1, 2, 1)):
    """Compute the same queries in several steps."""
    contexts, first = [], 0
    with regard.watch(edits=edits) as trace:
        for size in sizes:
            query = QUERY[..., first : first + size, :]
            site = f"cross@{first}"
            contexts.append(regard.attend(query, KEY, VALUE, allowed=allowed, site=site))
            first += size
    return trace["cross"], torch.cat(contexts, dim=-2)


def assert_same_site(one, other):
    assert (one.n_query, one.n_key, one.lead) == (other.n_query, other.n_key, other.lead)
    for batch in range(2):
        for name in ("scores", "masked", "weights", "context"):
            assert_close(getattr(one, name)(batch=batch), getattr(other, name)(batch=batch))
    rows, columns = [1, 3], [0, 2, 3]
    tile = one.weights(head=1, batch=1, rows=rows, columns=columns)
    assert_close(tile, other.weights(head=1, batch=1)[rows][:, columns])


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 1)])
@pytest.mark.parametrize(
    "edits",
    [
        [],
        [regard.forbid("cross", query=2, key=1)],
        [regard.forbid("cross", query=0), regard.forbid("cross", key=3, head=1)],
        [regard.set_weights("cross", 0.5, query=2, key=0)],
        [regard.set_weights("cross", torch.rand(N_QUERY, N_KEY))],
        [regard.set_scores("cross", 2.0, query=1, head=2)],
        [regard.set_scores("cross", -1.0, key=4), regard.set_weights("cross", 0.1, query=3)],
        [regard.temperature("cross", 0.3)],
        [regard.ablate("cross", head=1)],
        [regard.set_value("cross.query", torch.rand(3, N_QUERY, 6))],
    ],
)
def test_edits_equal_those_of_a_site_computed_at_once(edits, sizes):
    (whole, expected), (joined, found) = at_once(edits), by_steps(edits, sizes=sizes)
    assert_close(found, expected)
    assert_same_site(joined, whole)


def test_a_mask_that_all_steps_share_is_kept():
    hidden = padding([5, 3])
    site, context = by_steps(allowed=hidden)
    assert site.allowed is hidden
    assert_close(context, at_once(allowed=hidden)[1])
    assert not site.weights(batch=1)[..., 3:].any()


def test_keys_added_by_a_step_are_hidden_from_earlier_queries():
    key, value = KEY[..., :N_QUERY, :], VALUE[..., :N_QUERY, :]
    with regard.watch() as trace:
        for i in range(N_QUERY):  # as a decoder with a cache does it
            seen = slice(0, i + 1)
            regard.attend(
                QUERY[..., i : i + 1, :],
                key[..., seen, :],
                value[..., seen, :],
                allowed=causal(offset=i),
                site=f"self@{i}",
            )
    with regard.watch() as expected:
        regard.attend(QUERY, key, value, allowed=causal(), site="self")
    assert_same_site(trace["self"], expected["self"])


def test_stepwise_mask_by_hand():
    mask = StepwiseMask(
        (causal(), padding([1, 2]), Everything()), firsts=(0, 2, 3), n_keys=(2, 3, 3)
    )
    # rows 0 and 1 are causal over two keys; row 2 sees one key in the first sequence, two in the
    # second; row 3 sees all three there were; a fourth key came later than all of them
    seen = mask.tensor(4, 4, lead=(2,))
    assert seen.int().tolist() == [
        [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]],
        [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]],
    ]
    rows, columns = torch.tensor([2, 0]), torch.tensor([3, 1])
    part = mask.on(Grid((2,), 4, 4, rows, columns))
    assert torch.equal(part, seen[:, rows][..., columns])
    assert repr(mask) == "stepwise(0: causal(), 2: padding([1, 2]), 3: everything())"


def test_a_stepwise_site_survives_saving(tmp_path):
    site, _ = by_steps([regard.forbid("cross", query=2, key=1)])
    Trace(sites={"cross": site}).save(tmp_path / "trace.safetensors")
    assert_same_site(Trace.load(tmp_path / "trace.safetensors")["cross"], site)


def test_a_second_run_replaces_the_first():
    with regard.watch() as trace:
        for sizes in ((1, 1, 1, 1), (1, 1)):
            first = 0
            for size in sizes:
                query = QUERY[..., first : first + size, :]
                regard.attend(query, KEY, VALUE, site=f"cross@{first}")
                first += size
    assert trace["cross"].n_query == 2


def test_missing_queries_and_means_of_unfinished_sites_are_refused():
    with pytest.raises(UnknownNameError, match=r"query=9.* names a query that does not exist"):
        by_steps([regard.set_weights("cross", 1.0, query=9)])
    with pytest.raises(InputError, match="cross is computed query by query"):
        by_steps([regard.ablate("cross", to="mean")])
