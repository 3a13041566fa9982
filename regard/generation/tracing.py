"""Traces of answers: a translator's search and its trace use the same text, parts and edits.

`model.trace`, `regard trace` and the server all call `trace_answer`, so that what is explained is
what `model.translate` answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from typing import Any

import numpy as np
import torch

from regard.capabilities import choose_engine
from regard.errors import InputError
from regard.files import chunks
from regard.generation.beam import Alternative, alternatives
from regard.generation.predictions import decoder_prompt
from regard.generation.sampling import choose_token
from regard.generation.search import (
    Engine,
    EngineKeywords,
    Hypothesis,
    SamplingOptions,
    SearchOptions,
)
from regard.generation.stepper import SuppressingStepper, TranslationStepper, UncachedModule
from regard.generation.text_generation import Generation
from regard.generation.torch_engine import TorchEngine, pad_ids
from regard.generation.translator import (
    TranslatedPart,
    Translation,
    Translator,
    mark_differences,
    translator_limits,
)
from regard.model import Model
from regard.tap import listen
from regard.text.tokenizer import suppressed_ids
from regard.trace.capture import TolerantEditor, read_ids, trace_model
from regard.trace.edit import Edit, check_edits
from regard.trace.edits import Ablate
from regard.trace.outputs import AlternativeTranslation
from regard.trace.trace import Trace

_DEFAULT_SEARCH = SearchOptions()
_COUNTED_PARTS = 4
"""Parts that are translated together while progress is reported."""

PartProgress = Callable[[str, int, int], None]
"""Called with "writing" or "tracing", the parts of a text that are done, and their number."""


def _check_reading(model: Model, precision: str, target: Any) -> None:
    """Refuse what a text that is only read cannot have."""
    if precision != "float32":
        raise InputError(
            f"{precision} changes the search for a translation, and nothing is searched here: "
            "use float32."
        )
    if target is not None and model.task == "translation":
        model.translation_tokenizers()  # refuses many languages without a choice


def trace_answer(
    model: Model,
    given: Any,
    target: Any = None,
    *,
    edits: Sequence[Edit] = (),
    search: SearchOptions = _DEFAULT_SEARCH,
    missing: str = "error",
    progress: PartProgress | None = None,
    **recorded: Any,
) -> Trace:
    """Record what the model computes when it answers.

    A translator first searches for its answer exactly as `model.translate` does, unless a target
    is given, and then reads it once. A text that is translated in several parts gives the trace of
    the first one; its `parts` lists all of them. Edits apply to every part that has their
    positions.

    Args:
        given: a text or token ids, which are one part; an image for vision models.
        target: a text, or token ids as in `trace_model`, to read instead of the model's answer.
        missing: "error" to refuse edits that apply nowhere, "ignore" to skip them.
        progress: called after each few parts; raise in it to cancel.
        recorded: `only` and `gradients` of `trace_model`, and `engine` and `precision` of the
            search. What is recorded is computed in float32, and tokens that it would have chosen
            otherwise are marked (`differs` of the output).
    """
    names = ("engine", "precision")
    opening = {name: recorded.pop(name) for name in names if name in recorded}
    precision = opening.get("precision", "float32")
    if model.family not in ("transformer", "seq2seq") or target is not None:
        _check_reading(model, precision, target)
        return trace_model(model, given, target, edits=edits, **recorded)
    if edits and precision != "float32":
        raise InputError(f"{precision} cannot be combined with edits: use float32.")
    editors = [TolerantEditor(edit) for edit in check_edits(edits)]
    translator = edited_translator(model, editors) if edits else model.translator(search, **opening)
    if progress is not None:
        translator = model.translator_with(_CountedEngine(translator.engine, progress))
    if isinstance(given, str):
        (answer,) = translator.translate([given], search)
    else:
        answer = translator.translate_ids(read_ids(given), search)
    answer = _marked(model, answer, search)
    trace = _trace_parts(model, answer, editors, progress, **recorded)
    if missing == "error":
        for editor in editors:
            editor.check()
    return trace


def _marked(model: Model, answer: Translation, search: SearchOptions) -> Translation:
    """Mark the steps at which float32 would have chosen otherwise, if it did not answer."""
    if answer.precision in ("", "float32"):
        return answer
    (marked,) = mark_differences([answer], model.translator(search).engine, search)
    return marked


def trace_generation(model: Model, found: Generation, options: SamplingOptions) -> Generation:
    """Add the trace of a generated text, with the tokens that float32 would not have chosen.

    Only the best tokens (temperature 0) can be compared: others were drawn at random.
    """
    _, ids = decoder_prompt(model, found.prompt, options)
    text, tokenizer = [*ids, *found.ids], model.tokenizer
    assert tokenizer is not None
    trace = trace_model(model, text)
    log_probs = torch.log_softmax(trace.values["output.logits"][0].float(), dim=-1).cpu().numpy()
    log_probs[:, suppressed_ids(tokenizer, log_probs.shape[1])] = -inf
    chosen = [*text, *([tokenizer.end_id] if found.ended else [])]
    differs = ()
    if options.temperature == 0:
        anything = np.random.default_rng(0)  # not used
        differs = tuple(
            n
            for n in range(len(ids), len(chosen))
            if choose_token(log_probs[n - 1], chosen[:n], options, anything) != chosen[n]
        )
    about = {"engine": found.engine, "precision": found.precision, "differs": differs}
    trace.output = replace(trace.output, **about)
    return replace(found, trace=trace, differs=differs)


def trace_translation(
    model: Model,
    answer: Translation,
    edits: Sequence[Edit] = (),
    search: SearchOptions = _DEFAULT_SEARCH,
) -> Translation:
    """Add a trace of each translated part to a translation."""
    if all(part.copied for part in answer.parts):
        return answer
    answer = _marked(model, answer, search)
    trace = _trace_parts(model, answer, [TolerantEditor(edit) for edit in edits])
    return replace(answer, traces=tuple(trace.parts))


def _trace_parts(
    model: Model,
    answer: Translation,
    editors: Sequence[TolerantEditor],
    progress: PartProgress | None = None,
    **recorded: Any,
) -> Trace:
    translated = [i for i, part in enumerate(answer.parts) if not part.copied]
    traces = []
    for i in translated:
        traces.append(_trace_part(model, answer, i, editors, **recorded))
        if progress is not None:
            progress("tracing", len(traces), len(translated))
    if not traces:
        raise InputError("there is nothing to trace: the model knows none of the text's tokens.")
    traces[0].later_parts = traces[1:]
    return traces[0]


def _trace_part(
    model: Model,
    answer: Translation,
    index: int,
    editors: Sequence[TolerantEditor],
    **recorded: Any,
) -> Trace:
    part, (source, tokenizer) = answer.parts[index], model.translation_tokenizers()
    # Characters of the text itself are better labels than decoded ids, where both agree.
    same = source.encode(part.source) == part.source_ids
    start, end = tokenizer.required_id("start"), (tokenizer.required_id("end"),)

    def ids_of(part: TranslatedPart) -> tuple[int, ...]:
        return (*part.ids, *(end if part.finished else ()))

    target = (start, *ids_of(part))
    with listen(*editors):
        trace = trace_model(model, part.source if same else part.source_ids, target, **recorded)
    ranked = [one.parts[index] for one in answer.alternatives]
    trace.output = replace(
        trace.output,
        text=answer.text,
        part_source=part.source,
        part_text=part.text,
        score=part.score,
        engine=answer.engine,
        precision=answer.precision,
        differs=part.differs or (),
        alternatives=tuple(
            AlternativeTranslation(one.text, ids_of(one), one.score) for one in ranked
        ),
    )
    return trace


def translate_texts(
    model: Model,
    texts: Sequence[str],
    options: SearchOptions,
    *,
    opening: EngineKeywords,
    edits: Sequence[Edit] = (),
    trace: bool = False,
) -> list[Translation]:
    """Translate texts, under edits and with traces if that is wanted; see `Model.translate`."""
    if edits:
        if (precision := opening.get("precision", "float32")) != "float32":
            raise InputError(f"{precision} cannot be combined with edits: use float32.")
        settings = model.config.to_dict()
        choose_engine(model.family, settings, opening.get("engine", "auto"), torch_feature="edits")
        found = translate_edited(model, texts, options, edits)
    else:
        found = list(model.translator(options, **opening).translate(texts, options))
    return [trace_translation(model, one, edits, options) for one in found] if trace else found


def translate_edited(
    model: Model, texts: Sequence[str], options: SearchOptions, edits: Sequence[Edit]
) -> list[Translation]:
    """Translate under edits with the torch engine, one part at a time."""
    editors = [TolerantEditor(edit) for edit in edits]
    found = list(edited_translator(model, editors).translate(texts, options))
    for editor in editors if any(not p.copied for one in found for p in one.parts) else ():
        editor.check()
    return found


def edited_translator(model: Model, editors: Sequence[TolerantEditor]) -> Translator:
    """Return a translator that searches under edits."""
    engine = _EditedEngine([steppable(model, editors)], model.translation_tokenizers()[1])
    engine.editors = editors
    return model.translator_with(engine)


class _CountedEngine:
    """Another engine that translates a few sources at a time and reports how many are done."""

    def __init__(self, engine: Engine, progress: PartProgress) -> None:
        self.engine, self.progress, self.name = engine, progress, engine.name
        self.precision = engine.precision

    def submit(
        self,
        sources: Sequence[list[int]],
        options: SearchOptions,
        starts: Sequence[list[int]] | None = None,
    ) -> Callable[[], list[list[Hypothesis]]]:
        if starts is not None:
            return self.engine.submit(sources, options, starts)

        def wait() -> list[list[Hypothesis]]:
            found: list[list[Hypothesis]] = []
            self.progress("writing", 0, len(sources))
            for several in chunks(sources, _COUNTED_PARTS):
                found += self.engine.submit(several, options)()
                self.progress("writing", len(found), len(sources))
            return found

        return wait


class _EditedEngine(TorchEngine):
    """Searches under edits; each source is a batch by itself, so positions are its own."""

    editors: Sequence[TolerantEditor] = ()

    def translate(
        self, sources: Sequence[list[int]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        translate = super().translate
        with listen(*self.editors):
            return list(chain(*(translate([source], options) for source in sources)))


def alternatives_at(
    model: Model,
    source_ids: Sequence[int],
    prefix: list[int],
    *,
    edits: Sequence[Edit] = (),
    search: SearchOptions = _DEFAULT_SEARCH,
    count: int = 5,
) -> list[Alternative]:
    """Return the most probable tokens after a prefix, each with the best text that follows.

    The prefix has no start token.
    """
    _, tokenizer = model.translation_tokenizers()
    editors = [TolerantEditor(edit) for edit in edits]
    module = steppable(model, editors)
    limits = translator_limits(model.extras, model.config.to_dict())
    options = search.with_defaults(limits["ratios"], limits["max_positions"])
    start_id, end_id = tokenizer.required_id("start"), tokenizer.required_id("end")
    suppressed = suppressed_ids(tokenizer, model.config.n_vocab)
    limit, ends = options.limit(len(source_ids)), {"start_id": start_id, "end_id": end_id}

    def make_stepper(n_rows: int) -> SuppressingStepper:
        rows = pad_ids([list(source_ids)] * n_rows, model.device)
        return SuppressingStepper(TranslationStepper(module, *rows), suppressed, end_id=end_id)

    with torch.inference_mode(), listen(*editors):
        return alternatives(make_stepper, prefix, limit, options, **ends, count=count)


def steppable(model: Model, editors: Sequence[TolerantEditor]) -> Any:
    """Return the module to run step by step: means over queries need all of them at once."""
    module = model.module.eval()
    means = any(isinstance(one.edit, Ablate) and one.edit.to == "mean" for one in editors)
    return UncachedModule(module) if means else module
