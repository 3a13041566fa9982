"""2. An RNN without attention forgets long sources; attention reaches any distance."""

import torch
from lab import SMALL, accuracy, backwards, experiment, train, translation_loss

import regard

lab = experiment("distance")
RNN = {"family": "seq2seq", "n_vocab": 14, "d_model": 32, "cell": "gru", "dropout": 0.0}
MODELS = {
    "RNN": {**RNN, "attention": "none"},
    "RNN with attention": {**RNN, "attention": "additive"},
    "Transformer": {
        "family": "transformer",
        "n_vocab": 14,
        **SMALL,
        "n_encoder_layers": 1,
        "n_decoder_layers": 1,
        "norm": "pre",
    },
}
lengths = lab.some([4, 8, 12, 16])
lines = {name: [] for name in MODELS}
for length in lengths:
    for name, settings in MODELS.items():
        torch.manual_seed(1)
        model = regard.build(settings)
        train(
            model,
            lambda _, model=model, n=length: translation_loss(model, backwards(32, n)),
            lab.steps(300),
            lr=0.01,
        )
        lines[name].append((length, accuracy(model, backwards(200, length))))
at = {name: points[-1][1] for name, points in lines.items()}
lab.finish(
    lines,
    "length of the source",
    "right tokens",
    f"With {lengths[-1]} tokens to write backwards, {at['RNN']:.0%} are right without attention, "
    f"{at['RNN with attention']:.0%} with it, and {at['Transformer']:.0%} with a Transformer.",
)
