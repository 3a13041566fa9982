"""What is asked of an engine and what it answers, in token ids: the same for all engines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from regard.errors import InputError, UnknownNameError, nearest
from regard.generation.beam_tree import Event
from regard.text.tokenizer import Tokenizer

PENALTIES = ("gnmt", "average", "none")
STOPS = ("beam", "bound", "first")
"""When a sentence is done; see `regard.generation.beam.BeamOptions`."""


@dataclass(frozen=True)
class Hypothesis:
    """One written sequence, without its start token and without its end token."""

    ids: list[int]
    log_probs: list[float]
    """Of each token, and of the end token where the sequence is finished."""
    score: float
    """What hypotheses are ranked by: the summed log-probability over the length penalty."""
    finished: bool
    """Whether the model itself ended it, and not the length limit."""

    @property
    def log_prob(self) -> float:
        """The logarithm of the whole sequence's probability."""
        return sum(self.log_probs)


@dataclass(frozen=True)
class LengthPenalty:
    """What a summed log-probability is divided by, so that short sequences do not always win.

    gnmt: ((5 + length) / 6)^alpha (Wu et al. 2016; the Transformer's paper uses alpha 0.6);
    average: length^alpha; none: 1. The end token counts.
    """

    kind: str = "gnmt"
    alpha: float = 0.6

    def __post_init__(self) -> None:
        if self.kind not in PENALTIES:
            raise UnknownNameError(
                f"there is no length penalty {self.kind!r}; {nearest(self.kind, PENALTIES)}."
            )
        if not self.alpha >= 0:
            raise InputError(f"the length penalty's alpha is {self.alpha}; it must be 0 or more.")

    def __call__(self, length: int) -> float:
        """The divisor for a sequence of this many tokens."""
        if self.kind == "none":
            return 1.0
        return ((5 + length) / 6) ** self.alpha if self.kind == "gnmt" else length**self.alpha


@dataclass(frozen=True)
class SampleOptions:
    """How to draw.

    Args:
        end_id: the token that ends a text; None where the model has none.
        max_tokens: the most tokens to write.
        temperature: softmax(logits / temperature); 0 always takes the most probable token.
        top_k: draw only among the k most probable tokens.
        top_p: draw only among the fewest tokens whose probabilities sum to at least p.
        repetition_penalty: what log-probabilities of tokens written before are multiplied by.
        no_repeat: no run of this many tokens is written twice; 0 allows all.
        seed: the same seed writes the same text, whatever is written beside it.
        never: tokens that are never written.
    """

    end_id: int | None
    max_tokens: int = 200
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    no_repeat: int = 0
    seed: int = 0
    never: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, fits, allowed in (
            ("max_tokens", self.max_tokens >= 1, "1 or more"),
            ("temperature", self.temperature >= 0, "0 (no chance at all) or more"),
            ("top_k", self.top_k is None or self.top_k >= 1, "1 or more"),
            ("top_p", self.top_p is None or 0 < self.top_p <= 1, "above 0, up to 1"),
            ("repetition_penalty", self.repetition_penalty > 0, "above 0; 1 has no effect"),
            ("no_repeat", self.no_repeat >= 0, "0 (allow all) or more"),
        ):
            if not fits:
                raise InputError(f"{name} is {getattr(self, name)}; it must be {allowed}.")


_GROUP = 16
"""How much longer than another a source can be and still have the same limit."""


@dataclass(frozen=True)
class SearchOptions:
    """How to search for translations; engines agree on what each of these means.

    Args:
        beam: sequences kept at every token; 1 is greedy search.
        n_best: translations for each sentence.
        alpha: scores are log-probabilities divided by length^alpha.
        penalty: "gnmt" divides by ((5 + length) / 6)^alpha instead, as the Transformer's paper
            (with alpha 0.6), and "none" by nothing; only the engine torch has "gnmt".
        stop: a sentence is done when `beam` translations of it are ("beam"), when `n_best` are
            ("first"), or when nothing better can come ("bound"); other than "beam" only by torch.
        least: the fewest tokens written for each token of the source (counted by sixteens);
        factor: the most; where they are None, what the model's training data had (or 0 and 2).
        extra: so many more than `factor` says may be written.
        most: the most tokens written, however long the source; what the model has positions for.
        beam_tree: whether everything that was looked at is kept; only the engine torch can do that.
        scores: whether translations must have scores; greedy search is faster without.
        prefix: what every translation begins with.
        must: words or phrases that appear in every translation; only the engine torch can do that.
    """

    beam: int = 4
    n_best: int = 1
    alpha: float = 1.0
    penalty: str = "average"
    stop: str = "beam"
    least: float | None = None
    factor: float | None = None
    extra: int = 20
    most: int | None = None
    beam_tree: bool = False
    scores: bool = True
    prefix: str = ""
    must: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise InputError(f"beam is {self.beam}; it must be 1 (greedy) or more.")
        if not 1 <= self.n_best <= self.beam:
            raise InputError(
                f"{self.n_best} best translations were asked for with a beam of {self.beam}; ask "
                "for at least 1 and at most as many as the beam is wide."
            )
        LengthPenalty(self.penalty, self.alpha)  # says what is wrong with them
        if self.stop not in STOPS:
            raise InputError(f"stop is {self.stop!r}; it can be {' or '.join(STOPS)}.")
        if isinstance(self.must, str):
            raise InputError("must is a list of words or phrases: put the one into [ ].")
        if self.must and (self.prefix or self.beam_tree):
            raise InputError(
                "words that must appear are searched for in another way, which has no forced "
                "beginning and no tree: ask for one of them at a time."
            )

    @property
    def only_torch(self) -> str:
        """What of this only the engine torch can do; nothing if empty."""
        for asked, name in (
            (self.beam_tree, "beam tree"),
            (self.must, "words that must appear"),
            (self.penalty == "gnmt", "length penalty gnmt"),
            (self.stop != "beam", f"stopping rule {self.stop}"),
        ):
            if asked:
                return name
        return ""

    def group(self, n_source: int) -> int:
        """Which sources have the same limit; only they may be searched in one batch.

        Where an engine has one limit for a whole batch, no sentence then ends elsewhere because
        of its neighbors.
        """
        return -(-n_source // _GROUP)

    def limit(self, n_source: int) -> int:
        """The most tokens to write for a source of this many, the end token included."""
        factor = 2.0 if self.factor is None else self.factor
        limit = int(factor * self.group(n_source) * _GROUP) + self.extra
        return max(1, limit if self.most is None else min(limit, self.most))

    def shortest(self, n_source: int) -> int:
        """How many tokens come before the end for a source of this many."""
        fewest = int((self.least or 0.0) * (self.group(n_source) - 1) * _GROUP)
        return max(1, min(fewest, self.limit(n_source) - 1))

    def measured(self, ratios: tuple[float, float] | None) -> "SearchOptions":
        """The same with what was measured on the training data where nothing else was asked."""
        if ratios is None:
            return self
        least = ratios[0] if self.least is None else self.least
        factor = ratios[1] if self.factor is None else self.factor
        return replace(self, least=least, factor=factor)


@dataclass(frozen=True)
class Found:
    """One translation as token ids, without start and end."""

    ids: list[int]
    score: float
    """NaN where nobody asked for it."""
    tree: Sequence[Event] = ()
    """What beam search has noted, with the best translation where it was asked for."""


@runtime_checkable
class Pending(Protocol):
    """Sentences that are being translated."""

    def wait(self) -> list[list[Found]]:
        """The n best translations of each sentence, in the order they were given."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Something that translates token ids."""

    name: str

    def submit(self, sources: Sequence[list[int]], options: SearchOptions) -> Pending:
        """Begin to translate these sentences."""
        ...


def begun_with(target: Tokenizer, options: SearchOptions) -> list[int]:
    """The ids that every translation begins with."""
    return _known(target, options.prefix) if options.prefix else []


def phrases(target: Tokenizer, options: SearchOptions) -> list[list[int]]:
    """The ids of what must appear, as they stand in the middle of a text: after a space."""
    return [_known(target, f" {phrase.strip()}") for phrase in options.must]


def _known(target: Tokenizer, text: str) -> list[int]:
    ids = target.encode(text, specials=False, literal=True)
    if not ids or target.unknown_id in ids:
        raise InputError(f"the model cannot write {text.strip()!r}: it knows no such token.")
    return ids
