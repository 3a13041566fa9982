"""Where what was made once is kept between two runs."""

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from regard.errors import FileError, RegardError, UnknownNameError, nearest
from regard.files import usual_rights, write_whole
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_files import read_backend

FORMAT = 2
"""The number of the layout described here; folders of earlier ones are brought up to it."""
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "card.md"
TOKENIZER, TARGET_TOKENIZER = "tokenizer.json", "tokenizer.target.json"
_OURS = (WEIGHTS, CONFIG, CARD, TOKENIZER, TARGET_TOKENIZER)
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
TASKS = ("translation", "language", "masked", "classification", "embedding")


@dataclass(frozen=True, kw_only=True)
class Card:
    """What people should know about a model before they use it."""

    data: str = ""
    """What it was trained on, and whom to credit for that."""
    license: str = ""
    score: str = ""
    size: str = ""
    date: str = ""
    text: str = ""
    """Everything else, in Markdown."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Lines that somebody has added to those above."""

    def filled(self, *, size: str) -> "Card":
        """The card of a model of this size, with today's date if it has none."""
        return replace(self, size=size, date=self.date or datetime.now(UTC).date().isoformat())

    def facts(self) -> dict[str, str]:
        """The lines at the top: what is known, by name."""
        known = {name: getattr(self, name) for name in _FACTS}
        return {name: " ".join(fact.split()) for name, fact in (known | dict(self.others)).items()}

    def __str__(self) -> str:
        lines = [f"{name}: {fact}".rstrip() for name, fact in self.facts().items()]
        text = f"\n{self.text.strip()}\n" if self.text.strip() else ""
        return "\n".join([_FENCE, *lines, _FENCE, text])


@dataclass(frozen=True, kw_only=True)
class Description:
    """The contents of config.json."""

    family: str
    model: Mapping[str, Any]
    """The settings of the model's configuration."""
    task: str
    tokenizer: Mapping[str, str] | None = None
    """The special token of each role; None where the model reads no text."""
    target_tokenizer: Mapping[str, str] | None = None
    labels: tuple[str, ...] | None = None
    """The names of the classes."""
    pixels: Mapping[str, Any] | None = None
    """How the pixels of images are scaled: "mean" and "deviation" of each channel."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else somebody wants to know again."""

    def to_json(self) -> str:
        """The text of config.json."""
        parts = {"format": FORMAT, **asdict(self)}
        return json.dumps(parts, indent=1, ensure_ascii=False) + "\n"


def read_description(folder: Path) -> Description:
    """What config.json says, brought up from an earlier format if need be."""
    file = folder / CONFIG
    config = upgraded(_read_config(file), file)
    for name in ("family", "model", "task"):
        if name not in config:
            raise FileError(f"{file} does not say {name!r}: {_AGAIN}.")
    if config["task"] not in TASKS:
        raise UnknownNameError(
            f"{file} names the task {config['task']!r}; {nearest(str(config['task']), TASKS)}."
        )
    if not isinstance(config["model"], dict):
        raise FileError(f"the settings of the model in {file} are no JSON object: {_AGAIN}.")
    known = {name: config[name] for name in Description.__dataclass_fields__ if name in config}
    labels = known.get("labels")
    return Description(**{**known, "labels": None if labels is None else tuple(labels)})


_AGAIN = "fetch the folder again, or save the model again"


def _read_config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise FileError(
            f"{file.parent} holds no {CONFIG}, so it is no model folder: name one that "
            "`regard train` or `regard import` has written."
        )
    try:
        config = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise FileError(f"{file} is damaged or cut off ({error}): {_AGAIN}.") from error
    except OSError as error:
        raise FileError(f"{file} cannot be read: {error.strerror}.") from error
    if not isinstance(config, dict):
        raise FileError(f"{file} holds no JSON object: {_AGAIN}.")
    if "format" not in config and ("model_type" in config or "architectures" in config):
        raise FileError(
            f"{file.parent} is a Hugging Face folder: make a model folder of it with "
            f"`regard import {file.parent} -o FOLDER`."
        )
    return config


def _with_task(config: dict[str, Any]) -> dict[str, Any]:
    """Format 0 did not say what a model is for: its family and heads tell."""
    tasks = {"transformer": "translation", "seq2seq": "translation", "decoder": "language"}
    model, family = config.get("model", {}), config.get("family")
    task = tasks.get(family or "", "embedding")
    if model.get("n_classes"):
        task = "classification"
    elif family == "encoder" and model.get("fill_head", True):
        task = "masked"
    reads_text = None if family == "vision" else {}
    return {"task": task, "tokenizer": reads_text, **config}


def _with_us_spelling(config: dict[str, Any]) -> dict[str, Any]:
    """Format 2 spells its settings as torch does."""
    model = config.get("model")
    if isinstance(model, dict) and "initialisation" in model:
        model = {
            ("initialization" if name == "initialisation" else name): value
            for name, value in model.items()
        }
    return {**config, "model": model}


_MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    0: _with_task,
    1: _with_us_spelling,
}
"""How the config.json of each format becomes one of the next."""


def upgraded(config: dict[str, Any], file: Path) -> dict[str, Any]:
    """The same in today's format."""
    number = config.get("format", 0)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise FileError(f"{file} has the format {number!r}, which is no number of one: {_AGAIN}.")
    if number > FORMAT:
        raise FileError(
            f"{file} has format {number}, and this version of regard reads formats up to "
            f"{FORMAT}: update regard."
        )
    for old in range(number, FORMAT):
        config = _MIGRATIONS[old](config)
    return {**config, "format": FORMAT}


def read_tokenizers(
    folder: Path, description: Description
) -> tuple[Tokenizer | None, Tokenizer | None]:
    """The tokenizer of the model, and that of its target where it has one of its own."""
    return (
        _read_tokenizer(folder / TOKENIZER, description.tokenizer),
        _read_tokenizer(folder / TARGET_TOKENIZER, description.target_tokenizer),
    )


def _read_tokenizer(file: Path, roles: Mapping[str, str] | None) -> Tokenizer | None:
    if roles is None:
        return None
    if not file.is_file():
        raise FileError(f"{file} is not there, but {CONFIG} speaks of it: {_AGAIN}.")
    try:
        return Tokenizer(read_backend(file), roles=roles)
    except RegardError as error:
        text = str(error).rstrip(".")
        raise FileError(f"the tokenizer {file} cannot be used ({text}): {_AGAIN}.") from error


def read_card_of(folder: Path) -> Card:
    """The card in a folder; an empty one if it has none."""
    file = folder / CARD
    try:
        return read_card(file.read_text("utf-8")) if file.is_file() else Card()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(
            f"{file} cannot be read as text ({error}): mend it or remove it."
        ) from error


def write_tokenizer(file: Path, tokenizer: Tokenizer) -> None:
    """Write how text is cut; the roles of special tokens stand in config.json."""
    write_whole(file, tokenizer.backend.to_str(pretty=True))


def weights_file(folder: Path) -> Path:
    """The file of weights, or a sentence why there is none to be read."""
    file = folder / WEIGHTS
    if file.is_file():
        return file
    pickled = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLED)
    if pickled:
        raise FileError(
            f"{folder} has its weights in {pickled[0]}, a pickle, which can run any code when it "
            f"is opened, so regard never does: ask for {WEIGHTS} instead."
        )
    raise FileError(f"{file} is not there: {_AGAIN}.")


@contextmanager
def replaced_folder(folder: str | Path, *, names: Collection[str] = _OURS) -> Iterator[Path]:
    """An empty folder that takes the place of `folder` when the block ends without an error.

    At every moment, whatever crashes, one of the two is there whole: under its name, or, between
    two renamings, beside it, where `existing` finds it.

    Args:
        names: the files and folders that belong to what is written; all others stay.
    """
    final = Path(folder).expanduser().resolve()
    fresh, old = (final.with_name(f".{final.name}.{end}") for end in ("new", "old"))
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        _tidy(final, old, names)
        shutil.rmtree(fresh, ignore_errors=True)  # left by a save that was killed
        fresh.mkdir()
    except OSError as error:
        raise FileError(f"{final} cannot be written: {error.strerror}.") from error
    try:
        yield fresh
        for file in fresh.rglob("*"):
            if file.is_file():  # safetensors lets nobody else read what it writes
                file.chmod(usual_rights())
        _flush(fresh)
        if final.exists():
            final.rename(old)
        fresh.rename(final)
        _tidy(final, old, names)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{final} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _tidy(final: Path, old: Path, names: Collection[str]) -> None:
    """End what a save has begun: the old folder's own files go, all others move along."""
    if not old.exists():
        return
    if not final.exists():
        old.rename(final)
        return
    for path in list(old.iterdir()):
        if path.name not in names and not (final / path.name).exists():
            path.rename(final / path.name)
    shutil.rmtree(old)


def _flush(folder: Path) -> None:
    """Wait until the files are on the disk, so that a renamed folder is never an empty one."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def existing(folder: str | Path) -> Path | None:
    """The folder itself, or the one that a save which was interrupted has put aside."""
    path = Path(folder).expanduser()
    if path.is_dir():
        return path
    aside = path.with_name(f".{path.name}.old") if path.name else path
    return aside if aside.is_dir() else None


_FENCE = "---"


_FACTS = tuple(f.name for f in fields(Card) if f.name not in ("text", "others"))


def read_card(text: str) -> Card:
    """The card that `str(card)` wrote, or one of mere text."""
    head, lines = {}, text.strip().splitlines()
    if lines[:1] == [_FENCE] and _FENCE in lines[1:]:
        end = lines.index(_FENCE, 1)
        parts = (line.partition(":") for line in lines[1:end])
        head = {name.strip(): fact.strip() for name, colon, fact in parts if colon}
        if "licence" in head:  # as version 0.1 spelled it
            head.setdefault("license", head.pop("licence"))
        lines = lines[end + 1 :]
    facts = {name: head.pop(name) for name in _FACTS if name in head}
    return Card(**facts, others=head, text="\n".join(lines).strip())


def cache_folder() -> Path:
    """Where converted models are kept: $REGARD_CACHE, or the user's cache directory."""
    if given := os.environ.get("REGARD_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"
