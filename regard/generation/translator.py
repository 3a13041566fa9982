"""A model folder opened for translation, by the fastest engine that can run it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.generation.beam_tree import BeamTree, tree_of
from regard.generation.search import Engine, Found, Pending, SearchOptions
from regard.generation.sentences import Segment, clean, segments
from regard.text.token_names import token_names
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.trace.trace import Trace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.generation.sentences import windows
from regard.generation.vocabulary_shortlist import Shortlist, read_shortlist
from regard.model_folder import Description, read_description, read_tokenizers

WINDOW = 2048
"""Lines that are in memory at once, times two."""
SLOW_WINDOW = 512
"""The same for engines that would let people wait too long for so many."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a line that was translated by itself, as text and as token ids."""

    source: str
    text: str
    source_ids: list[int]
    ids: list[int]
    """What was written, without start and end; nothing where the source was copied."""
    copied: bool = False
    seam: str = ""
    """What stands between this part and the next, in the line and in its translation."""
    tree: BeamTree | None = None
    """Every sequence that beam search looked at, where that was asked for."""


@dataclass(frozen=True)
class Translation:
    """One line's translation."""

    text: str
    score: float
    """Log-probability over the length penalty; the mean over its parts for a line in parts."""
    tokens: list[str]
    source_tokens: list[str]
    alternatives: list["Translation"] = field(default_factory=list)
    """The next best ones, where several were asked for; of a line in parts, of each part."""
    parts: tuple[Part, ...] = field(default=(), repr=False)
    """What was translated at a time: the whole line, unless it is long or has many sentences."""
    traces: tuple["Trace", ...] = field(default=(), repr=False, compare=False)
    """Of each part that was not copied, where traces were asked for."""

    @property
    def trace(self) -> "Trace":
        """Everything the model computed when it wrote this translation."""
        if len(self.traces) == 1:
            return self.traces[0]
        if self.traces:
            raise InputError(f"the line was translated in {len(self.traces)} parts: see `traces`.")
        raise InputError(f"there is no trace of this translation: {self._why_not}.")

    @property
    def beam_tree(self) -> BeamTree:
        """Every sequence that beam search looked at, its score at each step and why it died."""
        trees = [part.tree for part in self.parts if part.tree is not None]
        if len(trees) == 1:
            return trees[0]
        if trees:
            raise InputError(f"the line was translated in {len(trees)} parts: see `parts`.")
        raise InputError(f"there is no beam tree of this translation: {self._why_not}.")

    @property
    def _why_not(self) -> str:
        copied = self.parts and self.parts[0].copied
        return "the line was copied" if copied else "none was asked for"


@dataclass(frozen=True)
class _Line:
    """A line on its way: its parts, their tokens, and where these stand in the batch."""

    parts: list[Segment]
    ids: list[list[int]]
    silent: list[bool]
    """Whether there is nothing to translate in a part."""
    first: int

    def asked(self) -> list[list[int]]:
        """The tokens of the parts that an engine translates."""
        return [ids for ids, silent in zip(self.ids, self.silent, strict=True) if not silent]


class LineTranslator:
    """A tokenizer in front of an engine and one behind it.

    Args:
        longest: the most tokens a part of a line may have; longer lines are translated in parts.
        room: how many positions the model has, where they are counted.
        ratios: how much shorter and longer than sources translations are, where that is known.
        sentences: how many of them the model may get at once. One that was trained on single
            sentences leaves out much of a paragraph.
        window: how many lines are translated together.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        target_tokenizer: Tokenizer | None = None,
        *,
        longest: int = 256,
        room: int | None = None,
        ratios: tuple[float, float] | None = None,
        sentences: int = 1,
        window: int = WINDOW,
    ) -> None:
        self.engine, self.room, self.ratios, self.window = engine, room, ratios, window
        self.sentences = sentences
        self.longest = longest if room is None else min(longest, room)
        self.tokenizer, self.target = tokenizer, target_tokenizer or tokenizer
        self._empty = tokenizer.special_ids | {tokenizer.unknown_id}
        self._source_names = token_names(self.tokenizer)
        same = self.target is self.tokenizer
        self._target_names = self._source_names if same else token_names(self.target)

    def translate(self, lines: Iterable[str], options: SearchOptions) -> Iterator[Translation]:
        """The translation of each line, in order."""
        for done in self.translate_windows(windows(lines, self.window), options):
            yield from done

    def translate_windows(
        self, given: Iterable[Sequence[str]], options: SearchOptions
    ) -> Iterator[list[Translation]]:
        """The translations of each window of lines, one window behind what is read.

        An empty window says that no line is at hand: what is being translated comes out at once.
        """
        options = options.measured(self.ratios)
        if self.room is not None:
            options = replace(options, most=min(options.most or self.room, self.room))
        before: tuple[list[_Line], Pending] | None = None
        for window in given:
            after = self._begin(window, options) if window else None
            if before is not None:
                yield self._finish(*before)
            before = after
        if before is not None:
            yield self._finish(*before)

    def _begin(self, window: Sequence[str], options: SearchOptions) -> tuple[list[_Line], Pending]:
        ready = self._prepare([clean(line) for line in window], options)
        if not (options.prefix or options.must):
            asked = [ids for line in ready for ids in line.asked()]
            return ready, self.engine.submit(asked, options)
        # What a line begins with, or must hold, is asked of its first part alone.
        first = [ids for line in ready for ids in line.asked()[:1]]
        later = [ids for line in ready for ids in line.asked()[1:]]
        plain = replace(options, prefix="", must=())
        both = self.engine.submit(first, options), self.engine.submit(later, plain)
        return ready, _InTurn(*both, [len(line.asked()) for line in ready])

    def _prepare(self, lines: list[str], options: SearchOptions) -> list[_Line]:
        ready, first = [], 0
        most = None if options.must else self.sentences  # which sentence shall hold them?
        for line, ids in zip(lines, self.tokenizer.encode_batch(lines, literal=True), strict=True):
            parts = self._parts(line, len(ids), most)
            tokens = [ids] if len(parts) == 1 else [self._encode(p.text) for p in parts]
            pairs = zip(parts, tokens, strict=True)
            silent = [part.strange or self._is_silent(ids) for part, ids in pairs]
            ready.append(_Line(parts, tokens, silent, first))
            first += len(silent) - sum(silent)
        return ready

    def _parts(self, line: str, n_tokens: int, most: int | None) -> list[Segment]:
        if n_tokens > self.longest:
            return segments(line, self._fits, most=most)
        return segments(line, lambda text: True, most=most)  # its parts are shorter still

    def _fits(self, text: str) -> bool:
        # A token covers at least a quarter of a character (a byte), so long texts need no look.
        if len(text) > 64 * self.longest:
            return False
        return len(self._encode(text)) <= self.longest

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, literal=True)  # "[SEP]" in a text is text

    def _is_silent(self, ids: list[int]) -> bool:
        """Whether there is nothing to translate: no token at all, or none that is known."""
        if len(ids) > 2 and self.tokenizer.unknown_id not in ids:
            return False
        return not self.tokenizer.decode([id for id in ids if id not in self._empty]).strip()

    def _finish(self, lines: list[_Line], pending: Pending) -> list[Translation]:
        found = pending.wait()
        texts = iter(self.target.decode_batch([one.ids for best in found for one in best]))
        named = [[(one, next(texts)) for one in best] for best in found]
        return [self._put_together(line, named) for line in lines]

    def _put_together(self, line: _Line, found: list[list[tuple[Found, str]]]) -> Translation:
        """The line's translation; parts that hold no known token are copied as they are."""
        ready, place = [], line.first
        for part, ids, silent in zip(line.parts, line.ids, line.silent, strict=True):
            if silent:
                own = Part(part.text, part.text, ids, [], copied=True, seam=part.seam)
                ready.append(Translation(part.text, 0.0, [], [], parts=(own,)))
            else:
                ready.append(self._translated(part, ids, found[place]))
                place += 1
        if len(ready) == 1:
            return ready[0]
        several = [[one, *one.alternatives] for one in ready]
        # The second best of a line has the second best of each part, and so on.
        ranks = range(max(map(len, several)))
        first, *others = (
            _joined([one[min(rank, len(one) - 1)] for one in several]) for rank in ranks
        )
        return replace(first, alternatives=others)

    def _translated(
        self, part: Segment, ids: list[int], found: list[tuple[Found, str]]
    ) -> Translation:
        source = [self._source_names[id] for id in ids]
        several = []
        for one, text in found:
            tokens = [self._target_names[id] for id in one.ids]
            tree = tree_of(one.tree, self._target_names) if one.tree else None
            own = (Part(part.text, text, ids, one.ids, seam=part.seam, tree=tree),)
            several.append(Translation(text, one.score, tokens, source, parts=own))
        if len(several) == 1:
            return several[0]
        first = several[0]
        return Translation(first.text, first.score, first.tokens, source, several[1:], first.parts)


def _joined(parts: Sequence[Translation]) -> Translation:
    """A line of several parts as one translation."""
    return Translation(
        "".join(one.text + one.parts[0].seam for one in parts),
        sum(one.score for one in parts) / len(parts),
        [token for one in parts for token in one.tokens],
        [token for one in parts for token in one.source_tokens],
        parts=tuple(part for one in parts for part in one.parts),
    )


@dataclass(frozen=True)
class _InTurn:
    """Translations of lines' first parts and of their later ones, as one list."""

    first: Pending
    later: Pending
    counts: Sequence[int]
    """How many parts of each line are translated."""

    def wait(self) -> list[list[Found]]:
        first, later = iter(self.first.wait()), iter(self.later.wait())
        return [next(later if part else first) for n in self.counts for part in range(n)]


ENGINES = ("auto", "ctranslate2", "torch")
_LONGEST = 256
"""Tokens a part of a line may have, where the folder does not say what its model was trained on."""
_ROOM = 2048
"""Positions of a model that can compute any: more than it was trained on, no engine has more."""


def open_translator(
    folder: Path,
    *,
    engine: str = "auto",
    int8: bool = False,
    only_torch: str = "",
    shortlist: bool = False,
    others: Sequence[Path] = (),
) -> LineTranslator:
    """The translator in a folder; torch is imported only if its engine is needed.

    Args:
        only_torch: what shall be asked of it that no other engine can do.
        shortlist: whether it shall write only what the folder's shortlist allows.
        others: folders of models that write together with this one; all have the same tokenizers.
    """
    description = read_description(folder)
    tokenizer, own = read_tokenizers(folder, description)
    target = own or tokenizer
    if description.task != "translation" or tokenizer is None or target is None:
        raise InputError(
            f"{folder} holds a model for {description.task}; only one for translation translates."
        )
    options = {**lengths_of(description.extras), "room": room_of(description.model)}
    narrow = read_shortlist(folder, tokenizer, target) if shortlist else None
    only_torch = only_torch or ("ensembles" if others else "")
    if choose_engine(description, engine, int8=int8, only_torch=only_torch) == "torch":
        _check_together([folder, *others])
        plain = _plain([folder, *others], target, narrow, int8=int8)
        return LineTranslator(plain, tokenizer, target, window=SLOW_WINDOW, **options)
    from regard.generation.ctranslate2_engine import FastEngine

    n_vocab = int(description.model["n_vocab"])
    fast = FastEngine(folder, tokenizer, target, n_vocab=n_vocab, int8=int8, shortlist=narrow)
    return LineTranslator(fast, tokenizer, target, **options)


def choose_engine(
    description: Description, engine: str, *, int8: bool = False, only_torch: str = ""
) -> str:
    """The engine asked for; "auto" is CTranslate2 for what it can run, else PyTorch."""
    check_engine(engine)
    fast = runs_fast(description)
    if engine == "ctranslate2" and not fast:
        raise InputError(
            f"CTranslate2 cannot run this model ({description.family}): use the engine torch."
        )
    if engine == "ctranslate2" and only_torch:
        raise InputError(f"CTranslate2 has no {only_torch}: use the engine torch.")
    chosen = engine if engine != "auto" else "ctranslate2" if fast and not only_torch else "torch"
    if int8 and chosen == "torch" and not runs_in_int8(description):
        raise InputError(
            "int8 is for Transformers with exact attention whose heads have keys of their own and "
            f"no rotary positions, and this model ({description.family}) is none: translate "
            "without int8."
        )
    return chosen


def check_engine(engine: str) -> None:
    """Refuse what is no engine's name."""
    if engine not in ENGINES:
        raise InputError(f"engine is {engine!r}; it can be {', '.join(ENGINES)}.")


def lengths_of(extras: Mapping[str, Any]) -> dict[str, Any]:
    """What a folder knows of the lines that its model was trained on.

    How many tokens long ones had, how much shorter and longer translations were, and how many
    sentences there were in a line.
    """
    ratios = extras.get("target_ratios")
    return {
        "longest": int(extras.get("longest_source", _LONGEST)),
        "ratios": None if ratios is None else (float(ratios[0]), float(ratios[1])),
        "sentences": max(int(extras.get("sentences", 1)), 1),
    }


def room_of(settings: Mapping[str, Any]) -> int:
    """How many positions a model has, if it has learned each of them."""
    return int(settings["max_positions"]) if settings.get("positions") == "learned" else _ROOM


def runs_fast(description: Description) -> bool:
    """Whether CTranslate2 can run the model; `regard.interop.ctranslate2` says why not."""
    settings = description.model
    d_k = settings.get("d_k") or settings.get("d_model", 0) // (settings.get("n_heads") or 1)
    return (
        description.family == "transformer"
        and settings.get("attention", "exact") == "exact"
        and settings.get("positions", "sinusoidal") in ("sinusoidal", "learned", "rotary")
        and settings.get("rotary_scaling") is None
        and settings.get("d_v") in (None, d_k)
    )


def runs_in_int8(description: Description) -> bool:
    """Whether the engine torch has int8 products for the model, too."""
    settings = description.model
    grouped = settings.get("n_kv_heads") not in (None, settings.get("n_heads"))
    return runs_fast(description) and settings.get("positions") != "rotary" and not grouped


def _check_together(folders: Sequence[Path]) -> None:
    """Refuse models that would not understand each other."""
    known = []
    for folder in folders:
        description = read_description(folder)
        tokenizers = read_tokenizers(folder, description)
        known.append([one.fingerprint for one in tokenizers if one is not None])
        if description.task != "translation" or known[-1] != known[0]:
            raise InputError(
                f"{folder} cannot write together with {folders[0]}: both must translate, and have "
                "the same tokenizers."
            )


def _plain(
    folders: Sequence[Path], target: Tokenizer, shortlist: Shortlist | None, *, int8: bool
) -> Engine:
    from regard.generation.torch_engine import PlainEngine
    from regard.model import Model

    models = [Model.load(folder).module.eval() for folder in folders]
    return PlainEngine(models, target, shortlist=shortlist, int8=int8, fixed=True)
