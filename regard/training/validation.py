"""Evaluation during a run: losses, translations with their scores, alignments, snapshots, test."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.data.batches import pad
from regard.errors import RegardError
from regard.evaluation.alignment import Alignment, alignment_of
from regard.evaluation.scores import score_texts
from regard.generation.beam import greedy_search
from regard.generation.search import SearchOptions
from regard.generation.sentences import sentences
from regard.generation.tracing import trace_answer
from regard.generation.translator import TranslatedPart, Translation, open_translator
from regard.model import Model
from regard.model_folder import Card
from regard.models.config import ModelConfig, build
from regard.trace.capture import trace_model
from regard.training.batch import Batch
from regard.training.callbacks import ValidationResult
from regard.training.data_sources import TextSources
from regard.training.datasets import Datasets
from regard.training.objective import OBJECTIVES, ClassificationObjective, Objective
from regard.training.recipe import Recipe
from regard.training.run_folder import TRAINING

_BATCH = 64
_MIN_WEIGHT = 0.01
"""Smaller weights are left out of token alignments."""


def sum_losses(objective: Objective, batches: Iterable[Batch]) -> list[float]:
    """Return the sums of -log p and of correct answers, and the number of targets."""
    device, training = next(objective.parameters()).device, objective.training
    sums, n_targets = torch.zeros(3, dtype=torch.float64), 0
    objective.eval()
    with torch.no_grad():
        for batch in batches:
            losses = objective(batch.to(device))
            sums += torch.stack([one.double().cpu() for one in losses])
            n_targets += batch.n_targets()
    objective.train(training)
    _, nll, correct = sums.tolist()
    return [nll, correct, float(n_targets)]


def mean_losses(
    objective: Objective, nll: float, correct: float, n_targets: float
) -> dict[str, float]:
    """Return loss, perplexity and, for classification, accuracy."""
    loss = nll / max(1.0, n_targets)
    metrics = {"loss": loss, "perplexity": exp(min(loss, 700.0))}
    if isinstance(objective, ClassificationObjective):
        metrics["accuracy"] = correct / max(1.0, n_targets)
    return metrics


def align_sample(model: Model, sample: Mapping[str, Any]) -> dict[str, Any] | None:
    """Align a sample by the mean of all heads of the last but one decoder layer.

    That layer aligns best in most models (Garg et al. 2019); the best heads of this model cannot be
    known while it is being trained.
    """
    source, target = model.tokenizer, model.target_tokenizer
    text = sample.get("output")
    if not text or "source" not in sample or source is None or target is None:
        return None
    ids = target.encode(text, specials=False)
    trace = trace_model(model, source.encode(sample["source"]), ids)
    sites = [path for path in trace if path.endswith("cross")]
    if not sites:
        return None  # recurrent models without attention
    site = trace[sites[max(len(sites) - 2, 0)]]
    weights = np.mean([site.weights(head).numpy() for head in range(site.n_heads)], axis=0)
    weights = weights[: len(ids)]
    if len(text.split()) < 2:  # a date or a single word: tokens show more than words
        places = zip(*np.nonzero(weights >= _MIN_WEIGHT), strict=True)
        soft = [(int(j), int(i), float(weights[i, j])) for i, j in places]
        outputs = list(trace.tokens["output"][: len(ids)])
        return Alignment(list(trace.tokens["source"]), outputs, soft).to_json()
    part = TranslatedPart(sample["source"], text, source.encode(sample["source"]), ids)
    whole = Translation(text, 0.0, [], [], parts=(part,))
    return alignment_of(whole, [weights], (source, target)).to_json()


class RunEvaluator:
    """Saves, samples and scores the model of a run."""

    def __init__(
        self, folder: Path, recipe: Recipe, datasets: Datasets, config: ModelConfig
    ) -> None:
        self.folder, self.recipe, self.datasets, self.config = folder, recipe, datasets, config

    def build(self) -> nn.Module:
        """Build a model with initial weights on the CPU."""
        torch.manual_seed(self.recipe.training.seed)
        return build(self.config)

    def _on_cpu(self, module: nn.Module) -> nn.Module:
        if next(module.parameters()).device.type == "cpu":
            return module
        copy = self.build()
        copy.load_state_dict(module.state_dict())
        return copy.eval()

    def model(self, module: nn.Module, metrics: Mapping[str, float] | None = None) -> Model:
        """Wrap a module with its tokenizers, labels and card."""
        datasets, recipe = self.datasets, self.recipe
        scores = ", ".join(f"{name} {value:.4g}" for name, value in (metrics or {}).items())
        card = Card(
            data=recipe.about,
            license=recipe.license,
            score=f"validation: {scores}" if scores else "",
            text=f"## Limits\n\n{recipe.limits.strip()}" if recipe.limits else "",
        )
        extras: dict[str, Any] = {"recipe": recipe.model_dump(mode="json")}
        if recipe.task == "translation":
            extras |= self._lengths
        return Model(
            module=module,
            task=recipe.task,
            tokenizer=datasets.tokenizer,
            target_tokenizer=datasets.target_tokenizer,
            labels=datasets.classes if recipe.task == "classification" else None,
            pixels=datasets.pixels,
            card=card,
            extras=extras,
        )

    @cached_property
    def _lengths(self) -> dict[str, Any]:
        """Lengths of the training data, which translators use to split and limit texts."""
        sources, targets = self.datasets.splits["train"].lengths[:2]
        ratios = targets / np.maximum(sources, 1)
        lines = TextSources(self.recipe).examples("validation", 1000)
        counts = [len(sentences(line[0])) for line in lines] or [1]
        # Up to one line in a thousand may be an error in the data.
        return {
            "longest_source": int(min(np.max(sources), 2 * np.quantile(sources, 0.999))),
            "target_ratios": np.quantile(ratios, (0.001, 0.999)).round(3).tolist(),
            "sentences": int(np.quantile(counts, 0.95)),
        }

    def save_model(self, module: nn.Module, metrics: Mapping[str, float]) -> None:
        """Write the model's files into the run folder, each one atomically.

        Only weights and card change during a run, so the folder is a complete model at every moment
        after the first validation.
        """
        fresh = self.folder / TRAINING / "model"
        self.model(module, metrics).save(fresh)
        for path in sorted(fresh.iterdir(), key=lambda path: path.name == "config.json"):
            path.replace(self.folder / path.name)
        fresh.rmdir()

    def evaluate(self, module: nn.Module) -> ValidationResult:
        """Return scores and samples on the validation data."""
        settings, pairs = self.recipe.evaluate, self._validation_pairs
        if self.recipe.task == "language" and settings.samples:
            return ValidationResult(samples=[{"output": self._continuation(module)}])
        if not pairs:
            return ValidationResult()
        sources, references = zip(*pairs, strict=True)
        outputs = self.translate(module, sources)
        shown = list(zip(sources, outputs, references, strict=True))[: settings.samples]
        names = ("source", "output", "reference")
        samples: list[dict[str, Any]] = [dict(zip(names, one, strict=True)) for one in shown]
        for sample in samples:  # only the first that can be aligned
            alignment = align_sample(self.model(self._on_cpu(module)), sample)
            if alignment is not None:
                sample["alignment"] = alignment
                break
        scored = settings.metric != "loss"  # otherwise a few samples are not enough for a score
        return ValidationResult(score_texts(outputs, references) if scored else {}, samples)

    @cached_property
    def _validation_pairs(self) -> list[tuple[str, ...]]:
        settings = self.recipe.evaluate
        count = settings.sentences if settings.metric != "loss" else settings.samples
        if self.recipe.task != "translation" or (settings.metric == "loss" and not count):
            return []
        return TextSources(self.recipe).examples("validation", count)

    def translate(self, module: Any, sources: Sequence[str]) -> list[str]:
        """Translate greedily, in batches of texts with similar lengths."""
        tokenizer = self.datasets.tokenizer
        target = self.datasets.target_tokenizer or tokenizer
        assert tokenizer is not None
        assert target is not None
        encoded = tokenizer.encode_batch(sources, literal=True)
        order = sorted(range(len(encoded)), key=lambda number: len(encoded[number]))
        outputs: list[list[int]] = [[] for _ in encoded]
        device = next(module.parameters()).device
        ends = {"start_id": target.required_id("start"), "end_id": target.required_id("end")}
        for first in range(0, len(order), _BATCH):
            numbers = order[first : first + _BATCH]
            padded = pad([encoded[number] for number in numbers], tokenizer.pad_id or 0)
            inputs = (torch.from_numpy(one).to(device) for one in padded)
            for number, one in zip(numbers, greedy_search(module, *inputs, **ends), strict=True):
                outputs[number] = one
        return target.decode_batch(outputs)

    def _continuation(self, module: nn.Module) -> str:
        prompt = (self.recipe.evaluate.snapshots or ["\n"])[0]
        try:
            model = self.model(self._on_cpu(module))
            return model.generate(prompt, max_tokens=100, temperature=0.8, seed=1).text
        except RegardError as error:  # for example, a prompt with unknown characters
            return f"({error})"

    def save_snapshots(self, module: nn.Module, step: int) -> None:
        """Save traces of the recipe's fixed texts, which show how heads form."""
        folder = self.folder / TRAINING / "snapshots" / f"step-{step:08d}"
        model = self.model(self._on_cpu(module))
        for number, text in enumerate(self.recipe.evaluate.snapshots):
            source, _, target = text.partition("\t")
            trace = trace_answer(model, source, target or None)
            trace.values.clear()  # only the attention is kept; the rest would be megabytes
            folder.mkdir(parents=True, exist_ok=True)
            trace.save(folder / f"{number}.safetensors")

    def test(self) -> dict[str, float]:
        """Return the metrics of the saved model on the test data, with the recipe's beam size."""
        if self.recipe.task == "translation":
            pairs = TextSources(self.recipe).examples("test")
            if not pairs:
                return {}
            sources, references = zip(*pairs, strict=True)
            options = SearchOptions(beam=self.recipe.evaluate.beam)
            found = open_translator(self.folder).translate(list(sources), options)
            return score_texts([one.text for one in found], references)
        if "test" not in self.datasets.splits:
            return {}
        batches = self.datasets.one_epoch("test", batch_tokens=self.recipe.training.batch_tokens)
        objective = OBJECTIVES[self.recipe.task](Model.load(self.folder).module)
        return mean_losses(objective, *sum_losses(objective, batches))
