"""Attention inside torch.compile and torch.export: one graph, the same numbers."""

from math import inf

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.mask import Not, causal, edges, padding, window
from regard.attention.similarity import Additive, Alibi

# Dynamo cannot trace shape checks, and every test compiles its own graph.
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("no_shape_checks", "fresh_compiler")]


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()


MASKS = {
    "none": lambda lengths: None,
    "causal": lambda lengths: causal(),
    "offset": lambda lengths: causal(offset=1),
    "window": lambda lengths: window(1),
    "edges": lambda lengths: edges([(0, 1), (2, 2)]),
    "padding": padding,
    "table": lambda lengths: torch.arange(4) < lengths.view(-1, 1, 1, 1),
    # `~` on objects is not known to torch.compile, so inside a graph it is written Not(…)
    "mixed": lambda lengths: (causal() & padding(lengths, side="left")) | Not(window(2)),
}


class Layer(nn.Module):
    """Attention with a mask that is made inside, as models make it."""

    def __init__(self, mask: str, similarity, temperature=1.0, dropout=0.0):
        super().__init__()
        self.mask, self.similarity = MASKS[mask], similarity
        self.temperature, self.dropout = temperature, dropout

    def forward(self, query, key, value, lengths):
        return attend(
            *(query, key, value),
            allowed=self.mask(lengths),
            similarity=self.similarity,
            temperature=self.temperature,
            dropout=self.dropout,
        )


EXAMPLE = (*torch.randn(3, 2, 2, 4, 3, generator=torch.Generator().manual_seed(1)).unbind(),
           torch.tensor([2, 4]))  # fmt: skip


@pytest.mark.parametrize(
    ("mask", "similarity"),
    [
        *((mask, "scaled_dot") for mask in MASKS),
        *(("mixed", similarity) for similarity in ("cosine", Additive(3, 3, 2), Alibi(2))),
    ],
)
def test_it_compiles_into_one_graph_with_every_mask(mask, similarity):
    layer = Layer(mask, similarity)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    assert_close(compiled(*EXAMPLE), layer(*EXAMPLE))


@pytest.mark.parametrize("mask", ["edges", "padding", "mixed"])
def test_it_exports_with_every_mask(mask):
    layer = Layer(mask, "scaled_dot")
    program = torch.export.export(layer, EXAMPLE)
    assert_close(program.module()(*EXAMPLE), layer(*EXAMPLE))


@pytest.mark.parametrize("mask", ["causal", "mixed"])
def test_it_exports_for_any_batch_and_length(mask):
    batch, token = torch.export.Dim("batch", min=2), torch.export.Dim("token", min=4)
    layer, axes = Layer(mask, "scaled_dot"), {0: batch, 2: token}
    program = torch.export.export(layer, EXAMPLE, dynamic_shapes=(axes, axes, axes, {0: batch}))
    other = (*torch.randn(3, 3, 2, 7, 3).unbind(), torch.tensor([2, 7, 1]))
    assert_close(program.module()(*other), layer(*other))


@pytest.mark.parametrize(
    "mask",
    [edges([(0, 1)]), padding([2, 3]) & ~causal(1), torch.eye(4).bool()],
    ids=repr,
)
def test_masks_built_before_compile_and_export_work(mask):
    class Fixed(nn.Module):
        def forward(self, query, key, value):
            return attend(query, key, value, allowed=mask)

    plain = Fixed()(*EXAMPLE[:3])
    compiled = torch.compile(Fixed(), fullgraph=True, backend="eager")
    assert_close(compiled(*EXAMPLE[:3]), plain)
    exported = torch.export.export(Fixed(), EXAMPLE[:3]).module()
    assert_close(exported(*EXAMPLE[:3]), plain)


@pytest.mark.parametrize("temperature", [0.0, inf, torch.tensor([[[0.0]], [[2.0]]])])
def test_it_compiles_with_every_temperature(temperature):
    layer = Layer("causal", "scaled_dot", temperature)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    assert_close(compiled(*EXAMPLE), layer(*EXAMPLE))


def test_a_compiled_layer_has_the_gradients_of_the_plain_one():
    layer = Layer("mixed", "scaled_dot")
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    gradients = []
    for form in (layer, compiled):
        leaves = [x.clone().requires_grad_() for x in EXAMPLE[:3]]
        form(*leaves, EXAMPLE[3]).square().sum().backward()
        gradients.append([leaf.grad for leaf in leaves])
    assert_close(*gradients)
