"""What a model's predictions are worth on data it does not learn from."""

from collections.abc import Iterable
from math import exp

import torch

from regard.training.batch import Batch
from regard.training.objective import Classification, Objective


def summed_losses(objective: Objective, batches: Iterable[Batch]) -> list[float]:
    """The sums of -log p and of right answers over all targets, and how many targets there are."""
    device = next(objective.parameters()).device
    sums, n_targets = torch.zeros(3, dtype=torch.float64), 0
    learning = objective.training
    objective.eval()
    with torch.no_grad():
        for batch in batches:
            found = objective(batch.to(device))
            sums += torch.stack([one.double().cpu() for one in found])
            n_targets += batch.n_targets()
    objective.train(learning)
    _, surprise, right = sums.tolist()
    return [surprise, right, float(n_targets)]


def mean_losses(
    objective: Objective, surprise: float, right: float, n_targets: float
) -> dict[str, float]:
    """Loss, perplexity and, where there are classes, accuracy."""
    loss = surprise / max(1.0, n_targets)
    numbers = {"loss": loss, "perplexity": exp(min(loss, 700.0))}
    if isinstance(objective, Classification):
        numbers["accuracy"] = right / max(1.0, n_targets)
    return numbers
