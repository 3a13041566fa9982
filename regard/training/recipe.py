"""Recipes: one small TOML file says what is trained, on what, and how."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from regard.errors import FileError, InputError, UnknownNameError, nearest
from regard.files import STANDARD_INPUT

Task = Literal["translation", "language", "masked", "classification"]
METRICS: dict[Task, tuple[str, ...]] = {
    "translation": ("loss", "bleu", "chrf", "exact"),
    "language": ("loss",),
    "masked": ("loss",),
    "classification": ("loss", "accuracy"),
}
"""What each task measures and can choose its best checkpoint by."""
PARTS = ("train", "validation", "test")
"""What data are for."""
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Amount = Annotated[int, Field(ge=0)]


class Section(BaseModel):
    """A table of a recipe: keys that are not known are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Files(Section):
    """Two text files whose lines belong together."""

    source: str
    target: str


Source = str | Files
"""A file (text, .tsv, .jsonl, images), a folder of images, or two files line by line.

One of all files may be "-", standard input: as a .tsv, or a .jsonl if `keys` are given."""


class Augment(Section):
    """Changes that leave an image's class as it is."""

    shift: Amount = 0
    flip: bool = False
    crop: Amount = 0


class Data(Section):
    """What is learned from. Paths are relative to `root` (see `find_data`)."""

    root: str | None = None
    train: Source | list[Source] | None = None
    validation: Source | list[Source] | Share = 0.01
    """Files, or the share of the training data that is held out to choose the best model by."""
    test: Source | list[Source] | Share | None = None
    """Files, or a share that is held out to be looked at once, when all is done."""
    generate: Literal["dates", "digits"] | None = None
    """Data that need no file: written dates of many languages, or scikit-learn's small digits."""
    count: Count = 100_000
    """How many dates."""
    locales: list[str] | None = None
    columns: tuple[Count, Count] = (1, 2)
    """Which columns of a .tsv hold source and target, or label and text."""
    keys: tuple[str, str] | None = None
    """Which keys of a .jsonl hold them; "source" and "target", "label" and "text" unless given."""
    swap: bool = False
    """Whether to learn from target to source."""
    window: Count = 128
    """How many tokens a language model reads at once."""
    hidden: Annotated[float, Field(gt=0, le=1)] = 0.15
    """The share of tokens that is hidden in masked training."""
    augment: Augment | None = None
    size: tuple[Count, Count] | None = None
    """Height and width that the images of a folder are brought to."""
    classes: list[str] | None = None
    """Names of the classes, where the files of images only number them; otherwise their order."""
    checks: dict[str, Any] = {}
    """What to do with faulty lines; see `regard.data.text_checks.Checks`."""
    cache: str | None = None
    """Where tokenized text is kept; in the run's folder unless given."""

    @model_validator(mode="after")
    def _something_to_read(self) -> "Data":
        if (self.train is None) == (self.generate is None):
            raise ValueError("give either train (files) or generate (data that need no files)")
        return self

    @model_validator(mode="after")
    def _standard_input_once(self) -> "Data":
        if (count := self.paths().count(STANDARD_INPUT)) > 1:
            raise ValueError(
                f"'-' (standard input) is named {count} times and can be read only once; name "
                "files for the rest"
            )
        return self

    def sources(self, part: str) -> list[Source]:
        """What is read for a part; nothing where it is a share, or left out."""
        given = getattr(self, part)
        every = given if isinstance(given, list) else [given]
        return [one for one in every if isinstance(one, str | Files)]

    def paths(self) -> list[str]:
        """Every file and folder that is named."""
        every = [one for part in PARTS for one in self.sources(part)]
        sides = [(one.source, one.target) if isinstance(one, Files) else (one,) for one in every]
        return [path for pair in sides for path in pair]


class TokenizerSettings(Section):
    """How text becomes tokens: learned from the training data, or loaded."""

    kind: Literal["bpe", "byte-bpe", "wordpiece", "characters"] = "bpe"
    size: Count = 8000
    joint: bool = True
    """Whether source and target share one vocabulary."""
    lowercase: bool = False
    normalization: Literal["nfc", "nfkc", "none"] = "nfc"
    min_frequency: Count = 2
    split: Share = 0.0
    """The probability with which a token of a training pair is cut into the two that it was merged
    from, and these again, anew in every epoch."""
    load: str | None = None
    """A tokenizer.json, vocab.txt or folder to take instead."""
    load_target: str | None = None


class Training(Section):
    """How it is learned."""

    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    """muon moves the matrices inside layers by orthogonal steps and all else by AdamW."""
    betas: tuple[Share, Share] = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0)] = 1e-9
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    lr: Annotated[float, Field(gt=0)] | None = None
    """The highest learning rate; the paper's own for its schedule unless given."""
    schedule: Literal["paper", "cosine", "linear", "constant"] = "paper"
    warmup: Amount = 1000
    final: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The share of lr at which cosine and linear schedules end."""
    label_smoothing: Share = 0.1
    agreement: Annotated[float, Field(ge=0)] = 0.0
    """How much two passes of every batch with different dropout shall agree (R-Drop's α);
    0 for one pass. A step takes twice as long."""
    batch_tokens: Count = 4096
    """How many tokens a batch holds, on its longer side and with padding."""
    accumulate: Count = 1
    """How many batches one step learns from, over all processes."""
    clip: Annotated[float, Field(ge=0)] = 1.0
    """The length beyond which gradients are shortened; 0 never does."""
    epochs: Annotated[float, Field(gt=0)] | None = None
    steps: Count | None = None
    minutes: Annotated[float, Field(gt=0)] | None = None
    validate_every: Amount = 0
    """Steps between validations and checkpoints; 0 for once an epoch."""
    save_every: Amount = 0
    """Steps between further checkpoints; 0 for none."""
    keep: Count = 3
    """How many of the last checkpoints are kept; the best always is."""
    average: Amount = 0
    """Of how many last checkpoints the final model is the mean; 0, or a worse mean: the best."""
    ema: Share = 0.0
    """The decay of a moving average of all steps; 0 for none."""
    patience: Amount = 0
    """Validations without a better score before training ends early; 0 for never."""
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    compile: bool = False
    shard: bool = False
    """Whether processes share out the weights (FSDP2)."""
    freeze: list[str] = []
    seed: Amount = 1
    threads: Amount = 0
    """Processor threads for each process; 0 for all cores, shared out evenly."""
    tensorboard: bool = False
    """Whether the course is also written for TensorBoard, into training/tensorboard."""

    @model_validator(mode="after")
    def _an_end(self) -> "Training":
        if self.epochs is None and self.steps is None and self.minutes is None:
            raise ValueError("say when to stop: give epochs, steps or minutes")
        return self

    @model_validator(mode="after")
    def _whole_matrices(self) -> "Training":
        if self.optimizer == "muon" and self.shard:
            raise ValueError("muon needs whole matrices, which shard cuts up: choose adamw")
        return self


class Evaluate(Section):
    """How good it is."""

    metric: Literal["loss", "bleu", "chrf", "exact", "accuracy"] = "loss"
    """What the best checkpoint is chosen by; with "loss", texts are decoded only to be shown."""
    sentences: Amount = 200
    """How many validation examples are decoded; 0 for all."""
    samples: Amount = 3
    """How many of them are shown."""
    beam: Count = 1
    """The width of the search at the end; validations are greedy."""
    snapshots: list[str] = []
    """Texts whose attention is kept at every checkpoint."""


class Recipe(Section):
    """What is trained, on what, and how."""

    task: Task
    about: str = ""
    license: str = ""
    """What the trained model may be used for."""
    limits: str = ""
    """What the trained model cannot do, for its card."""
    data: Data
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: dict[str, Any] = {}
    """A preset's name and fields of the family's configuration; `start_from` names a model."""
    training: Training
    evaluate: Evaluate = Evaluate()

    @model_validator(mode="after")
    def _pairs_to_split(self) -> "Recipe":
        if self.tokenizer.split and self.task != "translation":
            raise ValueError(
                f"tokenizer.split is {self.tokenizer.split:g}, but only pairs of the task "
                f"translation are split, and the task is {self.task}: leave it out"
            )
        return self

    @model_validator(mode="after")
    def _a_metric_that_is_measured(self) -> "Recipe":
        metric, measured = self.evaluate.metric, METRICS[self.task]
        if metric not in measured:
            raise ValueError(
                f"evaluate.metric is {metric!r}, but the task {self.task} measures "
                f"{', '.join(measured)}: choose {'one of those' if measured[1:] else 'that'}"
            )
        return self


def read_recipe(path: str | Path, *, changes: Sequence[str] = ()) -> Recipe:
    """The recipe in a file, with some keys changed: "training.lr=0.001", values as in TOML."""
    path = Path(path)
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise FileError(f"the recipe {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from error
    for change in changes:
        _apply(change, given)
    return make_recipe(given, called=str(path))


def make_recipe(given: Mapping[str, Any], *, called: str = "the recipe") -> Recipe:
    """The recipe that these tables describe; `called` is its name in errors."""
    try:
        return Recipe.model_validate(given)
    except ValidationError as error:
        raise _spoken(error, called) from None


def _apply(change: str, given: dict[str, Any]) -> None:
    """Set one key to a value; what is no TOML value is taken as a string."""
    key, sign, value = change.partition("=")
    *tables, last = key.strip().split(".")
    if not sign or not all((*tables, last)):
        raise InputError(f"--set {change} says nothing: write it as training.lr=0.001.")
    table = given
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise InputError(f"--set {change} names {key}, but {name} is no table.")
    try:
        table[last] = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        table[last] = value.strip()


def _spoken(error: ValidationError, called: str) -> InputError:
    """The first thing that is wrong with a recipe, in one sentence."""
    found = error.errors(include_url=False, include_context=False)
    unknown = [one for one in found if one["type"] == "extra_forbidden"]
    first = [*unknown, *found][0]  # a key that is spelt wrongly is why another is missing
    place, known = _place(first["loc"])
    key = ".".join(place)
    if first["type"] == "extra_forbidden":
        return UnknownNameError(f"{called}: there is no key {key!r}; {nearest(place[-1], known)}.")
    if first["type"] == "missing":
        return InputError(f"{called}: the key {key!r} is missing; it must be given.")
    said = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if first["type"] == "value_error":
        where = f"[{key}] is not complete: " if key else ""  # none: tables that do not fit
        return InputError(f"{called}: {where}{said}.")
    return InputError(f"{called}: {key} is {first['input']!r}; it {said}.")


def _place(steps: Sequence[int | str]) -> tuple[list[str], list[str]]:
    """The key that an error is about, and the keys that its table may have."""
    place: list[str] = []
    section: Any = Recipe
    for number, step in enumerate(steps):
        known = list(section.model_fields) if section else []
        if section and step in known:
            inner = section.model_fields[step].annotation
            place.append(str(step))
            sections = [one for one in (inner, *get_args(inner)) if _is_section(one)]
            section = sections[0] if sections else None
        elif number == len(steps) - 1 and section is not None:
            return [*place, str(step)], known  # a key that is not known
        # what is left is the kind of value that pydantic tried, which no file says
    return place, []


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)
