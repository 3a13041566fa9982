"""Translation of lines of text: split into parts, tokenized, searched, decoded and rejoined."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.capabilities import choose_engine
from regard.errors import InputError
from regard.files import chunks
from regard.generation.ctranslate2_engine import read_shortlist
from regard.generation.search import (
    BeamTree,
    Engine,
    Hypothesis,
    SearchOptions,
    build_tree,
    differing_steps,
)
from regard.generation.sentences import (
    CarryOver,
    Part,
    Segment,
    clean,
    in_lowercase,
    is_shouted,
    segments,
)
from regard.hardware import chosen_device
from regard.model_folder import is_transformers_folder, read_description, read_tokenizers
from regard.text.tokenizer import Tokenizer, TokenTexts

if TYPE_CHECKING:
    from regard.trace.trace import Trace

WINDOW = 2048  # lines that are translated together; two windows are in memory at a time
TORCH_WINDOW = 512  # the same for the slower torch engine, so that output appears sooner
_COPYING = 0.5  # share of numbers, addresses and tags that training data carries over
_MAX_SOURCE = 256  # tokens of a part, if the folder does not say what the model was trained on


@dataclass(frozen=True, slots=True)
class TranslatedPart:
    """A part of a line that was translated by itself."""

    source: str
    text: str
    source_ids: list[int]
    ids: list[int]  # of the translation without start and end; empty if the source was copied
    copied: bool = False
    separator: str = ""  # the text before the next part, in the line and in its translation
    tree: BeamTree | None = None  # the recorded search, if `beam_tree` was set
    score: float = 0.0
    finished: bool = True  # False if the length limit cut the translation off
    differs: tuple[int, ...] | None = None
    """Steps at which float32 would have chosen another token, if that was measured."""


@dataclass(frozen=True)
class Translation:
    """The translation of one line."""

    text: str
    score: float  # log-probability divided by the length penalty; the mean over the parts
    tokens: list[str]  # their texts: a token that starts a word starts with a space
    source_tokens: list[str]
    alternatives: list["Translation"] = field(default_factory=list)
    """The next best translations, if `n_best` is above 1; each is made of those of the parts."""
    parts: tuple[TranslatedPart, ...] = field(default=(), repr=False)
    """The line in the parts that were translated one by one; often there is one."""
    traces: tuple["Trace", ...] = field(default=(), repr=False, compare=False)
    """The traces of the parts that were not copied, if `trace` was set."""
    engine: str = field(default="", compare=False)  # empty if everything was copied
    precision: str = field(default="", compare=False)

    @property
    def differs(self) -> tuple[int, ...] | None:
        """The tokens that float32 would have chosen otherwise, if that was measured.

        The number of tokens of a part means its end.
        """
        found, first = [], 0
        for part in self.parts:
            if part.differs is None and not part.copied:
                return None
            found += [first + step for step in part.differs or ()]
            first += len(part.ids)
        return tuple(found) if self.engine else None

    @property
    def trace(self) -> "Trace":
        """The trace of a translation with one part."""
        return self._only("trace", self.traces, "see `traces`")

    @property
    def beam_tree(self) -> BeamTree:
        """The tree of the beam search of a translation with one part."""
        trees = [part.tree for part in self.parts if part.tree is not None]
        return self._only("beam tree", trees, "see the `tree` of each of its `parts`")

    def _only(self, what: str, found: Sequence[Any], instead: str) -> Any:
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError(f"the line was translated in {len(found)} parts: {instead}.")
        copied = self.parts and all(part.copied for part in self.parts)
        reason = "the line was copied" if copied else "it was not requested"
        raise InputError(f"this translation has no {what} because {reason}.")


_Found = list[tuple[Hypothesis, str]]  # the best translations of a part, with their texts


class Translator:
    """A tokenizer, an engine and a detokenizer.

    Args:
        max_source: maximum tokens of a part; longer lines are split.
        max_positions: number of positions the model has.
        ratios: smallest and largest number of target tokens per source token, if known.
        sentences: maximum sentences of a part: a model trained on single sentences omits much of
            a paragraph.
        window: number of lines that are translated together.
        carries_over: True to put back numbers, addresses and tags that a translation has lost.
    """

    def __init__(  # noqa: PLR0913  what a model folder says of its limits
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        target_tokenizer: Tokenizer | None = None,
        *,
        max_source: int = _MAX_SOURCE,
        max_positions: int | None = None,
        ratios: tuple[float, float] | None = None,
        sentences: int = 1,
        window: int = WINDOW,
        carries_over: bool = False,
    ) -> None:
        self.engine, self.max_positions, self.ratios = engine, max_positions, ratios
        self.sentences, self.window = sentences, window
        self.carries_over = carries_over
        self.max_source = min(max_source, max_positions or max_source)
        self.tokenizer, self.target = tokenizer, target_tokenizer or tokenizer
        self._empty = tokenizer.special_ids | {tokenizer.unknown_id}
        self._source_texts, self._target_texts = TokenTexts(tokenizer), TokenTexts(self.target)

    def translate(self, lines: Iterable[str], options: SearchOptions) -> Iterator[Translation]:
        """Yield the translation of each line, in order."""
        for done in self.translate_windows(chunks(lines, self.window), options):
            yield from done

    def translate_windows(
        self, given: Iterable[Sequence[str]], options: SearchOptions
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each window, one window behind the input.

        An empty window says that the input is waiting: what is being translated is yielded.
        """
        options = options.with_defaults(self.ratios, self.max_positions)
        pending: Callable[[], list[Translation]] | None = None
        for window in given:
            started = self._start(window, options) if window else None
            if pending is not None:
                yield pending()
            pending = started
        if pending is not None:
            yield pending()

    def translate_ids(self, ids: list[int], options: SearchOptions) -> Translation:
        """Translate one source of token ids, which is not split."""
        options = options.with_defaults(self.ratios, self.max_positions)
        source = Segment(self.tokenizer.decode(ids), "")  # refuses ids that do not exist
        if self.max_positions is not None and not 0 < len(ids) <= self.max_positions:
            raise InputError(
                f"the source has {len(ids):,} tokens; this model reads 1 to {self.max_positions:,}."
            )
        (found,) = self._decode(self.engine.submit([ids], options)())
        return self._translation(source, ids, found)

    def _start(
        self, window: Sequence[str], options: SearchOptions
    ) -> Callable[[], list[Translation]]:
        lines = self._prepare([clean(line) for line in window], options)
        requests = [[ids for _, ids, copied in parts if not copied] for parts in lines]
        wait = self._submit(requests, options)

        def ask(ids: list[int]) -> _Found:
            return next(self._decode(self.engine.submit([ids], options)()))

        def finish() -> list[Translation]:
            found = self._decode(wait())
            if self._carries_over(options):
                again = CarryOver(self._encode, self._has_no_text, self.tokenizer.unknown_id, ask)
                return [self._join(*again.carry_over(parts, found)) for parts in lines]
            return [self._join(parts, found) for parts in lines]

        return finish

    def _carries_over(self, options: SearchOptions) -> bool:
        return self.carries_over and not (options.prefix or options.must)

    def _decode(self, found: list[list[Hypothesis]]) -> Iterator[_Found]:
        texts = iter(self.target.decode_batch([one.ids for best in found for one in best]))
        return iter([[(one, next(texts)) for one in best] for best in found])

    def _submit(
        self, lines: Sequence[list[list[int]]], options: SearchOptions
    ) -> Callable[[], list[list[Hypothesis]]]:
        # A prefix or required words concern the first part of each line.
        if not (options.prefix or options.must):
            return self.engine.submit([ids for parts in lines for ids in parts], options)
        plain = replace(options, prefix="", must=())
        waits = (
            self.engine.submit([ids for parts in lines for ids in parts[:1]], options),
            self.engine.submit([ids for parts in lines for ids in parts[1:]], plain),
        )

        def wait() -> list[list[Hypothesis]]:
            first, later = (iter(wait()) for wait in waits)
            return [next(later if i else first) for parts in lines for i in range(len(parts))]

        return wait

    def _prepare(self, lines: list[str], options: SearchOptions) -> list[list[Part]]:
        prepared = []
        # Which sentence a required word belongs to is unknown, so sentences stay together.
        most = None if options.must else self.sentences
        for line, ids in zip(lines, self.tokenizer.encode_batch(lines, literal=True), strict=True):
            tag, text = self.tokenizer.split_tag(line)
            fits = partial(self._fits, tag=tag, known=len(ids) <= self.max_source)
            parts = [replace(x, tag=tag) for x in segments(text, fits, max_sentences=most)]
            tokens = [ids] if len(parts) == 1 else [self._encode(tag + x.text) for x in parts]
            for i, part in enumerate(parts if self._carries_over(options) else ()):
                if is_shouted(part.text):
                    tokens[i] = self._encode(tag + in_lowercase(part.text))
            pairs = zip(parts, tokens, strict=True)
            prepared.append([(p, ids, p.oversized or self._has_no_text(ids)) for p, ids in pairs])
        return prepared

    def _fits(self, text: str, *, tag: str, known: bool) -> bool:
        # A token covers at least a quarter of a character (one byte), so very long texts never fit.
        possible = len(text) <= 64 * self.max_source
        return known or (possible and len(self._encode(tag + text)) <= self.max_source)

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, literal=True)  # "[SEP]" in a line is ordinary text

    def _has_no_text(self, ids: list[int]) -> bool:
        if len(ids) > 2 and self.tokenizer.unknown_id not in ids:
            return False
        return not self.tokenizer.decode([id for id in ids if id not in self._empty]).strip()

    def _join(
        self, parts: list[Part], found: Iterator[list[tuple[Hypothesis, str]]]
    ) -> Translation:
        """Build the line's translation from those of its parts."""
        done = []
        for part, ids, copied in parts:
            if copied:
                own = TranslatedPart(part.text, part.text, ids, [], True, part.separator)
                done.append(Translation(part.text, 0.0, [], [], parts=(own,)))
            else:
                done.append(self._translation(part, ids, next(found)))
        if len(done) == 1:
            return done[0]
        ranked = [[one, *one.alternatives] for one in done]
        # The second best of a line consists of the second best of each part, and so on.
        first, *others = (
            _concatenate([several[min(rank, len(several) - 1)] for several in ranked])
            for rank in range(max(map(len, ranked)))
        )
        return replace(first, alternatives=others)

    def _translation(
        self, part: Segment, ids: list[int], found: list[tuple[Hypothesis, str]]
    ) -> Translation:
        source, engine = [self._source_texts[id] for id in ids], self.engine
        several = []
        for one, text in found:
            tokens = [self._target_texts[id] for id in one.ids]
            tree = build_tree(one.events, self._target_texts) if one.events else None
            own = TranslatedPart(
                part.text, text, ids, one.ids, False, part.separator, tree, one.score, one.finished
            )
            made = Translation(text, one.score, tokens, source, parts=(own,), engine=engine.name)
            several.append(replace(made, precision=engine.precision))
        return replace(several[0], alternatives=several[1:])


def _concatenate(parts: Sequence[Translation]) -> Translation:
    return Translation(
        "".join(one.text + one.parts[0].separator for one in parts),
        sum(one.score for one in parts) / len(parts),
        [token for one in parts for token in one.tokens],
        [token for one in parts for token in one.source_tokens],
        parts=tuple(part for one in parts for part in one.parts),
        engine=max(one.engine for one in parts),
        precision=max(one.precision for one in parts),
    )


def mark_differences(
    found: Sequence[Translation], exact: Engine, options: SearchOptions
) -> list[Translation]:
    """Mark the tokens of translations that another engine would have chosen otherwise."""
    parts = [part for one in found for part in one.parts if not part.copied]
    answers = [Hypothesis(part.ids, [], part.score, part.finished) for part in parts]
    steps = differing_steps(exact, [part.source_ids for part in parts], answers, options)
    marked = iter([replace(p, differs=d) for p, d in zip(parts, steps, strict=True)])
    return [
        replace(one, parts=tuple(p if p.copied else next(marked) for p in one.parts))
        for one in found
    ]


def open_translator(
    folder: Path,
    *,
    engine: str = "auto",
    precision: str = "float32",
    torch_feature: str = "",
    shortlist: bool = False,
    ensemble: Sequence[Path] = (),
    languages: tuple[str | None, str | None] = (None, None),
) -> Translator:
    """Open a model folder for translation; torch is imported only if its engine is used.

    Args:
        torch_feature: what is needed that only the torch engine supports, if anything.
        shortlist: restrict the output to the folder's shortlist.
        ensemble: folders of models to average with; all need the same tokenizers.
        languages: of source and target, for models that have many.
    """
    if any(languages) and not is_transformers_folder(folder):
        raise InputError(f"{folder} has one pair of languages: leave out the languages.")
    if is_transformers_folder(folder) or chosen_device() != "cpu":
        from regard.generation.model_engines import loaded_translator

        narrowed = shortlist or bool(ensemble)
        return loaded_translator(
            folder, languages, engine=engine, precision=precision, narrowed=narrowed
        )
    description = read_description(folder)
    tokenizer, separate = read_tokenizers(folder, description)
    if description.task != "translation" or tokenizer is None:
        raise InputError(f"{folder} is a model for {description.task}: give one for translation.")
    target = separate or tokenizer
    model = description.model
    torch_feature = torch_feature or ("ensembles" if ensemble else "")
    chosen, precision = choose_engine(
        description.family, model, engine, precision, torch_feature=torch_feature
    )
    narrow = read_shortlist(folder, tokenizer, target) if shortlist else None
    limits = translator_limits(description.extras, model)
    options: dict[str, Any] = {"int8": precision == "int8", "shortlist": narrow}
    if chosen == "torch":
        import torch

        from regard.generation.torch_engine import TorchEngine, check_ensemble
        from regard.model import Model

        folders = [folder, *ensemble]
        check_ensemble(folders)
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        modules = [Model.load(one, dtype=dtype).module.eval() for one in folders]
        opened, limits["window"] = TorchEngine(modules, target, **options), TORCH_WINDOW
    else:
        from regard.generation.ctranslate2_engine import CTranslate2Engine

        options["n_vocab"] = int(model["n_vocab"])
        opened = CTranslate2Engine(folder, tokenizer, target, **options)
    return Translator(opened, tokenizer, target, **limits)


def translator_limits(extras: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of a Translator that follow from a model's training data and positions."""
    ratios = extras.get("target_ratios")
    return {
        "max_source": int(extras.get("longest_source", _MAX_SOURCE)),
        "ratios": None if ratios is None else (float(ratios[0]), float(ratios[1])),
        "sentences": max(int(extras.get("sentences", 1)), 1),
        "max_positions": max_positions(settings),
        "carries_over": float(extras.get("copied_spans", 0)) >= _COPYING,
    }


def max_positions(settings: Mapping[str, Any]) -> int:
    """Return the number of positions a model has."""
    limited = settings.get("positions") in ("learned", "own")  # "own": a model that runs as it is
    return int(settings["max_positions"]) if limited else 2048  # CTranslate2 stores as many
