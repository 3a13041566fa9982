"""Validation losses: means over all targets, and accuracy for classifiers."""

from math import exp, log

import pytest
import torch

from regard.models.decoder import Decoder, DecoderConfig
from regard.models.vision import Vision, VisionConfig
from regard.training.loader import ImageBatch, TextBatch
from regard.training.objective import ClassificationObjective, LanguageObjective
from regard.training.validation import mean_losses, sum_losses

SMALL = {"d_model": 8, "n_heads": 2, "d_ff": 16, "n_layers": 1, "dropout": 0.0}


@pytest.fixture
def first_of_two() -> ClassificationObjective:
    """A model that gives the first of two classes a probability of 3/4."""
    model = Vision(VisionConfig(n_classes=2, image_size=4, patch_size=4, n_channels=1, **SMALL))
    torch.nn.init.zeros_(model.classifier.weight)
    model.classifier.bias.data = torch.tensor([log(3.0), 0.0])
    return ClassificationObjective(model)


@pytest.mark.parametrize(
    ("labels", "accuracy", "loss"),
    [([0, 0], 1.0, log(4 / 3)), ([0, 1], 0.5, log(16 / 3) / 2), ([1, 1], 0.0, log(4))],
)
def test_accuracy_and_loss_by_hand(first_of_two, labels, accuracy, loss):
    batch = ImageBatch(torch.zeros(2, 1, 4, 4), torch.tensor(labels))
    found = mean_losses(first_of_two, *sum_losses(first_of_two, [batch]))
    assert found == pytest.approx({"loss": loss, "perplexity": exp(loss), "accuracy": accuracy})


def test_tokens_have_no_accuracy():
    objective = LanguageObjective(Decoder(DecoderConfig(n_vocab=7, max_positions=4, **SMALL)))
    batch = TextBatch(torch.tensor([[1, 2, 3]]), torch.tensor([3]))
    found = mean_losses(objective, *sum_losses(objective, [batch]))
    assert set(found) == {"loss", "perplexity"}
