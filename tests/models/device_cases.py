"""Run every family and form of attention on a device that is not the CPU; print what fails.

Fake tensors have shapes and devices but no numbers, so no GPU is needed: an operation that mixes a
tensor left on the CPU with one on the device fails. The device "fake" is registered for the whole
process, which is why this is a script.
"""

# ruff: noqa: T201
import traceback
from functools import partial

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import regard
from regard.layers.attention_forms import FORMS
from regard.layers.embedding import POSITIONS
from regard.models.config import build, config_from_dict

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
    "vision": partial(see, {**VISION, **SIZES}),
    "vision convolution": partial(see, {**VISION, **SIZES, "stem": "convolution"}),
    "attend, causal": partial(attend, regard.causal(), 1.0),
    "attend, window": partial(attend, regard.causal() & ~regard.window(1), 1.0),
    "attend, temperature 0": partial(attend, None, 0.0),
}

if __name__ == "__main__":
    _setup_privateuseone_for_python_backend(DEVICE)
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device=…) makes a fake tensor
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
