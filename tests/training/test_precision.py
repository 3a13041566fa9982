"""Fewer bits, and compiled layers: the same learning, and overflows that are lived with."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.training.batch import TextBatch
from regard.training.build import compile_layers
from regard.training.distributed import World
from regard.training.objective import LanguageObjective
from regard.training.optimizer import make_optimizer
from regard.training.step import TrainStep


def decoder(**changes):
    from regard.models.config import build
    from regard.models.decoder import llama_config

    fields = {"n_vocab": 20, "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1} | changes
    torch.manual_seed(0)
    return build(llama_config(**fields))


def train_step(model, **options):
    objective = LanguageObjective(model).train()
    return TrainStep(objective, make_optimizer(objective), World(), **options)


BATCH = TextBatch(torch.arange(36).view(4, 9) % 20, torch.tensor([9, 9, 7, 5]))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_has_the_gradients_of_float32_to_its_own_accuracy(precision):
    exact, half = train_step(decoder()), train_step(decoder(), precision=precision)
    seen = []
    half.objective.model.decoder.layers[0].loader_forward.inner.to_hidden.register_forward_hook(
        lambda module, given, result: seen.append(result.dtype)
    )
    for one in (exact, half):
        one.compute_gradients([BATCH], step=1, n_targets=BATCH.n_targets())
    half.scaler.unscale_(half.optimizer)
    assert seen == [{"bf16": torch.bfloat16, "fp16": torch.float16}[precision]]
    for ours, theirs in zip(half.objective.parameters(), exact.objective.parameters(), strict=True):
        assert ours.grad.dtype == ours.dtype == torch.float32
        scale = float(theirs.grad.abs().max())
        assert_close(ours.grad, theirs.grad, rtol=0, atol=0.03 * scale)
        assert not torch.equal(ours.grad, theirs.grad)


def test_fp16_scales_its_loss_and_undoes_it():
    half = train_step(decoder(), precision="fp16")
    scale = half.scaler.get_scale()
    loss, _, _ = half.compute_gradients([BATCH], step=1, n_targets=BATCH.n_targets())
    assert scale > 1000
    longest = max(float(one.grad.abs().max()) for one in half.objective.parameters())
    half.scaler.unscale_(half.optimizer)
    undone = max(float(one.grad.abs().max()) for one in half.objective.parameters())
    assert longest / undone == pytest.approx(scale)
    assert loss == pytest.approx(3.0 * BATCH.n_targets(), rel=0.5)  # log 20 each, not scaled


def test_an_overflow_in_fp16_leaves_the_step_out_and_halves_the_scale():
    half = train_step(decoder(), precision="fp16")
    half.run([BATCH], step=1, lr=0.01)
    before = [one.detach().clone() for one in half.objective.parameters()]
    scale = half.scaler.get_scale()
    hook = half.objective.model.tokens.weight.register_hook(
        lambda gradient: gradient * float("inf")
    )
    learned = half.run([BATCH], step=2, lr=0.01)
    assert not learned.finite
    assert not half.failed(learned)
    assert half.scaler.get_scale() == scale / 2
    assert all(map(torch.equal, before, half.objective.parameters()))
    hook.remove()
    after = half.run([BATCH], step=3, lr=0.01)
    assert after.finite
    assert not any(map(torch.equal, before, half.objective.parameters()))


def test_overflows_without_end_are_a_failure_in_fp16_and_one_is_in_float32():
    half = train_step(decoder(), precision="fp16")
    half.objective.model.tokens.weight.register_hook(lambda gradient: gradient * float("inf"))
    results = [half.run([BATCH], step=step, lr=0.01) for step in range(1, 20)]
    assert half.failed(results[-1])
    exact = train_step(decoder())
    exact.objective.model.tokens.weight.register_hook(lambda gradient: gradient * float("nan"))
    before = [one.detach().clone() for one in exact.objective.parameters()]
    assert exact.failed(exact.run([BATCH], step=1, lr=0.01))
    assert all(map(torch.equal, before, exact.objective.parameters()))


def test_fp16_learns_and_resumes_with_its_scale(make):
    trainer = make(precision="fp16", steps=8, validate_every=4)
    outcome = trainer.run()
    moments = trainer.callbacks.reporter.moments
    assert moments[-1].result.loss < moments[0].result.loss
    assert outcome.metrics["loss"] > 0
    assert trainer.state.scaler["scale"] == trainer.train_step.scaler.get_scale()
    assert trainer.checkpoints.load_state(8).scaler == trainer.state.scaler


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch's own compiler looks
def test_compiled_layers_compute_the_same():
    plain, compiled = decoder(n_layers=2), decoder(n_layers=2)
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compile_layers(compiled, backend=backend)
    results = [train_step(model) for model in (plain, compiled)]
    sums = [one.compute_gradients([BATCH], step=1, n_targets=BATCH.n_targets()) for one in results]
    assert graphs
    assert sums[0] == pytest.approx(sums[1], rel=1e-5)
    for ours, theirs in zip(plain.parameters(), compiled.parameters(), strict=True):
        assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    assert plain.state_dict().keys() == compiled.state_dict().keys()


def test_a_recipe_compiles_layers_and_nothing_else(make, monkeypatch):
    asked = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: asked.append(self))
    trainer = make(compile=True)
    model = trainer.model
    assert asked == [*model.encoder.layers, *model.decoder.layers]
