"""Optimizers, schedules, weight averages and frozen parameters."""

from math import sqrt

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.errors import InputError, UnknownNameError
from regard.training.distributed import World
from regard.training.optimizer import (
    MovingAverage,
    Muon,
    Schedule,
    freeze,
    make_optimizer,
    mean_weights,
    orthogonalize,
    paper_rate,
)


def step(module: nn.Module, optimizer: torch.optim.Optimizer, lr: float = 0.1):
    for group in optimizer.param_groups:
        group["lr"] = lr
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def test_first_adam_step_is_the_learning_rate_times_the_sign_of_the_gradient():
    # m = 0.1 g and v = 0.02 g², both corrected to g and g²: the step is lr · g / |g|
    module = nn.Linear(2, 2)
    before = module.weight.detach().clone()
    step(module, make_optimizer(module))
    assert_close(module.weight.detach(), before - 0.1)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_fused_updates_equal_plain_ones(kind):
    options = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-9}
    plain = muon_steps(lambda groups: kind(groups, **options, foreach=False))
    fused = make_optimizer(nn.Linear(2, 2), kind.__name__.lower())
    assert fused.defaults["fused"]
    assert_close(muon_steps(lambda groups: kind(groups, **options, fused=True)), plain)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_weight_decay_applies_to_matrices_and_not_to_vectors(name):
    module = nn.Linear(2, 2)
    nn.init.ones_(module.weight)
    nn.init.ones_(module.bias)
    step(module, make_optimizer(module, name, weight_decay=0.5))
    assert_close(module.weight.detach(), torch.full((2, 2), 1 - 0.1 * 0.5 - 0.1))
    assert_close(module.bias.detach(), torch.full((2,), 1 - 0.1))


def test_unknown_optimizers_and_models_without_trainable_parameters_are_refused():
    with pytest.raises(UnknownNameError, match="optimizer is 'adams'; choose one of adam"):
        make_optimizer(nn.Linear(2, 2), "adams")
    module = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(InputError, match="every parameter is frozen"):
        make_optimizer(module)


@pytest.mark.parametrize("pattern", ["0.*", "0"])
def test_frozen_parameters_do_not_change(pattern):
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert freeze(module, [pattern]) == ["0.weight", "0.bias"]
    before = module[0].weight.detach().clone()
    step(module, make_optimizer(module))
    assert torch.equal(module[0].weight, before)
    assert module[1].weight.requires_grad


def test_freezing_unknown_parameters_is_refused():
    with pytest.raises(UnknownNameError, match=r"'encoder\.\*', which matches no parameter; the n"):
        freeze(nn.Sequential(nn.Linear(2, 2)), ["encoder.*"])


def test_orthogonalize_keeps_singular_vectors_and_moves_singular_values_near_one():
    matrices = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(1))
    found = orthogonalize(matrices)
    assert torch.linalg.svdvals(found).sub(1).abs().max() < 0.35
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    inside = left.mT @ found @ right.mT
    assert (inside - torch.diag_embed(inside.diagonal(dim1=1, dim2=2))).abs().max() < 1e-4
    assert_close(orthogonalize(matrices.mT), found.mT)
    assert not orthogonalize(torch.zeros(1, 3, 3)).any()


def test_one_iteration_of_orthogonalize_by_hand():
    # a singular value s of a matrix with norm 1 becomes a s + b s³ + c s⁵
    found = orthogonalize(torch.diag(torch.tensor([3.0, 4.0]))[None], iterations=1)[0]
    expected = [3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5 for s in (0.6, 0.8)]
    assert_close(found, torch.diag(torch.tensor(expected)))


def muon_steps(make):
    torch.manual_seed(3)
    weight = nn.Parameter(torch.randn(16, 24))
    optimizer = make([{"params": [weight], "weight_decay": 0.1}])
    for _ in range(3):
        weight.grad = torch.randn(16, 24)
        optimizer.step()
    return weight.detach()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_muon_equals_torch_muon_up_to_bfloat16(dtype):
    def ours(groups):
        return Muon([{**groups[0], "orthogonal": True}], lr=0.01, dtype=dtype)

    def theirs(groups):
        return torch.optim.Muon(groups, lr=0.01, adjust_lr_fn="match_rms_adamw")

    assert_close(muon_steps(ours), muon_steps(theirs), rtol=0, atol=1e-3)


def test_muon_uses_adamw_for_other_groups():
    options = {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-8}
    ours = muon_steps(lambda groups: Muon(groups, **options))
    assert_close(ours, muon_steps(lambda groups: torch.optim.AdamW(groups, **options)))


def test_muon_orthogonalizes_only_matrices_inside_layers():
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


class SilentWorld(World):
    """A process that never gets the results of the others."""

    def all_reduce(self, tensor):
        pass


def test_processes_share_the_work_of_muon():
    generator = torch.Generator().manual_seed(4)
    gradients = [torch.randn(4, 6, generator=generator) for _ in range(3)]
    gradients.append(torch.randn(6, 4, generator=generator))

    def updated(world):
        weights = [nn.Parameter(torch.zeros_like(one)) for one in gradients]
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        Muon([{"params": weights, "orthogonal": True}], lr=0.1, world=world).step()
        return weights

    parts = zip(*(updated(SilentWorld(rank, 3)) for rank in range(3)), strict=True)
    assert_close([sum(part) for part in parts], [one.data for one in updated(World())])


def test_paper_schedule_is_the_formula_of_the_paper():
    d_model, warmup = 512, 4000
    schedule = Schedule("paper", paper_rate(d_model, warmup), warmup)
    for number in (1, 100, 4000, 100_000):
        expected = d_model**-0.5 * min(number**-0.5, number * warmup**-1.5)
        assert schedule.at(number) == pytest.approx(expected)


def test_decaying_schedules_by_hand():
    # 10 of 100 steps of warm-up: step 55 is half of the rest
    linear, cosine = (Schedule(kind, 1.0, 10, 0.2) for kind in ("linear", "cosine"))
    assert linear.at(5, 0.05) == cosine.at(5, 0.05) == 0.5
    assert linear.at(55, 0.55) == cosine.at(55, 0.55) == pytest.approx(0.6)
    assert linear.at(100, 1.0) == cosine.at(100, 1.0) == pytest.approx(0.2)
    assert cosine.at(32, 0.325) == pytest.approx(0.2 + 0.8 * (1 + sqrt(0.5)) / 2, abs=0.02)
    assert Schedule("constant", 0.3, 10).at(999, 0.9) == 0.3


def test_the_schedule_of_the_paper_needs_a_warmup():
    with pytest.raises(InputError, match="warmup is 0; it must be 1 or more"):
        Schedule("paper", 1.0, 0)


def test_moving_average_by_hand_and_in_place():
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)
    average = MovingAverage(module, 0.5)
    nn.init.ones_(module.weight)
    average.update(1)  # decay is min(0.5, 2 / 11) in the first step
    assert_close(average.weights["weight"], torch.tensor([[9 / 11]]))
    with average.applied():
        assert_close(module.weight.detach(), torch.tensor([[9 / 11]]))
    assert_close(module.weight.detach(), torch.ones(1, 1))


def test_mean_weights_is_computed_in_double_precision():
    many = [{"w": torch.tensor([1e8])}, {"w": torch.tensor([1.0])}, {"w": torch.tensor([-1e8])}]
    assert_close(mean_weights(many)["w"], torch.tensor([1 / 3]))
