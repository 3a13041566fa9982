"""Run a model on one input and record everything it computes.

The tokens of a trace are "source" for encoders (patches of an image) and "target" for decoders;
translators have both, and "output": what the decoder predicts while it reads the target.
`regard.generation.tracing` finds the target of a translator if none is given.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from PIL import Image
from torch import Tensor

from regard.data.image_files import read_image as load_image
from regard.data.image_files import read_pixels
from regard.errors import InputError, first_line
from regard.layers.patch import cut_grid
from regard.model import Model
from regard.models.vision import VisionConfig
from regard.tap import Tapped, listen, split_path
from regard.text.tokenizer import Tokenizer
from regard.trace import outputs
from regard.trace.edit import Edit, Editor
from regard.trace.edits import Allow, SetWeights
from regard.trace.recorder import GradientListener
from regard.trace.trace import Trace
from regard.trace.watch import watch

_FEW = 12
"""Up to this many classes, an answer lists all of them."""


class RecordKeywords(TypedDict, total=False):
    """Options of `model.trace`."""

    edits: Sequence[Edit]  # changes to what is computed
    engine: str  # that searches for the answer of a translator, and its precision
    precision: str
    only: Sequence[str]  # paths of sites and values to record, such as "decoder.*.cross"
    gradients: bool | tuple[int, int]
    """Also compute `trace.gradients`, those of a logit with respect to every value: True for the
    best token at the last position, or a position and a token id."""


class TolerantEditor(Editor):
    """An editor of one edit that ignores texts too short for it: of early steps, of some parts."""

    def __init__(self, edit: Edit) -> None:
        super().__init__([edit])
        self.edit = edit
        self.applied = False
        self._error: InputError | None = None
        self._site: list[str] = []

    def see(self, tapped: Tapped) -> Any:
        self._site = split_path(tapped.path)[0].split(".")
        try:
            value = super().see(tapped)
        except InputError as error:
            self._error = error
            return tapped.value
        self.applied |= value is not tapped.value
        if value is not tapped.value and "@" not in tapped.path:
            self._check_later_keys(tapped.value, value)
        return value

    def _check_later_keys(self, before: Any, after: Any) -> None:
        """Refuse to show a token one that did not exist yet when the model wrote it."""
        n, heads, of_encoder = self._target.n_query, self._target.n_heads, "encoder" in self._site
        if n != self._target.n_key or of_encoder or not isinstance(self.edit, Allow | SetWeights):
            return
        if isinstance(self.edit, Allow):
            before, after = (mask.tensor(n, lead=(1, heads)) for mask in (before, after))
        if ((after != 0) & (before == 0)).triu(1).any():
            raise InputError(
                f"{self.edit!r} shows a token a later one, which does not exist when the model "
                "writes: give the target, which is then read as a whole."
            )

    def check(self) -> None:
        """Raise an error if the edit was not applied anywhere."""
        if not self.applied:
            if self._error is not None:
                raise self._error
            self.finish()


@torch.no_grad()
def trace_model(
    model: Model,
    given: Any,
    target: Any = None,
    *,
    edits: Sequence[Edit] = (),
    only: Sequence[str] = (),
    gradients: bool | tuple[int, int] = False,
) -> Trace:
    """Record one run of the model.

    Args:
        given: a text or token ids; an image's path, an image or a tensor for vision models.
        target: a text, or token ids, which are read as given except for a missing start token;
            required for models with a target.
        edits: changes to what is computed, which must all fit.
        only: paths of sites and values to record, such as "decoder.*.cross"; by default all.
        gradients: True, or the position and the id of the logit whose gradients are computed.
    """
    keeper = [GradientListener()] if gradients is not False else []
    with (
        torch.set_grad_enabled(bool(keeper)),
        listen(*keeper),
        watch(edits=edits, only=only) as trace,
    ):
        if model.family in ("transformer", "seq2seq"):
            _run_translator(model, given, target, trace)
        elif target is not None:
            raise InputError(
                f"a model of the family {model.family} has no target: give it one text or image."
            )
        else:
            run = {"encoder": _run_encoder, "decoder": _run_decoder, "vision": _run_vision}
            run[model.family](model, given, trace)
    for one in keeper:
        trace.gradients = one.gradients(*(gradients if isinstance(gradients, tuple) else (-1,)))
    trace.origin = model
    trace.unwatched += getattr(model.module, "unwatched", [])
    trace.streams.update(getattr(model.module, "streams", {}))
    trace.stream_problem = getattr(model.module, "stream_problem", "")
    return trace


@dataclass(frozen=True)
class Tokens:
    """Token ids, the pieces of text they cover, and the number of each one's word."""

    ids: list[int]
    pieces: list[str]
    words: list[int | None]
    """None for special tokens."""

    def batch(self, model: Model) -> Tensor:
        """Return the ids as a batch of one, on the model's device."""
        return torch.tensor([self.ids], device=model.device)


def read_tokens(tokenizer: Tokenizer | None, given: Any) -> Tokens:
    """Tokenize a text, or look up token ids."""
    if isinstance(given, str) and tokenizer is None:
        raise InputError("this model has no tokenizer: give token ids instead of a text.")
    ids = [] if isinstance(given, str) else read_ids(given)
    if tokenizer is None:
        tokens = Tokens(ids, [str(id) for id in ids], list(range(len(ids))))
    else:
        found = tokenizer.pieces(given) if isinstance(given, str) else tokenizer.pieces_of(ids)
        tokens = Tokens([x.id for x in found], [x.text for x in found], [x.word for x in found])
    if not tokens.ids:
        raise InputError("the input has no tokens: give a text that is not empty.")
    return tokens


def read_ids(given: Any) -> list[int]:
    """Return token ids as a list; refuse everything that is not a sequence of integers."""
    try:
        if not isinstance(given, bytes | dict):
            return [operator.index(id) for id in given]
    except TypeError:
        pass
    named = type(given).__name__
    raise InputError(
        f"this model reads text, and a {named} was given: give one text or a list of token ids."
    )


def _run_translator(model: Model, given: Any, target: Any, trace: Trace) -> None:
    if target is None:
        raise InputError("this model needs a target: give one, or call model.trace.")
    source, tokenizer = read_tokens(model.tokenizer, given), model.target_tokenizer
    read = read_target(tokenizer, target)
    logits = model.module(source.batch(model), read.batch(model))
    trace.tokens = {"source": source.pieces, "target": read.pieces[:-1], "output": read.pieces[1:]}
    trace.words = {"source": source.words, "target": read.words[:-1], "output": read.words[1:]}
    part_source = "" if model.tokenizer is None else model.tokenizer.decode(source.ids)
    text = "" if tokenizer is None else tokenizer.decode(read.ids)
    ids, log_probs = tuple(read.ids[1:]), _log_probs(logits[0], read.ids[1:])
    trace.output = outputs.TranslationOutput(
        text, ids, log_probs, part_source=part_source, part_text=text
    )


def read_target(tokenizer: Tokenizer | None, given: Any) -> Tokens:
    """Tokenize a target and add missing special tokens: the start, and the end of a text."""
    tokens = read_tokens(tokenizer, given)
    if tokenizer is None:
        return tokens
    ids = tokenizer.add_start_and_end(tokens.ids)
    if not isinstance(given, str):  # an answer that reached the length limit has no end
        ids = ids[: len(ids) - (tokens.ids[-1] != tokenizer.end_id)]
    front = int(len(ids) > len(tokens.ids) and ids[0] != tokens.ids[0])
    back = len(ids) - len(tokens.ids) - front
    names = [tokenizer.token_of(id) for id in (ids[0], ids[-1])]
    pieces = [*names[:front], *tokens.pieces, *([names[1]] * back)]
    return Tokens(ids, pieces, [*([None] * front), *tokens.words, *([None] * back)])


def _run_encoder(model: Model, given: Any, trace: Trace) -> None:
    tokens, module = read_tokens(model.tokenizer, given), model.module
    trace.tokens, trace.words = {"source": tokens.pieces}, {"source": tokens.words}
    states = module(tokens.batch(model))
    if module.fill is not None:
        logits = module.fill_logits(states)[0]
        mask_id = None if model.tokenizer is None else model.tokenizer.mask_id
        masked = [i for i, id in enumerate(tokens.ids) if id == mask_id]
        gaps = (outputs.Gap(i, _candidates(logits[i], model.tokenizer)) for i in masked)
        trace.output = outputs.FillOutput(tuple(gaps))
    if module.classifier is None:
        module.pooled(states)
        return
    classes = module.classify(states)[0]
    if not (trace.output and trace.output.gaps):
        trace.output = outputs.ClassificationOutput(_candidates(classes, model.labels))


def read_prompt(model: Model, given: Any) -> Tokens:
    """Tokenize a text to be continued, which has no end token."""
    tokens = read_tokens(model.tokenizer, given)
    end_id = None if model.tokenizer is None else model.tokenizer.end_id
    if isinstance(given, str) and tokens.ids[-1] == end_id and len(tokens.ids) > 1:
        return Tokens(tokens.ids[:-1], tokens.pieces[:-1], tokens.words[:-1])
    return tokens


def _run_decoder(model: Model, given: Any, trace: Trace) -> None:
    tokens = read_prompt(model, given)
    trace.tokens, trace.words = {"target": tokens.pieces}, {"target": tokens.words}
    logits = model.module(tokens.batch(model))[0]
    log_probs = _log_probs(logits[:-1], tokens.ids[1:])
    trace.output = outputs.NextTokenOutput(_candidates(logits[-1], model.tokenizer), log_probs)


def read_image(model: Model, given: Any) -> Tensor:
    """Return the normalized pixels of an image as a batch of one."""
    config, processor = model.config, getattr(model.module, "processor", None)
    if processor is not None and not isinstance(given, Tensor):
        image = Image.fromarray(load_image(given))
        try:
            return processor(images=image, return_tensors="pt")["pixel_values"]
        except (TypeError, ValueError, RuntimeError) as error:  # its settings do not fit together
            raise InputError(
                f"the image cannot be prepared by {type(processor).__name__}: {first_line(error)}."
            ) from error
    return read_pixels(
        given, normalization=model.pixels, n_channels=config.n_channels, size=config.image_size
    )


def _run_vision(model: Model, given: Any, trace: Trace) -> None:
    config, images = model.config, read_image(model, given).to(model.device)
    logits = model.module(images)
    size, first = config.patch_size, config.n_special
    grid = cut_grid(images.size(2), images.size(3), size, first=first)
    second = "[distillation]" if isinstance(config, VisionConfig) else "[register 1]"
    special = ["[class]", second, *(f"[register {i}]" for i in range(2, first))][:first]
    patches = [f"{row},{column}" for row in range(grid.n_rows) for column in range(grid.n_columns)]
    trace.tokens = {"source": special + patches}
    if config.n_classes is not None:
        trace.output = outputs.ClassificationOutput(_candidates(logits[0], model.labels))


def _log_probs(logits: Tensor, ids: Sequence[int]) -> tuple[float, ...]:
    at = torch.tensor(ids, dtype=torch.long, device=logits.device).view(-1, 1)
    return tuple(logits.log_softmax(dim=-1).gather(-1, at).flatten().tolist())


def _candidates(
    logits: Tensor, names: Tokenizer | tuple[str, ...] | None
) -> tuple[outputs.ScoredCandidate, ...]:
    """Return the most probable entries, the best first: five, or all of a few classes."""
    count = len(logits) if len(logits) <= _FEW and not isinstance(names, Tokenizer) else 5
    values, ids = logits.softmax(dim=-1).topk(min(count, len(logits)))

    def name(id: int) -> str:
        if names is None or id >= len(names):
            return str(id)
        return names.label_of(id) if isinstance(names, Tokenizer) else names[id]

    pairs = zip(ids.tolist(), values.tolist(), strict=True)
    return tuple(outputs.ScoredCandidate(id, name(id), value) for id, value in pairs)
