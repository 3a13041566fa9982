"""What a recipe learns from, ready to be cut into batches: tokenizers, corpora, images."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.batches import Batches
from regard.data.chance import draws
from regard.data.corpus import Corpus, build_corpus
from regard.data.image_files import read_images
from regard.data.images import Augmentation, Images, Normalisation
from regard.data.language import Masking
from regard.data.stream import build_stream
from regard.errors import InputError, MissingExtraError
from regard.text.tokenizer import Tokenizer
from regard.text.train import train_tokenizer
from regard.training.batch import Batch
from regard.training.examples import HiddenTokens, LabelledTexts, Pairs, Pictures, Windows
from regard.training.feed import Feed, one_pass
from regard.training.recipe import Recipe
from regard.training.sources import Sources, find_data, is_image_data

Say = Callable[[str], None]


@dataclass(frozen=True)
class Material:
    """What a model learns from and is tested with."""

    parts: dict[str, Any]
    """From example numbers to a batch, for "train", "validation" and perhaps "test"."""
    tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None
    classes: tuple[str, ...] | None = None
    pixels: Normalisation | None = None
    image_shape: tuple[int, int] | None = None
    """Side and channels of the images."""

    def feed(self, *, batch_tokens: int, accumulate: int, seed: int) -> Feed:
        """The batches of training, epoch after epoch."""
        make = self.parts["train"]
        numbers = Batches(make.lengths, tokens=batch_tokens, seed=seed)
        return Feed(numbers, make, accumulate=accumulate)

    def once(self, part: str, *, batch_tokens: int, rank: int, ranks: int) -> Iterator[Batch]:
        """Every example of a part once."""
        make = self.parts[part]
        longest = max(int(side.max()) for side in make.lengths)
        tokens = max(batch_tokens, longest)
        numbers = Batches(make.lengths, tokens=tokens, shuffle=False)
        return one_pass(numbers, make, rank=rank, ranks=ranks)


def prepare(
    recipe: Recipe,
    folder: Path,
    *,
    tokenizers: tuple[Tokenizer | None, Tokenizer | None] = (None, None),
    n_tokens: Callable[[int], int] = lambda side: 1,
    say: Say = lambda text: None,
) -> Material:
    """The material of a recipe; what takes time is kept in `folder` and found there again.

    Args:
        tokenizers: those of a model that is trained further, for source and target.
        n_tokens: how many tokens a model makes of an image, from its side.
        say: told what was read and made.
    """
    if recipe.task == "classification" and is_image_data(recipe.data):
        return _images(recipe, n_tokens)
    sources = Sources(recipe)
    first, second = tokenizers
    if first is None:
        first, second = _tokenizers(recipe, sources, folder, say)
    cache = Path(recipe.data.cache or folder / "cache")
    if recipe.task == "language":
        return _running_text(recipe, sources, first, cache, say)
    both = [first, second or first] if recipe.task == "translation" else [first]
    corpora: dict[str, Corpus] = {}
    for part in ("train", "validation", "test"):
        rows = sources.rows(part)
        if rows is not None:
            classes = corpora["train"].classes if corpora else None
            corpora[part] = build_corpus(
                rows, both, cache=cache, checks=sources.checks, classes=classes
            )
            for line in corpora[part].report.lines():
                say(f"{part}: {line.strip()}")
    makers = {part: _maker(recipe, corpus, both) for part, corpus in corpora.items()}
    return Material(makers, first, second, classes=corpora["train"].classes)


def _maker(recipe: Recipe, corpus: Corpus, tokenizers: list[Tokenizer]) -> Any:
    pads = [one.pad_id or 0 for one in tokenizers]
    if recipe.task == "translation":
        return Pairs(corpus, source_pad=pads[0], target_pad=pads[1])
    if recipe.task == "classification":
        return LabelledTexts(corpus, pad_id=pads[0])
    masking = Masking.of(tokenizers[0], share=recipe.data.hidden)
    return HiddenTokens(corpus, masking, pad_id=pads[0], seed=recipe.training.seed)


def _tokenizers(
    recipe: Recipe, sources: Sources, folder: Path, say: Say
) -> tuple[Tokenizer, Tokenizer | None]:
    """The tokenizers that the recipe names, or those learnt from its text, kept in the folder."""
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
            learnt = train_tokenizer(
                sources.texts("train", fields=which),
                kind=settings.kind,
                vocab_size=settings.size,
                normalisation=None if settings.normalisation == "none" else settings.normalisation,
                lowercase=settings.lowercase,
                min_frequency=settings.min_frequency,
            )
            learnt.save(folder / name)
            say(f"learnt a vocabulary of {len(learnt):,} entries ({settings.kind})")
        made.append(Tokenizer.load(folder / name))
    return made[0], made[1] if apart else None


def _running_text(
    recipe: Recipe, sources: Sources, tokenizer: Tokenizer, cache: Path, say: Say
) -> Material:
    """Windows of running text; a share that is held out is taken from the end."""
    streams: dict[str, np.ndarray] = {}
    data, held = recipe.data, 0.0
    for part in ("test", "validation"):
        given = getattr(data, part)
        if isinstance(given, float):
            streams[part], held = np.array([held, held + given]), held + given
    whole_recipe = recipe.model_copy(
        update={"data": data.model_copy(update={"validation": 0.0, "test": None})}
    )
    rows = Sources(whole_recipe).rows("train")
    assert rows is not None
    stream = build_stream(rows, tokenizer, cache=cache, checks=sources.checks)
    for line in stream.report.lines():
        say(line.strip())
    total = len(stream.ids)
    streams = {
        part: stream.ids[round((1 - last) * total) : round((1 - first) * total)]
        for part, (first, last) in streams.items()
    }
    streams["train"] = stream.ids[: round((1 - held) * total)]
    for part in ("test", "validation"):
        if part not in streams and getattr(data, part) is not None:
            other = sources.rows(part)
            assert other is not None
            streams[part] = build_stream(other, tokenizer, cache=cache, checks=sources.checks).ids
    makers = {
        part: Windows(ids, length=data.window, seed=recipe.training.seed, shift=part == "train")
        for part, ids in streams.items()
    }
    say(f"{len(streams['train']):,} tokens to learn from")
    return Material(makers, tokenizer)


def _images(recipe: Recipe, n_tokens: Callable[[int], int]) -> Material:
    data = recipe.data
    parts = {"train": _read_images(recipe, "train")}
    for part in ("validation", "test"):
        given = getattr(data, part)
        if given is not None and not isinstance(given, float):
            parts[part] = _read_images(recipe, part)
    for number, part in enumerate(("validation", "test")):
        given = getattr(data, part)
        if isinstance(given, float) and given:
            chance = draws(number, 0, np.arange(len(parts["train"])), 1)[:, 0]
            parts[part] = _some(parts["train"], chance < given)
            parts["train"] = _some(parts["train"], chance >= given)
    train = parts["train"]
    pixels = Normalisation.of(train)
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


def _read_images(recipe: Recipe, part: str) -> Images:
    data = recipe.data
    if data.generate == "digits":
        return _digits()
    given = getattr(data, part)
    if not isinstance(given, str):
        raise InputError(f"data.{part} must name one folder or file of images.")
    return read_images(find_data(given, data.root), size=data.size, split=part)


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
