"""The outputs of traced runs, one frozen dataclass for each task.

Outputs also read like the dictionaries they are saved as: `output["text"]`, `"ids" in output`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar


@dataclass(frozen=True, eq=False)
class Output(Mapping[str, Any]):
    """Predictions of a model in a traced run."""

    keys_by_field: ClassVar[Mapping[str, str]] = {}
    """Names in the dictionary form where they differ from the fields'."""

    def to_dict(self) -> dict[str, Any]:
        """Return the output as JSON values."""
        values = json.loads(json.dumps(asdict(self)))  # tuples become lists
        return {self.keys_by_field.get(name, name): value for name, value in values.items()}

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def __iter__(self) -> Iterator[str]:
        return (self.keys_by_field.get(field.name, field.name) for field in fields(self))

    def __len__(self) -> int:
        return len(fields(self))


@dataclass(frozen=True)
class ScoredCandidate:
    """One of the most probable tokens or classes."""

    id: int
    name: str
    probability: float


@dataclass(frozen=True)
class AlternativeTranslation:
    """A translation that the search ranked below the best one."""

    text: str
    ids: tuple[int, ...]
    score: float


@dataclass(frozen=True, eq=False)
class TranslationOutput(Output):
    """The output of an encoder–decoder model."""

    keys_by_field = {"log_probs": "log_probabilities"}  # noqa: RUF012
    text: str
    """The whole answer, also if this is the trace of one of several parts."""
    ids: tuple[int, ...]
    """The target's ids after its start token, with the end token if it has one; of this part."""
    log_probs: tuple[float, ...]
    """The log-probability of each id given those before it."""
    score: float | None = None
    """Log-probability divided by the length penalty; None if the target was given."""
    alternatives: tuple[AlternativeTranslation, ...] = ()
    """The next best translations of this part, if the search returned several."""
    part_source: str = ""
    part_text: str = ""
    engine: str = ""
    """The engine that found the answer; empty if the target was given."""
    precision: str = ""
    differs: tuple[int, ...] = ()
    """The ids at which the float32 model would have chosen otherwise, by their number."""


@dataclass(frozen=True, eq=False)
class NextTokenOutput(Output):
    """The output of a decoder-only model."""

    keys_by_field = {"candidates": "next", "log_probs": "log_probabilities"}  # noqa: RUF012
    candidates: tuple[ScoredCandidate, ...]
    log_probs: tuple[float, ...]
    """The log-probability of each token of the text but the first."""
    engine: str = ""
    """The engine that wrote the text; empty if the text was given."""
    precision: str = ""
    differs: tuple[int, ...] = ()
    """The tokens at which the float32 model would have chosen otherwise, by their number; the
    number of tokens means the end."""


@dataclass(frozen=True)
class Gap:
    """The most probable tokens of one masked position."""

    position: int
    candidates: tuple[ScoredCandidate, ...]


@dataclass(frozen=True, eq=False)
class FillOutput(Output):
    """The output of a masked language model."""

    keys_by_field = {"gaps": "filled"}  # noqa: RUF012
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, eq=False)
class ClassificationOutput(Output):
    """The output of a classifier of images or texts."""

    keys_by_field = {"candidates": "classes"}  # noqa: RUF012
    candidates: tuple[ScoredCandidate, ...]


def output_from_dict(data: Any) -> Any:
    """Return the output that `to_dict` was called on; other values are returned unchanged."""
    from pydantic import TypeAdapter

    if not isinstance(data, Mapping):
        return data
    for kind in (TranslationOutput, NextTokenOutput, FillOutput, ClassificationOutput):
        names = {kind.keys_by_field.get(f.name, f.name): f.name for f in fields(kind)}
        if next(iter(names)) in data and set(data) <= set(names):
            values = {names[key]: value for key, value in data.items()}
            return TypeAdapter(kind).validate_python(values)
    return dict(data)
