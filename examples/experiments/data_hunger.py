"""3. Does a ViT need less data with convolutions, which know that neighbors belong together?

Needs scikit-learn, for its images of digits.
"""

import torch
import torch.nn.functional as F
from lab import SMALL, experiment, mean, train
from sklearn.datasets import load_digits

import regard

lab = experiment("data_hunger")
digits = load_digits()
images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32)[:, None]
labels = torch.tensor(digits.target)
order = torch.randperm(len(images))
images, labels = images[order], labels[order]
test = slice(1297, None)


def score(stem: str, count: int, seed: int) -> float:
    """Accuracy on 500 test images after training on `count` images."""
    torch.manual_seed(seed)
    shape = {"image_size": 8, "patch_size": 4, "n_channels": 1, "n_classes": 10}
    model = regard.build({"family": "vision", **SMALL, **shape, "n_layers": 2, "stem": stem})

    def loss_of(_):
        chosen = torch.randint(count, (64,))
        return F.cross_entropy(model(images[chosen]), labels[chosen])

    train(model, loss_of, lab.steps(250))
    with torch.no_grad():
        return float((model.eval()(images[test]).argmax(-1) == labels[test]).float().mean())


counts, seeds = lab.some([50, 100, 300, 1200]), lab.some([1, 2, 3])
lines = {
    stem: [(count, mean(score(stem, count, seed) for seed in seeds)) for count in counts]
    for stem in ("linear", "convolution")
}
first = {stem: points[0][1] for stem, points in lines.items()}
last = {stem: points[-1][1] for stem, points in lines.items()}
lab.finish(
    lines,
    "training images",
    "accuracy",
    f"With {counts[0]} images the accuracy is {first['linear']:.1%} with a linear stem and "
    f"{first['convolution']:.1%} with convolutions; with {counts[-1]} images it is "
    f"{last['linear']:.1%} and {last['convolution']:.1%}.",
)
