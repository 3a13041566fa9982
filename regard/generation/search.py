"""Settings and results of decoding, the same for every engine; nothing here imports torch.

A `BeamTree` holds every sequence that a search considered, and why it was dropped or kept.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, runtime_checkable

from regard.errors import InputError, as_texts, check_choice, check_counts, check_field_types
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.trace.edit import Edit


FATES = {
    "kept": "one of the best of its step, so it was continued",
    "finished": "ended by its end token or the length limit, a candidate for the result",
    "pruned": "other sequences of its step were better",
    "overtaken": "could have been continued, but the sentence was done",
}
"""Outcomes of a sequence, each with its explanation."""


@dataclass(frozen=True)
class BeamEvent:
    """One sequence at one step of the search."""

    step: int
    ids: tuple[int, ...]
    log_prob: float
    score: float
    fate: str  # one of FATES


@dataclass(frozen=True, slots=True)
class Node:
    """One sequence at one step: its parent's tokens and one more."""

    step: int  # number of tokens, including the end token
    parent: int | None  # index of the parent node; None for sequences of one token
    id: int
    token: str
    log_prob: float  # of the whole sequence
    score: float  # log-probability divided by the length penalty
    fate: str  # one of FATES


@dataclass(frozen=True, slots=True)
class BeamTree:
    """All nodes of one sentence's search, ordered by step and then by log-probability."""

    nodes: tuple[Node, ...]

    def path(self, index: int) -> list[Node]:
        """Return the nodes from the first token to this one."""
        found: list[Node] = []
        at: int | None = index
        while at is not None:
            found.append(self.nodes[at])
            at = self.nodes[at].parent
        return found[::-1]

    @property
    def best(self) -> int:
        """The index of the last node of the best sequence."""
        ends = [i for i, node in enumerate(self.nodes) if node.fate == "finished"]
        return max(ends, key=lambda i: self.nodes[i].score)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the nodes as dictionaries, numbers rounded to six digits."""
        names = ("step", "parent", "token", "log_prob", "score", "fate")
        every = [{name: getattr(node, name) for name in names} for node in self.nodes]
        return [one | {n: round(one[n], 6) for n in ("log_prob", "score")} for one in every]


def build_tree(events: Iterable[BeamEvent], texts: Mapping[int, str] | Sequence[str]) -> BeamTree:
    """Build the tree of recorded events; `texts` are those of tokens by id."""
    nodes: list[Node] = []
    parents: dict[tuple[int, ...], int] = {}
    for event in sorted(events, key=lambda event: (event.step, -event.log_prob)):
        *before, id = event.ids
        parent = parents.get(tuple(before))
        if event.fate == "kept":
            parents[event.ids] = len(nodes)
        values = event.log_prob, event.score, event.fate
        nodes.append(Node(event.step, parent, id, texts[id], *values))
    return BeamTree(tuple(nodes))


PENALTIES = ("average", "gnmt", "none")
STOPS = ("beam", "bound", "first")
_LENGTH_STEP = 16  # source lengths are rounded up to a multiple of this to compute limits


@dataclass(frozen=True)
class Hypothesis:
    """One decoded sequence, without its start and end tokens."""

    ids: list[int]
    log_probs: list[float]  # of each token and of the end token, if any; CTranslate2 reports none
    score: float  # log-probability divided by the length penalty; NaN without scores
    finished: bool = True  # False if the length limit cut the sequence off
    events: Sequence[BeamEvent] = field(default=(), repr=False, compare=False)
    """The recorded search, on the best hypothesis if `SearchOptions.beam_tree` is set."""

    @property
    def log_prob(self) -> float:
        return sum(self.log_probs)


@dataclass(frozen=True)
class SearchOptions:
    """Settings of beam search."""

    beam: int = 4  # sequences kept at each step; 1 is greedy search
    n_best: int = 1  # translations returned for each sentence, at most `beam`
    alpha: float = 1.0  # exponent of the length penalty
    penalty: str = "average"
    """Scores are divided by length^alpha ("average"), by ((5 + length) / 6)^alpha ("gnmt", Wu et
    al. 2016) or by 1 ("none"); the end token counts. "gnmt" needs torch."""
    stop: str = "beam"
    """A sentence is done when `beam` sequences are finished ("beam"), when `n_best` are ("first"),
    or when no unfinished one can still enter the n best ("bound"). All but "beam" need torch."""
    least: float | None = None
    """Minimum target tokens per source token; by default that of the training data, or 0."""
    factor: float | None = None  # maximum target tokens per source token, likewise; or 2
    extra: int = 20  # tokens allowed on top of `factor`
    most: int | None = None  # maximum target tokens for any source
    beam_tree: bool = False  # record every sequence considered; needs torch
    scores: bool = True  # compute scores; greedy search with CTranslate2 is faster without
    prefix: str = ""  # text that every translation starts with
    must: Sequence[str] = ()  # words or phrases that every translation contains; needs torch
    no_repeat: int = 0  # size of the n-grams that must not occur twice; 0 allows all

    def __post_init__(self) -> None:
        check_field_types(self)
        check_choice("penalty", self.penalty, PENALTIES)
        check_choice("stop", self.stop, STOPS)
        check_counts(beam=self.beam)
        n_best, beam = self.n_best, self.beam
        if not 1 <= n_best <= beam:
            raise InputError(f"n_best is {n_best} with a beam of {beam}; it must be 1 to {beam}.")
        if self.no_repeat < 0:
            raise InputError(f"no_repeat is {self.no_repeat}; it must be 0 (allow all) or more.")
        if self.alpha < 0:
            raise InputError(f"alpha is {self.alpha}; it must be 0 or more.")
        if isinstance(self.must, str):
            raise InputError("must is a string; it must be a list of words or phrases.")
        as_texts(self.must, "must")
        if self.must and (self.prefix or self.beam_tree):
            raise InputError("must cannot be combined with prefix or beam_tree: use one of them.")

    @property
    def torch_feature(self) -> str:
        """The first setting that only the torch engine supports, or an empty string."""
        needs_torch = {
            "beam tree": self.beam_tree,
            "required words": bool(self.must),
            "length penalty gnmt": self.penalty == "gnmt",
            f"stopping rule {self.stop}": self.stop != "beam",
        }
        return next((name for name, needed in needs_torch.items() if needed), "")

    def length_penalty(self, length: int) -> float:
        """Return the divisor of the log-probability of a sequence of this many tokens."""
        if self.penalty == "none":
            return 1.0
        return (length if self.penalty == "average" else (5 + length) / 6) ** self.alpha

    def length_group(self, n_source: int) -> int:
        """Return the group of a source length; all sources of a group have the same limits.

        Only sources of one group are batched together, because CTranslate2 has one limit for a
        whole batch and a sentence's translation must not depend on its neighbors.
        """
        return -(-n_source // _LENGTH_STEP)

    def limit(self, n_source: int) -> int:
        """Return the maximum number of target tokens, including the end token."""
        factor = 2.0 if self.factor is None else self.factor
        limit = int(factor * self.length_group(n_source) * _LENGTH_STEP) + self.extra
        return max(1, limit if self.most is None else min(limit, self.most))

    def min_length(self, n_source: int) -> int:
        """Return the number of tokens that must precede the end token."""
        fewest = int((self.least or 0.0) * (self.length_group(n_source) - 1) * _LENGTH_STEP)
        return max(1, min(fewest, self.limit(n_source) - 1))

    def with_defaults(
        self, ratios: tuple[float, float] | None, max_positions: int | None
    ) -> "SearchOptions":
        """Fill in the length ratios of the training data and cap `most` at the positions."""
        least, factor = ratios or (None, None)
        most = [n for n in (self.most, max_positions) if n is not None]
        return replace(
            self,
            least=least if self.least is None else self.least,
            factor=factor if self.factor is None else self.factor,
            most=min(most, default=None),
        )


class SearchKeywords(TypedDict, total=False):
    """The fields of SearchOptions as keyword arguments."""

    beam: int
    n_best: int
    alpha: float
    penalty: str
    stop: str
    least: float | None
    factor: float | None
    extra: int
    most: int | None
    beam_tree: bool
    scores: bool
    prefix: str
    must: Sequence[str]
    no_repeat: int


class TranslateKeywords(SearchKeywords, total=False):
    """The keyword arguments of `Model.translate`."""

    engine: str
    precision: str
    int8: bool
    edits: "Sequence[Edit]"
    trace: bool
    source_language: str | None
    target_language: str | None


@dataclass(frozen=True)
class SamplingOptions:
    """Settings of sampling."""

    max_tokens: int = 200  # maximum number of tokens to generate
    temperature: float = 1.0  # divisor of the logits; 0 always takes the most probable token
    top_k: int | None = None  # sample among the k most probable tokens only
    top_p: float | None = None  # among the fewest tokens whose probabilities sum to at least p
    repetition_penalty: float = 1.0  # factor on the log-probabilities of tokens in the text
    no_repeat: int = 0  # size of the n-grams that must not occur twice; 0 allows all
    seed: int = 0
    stop: Sequence[str] = ()  # a text ends in front of the first of these

    def __post_init__(self) -> None:
        check_field_types(self)
        if isinstance(self.stop, str):
            raise InputError("stop is a string; it must be a list of texts.")
        as_texts(self.stop, "stop")
        if not all(self.stop):
            raise InputError("a stop text is empty: leave it out.")
        for name, valid, allowed in (
            ("max_tokens", self.max_tokens >= 1, "1 or more"),
            ("temperature", self.temperature >= 0, "0 (deterministic) or more"),
            ("top_k", self.top_k is None or self.top_k >= 1, "1 or more"),
            ("top_p", self.top_p is None or 0 < self.top_p <= 1, "above 0, up to 1"),
            ("repetition_penalty", self.repetition_penalty > 0, "above 0; 1 has no effect"),
            ("no_repeat", self.no_repeat >= 0, "0 (allow all) or more"),
        ):
            if not valid:
                raise InputError(f"{name} is {getattr(self, name)}; it must be {allowed}.")

    @property
    def ctranslate2_refusal(self) -> str:
        """The reason why CTranslate2 cannot honor these options, or an empty string."""
        if self.repetition_penalty != 1.0 or self.no_repeat:
            return "it defines the repetition options in another way"
        both = self.temperature > 0 and self.top_k is not None and self.top_p is not None
        return "it combines top-k and top-p in another way" if both else ""


class SamplingKeywords(TypedDict, total=False):
    """The fields of SamplingOptions as keyword arguments."""

    max_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    repetition_penalty: float
    no_repeat: int
    seed: int
    stop: Sequence[str]


class EngineKeywords(TypedDict, total=False):
    """The engine and the precision to compute with."""

    engine: str  # its name, or "auto" for the fastest
    precision: str  # "float32", or "bfloat16" or "int8" (faster, less exact), or "auto"


class ReadKeywords(EngineKeywords, total=False):
    """The keyword arguments of `Model.fill` and `Model.classify`."""

    count: int  # candidates to return; 5 by default


class GenerateKeywords(SamplingKeywords, total=False):
    """The keyword arguments of `Model.generate`."""

    engine: str
    precision: str
    trace: bool
    on_text: Callable[[str], None] | None


@runtime_checkable
class Engine(Protocol):
    """A translator of token ids."""

    name: str
    precision: str

    def submit(
        self,
        sources: Sequence[list[int]],
        options: SearchOptions,
        starts: Sequence[list[int]] | None = None,
    ) -> Callable[[], list[list[Hypothesis]]]:
        """Start translating; the returned function waits for the n best of each source.

        Args:
            starts: the first ids of each translation, instead of the options' prefix.
        """
        ...


def differing_steps(
    exact: Engine,
    sources: Sequence[list[int]],
    answers: Sequence[Hypothesis],
    options: SearchOptions,
) -> list[tuple[int, ...]]:
    """Return the steps of each answer at which an engine would have chosen otherwise.

    The engine translates; the first step that differs is marked, and it continues from there with
    the answer's own token, until nothing differs. The number of ids means the end token.
    """
    plain = replace(options, n_best=1, beam_tree=False, scores=False, prefix="", must=())
    steps: list[list[int]] = [[] for _ in answers]
    starts: dict[int, list[int]] = {i: [] for i in range(len(answers))}
    while starts:
        found = exact.submit([sources[i] for i in starts], plain, list(starts.values()))()
        before, starts = starts, {}
        for (i, start), (best, *_) in zip(before.items(), found, strict=True):
            own, other = _with_end(answers[i]), _with_end(best)
            later = range(len(start), len(own))
            step = next((n for n in later if own[n : n + 1] != other[n : n + 1]), len(own))
            steps[i] += [step] * (step < len(own))
            if step < len(answers[i].ids):
                starts[i] = own[: step + 1]
    return [tuple(one) for one in steps]


def _with_end(answer: Hypothesis) -> list[int]:
    return [*answer.ids, *([-1] if answer.finished else [])]


def prefix_ids(target: Tokenizer, options: SearchOptions) -> list[int]:
    """Return the token ids of the forced prefix."""
    return _known_ids(target, options.prefix) if options.prefix else []


def phrase_ids(target: Tokenizer, options: SearchOptions) -> list[list[int]]:
    """Return the token ids of each required phrase, as it is tokenized after a space."""
    return [_known_ids(target, f" {phrase.strip()}") for phrase in options.must]


def _known_ids(target: Tokenizer, text: str) -> list[int]:
    ids = target.encode(text, specials=False, literal=True)
    if not ids or target.unknown_id in ids:
        raise InputError(f"the model has no tokens for {text.strip()!r}: use other words.")
    return ids
