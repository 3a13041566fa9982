"""4. Table 3 (A) in small: heads at the same number of parameters, and heads switched off."""

import torch
from lab import SMALL, accuracy, backwards, experiment, mean, train, translation_loss

import regard

lab = experiment("number_of_heads")


def trained(n_heads: int, seed: int):
    torch.manual_seed(seed)
    sizes = {**SMALL, "n_heads": n_heads, "n_encoder_layers": 1, "n_decoder_layers": 1}
    model = regard.build({"family": "transformer", "n_vocab": 14, **sizes, "norm": "pre"})
    train(model, lambda _: translation_loss(model, backwards(32, 10)), lab.steps(250), lr=0.005)
    return model


counts, seeds, pair = lab.some([1, 2, 4, 8, 16]), lab.some([1, 2]), backwards(200, 10)
lines = {"all heads": [], "one head off (mean)": []}
for n_heads in counts:
    whole, without = [], []
    for seed in seeds:
        model = trained(n_heads, seed)
        whole.append(accuracy(model, pair))
        for head in range(n_heads):
            edits = [regard.ablate("decoder.layers.0.cross", head=head)]
            with regard.watch(model, edits=edits):
                without.append(accuracy(model, pair))
    lines["all heads"].append((n_heads, mean(whole)))
    lines["one head off (mean)"].append((n_heads, mean(without)))
best = max(lines["all heads"], key=lambda point: point[1])
at = {name: points[-1][1] for name, points in lines.items()}
lab.finish(
    lines,
    "heads",
    "right tokens",
    f"The best number of heads is {best[0]}, with {best[1]:.1%} right tokens; with "
    f"{counts[-1]} heads, switching one off leaves {at['one head off (mean)']:.1%} of tokens "
    f"right instead of {at['all heads']:.1%}.",
)
