"""8. Positions beyond the trained length: sinusoidal, learned, rotary, ALiBi."""

import torch
import torch.nn.functional as F
from lab import SMALL, experiment, mean, train

import regard

lab = experiment("beyond_the_trained_length")
TRAINED, LONGEST, BACK = 24, 48, 3


def repeats(count: int, length: int):
    """Random tokens; from the fourth on, every second one repeats the token three before it."""
    ids = torch.randint(4, 14, (count, length))
    for at in range(BACK, length, 2):
        ids[:, at] = ids[:, at - BACK]
    return ids


lines = {}
for positions in ("sinusoidal", "learned", "rotary", "alibi"):
    torch.manual_seed(1)
    settings = {**SMALL, "n_layers": 2, "positions": positions, "max_positions": LONGEST}
    model = regard.build({"family": "decoder", "n_vocab": 14, **settings})
    with torch.no_grad():
        model.tokens.weight.mul_(32**0.5)  # as large as the waves, see chapter 2

    def loss_of(_, model=model):
        ids = repeats(32, TRAINED)
        logits = model(ids)[:, BACK - 1 : -1 : 2]
        return F.cross_entropy(logits.flatten(0, 1), ids[:, BACK::2].flatten())

    train(model, loss_of, lab.steps(1000), lr=0.003)
    ids = repeats(200, LONGEST)
    with torch.no_grad():
        right = (model.eval()(ids)[:, :-1].argmax(-1) == ids[:, 1:]).float().mean(0)
    lines[positions] = [(at, float(right[at - 1])) for at in range(BACK, LONGEST, 4)]
inside = {k: mean(y for x, y in v if x < TRAINED) for k, v in lines.items()}
beyond = {k: mean(y for x, y in v if x >= TRAINED) for k, v in lines.items()}
lab.finish(
    lines,
    f"position (trained on {TRAINED})",
    "right tokens",
    "Right tokens within and beyond the trained length: "
    + ", ".join(f"{k} {inside[k]:.0%} → {beyond[k]:.0%}" for k in lines)
    + ".",
)
