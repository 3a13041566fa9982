"""Sequence-level distillation (Kim and Rush 2016): a student learns a teacher's translations."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.data.readers import plain_text
from regard.errors import InputError
from regard.evaluation.alignment import learn_shortlist
from regard.evaluation.scores import score_texts
from regard.generation.bulk import OutputFile
from regard.generation.search import SearchOptions
from regard.generation.translator import open_translator
from regard.model_folder import read_card, read_description, read_tokenizers
from regard.training.callbacks import CallbackList
from regard.training.data_sources import TextSources
from regard.training.recipe import load_recipe
from regard.training.run import TrainingResult, train
from regard.training.run_folder import TRAINING

DISTILLED = "distilled.tsv"
_WINDOW = 2048  # sentences between two writes
_SEPARATORS = str.maketrans("\t\n\r", "   ")


@dataclass(frozen=True)
class DistillResult:
    """The outcome of `distill`."""

    training: TrainingResult
    pairs: Path
    """Sources and the teacher's translations, in the run's folder."""
    shortlist_bleu: tuple[float, float] | None
    """BLEU against the teacher's translations of validation sentences, with all target tokens and
    with the shortlist; None if the run was stopped."""


def distill(
    teacher: Path,
    data: Sequence[str | Path],
    folder: str | Path,
    *,
    ensemble: Sequence[Path] = (),
    resume: bool = False,
    minutes: float | None = None,
    callbacks: Sequence[Any] = (),
    overrides: Mapping[str, Any] | None = None,
) -> DistillResult:
    """Train a student on the teacher's translations and learn its vocabulary shortlist.

    The student starts from the teacher's weights with one decoder layer, because the decoder takes
    most of the time of a translation.

    Args:
        teacher: folder of a Transformer for translation.
        data: files with sources: lines of text, or the first column of a .tsv.
        folder: model folder of the student.
        ensemble: further models that translate together with the teacher.
        resume: continue the translation and the training in the folder.
        overrides: recipe values by key, such as {"model.n_decoder_layers": 2}.
    """
    _check(teacher)
    folder = Path(folder)
    pairs = (folder / TRAINING / DISTILLED).absolute()
    listening = CallbackList(callbacks)
    written = _translate(teacher, data, pairs, ensemble=ensemble, resume=resume)
    listening.on_message(f"{pairs}: {written:,} sentences translated by {teacher.name}")
    recipe = load_recipe(student_recipe(teacher, pairs), overrides)
    result = train(recipe, folder, resume=resume, minutes=minutes, callbacks=callbacks)
    if result.stopped_because == "stopped":
        return DistillResult(result, pairs, None)
    held_out = TextSources(recipe).examples("validation", recipe.evaluate.sentences)
    return DistillResult(result, pairs, _add_shortlist(folder, pairs, held_out))


def student_recipe(teacher: Path, pairs: Path) -> dict[str, Any]:
    """Return the recipe of a student with one decoder layer."""
    card = read_card(teacher).facts()
    return {
        "task": "translation",
        "about": f"Translations by {teacher.name}. Its data: {card.get('data') or 'not stated'}",
        "license": card.get("license", ""),
        "data": {"train": str(pairs), "validation": 0.01, "checks": {"duplicate": "drop"}},
        "model": {"start_from": str(teacher.absolute()), "n_decoder_layers": 1},
        "training": {
            "optimizer": "muon",
            "lr": 0.002,
            "schedule": "linear",
            "warmup": 200,
            "epochs": 3,
            "ema": 0.998,
        },
        "evaluate": {"beam": 4},
    }


def _check(teacher: Path) -> None:
    described = read_description(teacher)
    if (described.task, described.family) != ("translation", "transformer"):
        raise InputError(
            f"{teacher} is a {described.family} for {described.task}: give a Transformer for "
            "translation as the teacher."
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(
            "a teacher translates in one process: run `regard distill` without torchrun, stop it "
            "when training starts, and give its distilled.tsv to `regard train`."
        )


def _translate(
    teacher: Path,
    data: Sequence[str | Path],
    pairs: Path,
    *,
    ensemble: Sequence[Path],
    resume: bool,
) -> int:
    """Translate all sources, or those that an earlier run left; return the number of pairs."""
    settings = {
        "teacher": [str(one) for one in (teacher, *ensemble)],
        "data": [str(file) for file in data],
    }
    output = OutputFile(pairs, settings)
    if pairs.exists() and not resume:
        raise InputError(f"{pairs} exists: continue with --resume, or choose another folder.")
    progress = output.progress()
    sources, written = islice(_sources(data), progress.records, None), progress.records
    translator = None
    with output.open_from(progress):
        while window := list(islice(sources, _WINDOW)):
            translator = translator or open_translator(teacher, ensemble=ensemble)
            found = translator.translate(window, SearchOptions())
            output.write("".join(map(_row, window, (one.text for one in found))))
            written += len(window)
    if not written:
        raise InputError(f"{', '.join(map(str, data))}: no sentence to translate: give other data.")
    return written


def _sources(data: Sequence[str | Path]) -> Iterator[str]:
    for row in plain_text(*data, key="source"):
        text = (row.fields[0] or b"").decode(errors="replace").strip()
        if text and not row.fault:
            yield text


def _row(source: str, target: str) -> str:
    return "\t".join(text.translate(_SEPARATORS) for text in (source, target)) + "\n"


def _add_shortlist(
    folder: Path, pairs: Path, held_out: Sequence[Sequence[str]]
) -> tuple[float, float]:
    """Learn the student's shortlist; return BLEU without and with it."""
    source, separate = read_tokenizers(folder, read_description(folder))
    assert source is not None
    target = separate or source
    with pairs.open(encoding="utf-8") as lines:
        learned = learn_shortlist(
            ((a, b) for a, b in (line.rstrip("\n").split("\t") for line in lines)), source, target
        )
    learned.save(folder, source, target)
    texts, references = [one[0] for one in held_out], [one[1] for one in held_out]
    scores = []
    for shortlist in (False, True):
        found = open_translator(folder, shortlist=shortlist).translate(texts, SearchOptions())
        scores.append(score_texts([one.text for one in found], references)["bleu"])
    return scores[0], scores[1]
