"""What `regard train` needs of the parts above training: folders, decoding, traces, scores."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.bundle.bundle import Bundle
from regard.bundle.card import Card
from regard.data.collate import pad
from regard.decoding.greedy import greedy
from regard.engine.segment import sentences
from regard.errors import RegardError
from regard.text.ends import end_of
from regard.training.callbacks import Evaluation
from regard.training.losses import mean_losses, summed_losses
from regard.training.material import Material
from regard.training.objective import OBJECTIVES
from regard.training.recipe import Recipe
from regard.training.score import score_texts
from regard.training.sources import Sources

TRAINING = "training"
"""The folder inside a model folder that holds what its training needs and leaves."""
RESULT = "result.json"
"""What a run came to: where and why it ended, its scores, time and memory."""
_TOGETHER = 64
_LOOKED_AT = 1000
"""Lines whose sentences are counted."""


class Workshop:
    """A model folder in the making."""

    def __init__(self, folder: Path, recipe: Recipe, material: Material) -> None:
        self.folder, self.recipe, self.material = folder, recipe, material
        self._pairs: list[tuple[str, ...]] | None = None

    def bundle(self, model: nn.Module, numbers: Mapping[str, float] | None = None) -> Bundle:
        """The model with all that belongs to it."""
        material = self.material
        scores = ", ".join(f"{name} {value:.4g}" for name, value in (numbers or {}).items())
        card = Card(
            data=self.recipe.about,
            licence=self.recipe.licence,
            score=f"validation: {scores}" if scores else "",
            text=f"## Limits\n\n{self.recipe.limits.strip()}" if self.recipe.limits else "",
        )
        extras: dict[str, Any] = {"recipe": self.recipe.model_dump(mode="json")}
        if self.recipe.task == "translation":
            extras |= self._lengths
        return Bundle(
            model=model,
            task=self.recipe.task,
            tokenizer=material.tokenizer,
            target_tokenizer=material.target_tokenizer,
            labels=material.classes if self.recipe.task == "classification" else None,
            pixels=material.pixels,
            card=card,
            extras=extras,
        )

    @cached_property
    def _lengths(self) -> dict[str, Any]:
        """What translators know of their training data; see `regard.engine.opening.lengths_of`."""
        sources, targets = self.material.parts["train"].lengths[:2]
        ratios = targets / np.maximum(sources, 1)
        lines = Sources(self.recipe).examples("validation", _LOOKED_AT)
        counts = [len(sentences(line[0])) for line in lines] or [1]
        # One in a thousand may be a slip of whoever collected them.
        return {
            "longest_source": int(min(np.max(sources), 2 * np.quantile(sources, 0.999))),
            "target_ratios": np.quantile(ratios, (0.001, 0.999)).round(3).tolist(),
            "sentences": int(np.quantile(counts, 0.95)),
        }

    def save_model(self, model: nn.Module, numbers: Mapping[str, float]) -> None:
        """Write the model's files into the folder, beside its training; each appears whole.

        Apart from weights and card they stay the same while a run goes on, so that the folder is
        a whole model at every moment from the first time on.
        """
        fresh = self.folder / TRAINING / "model"
        self.bundle(model, numbers).save(fresh)
        for path in sorted(fresh.iterdir(), key=lambda path: path.name == "config.json"):
            path.replace(self.folder / path.name)
        fresh.rmdir()

    def evaluate(self, model: nn.Module) -> Evaluation:
        """What the model says to the validation data, and what that is worth."""
        settings = self.recipe.evaluate
        if self.recipe.task == "translation":
            pairs = self._validation_pairs()
            if not pairs:
                return Evaluation()
            sources, references = [one[0] for one in pairs], [one[1] for one in pairs]
            written = self.translate(model, sources)
            samples = [
                {"source": source, "written": text, "reference": reference}
                for (source, reference), text in zip(pairs, written, strict=True)
            ]
            # samples alone are too few to be worth a score
            numbers = {} if settings.metric == "loss" else score_texts(written, references)
            return Evaluation(numbers, samples[: settings.samples])
        if self.recipe.task == "language" and settings.samples:
            return Evaluation(samples=[{"written": self._go_on(model)}])
        return Evaluation()

    def _validation_pairs(self) -> list[tuple[str, ...]]:
        if self._pairs is None:
            settings = self.recipe.evaluate
            decoded = settings.metric != "loss" or settings.samples
            count = settings.sentences if settings.metric != "loss" else settings.samples
            self._pairs = Sources(self.recipe).examples("validation", count) if decoded else []
        return self._pairs

    def translate(self, model: Any, sources: Sequence[str]) -> list[str]:
        """Greedy translations, computed in batches of texts that are alike in length."""
        tokenizer = self.material.tokenizer
        target = self.material.target_tokenizer or tokenizer
        assert tokenizer is not None
        assert target is not None
        encoded = tokenizer.encode_batch(sources, literal=True)
        order = sorted(range(len(encoded)), key=lambda number: len(encoded[number]))
        written: list[list[int]] = [[] for _ in encoded]
        device = next(model.parameters()).device
        for first in range(0, len(order), _TOGETHER):
            numbers = order[first : first + _TOGETHER]
            ids, lengths = pad([encoded[number] for number in numbers], tokenizer.pad_id or 0)
            found = greedy(
                model,
                torch.from_numpy(ids).to(device),
                torch.from_numpy(lengths).to(device),
                start_id=end_of(target, "start"),
                end_id=end_of(target, "end"),
                max_length=2 * ids.shape[1] + 10,
            )
            for number, one in zip(numbers, found, strict=True):
                written[number] = one
        return target.decode_batch(written)

    def _go_on(self, model: nn.Module) -> str:
        from regard.engine.answers import generate

        prompt = (self.recipe.evaluate.snapshots or ["\n"])[0]
        options = {"max_tokens": 100, "temperature": 0.8, "seed": 1}
        try:
            return generate(self.bundle(model), prompt, **options).text
        except RegardError as error:  # a prompt that the vocabulary does not know, say
            return f"({error})"

    def snapshot(self, model: nn.Module, step: int) -> None:
        """Keep traces of the recipe's fixed texts, to see how heads form."""
        from regard.trace.run import trace_bundle

        folder = self.folder / TRAINING / "snapshots" / f"step-{step:08d}"
        bundle = self.bundle(model)
        for number, text in enumerate(self.recipe.evaluate.snapshots):
            source, _, target = text.partition("\t")
            trace = trace_bundle(bundle, source, target or None)
            trace.values.clear()  # attention is what is looked at; the rest would be megabytes
            folder.mkdir(parents=True, exist_ok=True)
            trace.save(folder / f"{number}.safetensors")

    def test(self) -> dict[str, float]:
        """The scores of the saved model on the test data, searched with the recipe's beam."""
        if self.recipe.task != "translation":
            return self._test_losses()
        pairs = Sources(self.recipe).examples("test")
        if not pairs:
            return {}
        from regard.engine.opening import open_translator
        from regard.engine.search import SearchOptions

        options = SearchOptions(beam=self.recipe.evaluate.beam)
        found = open_translator(self.folder).translate([one[0] for one in pairs], options)
        return score_texts([one.text for one in found], [one[1] for one in pairs])

    def _test_losses(self) -> dict[str, float]:
        if "test" not in self.material.parts:
            return {}
        tokens = self.recipe.training.batch_tokens
        batches = self.material.once("test", batch_tokens=tokens, rank=0, ranks=1)
        objective = OBJECTIVES[self.recipe.task](Bundle.load(self.folder).model)
        return mean_losses(objective, *summed_losses(objective, batches))
