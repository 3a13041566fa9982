"""Small models of every family that has a residual stream, and runs of them."""

import torch
from PIL import Image

from regard.trace.trace import Trace

TEXT = "A dog runs along the beach."
LAYERS = {"n_layers": 2}
MODELS = {
    "transformer, post-norm": ("transformer", {"n_decoder_layers": 2, "logits_bias": True}),
    "transformer, pre-norm": ("transformer", {"norm": "pre", "n_decoder_layers": 2}),
    "decoder": ("decoder", LAYERS),
    "decoder, rms": ("decoder", {**LAYERS, "norm_kind": "rms", "norm": "pre", "tie": False}),
    "masked": ("encoder", LAYERS),
    "text classes": ("encoder", {**LAYERS, "fill_head": False, "n_classes": 3, "pooler": "tanh"}),
    "text classes, mean": (
        "encoder",
        {**LAYERS, "fill_head": False, "n_classes": 3, "pool": "mean"},
    ),
    "vision": ("vision", LAYERS),
    "vision, mean": ("vision", {**LAYERS, "pool": "mean", "pooler": "tanh"}),
    "vision, distilled": ("vision", {**LAYERS, "distillation": "classifier"}),
}


def trace_of(model, edits=()) -> Trace:
    if model.family == "vision":
        return model.trace(Image.effect_noise((8, 8), 60).convert("RGB"), edits=edits)
    target = "Ein Hund läuft." if model.family == "transformer" else None
    return model.trace(TEXT, target, edits=edits)


def own_logits(trace: Trace) -> torch.Tensor:
    """The logits that the model computed, position × entry."""
    classes = trace.values.get("output.classes")
    return classes if classes is not None else trace.values["output.logits"][0]
