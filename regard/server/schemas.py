"""What the server answers in JSON, as dataclasses: the OpenAPI document is made from them.

Nothing is built of these classes; a test holds every answer against them.
"""

from dataclasses import dataclass
from typing import Any

from regard.analysis.heads import HeadMeasures, Selection


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Why a request was not answered, in a sentence."""

    error: str


@dataclass(frozen=True, kw_only=True)
class Example:
    """Something to try on a model."""

    text: str | None = None
    target: str | None = None
    image: str | None = None
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelAbout:
    """A model of the server."""

    name: str
    family: str
    task: str
    reads: str
    bundled: bool
    examples: list[Example]


@dataclass(frozen=True, kw_only=True)
class Models:
    """All models, the first to open first, and the worked example that needs none."""

    models: list[ModelAbout]
    worked: dict[str, Any]
    """Its matrices."""
    example: str
    """The id of its trace."""
    runs: list[str]
    """The names of training runs that can be replayed."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A step of a training run of which there is a snapshot, and how good the model was by then."""

    step: int
    epoch: float | None
    loss: float | None
    """Of the last batches."""
    score: float | None
    """By the run's metric, on the validation data."""
    scores: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RunAbout:
    """A training run: the texts it keeps looking at, and its checkpoints so far."""

    name: str
    texts: list[str]
    metric: str
    checkpoints: list[Checkpoint]


@dataclass(frozen=True, kw_only=True)
class RunsAbout:
    """All training runs of the server."""

    runs: list[RunAbout]


@dataclass(frozen=True, kw_only=True)
class Examples:
    """What to try on a model."""

    examples: list[Example]


@dataclass(frozen=True, kw_only=True)
class Uploaded:
    """The name by which a request can mean a picture that was sent."""

    image: str


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One of several possibilities."""

    id: int
    name: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class NextToken(Candidate):
    """A token that may come next."""

    text: str | None
    """The text with it; None if it is no text, as the end is not."""


@dataclass(frozen=True, kw_only=True)
class NextTokens:
    """What may come next, the most probable first."""

    candidates: list[NextToken]


@dataclass(frozen=True, kw_only=True)
class Gap:
    """What could stand in the place of a mask token."""

    position: int
    candidates: list[Candidate]


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token with its word's number and how probable the model found it."""

    text: str
    word: int | None
    probability: float | None


@dataclass(frozen=True, kw_only=True)
class OtherTranslation:
    """Another translation that the beam ended with."""

    text: str
    score: float
    ids: list[int]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """How probable something that was answered before edits is after them."""

    at: int | None
    name: str
    before: float | None
    after: float


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a model answered; `kind` says which of the others are there."""

    kind: str
    output: Any
    text: str | None = None
    ids: list[int] | None = None
    tokens: list[Token] | None = None
    score: float | None = None
    beam: int | None = None
    alternatives: list[OtherTranslation] | None = None
    candidates: list[Candidate] | None = None
    gaps: list[Gap] | None = None
    before: dict[str, Any] | None = None
    compare: list[Compared] | None = None
    unmet: list[dict[str, Any]] | None = None


@dataclass(frozen=True, kw_only=True)
class Answered:
    """An answer, and the trace that was made for it."""

    id: str
    answer: Answer


@dataclass(frozen=True, kw_only=True)
class MaskAbout:
    """Who may see whom: all, causal, or bits that come with a head's vectors."""

    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class SiteAbout:
    """One attention site."""

    path: str
    group: str
    layer: int | None
    n_heads: int
    n_query: int
    n_key: int
    d_k: int
    d_v: int
    asks: str | None
    answers: str | None
    writes: str | None
    similarity: str
    scale: float
    temperature: list[float | str]
    slopes: list[float] | None
    mask: MaskAbout
    rotary: bool
    norm_first: bool | None
    space: bool


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What heads are like, by their sites."""

    measures: dict[str, list[HeadMeasures]]


@dataclass(frozen=True, kw_only=True)
class PictureAbout:
    """How patches lie on a picture."""

    n_rows: int
    n_columns: int
    patch_size: int
    first: int
    height: int
    width: int


@dataclass(frozen=True, kw_only=True)
class TraceAbout:
    """A trace: everything about it that is small."""

    id: str
    asked: dict[str, Any]
    title: str
    family: str
    task: str
    tokens: dict[str, list[str]]
    words: dict[str, list[int | None]]
    output: Any
    answer: Answer
    start: Selection
    image: PictureAbout | None
    sites: list[SiteAbout]


@dataclass(frozen=True, kw_only=True)
class Translated:
    """One translation; its alternatives have the same fields."""

    text: str
    score: float
    tokens: list[str]
    source_tokens: list[str]
    alternatives: list[Any]


@dataclass(frozen=True, kw_only=True)
class Translations:
    """The translations of texts, in their order."""

    translations: list[Translated]


@dataclass(frozen=True, kw_only=True)
class Generated:
    """A text that a model has gone on with."""

    text: str
    written: str
    log_prob: float
    finished: bool


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A token that could stand at a position, and the text that would follow."""

    token: str
    id: int
    probability: float
    text: str
    ids: list[int]


@dataclass(frozen=True, kw_only=True)
class Alternatives:
    """What else could stand at a position, the most probable first."""

    alternatives: list[Alternative]
