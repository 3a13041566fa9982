"""What `regard train` needs of the parts above training: folders, decoding, traces, scores."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.data.batches import pad
from regard.errors import InputError, RegardError
from regard.evaluation.alignment import Alignment, alignment_of
from regard.figures.terminal import cell_len, text_pattern
from regard.generation.beam import greedy_search
from regard.generation.sentences import sentences
from regard.generation.translator import TranslatedPart, Translation
from regard.model import Model
from regard.model_folder import Card
from regard.trace.capture import trace_model
from regard.training.batch import Batch
from regard.training.callbacks import Evaluation
from regard.training.data_sources import Sources
from regard.training.datasets import Material
from regard.training.objective import OBJECTIVES, Classification, Objective
from regard.training.progress_report import sample_lines
from regard.training.recipe import Recipe


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


SCORES = ("exact", "bleu", "chrf")


def score_texts(written: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """The share that is exactly right, and sacreBLEU's BLEU and chrF with their usual settings."""
    if len(written) != len(references) or not written:
        raise InputError(
            f"{len(written)} texts cannot be compared with {len(references)} references."
        )
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    right = sum(one == other for one, other in zip(written, references, strict=True))
    return {
        "exact": right / len(written),
        "bleu": BLEU().corpus_score(list(written), [list(references)]).score,
        "chrf": CHRF().corpus_score(list(written), [list(references)]).score,
    }


_INDENT = "    "
_SLIGHT = 0.01
"""Weights below this are left out."""


def with_alignment(model: Model, evaluation: Evaluation) -> Evaluation:
    """The evaluation, in which the first translation also says which words belong together."""
    for number, sample in enumerate(evaluation.samples):
        found = _alignment(model, sample) if sample.get("written") else None
        if found is not None:
            samples = list(evaluation.samples)
            samples[number] = {**sample, "alignment": found}
            return replace(evaluation, samples=samples)
    return evaluation


def _alignment(model: Model, sample: Mapping[str, Any]) -> dict[str, Any] | None:
    """By the mean of all heads of the layer that aligns best in most models: the last but one.

    (Garg et al. 2019.) Which heads align best in this one cannot be known while it learns.
    """
    source, target = model.tokenizer, model.target_tokenizer
    if "source" not in sample or source is None or target is None:
        return None
    text, ids = sample["written"], target.encode(sample["written"], specials=False)
    trace = trace_model(model, source.encode(sample["source"]), ids)
    sites = [path for path in trace if path.endswith("cross")]
    if not sites:
        return None  # recurrent models without attention
    site = trace[sites[max(len(sites) - 2, 0)]]
    weights = np.mean([site.weights(head).numpy() for head in range(site.n_heads)], axis=0)
    weights = weights[: len(ids)]
    if len(text.split()) < 2:  # a date, a word: then tokens say more than words
        places = zip(*np.nonzero(weights >= _SLIGHT), strict=True)
        soft = [(int(j), int(i), float(weights[i, j])) for i, j in places]
        written = trace.tokens["target"][1 : len(ids) + 1]
        return Alignment(list(trace.tokens["source"]), list(written), soft).to_json()
    part = TranslatedPart(sample["source"], text, source.encode(sample["source"]), ids)
    whole = Translation(text, 0.0, [], [], parts=(part,))
    return alignment_of(whole, [weights], (source, target)).to_json()


def drawn_samples(columns: int) -> Callable[[Evaluation], list[str]]:
    """What shows samples on a terminal of this width: the alignment as a picture."""

    def draw(evaluation: Evaluation) -> list[str]:
        return _all_lines(evaluation, lambda alignment: _picture(alignment, columns))

    return draw


def plain_samples(evaluation: Evaluation) -> list[str]:
    """Samples as plain lines, for pipes and files."""
    return _all_lines(evaluation, _plain)


def _all_lines(evaluation: Evaluation, show: Callable[[Mapping[str, Any]], list[str]]) -> list[str]:
    lines: list[str] = []
    for sample in evaluation.samples:
        lines += sample_lines(Evaluation(samples=[sample]))
        if "alignment" in sample:
            lines += [_INDENT + line for line in show(sample["alignment"])]
    return lines


def _plain(alignment: Mapping[str, Any]) -> list[str]:
    """Every word of the target with the word of the source that it attends to most."""
    sources, links = alignment["source_words"], {}
    for link in alignment["hard"].split():
        source, _, target = link.partition("-")
        links[int(target)] = sources[int(source)]
    told = [f"{word}←{links.get(i, '')}" for i, word in enumerate(alignment["target_words"])]
    return [f"alignment: {' '.join(told)}"]


def _picture(alignment: Mapping[str, Any], columns: int) -> list[str]:
    """Rows are words of the target, columns those of the source; a plain line where it is wide."""
    sources, targets = alignment["source_words"], alignment["target_words"]
    weights = np.zeros((len(targets), len(sources)))
    for source, target, weight in alignment["soft"]:
        weights[target, source] = weight
    lines = text_pattern(weights.tolist(), targets, sources).lines
    if max(map(cell_len, lines), default=0) + len(_INDENT) > columns:
        return _plain(alignment)
    return ["alignment (rows: what was written; columns: the source):", *lines]


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

    def model(self, module: nn.Module, numbers: Mapping[str, float] | None = None) -> Model:
        """The model with all that belongs to it."""
        material = self.material
        scores = ", ".join(f"{name} {value:.4g}" for name, value in (numbers or {}).items())
        card = Card(
            data=self.recipe.about,
            license=self.recipe.license,
            score=f"validation: {scores}" if scores else "",
            text=f"## Limits\n\n{self.recipe.limits.strip()}" if self.recipe.limits else "",
        )
        extras: dict[str, Any] = {"recipe": self.recipe.model_dump(mode="json")}
        if self.recipe.task == "translation":
            extras |= self._lengths
        return Model(
            module=module,
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
        """What translators know of their training data; see `regard.generation.translator.lengths_of`."""
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
        self.model(model, numbers).save(fresh)
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
            found = greedy_search(
                model,
                torch.from_numpy(ids).to(device),
                torch.from_numpy(lengths).to(device),
                start_id=target.required_id("start"),
                end_id=target.required_id("end"),
            )
            for number, one in zip(numbers, found, strict=True):
                written[number] = one
        return target.decode_batch(written)

    def _go_on(self, model: nn.Module) -> str:
        from regard.generation.predictions import generate

        prompt = (self.recipe.evaluate.snapshots or ["\n"])[0]
        options = {"max_tokens": 100, "temperature": 0.8, "seed": 1}
        try:
            return generate(self.model(model), prompt, **options).text
        except RegardError as error:  # a prompt that the vocabulary does not know, say
            return f"({error})"

    def snapshot(self, module: nn.Module, step: int) -> None:
        """Keep traces of the recipe's fixed texts, to see how heads form."""
        from regard.generation.tracing import trace_answer

        folder = self.folder / TRAINING / "snapshots" / f"step-{step:08d}"
        model = self.model(module)
        for number, text in enumerate(self.recipe.evaluate.snapshots):
            source, _, target = text.partition("\t")
            trace = trace_answer(model, source, target or None)
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
        from regard.generation.search import SearchOptions
        from regard.generation.translator import open_translator

        options = SearchOptions(beam=self.recipe.evaluate.beam)
        found = open_translator(self.folder).translate([one[0] for one in pairs], options)
        return score_texts([one.text for one in found], [one[1] for one in pairs])

    def _test_losses(self) -> dict[str, float]:
        if "test" not in self.material.parts:
            return {}
        tokens = self.recipe.training.batch_tokens
        batches = self.material.once("test", batch_tokens=tokens, rank=0, ranks=1)
        objective = OBJECTIVES[self.recipe.task](Model.load(self.folder).module)
        return mean_losses(objective, *summed_losses(objective, batches))
