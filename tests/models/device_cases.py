"""Run every family and form of attention on a device that is not the CPU; print what fails.

Fake tensors have shapes and devices but no numbers, so no GPU is needed: an operation that mixes a
tensor left on the CPU with one on the device fails. The device "fake" is registered for the whole
process, which is why this is a script.
"""

# ruff: noqa: T201
import traceback
from functools import partial
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import regard
from regard.layers.attention_forms import FORMS
from regard.layers.embedding import POSITIONS
from regard.models.config import build, config_from_dict
from regard.training import objective as objectives
from regard.training.distributed import World
from regard.training.loader import ImageBatch, MaskedBatch, PairBatch, TextBatch
from regard.training.optimizer import make_optimizer
from regard.training.step import TrainStep

SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 12, "dropout": 0.1}
TRANSFORMER = {"family": "transformer", "n_vocab": 9, **SIZES}
TRANSFORMER |= {"n_encoder_layers": 1, "n_decoder_layers": 1}
DECODER = {"family": "decoder", "n_vocab": 9, "n_layers": 1, **SIZES}
ENCODER = {"family": "encoder", "n_vocab": 9, "n_layers": 1, "max_positions": 16, **SIZES}
SEQ2SEQ = {"family": "seq2seq", "n_vocab": 9, "d_model": 8}
VISION = {"family": "vision", "n_classes": 3, "n_layers": 1, "image_size": 8, "patch_size": 4}
# Two global tokens: fake tensors of one number are computed for real, which "fake" cannot do.
OPTIONS = {"longformer": {"attention_global_tokens": (0, 1), "attention_global_heads": True}}
DEVICE = "fake"


def ids(*shape):
    return torch.zeros(shape, dtype=torch.long, device=DEVICE)


def made(settings):
    with torch.device(DEVICE):
        return build(config_from_dict(settings))


def translate(settings):
    model = made(settings)
    for training in (True, False):
        yield model.train(training)(ids(2, 5), ids(2, 4))


def write(settings):
    model = made(settings).eval()
    yield model(ids(2, 12))
    if model.decoder.cacheable:
        cache = model.new_cache()
        for n_token in (4, 1):
            yield model(ids(2, n_token), cache=cache)


def read(settings):
    model = made({**settings, "n_token_types": 2, "n_classes": 3, "pool": "mean"})
    for training in (True, False):
        states = model.train(training)(ids(2, 12), token_types=ids(2, 12))
        yield model.fill_logits(states)
        yield model.classify(states, torch.empty(2, dtype=torch.long, device=DEVICE))


def see(settings):
    model = made(settings)
    for height in (8, 12):  # the second is interpolated
        yield model(torch.zeros(2, 3, height, 8, device=DEVICE))


def train(settings, kind, make_batch):
    """Take a step with each optimizer, up to the comparison of numbers."""
    objective = objectives.OBJECTIVES[kind](made(settings), label_smoothing=0.1).train()
    world = World(device=torch.device(DEVICE))
    for name in ("adam", "adamw", "muon"):
        optimizer = make_optimizer(objective, name=name, weight_decay=0.1, world=world)
        step = TrainStep(objective, optimizer, world, clip=1.0)
        with patch.object(torch.compiler, "is_compiling", lambda: True):  # no number is read out
            step.compute_gradients([make_batch()] * 2, step=1, n_targets=8)
        yield step.clip_gradients()
        optimizer.step()
        yield from (parameter.grad for parameter in objective.parameters())


def pair_batch():  # on the CPU, as a loader gives it
    ids, lengths = (torch.empty(shape, dtype=torch.long) for shape in ((2, 5), (2,)))
    return PairBatch(ids, ids, lengths, lengths)


def text_batch():
    batch = pair_batch()
    return TextBatch(batch.source_ids, batch.source_lengths)


def masked_batch():
    ids, lengths = pair_batch().source_ids, pair_batch().source_lengths
    return MaskedBatch(ids, lengths, ids, torch.empty(2, 5, dtype=torch.bool))


def image_batch():
    return ImageBatch(torch.empty(2, 3, 8, 8), torch.empty(2, dtype=torch.long))


def select_all(predicted, states, targets):
    """Take the place of `select`: the number of predicted tokens is not known."""
    assert predicted.device == states.device
    return states.flatten(0, 1)[: targets.numel()], targets.flatten()


def attend(mask, temperature):
    q = torch.zeros(2, 3, 5, 4, device=DEVICE)
    yield regard.attend(q, q, q, allowed=mask, temperature=temperature)


CASES = {
    **{f"transformer {p}": partial(translate, {**TRANSFORMER, "positions": p}) for p in POSITIONS},
    **{f"decoder {p}": partial(write, {**DECODER, "positions": p}) for p in POSITIONS},
    **{
        f"seq2seq {kind}": partial(translate, {**SEQ2SEQ, "attention": kind})
        for kind in ("additive", "dot", "general", "none")
    },
    **{
        f"encoder {form}": partial(read, {**ENCODER, "attention": form, **OPTIONS.get(form, {})})
        for form in FORMS
    },
    **{
        f"decoder {form}": partial(write, {**DECODER, "attention": form, **OPTIONS.get(form, {})})
        for form in FORMS
        if form != "linformer"
    },
    "training transformer": partial(train, TRANSFORMER, "translation", pair_batch),
    "training seq2seq": partial(train, SEQ2SEQ, "translation", pair_batch),
    "training decoder": partial(train, DECODER, "language", text_batch),
    "training encoder": partial(train, {**ENCODER, "fill_head": True}, "masked", masked_batch),
    "training vision": partial(train, {**VISION, **SIZES}, "classification", image_batch),
    "vision": partial(see, {**VISION, **SIZES}),
    "vision convolution": partial(see, {**VISION, **SIZES, "stem": "convolution"}),
    "attend, causal": partial(attend, regard.causal(), 1.0),
    "attend, window": partial(attend, regard.causal() & ~regard.window(1), 1.0),
    "attend, temperature 0": partial(attend, None, 0.0),
}

if __name__ == "__main__":
    _setup_privateuseone_for_python_backend(DEVICE)
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device=…) makes a fake tensor
    objectives.select = select_all
    mode = FakeTensorMode()
    for name, case in CASES.items():
        try:
            with mode:
                devices = {str(result.device.type) for result in case()}
            if devices != {DEVICE}:
                print(f"{name}: results are on {devices}")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)
            ours = [frame for frame in where if "/regard/" in frame.filename][-1:]
            place = f" ({ours[0].filename}:{ours[0].lineno})" if ours else ""
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}{place}")
