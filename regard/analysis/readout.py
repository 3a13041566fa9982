"""The readout of a model: how it turns its residual stream into logits of tokens or classes.

embedding ─▶ + attention ─▶ + feed-forward ─▶ … ─▶ final norm ─▶ unembedding ─▶ logits
         ▲              ▲                  ▲
         └── stations of the residual stream ──┘

A lens reads every station as if it were the last; an attribution splits the last one into parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import InputError, UnknownNameError
from regard.layers.stack import Stack, SubLayer
from regard.model import Model
from regard.models.config import ModelConfig
from regard.text.tokenizer import Tokenizer
from regard.trace.found_stream import FoundStream
from regard.trace.outputs import ClassificationOutput, FillOutput, TranslationOutput
from regard.trace.trace import Trace


class Entries:
    """The entries a model predicts: tokens or classes, and their names."""

    entries: str
    """What the logits are of: "tokens" or "classes"."""

    @property
    def names(self) -> Tokenizer | tuple[str, ...] | None:
        """The names of the entries."""
        raise NotImplementedError

    @property
    def n_entries(self) -> int:
        """The number of tokens or classes."""
        raise NotImplementedError

    def name(self, id: int) -> str:
        """Return the token or class of an id."""
        names = self.names
        if names is None or id >= len(names):
            return str(id)
        return names.label_of(id) if isinstance(names, Tokenizer) else names[id]

    def entry(self, given: str | int) -> int:
        """Return the id of a token or class, given as such or by name."""
        names = self.names
        if isinstance(given, int):
            if not 0 <= given < self.n_entries:
                raise UnknownNameError(
                    f"there is no {self.entries[:-1]} {given}; there are {self.n_entries:,}, "
                    f"0 to {self.n_entries - 1}."
                )
            return given
        if names is None:
            raise InputError(f"the {self.entries} of this model have no names: give a number.")
        if isinstance(names, Tokenizer):
            return _token_id(names, given)
        if given not in names:
            raise UnknownNameError(f"there is no class {given!r}; the classes are {names}.")
        return names.index(given)


@dataclass(frozen=True)
class Readout(Entries):
    """The last part of a model, applied to any vectors of its residual stream."""

    model: Model
    side: str
    """The stack that is read: "decoder" or "encoder"."""
    entries: str

    @property
    def stack(self) -> Stack:
        """The layers that write to the residual stream."""
        return getattr(self.model.module, self.side)

    @property
    def embedding_norm(self) -> nn.Module | None:
        """The norm of the embedding, as in BERT."""
        module = self.model.module
        own = getattr(module, f"{self.side}_embedding", None)
        return getattr(module.embedding if own is None else own, "norm", None)

    @property
    def sub_layers(self) -> list[SubLayer]:
        """Attention and feed-forward sub-layers in the order of computation."""
        return [
            one
            for layer in self.stack.layers
            for one in (layer.self_attention, layer.cross_attention, layer.feed_forward)
            if isinstance(one, SubLayer)
        ]

    @property
    def stations(self) -> list[str]:
        """Paths of the residual stream: after the embedding and after each sub-layer."""
        written = [f"{one.inner.path}.residual" for one in self.sub_layers]
        return [f"{self.side}.embedding.output", *written]

    @property
    def norm(self) -> str:
        """The final norm: "layer", "rms", or "none" if each sub-layer ends with a norm."""
        return norm_name(self.stack.norm)

    @property
    def names(self) -> Tokenizer | tuple[str, ...] | None:
        """The names of the entries."""
        model = self.model
        return model.labels if self.entries == "classes" else model.target_tokenizer

    @torch.no_grad()
    def logits(self, stream: Float[Tensor, "token d_model"]) -> Float[Tensor, "position entry"]:
        """Return the logits if the model ended with these vectors: one row for classes."""
        module, norm = self.model.module, self.stack.norm
        states = (stream if norm is None else norm(stream))[None]
        if self.entries == "classes":
            return module.classify(states)
        project = module.fill_logits if self.side == "encoder" else module.project
        return project(states)[0]

    def logits_at(
        self, trace: Trace, path: str, where: Int[Tensor, " row"], batch: int
    ) -> Float[Tensor, "position entry"]:
        """Return the logits at some positions if the model ended at a station."""
        stream = stream_at(trace, path, batch)
        return self.logits(stream if self.entries == "classes" else stream[where])

    @property
    def n_entries(self) -> int:
        """The number of tokens or classes."""
        config = self.model.config
        return config.n_classes if self.entries == "classes" else config.n_vocab


def norm_name(norm: nn.Module | None) -> str:
    """Return "layer", "rms" or "none"."""
    return "none" if norm is None else "layer" if isinstance(norm, nn.LayerNorm) else "rms"


def _token_id(tokenizer: Tokenizer, token: str) -> int:
    if (id := tokenizer.id_of(token)) is not None:
        return id
    pieces = tokenizer.pieces(token, specials=False)
    if len(pieces) != 1:
        names = ", ".join(repr(piece.text) for piece in pieces[:8])
        raise InputError(f"{token!r} is {len(pieces)} tokens ({names}): give a single one.")
    return pieces[0].id


def open_readout(trace: Trace) -> "Readout | FoundReadout":
    """Return the readout of the model that a trace was recorded with."""
    model = trace.origin
    if isinstance(model, Model) and isinstance(model.config, ModelConfig):
        return _open_own(trace, model)
    if not isinstance(model, Model) and not (trace.streams or trace.stream_problem):
        raise InputError(
            "this trace has no model, because it was saved or watched without one: run model.trace "
            "on the text again."
        )
    return _open_found(trace)


def _open_own(trace: Trace, model: Model) -> Readout:
    if model.family == "seq2seq":
        raise InputError(
            "a recurrent model has no residual stream to read: use a model of another family."
        )
    if model.family in ("transformer", "decoder"):
        return Readout(model, "decoder", "tokens")
    module = model.module
    if getattr(module, "fill", None) is not None and not isinstance(
        trace.output, ClassificationOutput
    ):
        return Readout(model, "encoder", "tokens")
    if module.classifier is None:
        raise _no_logits()
    return Readout(model, "encoder", "classes")


def _no_logits() -> InputError:
    return InputError(
        "this model predicts neither tokens nor classes, so there is nothing to read from its "
        "residual stream."
    )


@dataclass(frozen=True)
class FoundReadout(Entries):
    """The last part of a model that runs as it is: the functions that follow its stream."""

    model: Model | None
    stream: FoundStream
    entries: str

    @property
    def side(self) -> str:
        """The stack that is read: "decoder" or "encoder"."""
        return self.stream.side

    @property
    def stations(self) -> list[str]:
        """Paths of the residual stream: after the embedding and after each sub-layer."""
        return [self.stream.embedding, *(one.path for one in self.stream.stations)]

    @property
    def norm(self) -> str:
        """The final norm: "layer", "rms", or "none" if each sub-layer ends with a norm."""
        return "none" if self.stream.post_norm else self.stream.final_norm()

    @property
    def names(self) -> Tokenizer | tuple[str, ...] | None:
        """The names of the entries."""
        model = self.model
        if model is None:
            return None
        return model.labels if self.entries == "classes" else model.target_tokenizer

    @property
    def n_entries(self) -> int:
        """The number of tokens or classes."""
        assert self.stream.output is not None
        return self.stream.output[0].size(-1)

    def logits_at(
        self, trace: Trace, path: str, where: Int[Tensor, " row"], batch: int
    ) -> Float[Tensor, "position entry"]:
        """Return the logits at some positions if the model ended at a station."""
        found = self.stream.replay(self.stream.value_at(path))
        index = self.index(batch, 0)
        if self.entries == "classes":
            return found[index][None]
        return torch.stack([found[self.index(batch, row)] for row in where.tolist()])

    def index(self, batch: int, position: int) -> tuple[int, ...]:
        """Return where the logits of a position are."""
        if self.stream.start.dim() == 2:
            return () if self.entries == "classes" else (position,)
        if self.entries == "classes":
            return (batch,)
        return (position, batch) if self.stream.turned else (batch, position)


def _open_found(trace: Trace) -> FoundReadout:
    """Return the readout of a stream that was found in a model that is not regard's."""
    model = trace.origin if isinstance(trace.origin, Model) else None
    side = "decoder" if "decoder" in trace.streams else "encoder"
    if model is not None:
        side = model.module.side
    stream = trace.streams.get(side)
    if stream is None:
        name = "the model" if model is None else model.config.architecture
        raise InputError(
            f"regard sees the attention of {name} but not its residual stream: "
            f"{trace.stream_problem or 'it has none'}."
        )
    shape = () if stream.output is None else stream.output[0].shape
    embeds = model is not None and model.task == "embedding"
    if embeds or len(shape) < stream.start.dim() - 1 or stream.head() is None:
        raise _no_logits()
    classes = len(shape) == stream.start.dim() - 1
    return FoundReadout(model, stream, "classes" if classes else "tokens")


def stream_at(trace: Trace, path: str, batch: int = 0) -> Float[Tensor, "token d_model"]:
    """Return the residual stream of one sequence at a station."""
    value = trace.value(path)
    return value[min(batch, len(value) - 1)] if value.dim() > 2 else value


def positions_of(trace: Trace, readout: Readout | FoundReadout) -> tuple[str, ...]:
    """Return the tokens at which the readout predicts; one, the pooled vector, for classes."""
    side = "target" if readout.side == "decoder" else "source"
    if isinstance(readout, FoundReadout):
        n_positions = stream_at(trace, readout.stations[0]).size(0)
        numbers = [str(i) for i in range(n_positions)]
        known = ("pooled",) if readout.entries == "classes" else trace.tokens.get(side, numbers)
        return tuple(known)
    if readout.entries == "classes":
        pool = readout.model.config.pool
        tokens = trace.tokens.get("source", ["[class]"])
        return ("mean",) if pool == "mean" else (tokens[0],)
    return tuple(trace.tokens[side])


def answered_ids(trace: Trace) -> Sequence[int] | None:
    """Return the ids that a translation has at each position; None for other models."""
    return trace.output.ids if isinstance(trace.output, TranslationOutput) else None


def default_position(trace: Trace, readout: Readout | FoundReadout) -> int:
    """Return the position of the answer: the last token, the first gap, or the first word."""
    if readout.entries == "classes" or isinstance(trace.output, TranslationOutput):
        return 0
    if isinstance(trace.output, FillOutput):
        return trace.output.gaps[0].position if trace.output.gaps else 0
    return len(positions_of(trace, readout)) - 1
