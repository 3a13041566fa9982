import pytest
import torch
from torch.testing import assert_close

import regard
from regard.analysis.heads import layers_up_to, rollout
from regard.errors import InputError, UnknownNameError

STACK = "encoder.layers.{}.self"


def stack(*tables):
    """Trace layers with these weights (head × query × key)."""
    edits = [
        regard.set_weights(STACK.format(n), head, head=i)
        for n, table in enumerate(tables)
        for i, head in enumerate(table)
    ]
    with regard.watch(edits=edits) as trace:
        for n, table in enumerate(tables):
            regard.attend(*torch.randn(3, 1, *table.shape[:2], 2), site=STACK.format(n))
    return trace


def test_two_layers_of_two_tokens_by_hand():
    first = torch.tensor([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])  # mean: all 1/2
    second = torch.tensor([[[0.0, 1.0], [0.0, 1.0]]]).expand(2, 2, 2)
    trace = stack(first, second)
    # (1/2 + 1)/2 = 3/4 and 1/4 in the first; (0 + 1)/2, 1/2 / 0, 1 in the second
    assert_close(
        rollout(trace, STACK.format(0)), torch.tensor([[0.75, 0.25], [0.25, 0.75]]).double()
    )
    # 1/2 (3/4, 1/4) + 1/2 (1/4, 3/4) = (1/2, 1/2); the last token keeps its row
    assert_close(rollout(trace, STACK.format(1)), torch.tensor([[0.5, 0.5], [0.25, 0.75]]).double())


def test_rollout_is_the_product_of_the_layers(trace):
    table = torch.eye(trace["encoder.layers.0.self"].n_query)
    for path in ("encoder.layers.0.self", "encoder.layers.1.self"):
        table = (0.5 * trace[path].weights().mean(0) + 0.5 * torch.eye(len(table))) @ table
    assert_close(rollout(trace, "encoder.layers.1.self").float(), table)


@pytest.mark.parametrize("path", ["encoder.layers.1.self", "decoder.layers.1.self"])
def test_rows_sum_to_one_and_stay_causal(trace, path):
    table = rollout(trace, path)
    assert_close(table.sum(-1), torch.ones(len(table)).double())
    if path.startswith("decoder"):
        assert table.triu(1).abs().max() == 0


def test_a_token_without_keys_keeps_itself():
    with regard.watch() as trace:
        vectors = torch.randn(3, 1, 1, 2, 2)
        regard.attend(*vectors, allowed=regard.edges([(0, 1)]), site=STACK.format(0))
    assert_close(rollout(trace, STACK.format(0)), torch.tensor([[0.5, 0.5], [0.0, 1.0]]).double())


def test_sites_without_a_self_attention_stack_are_refused(trace):
    with pytest.raises(InputError, match="not a self-attention layer"):
        rollout(trace, "decoder.layers.0.cross")
    with pytest.raises(UnknownNameError, match=r"encoder\.layers\.7\.self"):
        rollout(trace, "encoder.layers.7.self")
    with regard.watch() as second_only:
        regard.attend(*torch.randn(3, 1, 1, 2, 2), site=STACK.format(1))
    with pytest.raises(UnknownNameError, match=r"encoder\.layers\.0\.self"):
        layers_up_to(second_only, STACK.format(1))


def test_long_texts_are_refused():
    with regard.watch() as trace:
        regard.attend(*torch.zeros(3, 1, 1, 2049, 1), site=STACK.format(0))
    with pytest.raises(InputError, match="at most 2,048"):
        rollout(trace, STACK.format(0))
