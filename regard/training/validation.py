"""Evaluation during a run: losses, translations, scores, alignments, examples, snapshots, test."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from regard.data.batches import pad
from regard.data.images import as_rgb, center_crop
from regard.errors import InputError, RegardError, nearest
from regard.evaluation.alignment import Alignment, alignment_of
from regard.evaluation.scores import score_texts
from regard.files import write_atomic
from regard.generation.beam import greedy_search
from regard.generation.search import SearchOptions
from regard.generation.sentences import sentences, share_copied
from regard.generation.tracing import trace_answer
from regard.generation.translator import TranslatedPart, Translation, open_translator
from regard.model import Model
from regard.model_folder import EXAMPLES, Card
from regard.models.config import ModelConfig, build
from regard.text.tokenizer import Tokenizer
from regard.trace.capture import trace_model
from regard.trace.trace import IMAGE, Trace
from regard.training.callbacks import ValidationResult
from regard.training.data_sources import TextSources
from regard.training.datasets import Datasets, ImageDataset
from regard.training.loader import Batch
from regard.training.objective import OBJECTIVES, ClassificationObjective, Objective
from regard.training.recipe import Recipe
from regard.training.run_folder import TRAINING

_BATCH = 64
_MIN_WEIGHT = 0.01
"""Smaller weights are left out of token alignments."""
_EXAMPLE_CHARACTERS, _PROMPT_WORDS = 200, 8
"""Longest example texts of a model, and of the prompts of a language model."""


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
    weights = np.mean([site.weights(head).cpu().numpy() for head in range(site.n_heads)], axis=0)
    weights = weights[: len(ids)]
    if len(text.split()) < 2:  # a date or a single word: tokens show more than words
        places = zip(*np.nonzero(weights >= _MIN_WEIGHT), strict=True)
        soft = [(int(j), int(i), float(weights[i, j])) for i, j in places]
        outputs = list(trace.tokens["output"][: len(ids)])
        return Alignment(list(trace.tokens["source"]), outputs, soft).to_json()
    part = TranslatedPart(sample["source"], text, source.encode(sample["source"]), ids)
    whole = Translation(text, 0.0, [], [], parts=(part,))
    return alignment_of(whole, [weights], (source, target)).to_json()


def example_prompts(windows: Sequence[str]) -> list[str]:
    """Return the first words of a line of each window of running text."""
    prompts = []
    for window in windows:
        # a window starts and ends anywhere: its first line, or without lines its first word, is cut
        _, break_, rest = window.partition("\n") if "\n" in window else window.partition(" ")
        lines = (rest if break_ else window).split("\n")
        line = next((line.strip() for line in lines if line.strip()), "")
        prompts.append(" ".join(line.split()[:_PROMPT_WORDS]))
    return prompts


def hide_one_token(text: str, tokenizer: Tokenizer) -> str:
    """Return a text with {mask} in place of a token in its middle, a whole word if there is one."""
    pieces = [one for one in tokenizer.pieces(text, specials=False) if text[one.start : one.end]]
    words = [one.word for one in pieces]
    whole = [one for one in pieces if words.count(one.word) == 1 and one.text.strip().isalnum()]
    if not pieces:
        return text
    chosen = (whole or pieces)[len(whole or pieces) // 2]
    covered = text[chosen.start : chosen.end]
    spaces = len(covered) - len(covered.lstrip())
    return f"{text[: chosen.start + spaces]}{{mask}}{text[chosen.end :]}"


def example_images(dataset: ImageDataset, count: int) -> dict[str, bytes]:
    """Return PNG files by name: the first image of each class, as the model reads it."""
    images, found = dataset.images, {}
    for number, label in enumerate(images.labels):
        name = re.sub(r"[^\w -]+", "_", images.classes[label])[:60]
        if name in found or len(found) == count:
            continue
        pixels = center_crop(images.pixels[number : number + 1], dataset.side)[0]
        if pixels.shape[-1] not in (1, 3):
            break  # models of other channels read no image files
        file = io.BytesIO()
        Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, "PNG")
        found[name] = file.getvalue()
    return {f"{name}.png": data for name, data in found.items()}


class RunEvaluator:
    """Saves, samples and scores the model of a run."""

    def __init__(
        self, folder: Path, recipe: Recipe, datasets: Datasets, config: ModelConfig
    ) -> None:
        self.folder, self.recipe, self.datasets, self.config = folder, recipe, datasets, config
        split = datasets.splits.get("validation")
        self._images = split if isinstance(split, ImageDataset) else None
        self._snapshot_images = self._images_of_classes() if self._images else []

    def _images_of_classes(self) -> list[int]:
        """Return the number of the first validation image of each class in `snapshots`."""
        assert self._images is not None
        images, found = self._images.images, []
        known = [images.classes[label] for label in sorted(set(images.labels.tolist()))]
        for name in self.recipe.evaluate.snapshots:
            if name not in known:
                raise InputError(
                    f"evaluate.snapshots has {name!r}, but the validation images have no such "
                    f"class; {nearest(name, known)}."
                )
            found.append(images.labels.tolist().index(images.classes.index(name)))
        return found

    def _on_cpu(self, module: nn.Module) -> nn.Module:
        if next(module.parameters()).device.type == "cpu":
            return module
        copy = build(self.config)
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
        if self._example_texts:
            extras[EXAMPLES] = self._example_texts
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
        counts = [len(sentences(line[0])) for line in self._validation_lines] or [1]
        # Up to one line in a thousand may be an error in the data.
        return {
            "longest_source": int(min(np.max(sources), 2 * np.quantile(sources, 0.999))),
            "target_ratios": np.quantile(ratios, (0.001, 0.999)).round(3).tolist(),
            "sentences": int(np.quantile(counts, 0.95)),
            "copied_spans": share_copied(self._validation_lines),
        }

    @cached_property
    def _validation_lines(self) -> list[tuple[str, ...]]:
        return TextSources(self.recipe).examples("validation", 1000)

    @cached_property
    def _example_texts(self) -> list[str]:
        """Texts of the validation data to open the model with."""
        task, count = self.recipe.task, self.recipe.evaluate.examples
        split, tokenizer = self.datasets.splits.get("validation"), self.datasets.tokenizer
        if not count or split is None or tokenizer is None:
            return []
        if task == "language":
            last = len(split.lengths[0]) - 1
            starts = sorted({round(i * last / count) for i in range(count)})
            texts = example_prompts([self._running_text(start, tokenizer) for start in starts])
        else:
            texts = [line[task == "classification"] for line in self._validation_lines]
        texts = [text for text in dict.fromkeys(texts) if text.strip()]
        cut = {text: self._shortened(text, tokenizer) for text in texts}
        whole = [text for text in texts if cut[text] == text and task != "language"]
        chosen = list(dict.fromkeys(text for text in whole or cut.values() if text))[:count]
        return [hide_one_token(text, tokenizer) for text in chosen] if task == "masked" else chosen

    def _running_text(self, start: int, tokenizer: Tokenizer) -> str:
        """Return the text of a few windows of the validation data, in which a line may start."""
        split, ids = self.datasets.splits["validation"], []
        numbers = range(start, min(start + 4, len(split.lengths[0])))
        batch, window = split(list(numbers), 0), self.recipe.data.window
        for row, length in zip(batch.ids.tolist(), batch.lengths.tolist(), strict=True):
            ids += row[: min(length, window)]  # the last token is also the first of the next window
        return tokenizer.decode(ids)

    def _shortened(self, text: str, tokenizer: Tokenizer) -> str:
        """Return the first words of a text, so many as the model can read; "" if there are none."""
        limit = getattr(self.config, "max_positions", None) or _EXAMPLE_CHARACTERS
        if self.recipe.task == "language":
            limit = min(limit, self.recipe.data.window) // 2  # the rest is for what it writes
        else:
            limit -= 2  # for start and end
        while text and (
            len(text) > _EXAMPLE_CHARACTERS or len(tokenizer.encode(text, specials=False)) > limit
        ):
            text = text[:_EXAMPLE_CHARACTERS].rpartition(" ")[0].rstrip()
        return text

    def save_model(self, module: nn.Module, metrics: Mapping[str, float]) -> None:
        """Write the model's files into the run folder, each one atomically.

        Only weights and card change during a run, so the folder is a complete model at every moment
        after the first validation.
        """
        fresh = self.folder / TRAINING / "model"
        self.model(module, metrics).save(fresh)
        self._save_example_images()
        for path in sorted(fresh.iterdir(), key=lambda path: path.name == "config.json"):
            path.replace(self.folder / path.name)
        fresh.rmdir()

    def _save_example_images(self) -> None:
        folder = self.folder / EXAMPLES
        if self._images is not None and not folder.exists():
            for name, data in example_images(self._images, self.recipe.evaluate.examples).items():
                write_atomic(folder / name, data)

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
        """Save traces of the recipe's fixed texts or images, which show how heads form.

        Only the attention is kept, and the image; the rest would be megabytes.
        """
        folder = self.folder / TRAINING / "snapshots" / f"step-{step:08d}"
        model = self.model(self._on_cpu(module))
        for number, text in enumerate(self.recipe.evaluate.snapshots):
            if self._images is not None:
                trace = self._trace_image(model, self._snapshot_images[number])
            else:
                source, _, target = text.partition("\t")
                trace = trace_answer(model, source, target or None)
                trace.values.clear()
            folder.mkdir(parents=True, exist_ok=True)
            trace.save(folder / f"{number}.safetensors")

    def _trace_image(self, model: Model, number: int) -> Trace:
        assert self._images is not None
        trace = trace_model(model, self._images([number], 0).images)
        pixels = self._images.images.pixels[number : number + 1]
        shown = as_rgb(center_crop(pixels, self._images.side)[0])
        trace.values = {IMAGE: torch.from_numpy(shown)}
        return trace

    def test(self) -> dict[str, float]:
        """Return the metrics of the saved model on the test data, with the recipe's beam size."""
        if self.recipe.task == "translation":
            return self._test_translations()
        if "test" not in self.datasets.splits:
            return {}
        batches = self.datasets.one_epoch("test", batch_tokens=self.recipe.training.batch_tokens)
        objective = OBJECTIVES[self.recipe.task](Model.load(self.folder).module)
        return mean_losses(objective, *sum_losses(objective, batches))

    def _test_translations(self) -> dict[str, float]:
        """Return the scores of all test data, and of each domain if there are several."""
        sources = TextSources(self.recipe)
        outputs: dict[str, list[tuple[str, str]]] = {}
        for domain in sources.domains():
            pairs = sources.examples("test", domain=domain)
            texts, options = [x for x, _ in pairs], SearchOptions(beam=self.recipe.evaluate.beam)
            found = open_translator(self.folder).translate(texts, options) if texts else []
            outputs[domain] = [(one.text, pair[1]) for one, pair in zip(found, pairs, strict=True)]
        groups = {"": [pair for pairs in outputs.values() for pair in pairs]}
        if len(outputs) > 1:
            groups |= {f" ({domain or 'other'})": pairs for domain, pairs in outputs.items()}
        return {
            f"{name}{group}": score
            for group, pairs in groups.items()
            if pairs
            for name, score in score_texts(*map(list, zip(*pairs, strict=True))).items()
        }
