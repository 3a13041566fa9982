"""From a recipe to its material: tokenizers are learned, texts cut into tokens, images read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.batches import uniform_draws
from regard.data.corpus import Corpus, NoExampleError, Progress, build_corpus, report_lines
from regard.data.image_files import read_images, reorder_classes
from regard.data.images import Augmentation, Images, Normalization
from regard.data.readers import Rows
from regard.data.token_augmentation import Masking, MergeDropout
from regard.data.token_stream import build_stream
from regard.errors import InputError, MissingExtraError
from regard.text.tokenizer import Tokenizer, with_start_and_end
from regard.text.tokenizer_training import train_tokenizer
from regard.training.data_sources import Sources, find_data
from regard.training.datasets import (
    HiddenTokens,
    LabeledTexts,
    Material,
    Pairs,
    Pictures,
    Windows,
    too_little,
)
from regard.training.recipe import Data, Recipe
from regard.training.run_folder import keep_standard_input, with_standard_input


def is_image_data(data: Data) -> bool:
    """Whether a recipe for classification speaks of images."""
    if data.generate == "digits":
        return True
    first = data.train[0] if isinstance(data.train, list) else data.train
    if not isinstance(first, str):
        return False
    path = find_data(first, data.root)
    return path.is_dir() or path.suffix == ".npz" or "idx" in path.name


def picture_material(recipe: Recipe, n_tokens: Callable[[int], int]) -> Material:
    """The images of a recipe; shares that are held out are drawn by chance."""
    data, parts = recipe.data, split_images(recipe)
    train = parts["train"]
    pixels = Normalization.of(train)
    augment = None
    if data.augment is not None:
        augment = Augmentation(data.augment.shift, data.augment.flip, data.augment.crop)
    side = augment.crop if augment and augment.crop else train.pixels.shape[1]
    if side != train.pixels.shape[2] and not (augment and augment.crop):
        raise InputError(
            f"the images are {train.pixels.shape[1]} × {train.pixels.shape[2]} pixels; models read "
            "squares: set data.size, or data.augment.crop."
        )
    makers = {
        part: Pictures(
            images,
            pixels,
            n_tokens=n_tokens(side),
            augmentation=augment if part == "train" else None,
            side=side,
            seed=recipe.training.seed,
        )
        for part, images in parts.items()
    }
    shape = (side, train.pixels.shape[-1])
    return Material(makers, classes=train.classes, pixels=pixels, image_shape=shape)


def split_images(recipe: Recipe) -> dict[str, Images]:
    """The images of each part: "train", and "validation" and "test" where there are such.

    Classes have the numbers that they have in training, whichever of them the other parts hold.
    """
    train = _read_images(recipe, "train")
    parts = {"train": _named(train, recipe.data)}
    for part in ("validation", "test"):
        given = getattr(recipe.data, part)
        if given is not None and not isinstance(given, float):
            parts[part] = _named(_read_images(recipe, part, train.classes), recipe.data)
    for number, part in enumerate(("validation", "test")):
        given = getattr(recipe.data, part)
        if isinstance(given, float) and given:
            chance = uniform_draws(number, 0, np.arange(len(parts["train"])), 1)[:, 0]
            parts[part] = _some(parts["train"], chance < given)
            parts["train"] = _some(parts["train"], chance >= given)
            if not len(parts[part]):
                raise too_little(part, given)
    if not len(parts["train"]):
        raise InputError("data.validation and data.test hold out all there is.")
    return parts


def _read_images(recipe: Recipe, part: str, classes: tuple[str, ...] | None = None) -> Images:
    data = recipe.data
    if data.generate == "digits" and part == "train":
        return _digits()
    given = getattr(data, part)
    if not isinstance(given, str):
        raise InputError(f"data.{part} must name one folder or file of images.")
    path = find_data(given, data.root)
    return read_images(path, size=data.size, split=part, classes=classes)


def _named(images: Images, data: Data) -> Images:
    """The images with the recipe's names of classes: for their numbers, or as their new order."""
    given, found = data.classes, images.classes
    if given is None:
        return images
    where = data.train or data.generate
    if len(given) != len(found):
        raise InputError(
            f"data.classes names {len(given)} classes, and {where} has {len(found)}: name each of "
            "them."
        )
    if found == tuple(str(number) for number in range(len(found))):
        return replace(images, classes=tuple(given))
    return reorder_classes(images, given, str(where))


def _digits() -> Images:
    """Handwritten digits of 8 × 8 pixels, which come with scikit-learn."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError(
            "the digits come with scikit-learn, which is not installed: pip install scikit-learn."
        ) from error
    found: Any = load_digits()
    pixels = np.minimum(np.round(found.images * 16), 255).astype(np.uint8)
    names = tuple(str(number) for number in range(10))
    return Images(pixels[..., None], found.target.astype(np.int64), names)


def _some(images: Images, chosen: np.ndarray) -> Images:
    return Images(images.pixels[chosen], images.labels[chosen], images.classes)


Say = Callable[[str], None]


def prepare(
    recipe: Recipe,
    folder: Path,
    *,
    tokenizers: tuple[Tokenizer | None, Tokenizer | None] = (None, None),
    n_tokens: Callable[[int], int] = lambda side: 1,
    say: Say = lambda text: None,
    progress: Progress | None = None,
) -> Material:
    """The material of a recipe; what takes time is kept in `folder` and found there again.

    Args:
        tokenizers: those of a model that is trained further, for source and target.
        n_tokens: how many tokens a model makes of an image, from its side.
        say: told what was read and made.
        progress: told how many lines were read so far; without it all is quiet meanwhile.
    """
    if recipe.data.validation == 0 and recipe.data.generate != "dates":
        raise too_little("validation", 0.0)
    keep_standard_input(recipe, folder)
    recipe = with_standard_input(recipe, folder)
    if recipe.task == "classification" and is_image_data(recipe.data):
        return picture_material(recipe, n_tokens)
    sources = Sources(recipe)
    first, second = tokenizers
    if first is None:
        first, second = _tokenizers(recipe, sources, folder, say, bars=progress is not None)
    if recipe.task == "translation":
        first, second = (
            (with_start_and_end(first), None)
            if second is None
            else (first, with_start_and_end(second))
        )
    cache = Path(recipe.data.cache or folder / "cache")
    if recipe.task == "language":
        return _running_text(recipe, sources, first, cache, say, progress)
    both = [first, second or first] if recipe.task == "translation" else [first]
    corpora = _corpora(recipe, sources, both, cache, say, progress)
    makers = {part: _maker(recipe, part, corpus, both) for part, corpus in corpora.items()}
    return Material(makers, first, second, classes=corpora["train"].classes)


def _corpora(
    recipe: Recipe,
    sources: Sources,
    tokenizers: list[Tokenizer],
    cache: Path,
    say: Say,
    progress: Progress | None,
) -> dict[str, Corpus]:
    """The tokenized texts of every part that there is."""
    corpora: dict[str, Corpus] = {}
    for part in ("train", "validation", "test"):
        rows = sources.rows(part) if _is_there(recipe, part) else None
        if rows is not None:
            classes = corpora["train"].classes if corpora else None
            with _emptiness_told(recipe, part):
                corpora[part] = build_corpus(
                    rows,
                    tokenizers,
                    cache=cache,
                    checks=sources.checks,
                    classes=classes,
                    progress=progress,
                )
            for line in report_lines(corpora[part].report, corpora[part].ledger):
                say(f"{part}: {line.strip()}")
    return corpora


def _is_there(recipe: Recipe, part: str) -> bool:
    """Whether the recipe has such a part; a share of 0 is none."""
    return recipe.data.generate == "dates" or getattr(recipe.data, part) not in (None, 0.0)


@contextmanager
def _emptiness_told(recipe: Recipe, part: str) -> Iterator[None]:
    """Say which part it is that has no example in it."""
    try:
        yield
    except NoExampleError as error:
        given = getattr(recipe.data, part)
        if isinstance(given, float):
            raise too_little(part, given) from error
        raise InputError(f"data.{part}: {error}") from error


def _maker(recipe: Recipe, part: str, corpus: Corpus, tokenizers: list[Tokenizer]) -> Any:
    pads = [one.pad_id or 0 for one in tokenizers]
    if recipe.task == "translation":
        split = recipe.tokenizer.split if part == "train" else 0.0
        return Pairs(
            corpus,
            source_pad=pads[0],
            target_pad=pads[1],
            splittings=[MergeDropout.of(one, share=split) for one in tokenizers] if split else [],
            seed=recipe.training.seed,
        )
    if recipe.task == "classification":
        return LabeledTexts(corpus, pad_id=pads[0])
    masking = Masking.of(tokenizers[0], share=recipe.data.hidden)
    return HiddenTokens(corpus, masking, pad_id=pads[0], seed=recipe.training.seed)


def _tokenizers(
    recipe: Recipe, sources: Sources, folder: Path, say: Say, *, bars: bool
) -> tuple[Tokenizer, Tokenizer | None]:
    """The tokenizers that the recipe names, or those learned from its text, kept in the folder."""
    settings = recipe.tokenizer
    if settings.load is not None:
        first = Tokenizer.load(find_data(settings.load, recipe.data.root))
        other = settings.load_target
        return first, None if other is None else Tokenizer.load(find_data(other, recipe.data.root))
    apart = recipe.task == "translation" and not settings.joint
    fields = {"tokenizer.json": [0], "tokenizer.target.json": [1]}
    if not apart:
        text = [1] if recipe.task == "classification" else None
        fields = {"tokenizer.json": text}
    made = []
    for name, which in fields.items():
        if not (folder / name).is_file():
            learned = train_tokenizer(
                sources.texts("train", fields=which),
                kind=settings.kind,
                vocab_size=settings.size,
                normalization=None if settings.normalization == "none" else settings.normalization,
                lowercase=settings.lowercase,
                min_frequency=settings.min_frequency,
                progress=bars,
            )
            learned.save(folder / name)
            say(f"learned a vocabulary of {len(learned):,} entries ({settings.kind})")
        made.append(Tokenizer.load(folder / name))
    return made[0], made[1] if apart else None


def _running_text(
    recipe: Recipe,
    sources: Sources,
    tokenizer: Tokenizer,
    cache: Path,
    say: Say,
    progress: Progress | None,
) -> Material:
    """Windows of running text; shares that are held out are taken from its end."""
    data = recipe.data

    def ids_of(rows: Rows) -> np.ndarray:
        checks = sources.checks
        stream = build_stream(rows, tokenizer, cache=cache, checks=checks, progress=progress)
        for line in report_lines(stream.report, stream.ledger):
            say(line.strip())
        return stream.ids

    left, streams = ids_of(sources.whole()), {}
    total = len(left)
    for part in filter(partial(_is_there, recipe), ("test", "validation")):
        given = getattr(data, part)
        if isinstance(given, float):
            cut = len(left) - round(given * total)
            left, streams[part] = left[:cut], left[cut:]
        else:
            rows = sources.rows(part)
            assert rows is not None
            streams[part] = ids_of(rows)
    streams["train"] = left
    for part, ids in streams.items():
        _check_told(recipe, part, len(ids))
    makers = {
        part: Windows(ids, length=data.window, seed=recipe.training.seed, shift=part == "train")
        for part, ids in streams.items()
    }
    say(f"{len(left):,} tokens to learn from")
    return Material(makers, tokenizer)


def _check_told(recipe: Recipe, part: str, n_tokens: int) -> None:
    """Refuse running text that has no token to be told from one before it."""
    if n_tokens >= 2:
        return
    given = getattr(recipe.data, part)
    if isinstance(given, float):
        raise too_little(part, given)
    raise InputError(
        f"data.{part} has {n_tokens} tokens, and 2 or more are needed to tell one from another: "
        "give more text, or hold out less."
    )
