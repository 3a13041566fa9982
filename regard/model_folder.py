"""Model folders on disk: config.json, weights, tokenizers and the model card."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from regard.errors import FileError, InputError, RegardError, check_choice, translate
from regard.files import write_atomic
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_files import read_backend, read_json

FORMAT = 2  # the number of the layout described here; older formats are migrated when they are read
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "card.md"
TOKENIZER, TARGET_TOKENIZER = "tokenizer.json", "tokenizer.target.json"
EXAMPLES = "examples"
"""Subfolder for images to try, and key of the texts to try in `extras`."""
MODEL_FILES = (WEIGHTS, CONFIG, CARD, TOKENIZER, TARGET_TOKENIZER)
TASKS = ("translation", "language", "masked", "classification", "embedding")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_AGAIN = "download the folder again, or save the model again"
_FENCE = "---"


@dataclass(frozen=True, kw_only=True)
class Card:
    """Facts about a model that people should know before they use it."""

    data: str = ""  # the training data, with attribution
    license: str = ""
    score: str = ""
    size: str = ""
    date: str = ""
    text: str = ""  # everything else, in Markdown
    others: Mapping[str, str] = field(default_factory=dict)  # further facts, by name

    def filled(self, *, size: str) -> "Card":
        """Return the card with this size, and with today's date if it has none."""
        return replace(self, size=size, date=self.date or datetime.now(UTC).date().isoformat())

    def facts(self) -> dict[str, str]:
        """Return the facts in the header, by name."""
        known = {name: getattr(self, name) for name in _FACTS}
        return {name: " ".join(fact.split()) for name, fact in (known | dict(self.others)).items()}

    def __str__(self) -> str:
        lines = [f"{name}: {fact}".rstrip() for name, fact in self.facts().items()]
        text = f"\n{self.text.strip()}\n" if self.text.strip() else ""
        return "\n".join([_FENCE, *lines, _FENCE, text])


_FACTS = tuple(f.name for f in fields(Card) if f.name not in ("text", "others"))


def parse_card(text: str) -> Card:
    """Parse the output of `str(card)`, or Markdown without a header."""
    head, lines = {}, text.strip().splitlines()
    if lines[:1] == [_FENCE] and _FENCE in lines[1:]:
        end = lines.index(_FENCE, 1)
        parts = (line.partition(":") for line in lines[1:end])
        head = {name.strip(): fact.strip() for name, colon, fact in parts if colon}
        if "licence" in head:  # the spelling of version 0.1
            head.setdefault("license", head.pop("licence"))
        lines = lines[end + 1 :]
    facts = {name: head.pop(name) for name in _FACTS if name in head}
    return Card(**facts, others=head, text="\n".join(lines).strip())


def translated_paragraph(text: str, language: str | None = None) -> str:
    """Return a paragraph of a card in a language; of a table, its heads and its "yes"."""
    if text.startswith("|"):
        head, *rows = text.splitlines()
        cells = [translate(cell.strip(), language) for cell in head.strip("|").split("|")]
        yes = f"| {translate('yes', language)} |"
        return "\n".join(
            [f"| {' | '.join(cells)} |", *(row.replace("| yes |", yes) for row in rows)]
        )
    joined = " ".join(text.split())
    found = translate(joined, language)
    return text if found == joined else found


def read_card(folder: Path) -> Card:
    """Read the card of a model folder; an empty one if the folder has none."""
    file = folder / CARD
    try:
        return parse_card(file.read_text("utf-8")) if file.is_file() else Card()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{file} cannot be read as text ({error}): fix or remove it.") from error


@dataclass(frozen=True, kw_only=True)
class Description:
    """The contents of config.json."""

    family: str
    model: Mapping[str, Any]  # the fields of the family's config class
    task: str
    tokenizer: Mapping[str, str] | None = None
    """The special token of each role; None for a model that reads no text."""
    target_tokenizer: Mapping[str, str] | None = None
    labels: tuple[str, ...] | None = None  # the names of the classes
    pixels: Mapping[str, Any] | None = None
    """Normalization of images: "mean" and "deviation" of each channel."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Further values that are stored and returned unchanged, such as the recipe."""

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"


def read_description(folder: Path) -> Description:
    """Read config.json, migrated from an older format if necessary."""
    file = folder / CONFIG
    config = migrate(_read_config(file), file)
    for name in ("family", "model", "task"):
        if name not in config:
            raise FileError(f"{file} has no {name!r}: {_AGAIN}.")
    check_choice(f"the task in {file}", config["task"], TASKS)
    known = {name: config[name] for name in Description.__dataclass_fields__ if name in config}
    for name, is_valid in _VALID.items():
        if name in known and not is_valid(known[name]):
            raise FileError(f"the value of {name!r} in {file} is damaged: {_AGAIN}.")
    labels = known.get("labels")
    return Description(**{**known, "labels": None if labels is None else tuple(labels)})


def _is_number(value: Any, least: float, most: float = 2**31) -> bool:
    return isinstance(value, int | float) and least <= value <= most


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _are_roles(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and _are_texts(list(value.values())))


def _are_extras(value: Any) -> bool:
    """Check the extras that regard reads; others may be anything."""
    if not isinstance(value, dict):
        return False
    counts = ("longest_source", "longest_text", "sentences")
    ratios = value.get("target_ratios")
    return (
        all(_is_number(value.get(name, 1), 1) for name in counts)
        and _is_number(value.get("copied_spans", 0), 0, 1)
        and _are_texts(value.get(EXAMPLES) or [])
        and (ratios is None or _are_ratios(ratios))
    )


def _are_ratios(value: Any) -> bool:
    pair = isinstance(value, list) and len(value) == 2
    return pair and all(_is_number(one, 0, 1e4) for one in value) and value[0] <= value[1]


_VALID: Mapping[str, Callable[[Any], bool]] = {
    "family": lambda value: isinstance(value, str),
    "model": lambda value: isinstance(value, dict),
    "tokenizer": _are_roles,
    "target_tokenizer": _are_roles,
    "labels": lambda value: value is None or _are_texts(value),
    "pixels": lambda value: value is None or isinstance(value, dict),
    "extras": _are_extras,
}
"""For each key of config.json, whether its value is of the right kind."""


def _read_config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise FileError(
            f"{file.parent} has no {CONFIG}, so it is not a model folder: give one that "
            "`regard train` or `regard import` wrote."
        )
    if is_transformers_folder(file.parent):
        raise FileError(
            f"{file.parent} is a Hugging Face folder: convert it with "
            f"`regard import {file.parent} -o FOLDER`."
        )
    return read_json(file)


def is_transformers_folder(folder: Path) -> bool:
    """Return True for a folder that the library transformers wrote, not regard."""
    file = folder / CONFIG
    config = read_json(file) if file.is_file() else {}
    return "format" not in config and ("model_type" in config or "architectures" in config)


def _add_task(config: dict[str, Any]) -> dict[str, Any]:
    """Format 0 has no task; derive it from the family and the heads."""
    tasks = {"transformer": "translation", "seq2seq": "translation", "decoder": "language"}
    model, family = config.get("model", {}), config.get("family")
    if not isinstance(model, dict) or not isinstance(family, str):
        return {"task": "embedding", **config}  # refused later
    task = tasks.get(family, "embedding")
    if model.get("n_classes"):
        task = "classification"
    elif family == "encoder" and model.get("fill_head", True):
        task = "masked"
    return {"task": task, "tokenizer": None if family == "vision" else {}, **config}


def _use_us_spelling(config: dict[str, Any]) -> dict[str, Any]:
    """Format 2 uses US spelling for the settings of the model."""
    model = config.get("model")
    if isinstance(model, dict) and "initialisation" in model:
        model["initialization"] = model.pop("initialisation")
    return config


_MIGRATIONS = (_add_task, _use_us_spelling)
"""For each old format, the function that converts its config.json to the next format."""


def migrate(config: dict[str, Any], file: Path) -> dict[str, Any]:
    """Convert the contents of a config.json to the current format."""
    number = config.get("format", 0)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise FileError(f"{file} has the format {number!r}, which is not a number: {_AGAIN}.")
    if number > FORMAT:
        raise FileError(
            f"{file} has format {number}, but this version of regard reads formats up to "
            f"{FORMAT}: update regard."
        )
    for convert in _MIGRATIONS[number:]:
        config = convert(config)
    return {**config, "format": FORMAT}


def read_tokenizers(
    folder: Path, description: Description
) -> tuple[Tokenizer | None, Tokenizer | None]:
    """Read the tokenizer of a model folder, and the target's if it has a separate one."""
    source = _read_tokenizer(folder / TOKENIZER, description.tokenizer)
    return source, _read_tokenizer(folder / TARGET_TOKENIZER, description.target_tokenizer)


def _read_tokenizer(file: Path, roles: Mapping[str, str] | None) -> Tokenizer | None:
    if roles is None:
        return None
    if not file.is_file():
        raise FileError(f"{file} does not exist, but {CONFIG} refers to it: {_AGAIN}.")
    try:
        return Tokenizer(read_backend(file), roles=roles)
    except RegardError as error:
        text = str(error).rstrip(".")
        raise FileError(f"the tokenizer {file} cannot be used ({text}): {_AGAIN}.") from error


@contextmanager
def blamed_on(path: Path) -> Iterator[None]:
    """Name the file or folder at fault in errors raised inside the block."""
    try:
        yield
    except RegardError as error:
        raise FileError(f"{path} cannot be used because {error} Save the model again.") from error


def check_vocabulary(tokenizer: Tokenizer | None, n_vocab: int | None) -> None:
    """Refuse a tokenizer with ids that a model of this many tokens does not have."""
    if tokenizer is not None and (n_vocab is None or len(tokenizer) > n_vocab):
        raise InputError(
            f"the tokenizer has {len(tokenizer):,} tokens, but the model was made for "
            f"{n_vocab or 0:,}: they do not belong together."
        )


def check_labels(labels: tuple[str, ...] | None, n_classes: int | None) -> None:
    """Refuse names of classes that are not one for each class."""
    if labels is not None and len(labels) != n_classes:
        raise InputError(
            f"there are {len(labels)} labels for a model of {n_classes} classes: give one label "
            "for each class."
        )


def write_tokenizer(file: Path, tokenizer: Tokenizer) -> None:
    """Write a tokenizer.json; the roles of its special tokens are stored in config.json."""
    write_atomic(file, tokenizer.backend.to_str(pretty=True))


def weights_file(folder: Path) -> Path:
    """Return the path of the weights; refuse folders that have none or only pickled ones."""
    file = folder / WEIGHTS
    if file.is_file():
        return file
    pickled = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLED)
    if pickled:
        raise FileError(
            f"{folder} has its weights in {pickled[0]}, a pickle, which can run arbitrary code, so "
            f"regard does not open it: get {WEIGHTS} instead."
        )
    raise FileError(f"{file} does not exist: {_AGAIN}.")
