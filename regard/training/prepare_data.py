"""Preparation of a recipe's data: tokenizers are trained, texts tokenized, images read."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.batches import uniform_draws
from regard.data.corpus import Corpus, NoExampleError, build_corpus, report_lines
from regard.data.image_files import read_images, reorder_classes
from regard.data.images import Augmentation, Images, Normalization
from regard.data.token_augmentation import Masking, MergeDropout
from regard.data.token_stream import build_stream
from regard.errors import InputError, MissingExtraError
from regard.text.tokenizer import Tokenizer, with_start_and_end
from regard.text.tokenizer_training import train_tokenizer
from regard.training.callbacks import Callback
from regard.training.data_sources import TextSources, find_data
from regard.training.datasets import (
    Datasets,
    ImageDataset,
    LabeledTextDataset,
    MaskedTextDataset,
    PairDataset,
    WindowDataset,
)
from regard.training.recipe import SPLITS, DataSettings, Recipe
from regard.training.run_folder import save_standard_input, with_standard_input

Tokenizers = tuple[Tokenizer | None, Tokenizer | None]


def prepare(
    recipe: Recipe,
    folder: Path,
    *,
    tokenizers: Tokenizers = (None, None),
    n_tokens: Callable[[int], int] = lambda side: 1,
    callback: Any = None,
    progress_bars: bool = False,
) -> Datasets:
    """Build the datasets of a recipe; results that take time are cached in `folder`.

    Args:
        tokenizers: source and target tokenizer of the model to start from.
        n_tokens: number of tokens of an image by its side.
        callback: gets messages, and line counts while texts are read.
        progress_bars: show the progress of tokenizer training.
    """
    if recipe.data.validation == 0 and recipe.data.generate != "dates":
        raise _share_too_small("validation", 0.0)
    save_standard_input(recipe, folder)
    recipe, callback = with_standard_input(recipe, folder), callback or Callback()
    if has_images(recipe):
        found = _image_datasets(recipe, n_tokens)
    else:
        found = _TextPreparation(recipe, folder, callback, progress_bars).datasets(tokenizers)
    _report_splits(found, callback)
    return found


def _report_splits(datasets: Datasets, callback: Any) -> None:
    """Say which splits are too small to measure with, or lack a class."""
    for split, dataset in datasets.splits.items():
        if split != "train" and len(dataset.lengths[0]) == 1:
            callback.on_message(f"{split} has 1 example, so its scores say little: hold out more")
        if datasets.classes is not None:
            held = dataset.images if isinstance(dataset, ImageDataset) else dataset.corpus
            there = np.bincount(held.labels, minlength=len(datasets.classes))
            lost = [x for x, n in zip(datasets.classes, there, strict=True) if not n]
            if lost:
                callback.on_message(f"{split} has no example of the classes {', '.join(lost)}")


def _share_too_small(split: str, share: float) -> InputError:
    larger = next((one for one in (0.1, 0.2, 0.5) if one > share), None)
    advice = "more data" if larger is None else f"a larger share, such as {larger}"
    return InputError(
        f"data.{split} = {share:g} holds out too little of these data: give {advice}, or files."
    )


def has_images(recipe: Recipe) -> bool:
    """Return True if the recipe classifies images, not texts."""
    data = recipe.data
    if recipe.task != "classification" or data.generate == "digits":
        return recipe.task == "classification"
    first = data.train[0] if isinstance(data.train, list) else data.train
    if not isinstance(first, str):
        return False
    path = find_data(first, data.root)
    return path.is_dir() or path.suffix == ".npz" or "idx" in path.name


class _TextPreparation:
    """The steps from a recipe's texts to its datasets."""

    def __init__(self, recipe: Recipe, folder: Path, callback: Any, progress_bars: bool) -> None:
        self.recipe, self.folder = recipe, folder
        self.callback, self.progress_bars = callback, progress_bars
        self.sources = TextSources(recipe)
        self.options: dict[str, Any] = {
            "cache": Path(recipe.data.cache or folder / "cache"),
            "checks": self.sources.checks,
            "progress": callback.on_lines_read,
        }

    def datasets(self, tokenizers: Tokenizers) -> Datasets:
        first, second = tokenizers
        if first is None:
            first, second = self._tokenizers()
        translation = self.recipe.task == "translation"
        if translation and second is None:
            first = with_start_and_end(first)
        elif translation and second is not None:
            second = with_start_and_end(second)
        if self.recipe.task == "language":
            return self._windows(first)
        both = [first, second or first] if translation else [first]
        corpora = self._corpora(both)
        splits = {name: self._dataset(name, corpus, both) for name, corpus in corpora.items()}
        return Datasets(splits, first, second, classes=corpora["train"].classes)

    def _has(self, split: str) -> bool:
        """Return True if the recipe has this split; a share of 0 means no."""
        data = self.recipe.data
        return data.generate == "dates" or getattr(data, split) not in (None, 0.0)

    def _corpora(self, tokenizers: list[Tokenizer]) -> dict[str, Corpus]:
        corpora: dict[str, Corpus] = {}
        for split in filter(self._has, SPLITS):
            rows, given = self.sources.rows(split), getattr(self.recipe.data, split)
            assert rows is not None
            classes = corpora["train"].classes if corpora else None
            try:
                corpus = build_corpus(rows, tokenizers, classes=classes, **self.options)
            except NoExampleError as error:
                if isinstance(given, float):
                    raise _share_too_small(split, given) from error
                raise InputError(f"data.{split}: {error}") from error
            for line in report_lines(corpus.report, corpus.ledger):
                self.callback.on_message(f"{split}: {line.strip()}")
            corpora[split] = corpus
        return corpora

    def _dataset(self, split: str, corpus: Corpus, tokenizers: list[Tokenizer]) -> Any:
        recipe, pads = self.recipe, [one.pad_id or 0 for one in tokenizers]
        if recipe.task == "translation":
            share = recipe.tokenizer.split if split == "train" else 0.0
            dropout = [MergeDropout.of(t, share=share) for t in tokenizers if share]
            return PairDataset(corpus, pads[0], pads[1], dropout, recipe.training.seed)
        if recipe.task == "classification":
            return LabeledTextDataset(corpus, pads[0])
        masking = Masking.of(tokenizers[0], share=recipe.data.hidden)
        return MaskedTextDataset(corpus, masking, pads[0], recipe.training.seed)

    def _tokenizers(self) -> tuple[Tokenizer, Tokenizer | None]:
        """Load the tokenizers of the recipe, or train them and save them in the folder."""
        settings, root = self.recipe.tokenizer, self.recipe.data.root
        if settings.load is not None:
            first = Tokenizer.load(find_data(settings.load, root))
            other = settings.load_target
            return first, None if other is None else Tokenizer.load(find_data(other, root))
        if self.recipe.task == "translation" and not settings.joint:
            return self._train("tokenizer.json", [0]), self._train("tokenizer.target.json", [1])
        text = [1] if self.recipe.task == "classification" else None
        return self._train("tokenizer.json", text), None

    def _train(self, name: str, fields: list[int] | None) -> Tokenizer:
        settings, path = self.recipe.tokenizer, self.folder / name
        if not path.is_file():
            trained = train_tokenizer(
                self.sources.texts(fields=fields),
                kind=settings.kind,
                vocab_size=settings.size,
                normalization=None if settings.normalization == "none" else settings.normalization,
                lowercase=settings.lowercase,
                min_frequency=settings.min_frequency,
                byte_fallback=settings.byte_fallback,
                tags=tuple(self.recipe.data.tags) if fields != [1] else (),
                progress=self.progress_bars,
            )
            trained.save(path)
            self.callback.on_message(
                f"trained a {settings.kind} vocabulary of {len(trained):,} entries"
            )
        return Tokenizer.load(path)

    def _windows(self, tokenizer: Tokenizer) -> Datasets:
        """Build windows of running text; held-out shares are taken from its end."""
        data, seed = self.recipe.data, self.recipe.training.seed
        rest, streams = self._stream(self.sources.all_rows(), tokenizer), {}
        total = len(rest)
        for split in filter(self._has, ("test", "validation")):
            given = getattr(data, split)
            if isinstance(given, float):
                cut = len(rest) - round(given * total)
                rest, streams[split] = rest[:cut], rest[cut:]
            else:
                streams[split] = self._stream(self.sources.rows(split), tokenizer)
        streams["train"] = rest
        self.callback.on_message(f"train: {len(rest):,} tokens")
        datasets = {}
        for split, ids in streams.items():
            given = getattr(data, split)
            if len(ids) < 2 and isinstance(given, float):
                raise _share_too_small(split, given)
            if len(ids) < 2:
                raise InputError(
                    f"data.{split} has {len(ids)} tokens, but a prediction needs 2 or more: give "
                    "more text, or hold out less."
                )
            shift = split == "train"
            datasets[split] = WindowDataset(ids, length=data.window, seed=seed, shift=shift)
        return Datasets(datasets, tokenizer)

    def _stream(self, rows: Any, tokenizer: Tokenizer) -> np.ndarray:
        stream = build_stream(rows, tokenizer, **self.options)
        for line in report_lines(stream.report, stream.ledger):
            self.callback.on_message(line.strip())
        return stream.ids


def _image_datasets(recipe: Recipe, n_tokens: Callable[[int], int]) -> Datasets:
    splits, given = split_images(recipe), recipe.data.augment
    train = splits["train"]
    pixels = Normalization.of(train)
    augment = Augmentation(given.shift, given.flip, given.crop) if given else None
    height, width, channels = train.pixels.shape[1:]
    crop = given.crop if given else 0
    if height != width and not crop:
        raise InputError(
            f"the images have {height} × {width} pixels, but models read square images: set "
            "data.size or data.augment.crop."
        )
    side = crop or height
    datasets = {}
    for split, images in splits.items():
        changes = augment if split == "train" else None
        seed = recipe.training.seed
        datasets[split] = ImageDataset(images, pixels, n_tokens(side), changes, side, seed)
    return Datasets(datasets, classes=train.classes, pixels=pixels, image_shape=(side, channels))


def split_images(recipe: Recipe) -> dict[str, Images]:
    """Read the images of each split; held-out shares are drawn at random.

    Classes have the same numbers in all splits, even if validation or test lack some.
    """
    train = _read_images(recipe, "train")
    splits = {"train": _name_classes(train, recipe.data)}
    given = {split: getattr(recipe.data, split) for split in ("validation", "test")}
    for split, files in given.items():
        if files is not None and not isinstance(files, float):
            images = _read_images(recipe, split, train.classes)
            splits[split] = _name_classes(images, recipe.data)
    for seed, (split, share) in enumerate(given.items()):
        if isinstance(share, float) and share:
            rest = splits["train"]
            chosen = uniform_draws(seed, 0, np.arange(len(rest)), 1)[:, 0] < share
            for name, part in ((split, chosen), ("train", ~chosen)):
                splits[name] = replace(rest, pixels=rest.pixels[part], labels=rest.labels[part])
            if not len(splits[split]):
                raise _share_too_small(split, share)
    if not len(splits["train"]):
        raise InputError(
            "data.validation and data.test hold out all images: make their sum less than 1."
        )
    return splits


def _read_images(recipe: Recipe, split: str, classes: tuple[str, ...] | None = None) -> Images:
    data = recipe.data
    if data.generate == "digits" and split == "train":
        return _digits()
    given = getattr(data, split)
    if not isinstance(given, str):
        raise InputError(f"data.{split} is {given!r}; it must be one folder or file of images.")
    path = find_data(given, data.root)
    return read_images(path, size=data.size, split=split, classes=classes)


def _name_classes(images: Images, data: DataSettings) -> Images:
    """Apply data.classes: names for numbered classes, a new order for named ones."""
    given, current = data.classes, images.classes
    if given is None:
        return images
    where = data.train or data.generate
    if len(given) != len(current):
        raise InputError(
            f"data.classes has {len(given)} names, but {where} has {len(current)} classes: give "
            "one name for each."
        )
    if current == tuple(str(number) for number in range(len(current))):
        return replace(images, classes=tuple(given))
    return reorder_classes(images, given, str(where))


def _digits() -> Images:
    """Return scikit-learn's handwritten digits of 8 × 8 pixels."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError(
            "the digits are part of scikit-learn, which is not installed: pip install scikit-learn."
        ) from error
    digits: Any = load_digits()
    pixels = np.minimum(np.round(digits.images * 16), 255).astype(np.uint8)
    names = tuple(str(number) for number in range(10))
    return Images(pixels[..., None], digits.target.astype(np.int64), names)
