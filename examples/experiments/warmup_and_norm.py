"""5. A deep post-norm model needs its warm-up, a pre-norm model hardly; label smoothing."""

import torch
from lab import SMALL, backwards, experiment, mean, train, translation_loss

import regard

lab = experiment("warmup_and_norm")
steps, lines = lab.steps(200), {}
for norm in ("post", "pre"):
    for warmup in (100, 0):
        torch.manual_seed(1)
        sizes = {**SMALL, "n_encoder_layers": 4, "n_decoder_layers": 4, "norm": norm}
        model = regard.build({"family": "transformer", "n_vocab": 14, **sizes})
        losses = train(
            model,
            lambda _, model=model: translation_loss(model, backwards(32, 6)),
            steps,
            lr=0.01,
            warmup=warmup,
        )
        name = f"{norm}-norm, {'warm-up' if warmup else 'none'}"
        tenth = max(1, steps // 20)
        lines[name] = [(at + tenth, mean(losses[at : at + tenth])) for at in range(0, steps, tenth)]
confidence = {}
for smoothing in (0.0, 0.1):
    torch.manual_seed(1)
    sizes = {**SMALL, "n_encoder_layers": 1, "n_decoder_layers": 1, "norm": "pre"}
    model = regard.build({"family": "transformer", "n_vocab": 14, **sizes})
    train(
        model,
        lambda _, m=model, e=smoothing: translation_loss(m, backwards(32, 4), label_smoothing=e),
        lab.steps(200),
    )
    with torch.no_grad():
        confidence[smoothing] = float(model(*backwards(100, 4)).softmax(-1).max(-1)[0].mean())
at = {name: points[-1][1] for name, points in lines.items()}
lab.finish(
    lines,
    "step",
    "training loss",
    "The last losses are "
    + ", ".join(f"{value:.2f} ({name})" for name, value in at.items())
    + f"; label smoothing of 0.1 lowers the mean largest probability from {confidence[0.0]:.2f} "
    f"to {confidence[0.1]:.2f}.",
)
