"""A training step: half precision, compiled layers, devices, accumulation."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close

from regard.models.config import build, config_from_dict
from regard.training import objective as objectives
from regard.training.build import compile_layers
from regard.training.distributed import World
from regard.training.loader import PairBatch, TextBatch
from regard.training.objective import LanguageObjective, TranslationObjective
from regard.training.optimizer import make_optimizer
from regard.training.step import TrainStep

SMALL = {"n_vocab": 20, "d_model": 16, "n_heads": 2, "d_ff": 32}
BATCH = TextBatch(torch.arange(36).view(4, 9) % 20, torch.tensor([9, 9, 7, 5]))


def decoder(n_layers=1):
    from regard.models.decoder import llama_config

    torch.manual_seed(0)
    return build(llama_config(**SMALL, n_layers=n_layers))


def make_step(model, **options):
    objective = LanguageObjective(model).train()
    return TrainStep(objective, make_optimizer(objective), World(), **options)


def gradients(train_step, batches=(BATCH,)):
    n_targets = sum(batch.n_targets() for batch in batches)
    return train_step.compute_gradients(batches, step=1, n_targets=n_targets)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_gradients_are_close_to_float32(precision):
    exact, half = make_step(decoder()), make_step(decoder(), precision=precision)
    seen = []
    half.objective.model.decoder.layers[0].feed_forward.inner.to_hidden.register_forward_hook(
        lambda module, given, result: seen.append(result.dtype)
    )
    gradients(exact), gradients(half)
    half.scaler.unscale_(half.optimizer)
    assert seen == [{"bf16": torch.bfloat16, "fp16": torch.float16}[precision]]
    for ours, theirs in zip(half.objective.parameters(), exact.objective.parameters(), strict=True):
        assert ours.grad.dtype == ours.dtype == torch.float32
        assert_close(ours.grad, theirs.grad, rtol=0, atol=0.03 * float(theirs.grad.abs().max()))
        assert not torch.equal(ours.grad, theirs.grad)


def test_fp16_overflow_skips_the_step_and_halves_the_scale():
    half = make_step(decoder(), precision="fp16")
    half.run([BATCH], step=1, lr=0.01)
    before = [one.detach().clone() for one in half.objective.parameters()]
    scale = half.scaler.get_scale()
    hook = half.objective.model.tokens.weight.register_hook(lambda g: g * float("inf"))
    result = half.run([BATCH], step=2, lr=0.01)
    assert not result.finite
    assert not half.failed(result)
    assert half.scaler.get_scale() == scale / 2
    assert all(map(torch.equal, before, half.objective.parameters()))
    hook.remove()
    assert half.run([BATCH], step=3, lr=0.01).finite
    assert not any(map(torch.equal, before, half.objective.parameters()))


def test_repeated_overflows_fail_in_fp16_and_one_fails_in_float32():
    half = make_step(decoder(), precision="fp16")
    half.objective.model.tokens.weight.register_hook(lambda g: g * float("inf"))
    results = [half.run([BATCH], step=step, lr=0.01) for step in range(1, 20)]
    assert half.failed(results[-1])
    exact = make_step(decoder())
    exact.objective.model.tokens.weight.register_hook(lambda g: g * float("nan"))
    before = [one.detach().clone() for one in exact.objective.parameters()]
    assert exact.failed(exact.run([BATCH], step=1, lr=0.01))
    assert all(map(torch.equal, before, exact.objective.parameters()))


def test_accumulated_batches_give_the_gradient_of_one_large_batch():
    parts = [TextBatch(BATCH.ids[i : i + 2], BATCH.lengths[i : i + 2]) for i in (0, 2)]
    whole, accumulated = make_step(decoder()), make_step(decoder())
    assert_close(gradients(whole), gradients(accumulated, parts))
    pairs = zip(whole.objective.parameters(), accumulated.objective.parameters(), strict=True)
    for one, other in pairs:
        assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)


def test_gradients_are_clipped_to_a_norm():
    train_step = make_step(decoder(), clip=0.01)
    gradients(train_step)
    assert float(train_step.clip_gradients()) > 0.01
    assert float(train_step.clip_gradients()) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # by torch's own compiler
def test_compiled_layers_compute_the_same():
    plain, compiled = decoder(), decoder()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compile_layers(compiled, backend=backend)
    sums = [gradients(make_step(model)) for model in (plain, compiled)]
    assert graphs
    assert_close(*sums, rtol=1e-5, atol=0)
    for ours, theirs in zip(plain.parameters(), compiled.parameters(), strict=True):
        assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def to_fake(module: nn.Module, device: str):
    """Replace parameters and buffers by fake tensors on a device that need not exist."""
    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                part._parameters[name] = nn.Parameter(torch.empty(value.shape, device=device))
        for name, value in part._buffers.items():
            if value is not None:
                part._buffers[name] = torch.empty(value.shape, dtype=value.dtype, device=device)


@pytest.mark.usefixtures("no_shape_checks")
def test_no_tensor_of_a_step_stays_on_the_cpu(monkeypatch):
    # In builds of torch without CUDA, autograd and arange refuse even fake CUDA tensors. The device
    # "meta" cannot be mixed with the CPU either, so a tensor left on the CPU is an error here too.
    def all_positions(predicted, states, targets):  # the number of real ones is not known
        assert predicted.device == states.device
        return states.flatten(0, 1)[: targets.numel()], targets.flatten()

    monkeypatch.setattr(objectives, "select", all_positions)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # no number is read out
    layers = {"n_encoder_layers": 1, "n_decoder_layers": 1}
    model = build(config_from_dict({"family": "transformer", **SMALL, **layers}))
    with FakeTensorMode():
        objective = TranslationObjective(model, label_smoothing=0.1)
        to_fake(objective, "meta")
        ids, lengths = (torch.empty(shape, dtype=torch.long) for shape in ((2, 5), (2,)))
        batch = PairBatch(ids, ids, lengths, lengths)
        optimizer = torch.optim.SGD(objective.parameters(), lr=0.1)
        train_step = TrainStep(objective, optimizer, World(device=torch.device("meta")), clip=1.0)
        sums = train_step.compute_gradients([batch, batch], step=1, n_targets=8)
        assert (sums.device.type, train_step.clip_gradients().device.type) == ("cpu", "meta")
        optimizer.step()
        for name, parameter in objective.named_parameters():
            assert parameter.grad.device.type == "meta", name
