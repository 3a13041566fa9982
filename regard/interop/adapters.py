"""Models of other systems, run as they are behind the interface of regard's own families.

An adapter calls the foreign module unchanged. While something listens, torch's attention functions
are answered as in `regard.watch(model)`, so that traces, edits and figures work; sites are named by
the module's own parts. What an adapter returns as states of a decoder are logits, because only the
foreign model knows how it computes them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from inspect import signature
from types import SimpleNamespace
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from regard.attention.mask import Lengths
from regard.errors import InputError
from regard.layers.embedding import too_long
from regard.layers.patch import cut
from regard.models.encoder import pool_states
from regard.models.transformer import shift_right
from regard.tap import listeners, listening, path_at, tap
from regard.trace.edit import Editor
from regard.trace.found_stream import FoundStream, cannot_replace, find_stream
from regard.trace.stream_edits import STREAM_VALUES, StreamEditor, places_of, rehearsal
from regard.trace.stream_graph import StreamGraph
from regard.trace.torch_calls import AttentionCalls, answering
from regard.trace.trace import Trace
from regard.trace.watched_model import WATCHES, Watch


@dataclass(frozen=True, kw_only=True)
class AdaptedConfig:
    """Sizes and names of a model that runs as it is."""

    family: str
    architecture: str
    """The name of its class."""
    n_vocab: int | None = None
    n_classes: int | None = None
    pad_id: int = 0
    n_layers: int = 1
    n_heads: int = 1
    d_model: int = 1
    positions: str = "own"
    max_positions: int = 2048
    image_size: int = 0
    patch_size: int = 0
    n_channels: int = 3
    n_special: int = 0
    pool: str = "mean"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Adapter(nn.Module):
    """A module of another system."""

    forced_ids: Sequence[int] = ()
    """Ids that every answer starts with, such as that of its language."""
    processor: Any = None
    """Prepares images, if the model has such an object."""
    side = "encoder"
    """The stack of layers that computes the answer, in regard's words."""

    def __init__(self, inner: nn.Module, config: AdaptedConfig) -> None:
        super().__init__()
        self.inner, self.config = inner, config
        self.unwatched: list[str] = []
        """What looked like attention in the last run that was listened to, and was not."""
        self.streams: dict[str, FoundStream] = {}
        """The residual streams of that run by side, and why one was not found."""
        self.stream_problem = ""

    def run(self, *args: Any, **inputs: Any) -> Any:
        """Call the inner module."""
        return self.observe(self.inner, self.side, *args, **inputs)

    def observe(self, part: nn.Module, side: str, *args: Any, **inputs: Any) -> Any:
        """Call a part of the inner module, and show listeners its attention and its stream."""
        try:
            return self._observe(part, side, *args, **inputs)
        except (IndexError, RuntimeError) as error:  # of a table with too few rows
            given = [x for x in (*args, *inputs.values()) if isinstance(x, Tensor)]
            count = max((x.size(-1) for x in given if not x.is_floating_point()), default=0)
            if count > self.config.max_positions:
                raise too_long(count, self.config.max_positions) from error
            raise

    def _observe(self, part: nn.Module, side: str, *args: Any, **inputs: Any) -> Any:
        if not listening():
            return part(*args, **inputs)
        one = Watch(self.inner, Trace())
        token = WATCHES.set((*WATCHES.get(), one))
        try:
            with answering() as calls:
                if any(isinstance(x, Editor) and x.names_any(STREAM_VALUES) for x in listeners()):
                    self._rehearse(calls, one, side, lambda: part(*args, **inputs))
                output = part(*args, **inputs)
        finally:
            WATCHES.reset(token)
        self.unwatched = [softmax.describe() for softmax in one.softmaxes if not softmax.used]
        self._show_stream(calls.streams, one, side, find_logits(output))
        return output

    def _rehearse(
        self, calls: AttentionCalls, one: Watch, side: str, call: Callable[[], Any]
    ) -> None:
        """Find out which calls compute the stream, whose values edits replace in the next run."""
        with rehearsal(calls, self.inner) as (graph, dry, _):
            output = find_logits(call())
            try:
                found = find_stream(graph, id(dry), side=side, output=output, calls=dry.calls)
            except InputError:
                return
            one.stream_editor = StreamEditor(one, places_of(graph, [found]))

    def _show_stream(self, graph: StreamGraph, one: Watch, side: str, output: Tensor) -> None:
        self.streams.pop(side, None)
        self.stream_problem = ""
        try:
            found = find_stream(graph, id(one), side=side, output=output, calls=one.calls)
        except InputError as error:
            self.stream_problem = str(error)
            return
        self.streams[side] = found
        known = {} if one.stream_editor is None else one.stream_editor.values
        for path, value in found.values():
            if path not in known and tap(path, value, "token d_model") is not value:
                raise cannot_replace(path)
        if one.stream_editor is not None:
            one.stream_editor.check([found])

    def accepts(self, name: str) -> bool:
        """Return True if the inner module has a parameter of this name."""
        return name in signature(self.inner.forward).parameters

    @property
    def is_transformers(self) -> bool:
        """True for a model of the library transformers."""
        return hasattr(getattr(self.inner, "config", None), "model_type")

    def __repr__(self) -> str:
        return repr(self.inner)


class PastCache:
    """Cached keys and values, in the form that the inner module has."""

    value: Any = None

    def keep(self, rows: Tensor) -> None:
        if self.value is not None:
            self.value.reorder_cache(rows)


class AdaptedGenerator(Adapter):
    """Shared by decoders and encoder–decoders: logits as states, and caches."""

    side = "decoder"
    caches = True
    """False if the inner module returns no keys and values that can be reordered."""

    @property
    def decoder(self) -> SimpleNamespace:
        """Its `cacheable`: false while something listens, since each step then reads everything."""
        return SimpleNamespace(cacheable=self.caches and not listening())

    def new_cache(self) -> dict[str, PastCache]:
        return {"past": PastCache()}

    def project(self, states: Tensor, *, first: int = 0) -> Tensor:
        """Return the logits, which the states are."""
        return tap(f"{path_at('output', first)}.logits", states, "token vocab")

    def step(self, cache: dict[str, PastCache] | None, **inputs: Any) -> Tensor:
        """Return logits of the new tokens, and keep their keys and values."""
        if cache is not None:
            inputs |= {"past_key_values": cache["past"].value, "use_cache": True}
        elif self.accepts("use_cache"):
            inputs["use_cache"] = False
        output = self.run(**inputs)
        if cache is not None:
            cache["past"].value = output.past_key_values
        return output.logits


class AdaptedDecoder(AdaptedGenerator):
    """A decoder-only model."""

    def forward(
        self,
        ids: Tensor,
        lengths: Lengths | None = None,
        *,
        cache: dict[str, PastCache] | None = None,
        side: str = "right",
    ) -> Tensor:
        """Return the logits of the next token at every token."""
        return self.project(self.states(ids, lengths, cache=cache, side=side))

    def states(
        self,
        ids: Tensor,
        lengths: Lengths | None = None,
        *,
        cache: dict[str, PastCache] | None = None,
        side: str = "right",
    ) -> Tensor:
        """Return the same logits, of the tokens that were not read before."""
        if not self.is_transformers:
            if lengths is not None:
                raise InputError("this model takes no padding: give texts one at a time.")
            return find_logits(self.run(ids))
        past = None if cache is None else cache["past"].value
        first = 0 if past is None else past.get_seq_length()
        inputs: dict[str, Any] = {"input_ids": ids}
        if lengths is not None:
            mask = token_mask(lengths, first + ids.size(1), ids.device, side=side)
            inputs["attention_mask"] = mask
            if mask is not None and side == "left" and self.accepts("position_ids"):
                where = (mask.cumsum(-1) - 1).clamp(min=0)
                inputs["position_ids"] = where[:, -ids.size(1) :]
        return self.step(cache, **inputs)


class AdaptedTransformer(AdaptedGenerator):
    """An encoder–decoder."""

    def forward(
        self,
        source_ids: Tensor,
        target_ids: Tensor,
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Tensor:
        """Return the logits of target tokens 1, 2, …, each given those before it."""
        memory = self.encode(source_ids, source_lengths)
        return self.project(self.decode(shift_right(target_ids), memory, source_lengths))

    def encode(self, source_ids: Tensor, source_lengths: Lengths | None = None) -> Tensor:
        """Return one vector for each token of the source."""
        mask = token_mask(source_lengths, source_ids.size(1), source_ids.device)
        encoder: Any = getattr(self.inner, "get_encoder")()  # noqa: B009  of transformers
        inputs = {"input_ids": source_ids, "attention_mask": mask}
        return self.observe(encoder, "encoder", **inputs).last_hidden_state

    def decode(
        self,
        target_ids: Tensor,
        memory: Tensor,
        source_lengths: Lengths | None = None,
        *,
        target_lengths: Lengths | None = None,  # later tokens cannot change earlier ones
        cache: dict[str, PastCache] | None = None,
    ) -> Tensor:
        """Return logits for each token of the decoder's input."""
        mask = token_mask(source_lengths, memory.size(1), memory.device)
        return self.step(
            cache, decoder_input_ids=target_ids, encoder_outputs=(memory,), attention_mask=mask
        )


@dataclass(frozen=True)
class EncodedText:
    """Result of a text encoder: a vector for each token, and logits if it has a head."""

    hidden: Tensor | None
    logits: Tensor | None

    def __getitem__(self, where: Any) -> "EncodedText":
        """Return the part of one text, or of some tokens of it."""
        parts = (None if x is None else x[where] for x in (self.hidden, self.logits))
        return EncodedText(*parts)

    def __iter__(self) -> Iterator["EncodedText"]:
        known = self.hidden if self.logits is None else self.logits
        return (self[i] for i in range(0 if known is None else len(known)))


class AdaptedEncoder(Adapter):
    """A text encoder, with a head that fills gaps or classifies, or without."""

    def __init__(self, inner: nn.Module, config: AdaptedConfig, *, head: str) -> None:
        super().__init__(inner, config)
        self.fill = head if head == "fill" else None
        self.classifier = head if head == "classify" else None

    def forward(self, ids: Tensor, lengths: Lengths | None = None) -> EncodedText:
        """Return what the heads read."""
        if not self.is_transformers:
            output = find_logits(self.run(ids))
            has_head = self.fill is not None or self.classifier is not None
            return EncodedText(None, output) if has_head else EncodedText(output, None)
        mask = token_mask(lengths, ids.size(1), ids.device)
        if mask is not None:
            ids = ids.masked_fill(mask == 0, self.config.pad_id)  # some find the end by it
        output = self.run(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        hidden = output.get("last_hidden_state")
        if hidden is None and output.get("hidden_states") is not None:
            hidden = output.hidden_states[-1]
        return EncodedText(hidden, output.get("logits"))

    def fill_logits(self, states: EncodedText) -> Tensor:
        """Return the logits of the token at each position."""
        if self.fill is None:
            raise InputError("this model has no head that fills gaps: load one for masked text.")
        return tap("output.logits", states.logits, "token vocab")

    def classify(self, states: EncodedText, lengths: Lengths | None = None) -> Tensor:
        """Return the logits of the classes."""
        if self.classifier is None:
            raise InputError("this model has no head that classifies: load a classifier.")
        return tap("output.classes", states.logits, "class")

    def pooled(self, states: EncodedText, lengths: Lengths | None = None) -> Tensor:
        """Return one vector for each text."""
        if states.hidden is None:
            raise InputError("this model returns no vectors of tokens, so it cannot embed texts.")
        vector = pool_states(states.hidden, lengths, self.config.pool)
        return tap("output.pooled", vector, "d_pooled")


class AdaptedVision(Adapter):
    """An image model, with classes or without."""

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of the classes, or one vector for each image without classes."""
        config = self.config
        expected = (config.n_channels, config.image_size, config.image_size)
        if images.shape[1:] != expected:
            raise InputError(
                f"the image has shape {tuple(images.shape[1:])}; this model reads {expected}."
            )
        if listening():
            images = self._tapped(images)
        output = self.run(pixel_values=images) if self.is_transformers else self.run(images)
        logits = find_logits(output)
        if config.n_classes is None:
            vector = logits.flatten(1, -2).mean(dim=1) if logits.dim() > 2 else logits
            return tap("output.pooled", vector, "d_pooled")
        return tap("output.classes", logits, "class")

    def _tapped(self, images: Tensor) -> Tensor:
        """Show the patches to listeners, and put what they return together again."""
        size = self.config.patch_size
        if not size or images.size(2) % size or images.size(3) % size:
            return images
        patches = cut(images, size)
        seen = tap("encoder.embedding.patches", patches, "token pixel")
        if seen is patches:
            return images
        sizes = {"rows": images.size(2) // size, "height": size, "width": size}
        pattern = "batch (rows columns) (channel height width)"
        return rearrange(seen, f"{pattern} -> batch channel (rows height) (columns width)", **sizes)


def find_logits(output: Any) -> Tensor:
    """Return the logits or vectors in what a module has returned."""
    for name in ("logits", "pooler_output", "last_hidden_state"):
        found = getattr(output, name, None)
        if isinstance(found, Tensor):
            return found
    first = output[0] if isinstance(output, tuple | list) and output else output
    if not isinstance(first, Tensor):
        raise InputError(
            f"the model returned a {type(output).__name__}; regard reads a tensor of logits, or a "
            "tuple that starts with it."
        )
    return first


def token_mask(
    lengths: Lengths | None, width: int, device: torch.device, *, side: str = "right"
) -> Tensor | None:
    """Return 1 for real tokens and 0 for padding; None without padding."""
    if lengths is None:
        return None
    count = torch.as_tensor(lengths, device=device)[:, None]
    columns = torch.arange(width, device=device)
    real = columns < count if side == "right" else columns >= width - count
    return None if bool(real.all()) else real.long()
