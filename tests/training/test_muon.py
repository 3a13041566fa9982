"""Muon: orthogonal momentum for matrices, AdamW for the rest."""

import pytest
import torch
from torch import nn

from regard.training.distributed import World
from regard.training.optimizer import Muon, make_optimizer, orthogonalize


def test_singular_values_come_near_one_and_directions_stay():
    matrices = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(1))
    found = orthogonalize(matrices)
    assert torch.linalg.svdvals(found).sub(1).abs().max() < 0.35
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    inside = left.mT @ found @ right.mT
    assert (inside - torch.diag_embed(inside.diagonal(dim1=1, dim2=2))).abs().max() < 1e-4


def test_a_diagonal_by_hand():
    # One round takes a singular value s, of a matrix of length 1, to a s + b s³ + c s⁵.
    found = orthogonalize(torch.diag(torch.tensor([3.0, 4.0]))[None], rounds=1)[0]
    expected = [3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5 for s in (0.6, 0.8)]
    torch.testing.assert_close(found, torch.diag(torch.tensor(expected)))


def test_tall_wide_and_empty_gradients():
    tall = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(orthogonalize(tall.mT), orthogonalize(tall).mT)
    assert not orthogonalize(torch.zeros(1, 3, 3)).any()


def test_the_other_parameters_move_as_with_adamw():
    def on_step(make):
        weight = nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 3.0]]))
        optimizer = make([{"params": [weight], "weight_decay": 0.1}])
        for number in range(3):
            weight.grad = torch.tensor([[0.1, -0.4], [2.0, 0.0]]) * (number + 1)
            optimizer.step()
        return weight.detach()

    ours = on_step(lambda groups: Muon(groups, lr=0.01, betas=(0.8, 0.9), eps=1e-8))
    theirs = on_step(lambda groups: torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.9), eps=1e-8))
    torch.testing.assert_close(ours, theirs)


def test_a_first_step_is_as_long_as_adams():
    torch.manual_seed(3)
    weight = nn.Parameter(torch.zeros(64, 64))
    weight.grad = torch.randn(64, 64)
    Muon([{"params": [weight], "orthogonal": True}], lr=0.01).step()
    assert weight.square().mean().sqrt().item() == pytest.approx(0.2 * 0.01, rel=0.2)


def test_only_matrices_inside_layers_are_orthogonal():
    model = nn.ModuleDict(
        {
            "tokens": nn.Embedding(7, 4),
            "layers": nn.ModuleList([nn.Linear(4, 4), nn.LayerNorm(4)]),
            "classifier": nn.Linear(4, 2),
        }
    )
    groups = make_optimizer(model, "muon", weight_decay=0.1).param_groups
    sizes = {(len(one["params"]), one["orthogonal"], one["weight_decay"]) for one in groups}
    assert sizes == {(1, True, 0.1), (2, False, 0.1), (4, False, 0.0)}


def test_a_model_without_layers_learns_by_adamw_alone():
    groups = make_optimizer(nn.Linear(3, 2), "muon").param_groups
    assert not any(one["orthogonal"] for one in groups)


class Silent(World):
    """A process that never hears of the others."""

    def add_up(self, tensor):
        pass


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_what_several_processes_make_orthogonal_adds_up_to_all(ranks):
    generator = torch.Generator().manual_seed(4)
    start = [torch.randn(4, 6, generator=generator) for _ in range(3)]
    start.append(torch.randn(6, 4, generator=generator))

    def moved(world):
        weights = [nn.Parameter(torch.zeros_like(one)) for one in start]
        for weight, one in zip(weights, start, strict=True):
            weight.grad = one
        Muon([{"params": weights, "orthogonal": True}], lr=0.1, world=world).step()
        return weights

    parts = zip(*(moved(Silent(rank, ranks)) for rank in range(ranks)), strict=True)
    torch.testing.assert_close([sum(part) for part in parts], [one.data for one in moved(World())])
