"""Optimizers: Adam by hand, decay for matrices alone, and parameters that stay as they are."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.errors import InputError, UnknownNameError
from regard.training.optimizer import freeze, make_optimizer


def step(module: nn.Module, optimizer: torch.optim.Optimizer, lr: float = 0.1):
    for group in optimizer.param_groups:
        group["lr"] = lr
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def test_the_first_step_of_adam_is_the_learning_rate_in_the_direction_of_the_gradient():
    # m = 0.1 g and v = 0.02 g², both corrected to g and g²: the step is lr · g / |g|
    module = nn.Linear(2, 2)
    before = module.weight.detach().clone()
    step(module, make_optimizer(module))
    assert_close(module.weight.detach(), before - 0.1)


def test_adamw_decays_matrices_and_leaves_vectors_alone():
    module = nn.Linear(2, 2)
    nn.init.ones_(module.weight)
    nn.init.ones_(module.bias)
    step(module, make_optimizer(module, "adamw", weight_decay=0.5))
    assert_close(module.weight.detach(), torch.full((2, 2), 1 - 0.1 * 0.5 - 0.1))
    assert_close(module.bias.detach(), torch.full((2,), 1 - 0.1))


def test_the_fused_optimizer_does_what_the_plain_one_does():
    torch.manual_seed(0)
    ours, plain = nn.Linear(3, 3), nn.Linear(3, 3)
    plain.load_state_dict(ours.state_dict())
    fused = make_optimizer(ours)
    reference = torch.optim.Adam(
        plain.parameters(), lr=0.1, betas=(0.9, 0.98), eps=1e-9, foreach=False
    )
    for group in fused.param_groups:
        group["lr"] = 0.1
    for number in range(5):
        for module, optimizer in ((ours, fused), (plain, reference)):
            for parameter in module.parameters():
                parameter.grad = torch.full_like(parameter, 0.3 * number - 0.5)
            optimizer.step()
    assert_close(ours.weight, plain.weight)


def test_frozen_parts_are_named_by_pattern_and_do_not_move():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert freeze(module, ["0.*"]) == ["0.weight", "0.bias"]
    before = module[0].weight.detach().clone()
    step(module, make_optimizer(module))
    assert torch.equal(module[0].weight, before)
    assert module[1].weight.requires_grad


def test_a_module_can_be_frozen_by_its_bare_name():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert freeze(module, ["1"]) == ["1.weight", "1.bias"]


def test_a_pattern_that_names_nothing_and_a_model_with_nothing_to_learn_are_refused():
    module = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(UnknownNameError, match=r"'encoder\.\*', which is no parameter; the near"):
        freeze(module, ["encoder.*"])
    freeze(module, ["*"])
    with pytest.raises(InputError, match="every parameter is frozen"):
        make_optimizer(module)


def test_plans_that_make_no_sense_are_refused():
    with pytest.raises(UnknownNameError, match="'adams'; the nearest"):
        OptimizerPlan("adams")
    with pytest.raises(InputError, match="each is from 0"):
        OptimizerPlan(betas=(0.9, 1.0))
    with pytest.raises(InputError, match="eps must be above 0"):
        OptimizerPlan(eps=0.0)
