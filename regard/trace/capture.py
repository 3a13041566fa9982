"""Run a bundle on one text or image and keep everything it computed.

| family               | runs on                       | tokens of the trace  | output            |
|----------------------|-------------------------------|----------------------|-------------------|
| transformer, seq2seq | a text and its target, or     | source; target, read | text, ids and log |
|                      | what the model would write    | by the decoder;      | probabilities     |
|                      |                               | output, to predict   |                   |
| encoder              | a text                        | source               | fillings, classes |
| decoder              | a text                        | target               | what may be next  |
| vision               | an image                      | source: patches      | classes           |
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from regard.data.image_files import read_pixels
from regard.errors import InputError
from regard.model import Model
from regard.models.vision import patch_grid
from regard.tap import Tapped, listen
from regard.text.pieces import Piece
from regard.text.tokenizer import Tokenizer
from regard.trace.edits import Edit, Editor
from regard.trace.trace import Trace, watch

N_BEST = 5
"""How many candidates an output lists."""


@torch.no_grad()
def trace_model(
    model: Model, given: Any, target: Any = None, *, edits: Sequence[Edit] = ()
) -> Trace:
    """What the model computes on a text, ids or an image, changed by `edits`.

    Args:
        given: a text, or token ids; an image's path, an image or a tensor for vision models.
        target: a text or ids, for models that have a target; the model writes one if absent.
    """
    trace = _traced(model, given, target, edits)
    trace.origin = model
    return trace


def _traced(model: Model, given: Any, target: Any, edits: Sequence[Edit]) -> Trace:
    if model.family in ("transformer", "seq2seq"):
        return _trace_pair(model, given, target, edits)
    if target is not None:
        raise InputError(
            f"a model of the family {model.family} has no target: give it one text or image."
        )
    run = {"encoder": _trace_encoder, "decoder": _trace_decoder, "vision": _trace_vision}
    return run[model.family](model, given, edits)


@dataclass(frozen=True)
class _Tokens:
    """Token ids with the pieces of text that they stand for."""

    ids: list[int]
    pieces: list[str]
    words: list[int | None]
    """The number of each one's word; None for special tokens."""

    def batch(self) -> Tensor:
        return torch.tensor([self.ids])


def _read(tokenizer: Tokenizer | None, given: Any) -> _Tokens:
    """The tokens of a text, or of ids."""
    if not isinstance(given, str):
        ids = [int(id) for id in (given.tolist() if isinstance(given, Tensor) else given)]
        if tokenizer is None:
            return _some(_Tokens(ids, [str(id) for id in ids], list(range(len(ids)))))
        return _some(_of_pieces(tokenizer.pieces_of(ids)))
    if tokenizer is None:
        raise InputError("this model has no tokenizer, so it cannot read a text: give token ids.")
    return _some(_of_pieces(tokenizer.pieces(given)))


def _of_pieces(found: Sequence[Piece]) -> _Tokens:
    ids, texts, words = ([getattr(x, name) for x in found] for name in ("id", "text", "word"))
    return _Tokens(ids, texts, words)


def _some(tokens: _Tokens) -> _Tokens:
    if not tokens.ids:
        raise InputError("there is nothing to run the model on: the text has no tokens.")
    return tokens


def _trace_pair(model: Model, given: Any, target: Any, edits: Sequence[Edit]) -> Trace:
    source = _read(model.tokenizer, given)
    if target is None:
        written = _read(model.target_tokenizer, write_greedily(model, source.ids, edits=edits))
    else:
        written = _with_ends(model.target_tokenizer, _read(model.target_tokenizer, target))
    with watch(edits=edits) as trace:
        logits = model.module(source.batch(), written.batch())
    sides = {"target": written.pieces[:-1], "output": written.pieces[1:]}
    trace.tokens = {"source": source.pieces, **sides}
    trace.words = {
        "source": source.words,
        "target": written.words[:-1],
        "output": written.words[1:],
    }
    tokenizer = model.target_tokenizer
    trace.output = {
        "text": "" if tokenizer is None else tokenizer.decode(written.ids),
        "ids": written.ids[1:],
        "log_probabilities": _chances(logits[0], written.ids[1:]),
    }
    return trace


def _with_ends(tokenizer: Tokenizer | None, tokens: _Tokens) -> _Tokens:
    """The target from its start token to its end token, as the decoder was trained."""
    if tokenizer is None:
        return tokens
    front = [] if tokens.ids[0] == tokenizer.start_id else _names(tokenizer, tokenizer.start_id)
    back = [] if tokens.ids[-1] == tokenizer.end_id else _names(tokenizer, tokenizer.end_id)
    ids = [*(id for id, _ in front), *tokens.ids, *(id for id, _ in back)]
    pieces = [*(name for _, name in front), *tokens.pieces, *(name for _, name in back)]
    return _Tokens(ids, pieces, [*(None for _ in front), *tokens.words, *(None for _ in back)])


def _names(tokenizer: Tokenizer, id: int | None) -> list[tuple[int, str]]:
    return [] if id is None else [(id, tokenizer.token_of(id))]


class Patient(Editor):
    """The editor of one edit that waits until it fits: while a text grows, later tokens lack."""

    def __init__(self, edit: Edit) -> None:
        super().__init__([edit])

    def see(self, tapped: Tapped) -> Any:
        try:
            return super().see(tapped)
        except InputError:
            return tapped.value


@torch.no_grad()
def write_greedily(
    model: Model, source_ids: Sequence[int], *, edits: Sequence[Edit] = ()
) -> list[int]:
    """The target that the model writes if it always takes the best token, start and end included.

    With edits the whole target is read anew for each token, so that they mean the same positions
    as in the trace.
    """
    tokenizer, config = model.target_tokenizer, model.config
    if tokenizer is None or tokenizer.start_id is None or tokenizer.end_id is None:
        raise InputError(
            "this model's tokenizer does not say how a target starts and ends, so it cannot write "
            "one by itself: give a target."
        )
    longest = 2 * len(source_ids) + 16
    if getattr(config, "positions", None) == "learned":
        longest = min(longest, config.max_positions)
    never = sorted({tokenizer.start_id, config.pad_id} - {tokenizer.end_id})
    ids = [tokenizer.start_id]
    with listen(*(Patient(edit) for edit in edits)):
        logits_after = _reader(model, source_ids, cached=not edits)
        while len(ids) <= longest and ids[1:][-1:] != [tokenizer.end_id]:
            logits = logits_after(ids)
            logits[never] = -inf
            ids.append(int(logits.argmax()))
    return ids


def _reader(
    model: Model, source_ids: Sequence[int], *, cached: bool
) -> Callable[[list[int]], Tensor]:
    """A function from a target so far, one token longer each time, to logits of the next token."""
    module = model.module
    memory = module.encode(torch.tensor([list(source_ids)]))
    cache = module.new_cache() if cached else None

    def logits_after(ids: list[int]) -> Tensor:
        fresh = torch.tensor([ids[-1:] if cached else ids])
        return module.project(module.decode(fresh, memory, cache=cache))[0, -1]

    return logits_after


def _trace_encoder(model: Model, given: Any, edits: Sequence[Edit]) -> Trace:
    tokens, module = _read(model.tokenizer, given), model.module
    filled, classes = None, None
    with watch(edits=edits) as trace:
        states = module(tokens.batch())
        if module.fill is not None:
            filled = module.fill_logits(states)
        if module.classifier is not None:
            classes = module.classify(states)
        else:
            module.pooled(states)
    trace.tokens, trace.words = {"source": tokens.pieces}, {"source": tokens.words}
    trace.output = {}
    if filled is not None:
        mask_id = None if model.tokenizer is None else model.tokenizer.mask_id
        masked = [i for i, id in enumerate(tokens.ids) if id == mask_id]
        trace.output["filled"] = [
            {"position": i, "candidates": _best(filled[0, i], model.tokenizer)} for i in masked
        ]
    if classes is not None:
        trace.output["classes"] = _best(classes[0], model.labels)
    return trace


def _trace_decoder(model: Model, given: Any, edits: Sequence[Edit]) -> Trace:
    tokens = _read(model.tokenizer, given)
    end_id = None if model.tokenizer is None else model.tokenizer.end_id
    if isinstance(given, str) and tokens.ids[-1] == end_id and len(tokens.ids) > 1:
        # the text goes on: it has no end
        tokens = _Tokens(tokens.ids[:-1], tokens.pieces[:-1], tokens.words[:-1])
    with watch(edits=edits) as trace:
        logits = model.module(tokens.batch())
    trace.tokens, trace.words = {"target": tokens.pieces}, {"target": tokens.words}
    trace.output = {
        "next": _best(logits[0, -1], model.tokenizer),
        "log_probabilities": _chances(logits[0, :-1], tokens.ids[1:]),
    }
    return trace


def _trace_vision(model: Model, given: Any, edits: Sequence[Edit]) -> Trace:
    config = model.config
    images = read_pixels(
        given,
        normalization=model.pixels,
        n_channels=config.n_channels,
        size=config.image_size,
    )
    with watch(edits=edits) as trace:
        logits = model.module(images)
    grid = patch_grid(config, images.size(2), images.size(3))
    special = ["[class]", "[distillation]"][: grid.first]
    places = [f"{row},{column}" for row in range(grid.n_rows) for column in range(grid.n_columns)]
    trace.tokens = {"source": special + places}
    if config.n_classes is not None:
        trace.output = {"classes": _best(logits[0], model.labels)}
    return trace


def _chances(logits: Tensor, ids: Sequence[int]) -> list[float]:
    """The log probability that the model gave each of these tokens."""
    table = logits.log_softmax(dim=-1)
    return table.gather(-1, torch.tensor(ids).view(-1, 1)).flatten().tolist()


def _best(logits: Tensor, names: Tokenizer | tuple[str, ...] | None) -> list[dict[str, Any]]:
    """The most probable entries, the best first."""
    probability, ids = logits.softmax(dim=-1).topk(min(N_BEST, len(logits)))
    return [
        {"id": id, "name": _name(id, names), "probability": p}
        for id, p in zip(ids.tolist(), probability.tolist(), strict=True)
    ]


def _name(id: int, names: Tokenizer | tuple[str, ...] | None) -> str:
    if isinstance(names, Tokenizer):
        return names.token_of(id) if id < len(names) else str(id)
    return str(id) if names is None else names[id]
