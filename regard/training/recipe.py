"""Recipes: TOML files that describe a training run; docs/recipes.md explains every key."""

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from regard.errors import FileError, InputError, UnknownNameError, nearest
from regard.files import STANDARD_INPUT

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
"""The bundled recipes."""
RENAMED_KEYS = {
    "licence": "license",
    "tokeniser": "tokenizer",
    "tokenizer.normalisation": "tokenizer.normalization",
    "training.optimiser": "training.optimizer",
    "model.initialisation": "model.initialization",
}
"""Old spellings of keys, which are still accepted, and the current ones."""
RENAMED_RECIPES = {
    "dates-rnn": "dates",
    "vit-digits": "digits",
    "vit-fashion": "fashion",
    "shakespeare-characters": "shakespeare",
    "mixed-en-de": "en-de",
    "mixed-en-ko": "en-ko",
}
"""Old names of bundled recipes: a recipe has the name of the bundled model that it trains."""
Task = Literal["translation", "language", "masked", "classification"]
METRICS_OF: dict[Task, tuple[str, ...]] = {
    "translation": ("loss", "bleu", "chrf", "exact"),
    "language": ("loss",),
    "masked": ("loss",),
    "classification": ("loss", "accuracy"),
}
"""Metrics of each task, by which its best checkpoint can be chosen."""
SPLITS = ("train", "validation", "test")
Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]


class Section(BaseModel):
    """A table of a recipe; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ParallelFiles(Section):
    """Two text files with corresponding lines."""

    source: str
    target: str


class WeightedFile(Section):
    """A text file that is trained on more or less often than others.

    A weight of 2.5 trains on every row twice and on every second row a third time; one of 0.4
    leaves out six rows of ten. The test scores the held-out rows of each `domain` separately.
    """

    file: str
    weight: Annotated[float, Field(gt=0, le=100)] = 1.0
    domain: str = ""


Source = str | ParallelFiles | WeightedFile
"""A file (text, .tsv, .jsonl, images), a folder of images, two parallel files, or a weighted file.

One of all files may be "-" for standard input: a .tsv, or a .jsonl if `keys` are given."""


class AugmentSettings(Section):
    """Random changes of training images, in pixels."""

    shift: NonNegative = 0
    flip: bool = False
    crop: NonNegative = 0


class DataSettings(Section):
    """Training data. Paths are relative to `root` (see `find_data`)."""

    root: str | None = None
    train: Source | list[Source] | None = None
    validation: Source | list[Source] | Share = 0.01
    test: Source | list[Source] | Share | None = None
    generate: Literal["dates", "digits"] | None = None
    count: Positive = 100_000
    locales: list[str] | None = None
    columns: tuple[Positive, Positive] = (1, 2)
    keys: tuple[str, str] | None = None
    swap: bool = False
    window: Positive = 128
    hidden: Annotated[float, Field(gt=0, le=1)] = 0.15
    augment: AugmentSettings | None = None
    size: tuple[Positive, Positive] | None = None
    classes: list[str] | None = None
    tags: dict[Annotated[str, Field(pattern=r"^<\w+>$")], str] = {}
    tag_dropout: Share = 0.0
    checks: dict[str, Any] = {}
    cache: str | None = None

    @model_validator(mode="after")
    def _check_source(self) -> "DataSettings":
        if (self.train is None) == (self.generate is None):
            raise ValueError("give either train (files) or generate (generated data)")
        for tag, pattern in self.tags.items():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"tags.{tag} is not a regular expression: {error}") from error
        if (count := self.paths().count(STANDARD_INPUT)) > 1:
            raise ValueError(
                f"'-' (standard input) is given {count} times but can be read only once; give "
                "files for the others"
            )
        return self

    def sources(self, split: str) -> list[Source]:
        """Return the files of a split; none if it is a share or missing."""
        given = getattr(self, split)
        every = given if isinstance(given, list) else [given]
        return [one for one in every if isinstance(one, Source)]

    def paths(self) -> list[str]:
        """Return all files and folders of the recipe."""
        paths = []
        for one in (source for split in SPLITS for source in self.sources(split)):
            if isinstance(one, ParallelFiles):
                paths += [one.source, one.target]
            else:
                paths.append(one if isinstance(one, str) else one.file)
        return paths


class TokenizerSettings(Section):
    """The tokenizer: trained on the training data, or loaded."""

    kind: Literal["bpe", "byte-bpe", "wordpiece", "characters"] = "bpe"
    size: Positive = 8000
    joint: bool = True
    lowercase: bool = False
    normalization: Literal["nfc", "nfkc", "none"] = "nfc"
    min_frequency: Positive = 2
    byte_fallback: bool = False
    split: Share = 0.0
    load: str | None = None
    load_target: str | None = None

    @model_validator(mode="after")
    def _check(self) -> "TokenizerSettings":
        if self.byte_fallback and self.kind != "bpe":
            raise ValueError(f"byte_fallback needs the kind bpe, and the kind is {self.kind}")
        return self


class TrainingSettings(Section):
    """Optimization, batches, limits and checkpoints."""

    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    betas: tuple[Share, Share] = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0)] = 1e-9
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    lr: Annotated[float, Field(gt=0)] | None = None
    schedule: Literal["paper", "cosine", "linear", "constant"] = "paper"
    warmup: NonNegative = 1000
    final: Annotated[float, Field(ge=0, le=1)] = 0.0
    label_smoothing: Share = 0.1
    agreement: Annotated[float, Field(ge=0)] = 0.0
    batch_tokens: Positive = 4096
    accumulate: Positive = 1
    clip: Annotated[float, Field(ge=0)] = 1.0
    epochs: Annotated[float, Field(gt=0)] | None = None
    steps: Positive | None = None
    minutes: Annotated[float, Field(gt=0)] | None = None
    validate_every: NonNegative = 0
    save_every: NonNegative = 0
    keep: Positive = 3
    average: NonNegative = 0
    ema: Share = 0.0
    patience: NonNegative = 0
    precision: Literal["float32", "bf16", "fp16", "auto"] = "float32"
    compile: bool = False
    shard: bool = False
    freeze: list[str] = []
    seed: NonNegative = 1
    threads: NonNegative = 0
    tensorboard: bool = False

    @model_validator(mode="after")
    def _check(self) -> "TrainingSettings":
        if self.epochs is None and self.steps is None and self.minutes is None:
            raise ValueError("give a limit: epochs, steps or minutes")
        if self.optimizer == "muon" and self.shard:
            raise ValueError("muon needs whole matrices and cannot be used with shard: use adamw")
        return self


class EvaluateSettings(Section):
    """Validation and test."""

    metric: Literal["loss", "bleu", "chrf", "exact", "accuracy"] = "loss"
    sentences: NonNegative = 200
    samples: NonNegative = 3
    examples: NonNegative = 8
    beam: Positive = 1
    snapshots: list[str] = []


class Recipe(Section):
    """A complete description of a training run."""

    task: Task
    about: str = ""
    license: str = ""
    limits: str = ""
    data: DataSettings
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: dict[str, Any] = {}
    """A preset's name and fields of the model's config; `start_from` names a trained model."""
    training: TrainingSettings
    evaluate: EvaluateSettings = EvaluateSettings()

    @model_validator(mode="after")
    def _check(self) -> "Recipe":
        if self.tokenizer.split and self.task != "translation":
            raise ValueError(
                f"tokenizer.split is {self.tokenizer.split:g}, but only the task translation "
                f"supports it, and the task is {self.task}: remove it"
            )
        if self.data.tags and self.task != "translation":
            raise ValueError(
                f"data.tags is given, but only the task translation supports it, and the task is "
                f"{self.task}: remove it"
            )
        metric, known = self.evaluate.metric, METRICS_OF[self.task]
        if metric not in known:
            raise ValueError(
                f"evaluate.metric is {metric!r}, but the task {self.task} has {', '.join(known)}: "
                "choose one of these"
            )
        return self


def load_recipe(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    name: str = "the recipe",
) -> Recipe:
    """Return a recipe from a file, the name of a bundled recipe, or a mapping of its tables.

    Args:
        overrides: values by key, such as {"training.lr": 0.001}.
        name: what errors call a recipe that is given as a mapping.
    """
    if isinstance(recipe, Recipe):
        if not overrides:
            return recipe
        recipe = recipe.model_dump(mode="json", exclude_unset=True)
    if not isinstance(recipe, Mapping):
        path = find_recipe(recipe)
        recipe, name = _read_toml(path), str(path)
    tables = deepcopy(dict(recipe))
    for key, value in (overrides or {}).items():
        _set_key(tables, key, value)
    _rename_keys(tables)
    try:
        return Recipe.model_validate(tables)
    except ValidationError as error:
        raise _first_error(error, name) from None


def bundled_recipes() -> dict[str, Path]:
    """Return the recipes that come with regard, by name."""
    return {file.stem: file for file in sorted(RECIPES.glob("*.toml"))}


def find_recipe(path: str | Path) -> Path:
    """Return the file itself, or a bundled recipe: "dates", "dates.toml", "recipes/dates.toml"."""
    path = Path(path)
    if path.is_file():
        return path
    bundled = bundled_recipes()
    renamed = {old: bundled[new] for old, new in RENAMED_RECIPES.items()}
    for stem, file in (bundled | renamed).items():
        if path in (Path(stem), Path(f"{stem}.toml"), Path("recipes") / f"{stem}.toml"):
            return file
    raise FileError(
        f"unknown recipe {path}, neither a file nor a bundled one; {nearest(path.stem, bundled)}."
    )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise FileError(f"the recipe {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from error


def parse_override(text: str) -> tuple[str, Any]:
    """Parse "training.lr=0.001" to a key and a TOML value; other values are strings."""
    key, equals, value = text.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise InputError(f"--set {text} is not KEY=VALUE: write it like training.lr=0.001.")
    try:
        return key.strip(), tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _set_key(tables: dict[str, Any], key: str, value: Any) -> None:
    *names, last = key.split(".")
    table = tables
    for name in names:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise InputError(f"the key {key} cannot be set because {name} is not a table.")
    table[last] = value


def _rename_keys(tables: dict[str, Any]) -> None:
    """Replace old spellings of keys, with a note on standard error."""
    for old, new in RENAMED_KEYS.items():
        (*names, before), after = old.split("."), new.rpartition(".")[2]
        table: Any = tables
        for name in names:
            table = table.get(name) if isinstance(table, dict) else None
        if isinstance(table, dict) and before in table:
            table.setdefault(after, table.pop(before))
            print(f"note: the recipe key {old} is now called {new}", file=sys.stderr)  # noqa: T201


def _first_error(error: ValidationError, name: str) -> InputError:
    """Return the first error of a recipe in one sentence."""
    errors = error.errors(include_url=False, include_context=False)
    unknown = [one for one in errors if one["type"] == "extra_forbidden"]
    first = [*unknown, *errors][0]  # a misspelled key may be why another one is missing
    path, known = _key_path(first["loc"])
    key = ".".join(path)
    if first["type"] == "extra_forbidden":
        return UnknownNameError(f"{name}: unknown key {key!r}; {_like(path[-1], known)}.")
    if first["type"] == "missing":
        return InputError(f"{name}: the key {key!r} is missing.")
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if first["type"] == "value_error":
        where = f"[{key}] is not valid: " if key else ""
        return InputError(f"{name}: {where}{message}.")
    return InputError(f"{name}: {key} is {first['input']!r}; it {message}.")


def _like(key: str, known: Sequence[str]) -> str:
    """Return the keys most like one that is unknown; one of another table comes with its table."""
    elsewhere = [
        f"{table}.{key}"
        for table, field in Recipe.model_fields.items()
        for kind in (field.annotation, *get_args(field.annotation))
        if isinstance(kind, type) and issubclass(kind, Section) and key in kind.model_fields
    ]
    return nearest(key, known) if not elsewhere else nearest(elsewhere[0], elsewhere)


def _key_path(location: Sequence[int | str]) -> tuple[list[str], list[str]]:
    """Return the key of an error, and the keys that its table may have."""
    path: list[str] = []
    section: Any = Recipe
    for number, part in enumerate(location):
        known = list(section.model_fields) if section else []
        if section and part in known:
            inner = section.model_fields[part].annotation
            path.append(str(part))
            kinds = [one for one in (inner, *get_args(inner)) if isinstance(one, type)]
            section = next((one for one in kinds if issubclass(one, Section)), None)
        elif number == len(location) - 1 and section is not None:
            return [*path, str(part)], known  # an unknown key
        # other parts are the types of a union that pydantic tried
    return path, []
