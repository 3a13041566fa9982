"""What the experiments share: options, a training loop, small tasks, and the figure at the end."""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.figures.formats import Figure
from regard.figures.plots import Series, draw_plot, linear_axis, logarithmic_axis

SMALL = {"d_model": 32, "n_heads": 4, "d_ff": 64, "dropout": 0.0}


@dataclass(frozen=True)
class Experiment:
    """Command-line options of an experiment, and how it ends."""

    quick: bool
    output: Path

    def steps(self, full: int) -> int:
        return 3 if self.quick else full

    def some(self, full: list) -> list:
        return full[:1] if self.quick else full

    def finish(
        self, lines: dict[str, list[tuple[float, float]]], x: str, y: str, sentence: str
    ) -> None:
        """Print all numbers and the sentence, and save the figure."""
        for name, points in lines.items():
            print(f"{name:24}", *(f"{at:g}: {value:.3f} " for at, value in points))
        plot_lines(lines, x, y).save(self.output)
        print(f"{sentence}\nThe figure is in {self.output}.")


def plot_lines(lines: dict[str, list[tuple[float, float]]], x: str, y: str) -> Figure:
    """Draw named lines over each other."""
    everything = [point for points in lines.values() for point in points]
    xs, ys = zip(*everything, strict=True)
    across = linear_axis(x, min(xs), max(xs))
    if min(xs) > 0 and max(xs) / min(xs) > 30:
        across = logarithmic_axis(x, xs)
    series = [Series(name, points, marked=len(points) < 9) for name, points in lines.items()]
    return Figure(draw_plot(series, across, linear_axis(y, min(0, *ys), max(ys))))


def experiment(name: str) -> Experiment:
    """Read the options and fix the seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    parser.add_argument("-o", "--output", type=Path, default=Path(f"{name}.svg"))
    given = parser.parse_args()
    torch.manual_seed(0)
    return Experiment(given.quick, given.output)


def train(
    model: nn.Module,
    loss_of: Callable[[int], Tensor],
    steps: int,
    *,
    lr: float = 0.003,
    warmup: int = 20,
) -> list[float]:
    """Run Adam with a linear warm-up and return the loss of each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98))
    losses = []
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, step / warmup) if warmup else lr
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def backwards(count: int, length: int) -> tuple[Tensor, Tensor]:
    """Random sources of ids 4 to 13, and targets: start, the source backwards, end."""
    source = torch.randint(4, 14, (count, length))
    start, end = torch.full((count, 1), 2), torch.full((count, 1), 3)
    return source, torch.cat([start, source.flip(1), end], dim=1)


def translation_loss(model: nn.Module, pair: tuple[Tensor, Tensor], **options: float) -> Tensor:
    """Cross-entropy of the target; the model shifts it itself."""
    source, target = pair
    logits = model(source, target)
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), **options)


@torch.no_grad()
def accuracy(model: nn.Module, pair: tuple[Tensor, Tensor]) -> float:
    """Share of target tokens that are predicted right, given those before them."""
    found = model.eval()(*pair).argmax(-1)
    model.train()
    return float((found == pair[1][:, 1:]).float().mean())


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)
