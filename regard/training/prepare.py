"""From a recipe to its material: tokenizers are learnt, texts cut into tokens, images read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.corpus import Corpus, build_corpus
from regard.data.language import Masking
from regard.data.rows import Rows
from regard.data.stream import build_stream
from regard.text.tokenizer import Tokenizer
from regard.text.train import train_tokenizer
from regard.training.examples import HiddenTokens, LabelledTexts, Pairs, Windows
from regard.training.material import Material
from regard.training.pictures import is_image_data, picture_material
from regard.training.recipe import Recipe
from regard.training.sources import Sources, find_data

Say = Callable[[str], None]


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
        return picture_material(recipe, n_tokens)
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
    """Windows of running text; shares that are held out are taken from its end."""
    data = recipe.data

    def ids_of(rows: Rows) -> np.ndarray:
        stream = build_stream(rows, tokenizer, cache=cache, checks=sources.checks)
        for line in stream.report.lines():
            say(line.strip())
        return stream.ids

    left, streams = ids_of(sources.whole()), {}
    total = len(left)
    for part in ("test", "validation"):
        given = getattr(data, part)
        if isinstance(given, float):
            cut = len(left) - round(given * total)
            left, streams[part] = left[:cut], left[cut:]
        elif given is not None:
            rows = sources.rows(part)
            assert rows is not None
            streams[part] = ids_of(rows)
    streams["train"] = left
    makers = {
        part: Windows(ids, length=data.window, seed=recipe.training.seed, shift=part == "train")
        for part, ids in streams.items()
    }
    say(f"{len(left):,} tokens to learn from")
    return Material(makers, tokenizer)
