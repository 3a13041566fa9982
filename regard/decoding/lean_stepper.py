"""Rows of unfinished translations by a LeanTransformer.

All keys and values are in one store, of which every layer has its views, and the sequences of one
sentence read its source together.
"""

from functools import partial
from math import inf

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.lean import Attention, LeanTransformer
from regard.decoding.stepper import Stepper, log_softmax

_ROOM = 32
"""Positions that the store holds at first; it doubles when full."""


class LeanStepper(Stepper):
    """Rows of unfinished translations.

    Args:
        candidates: the only tokens that can be written, in order; all if None.
        end_id: impossible until `shortest` tokens are written.
    """

    def __init__(
        self,
        lean: LeanTransformer,
        source_ids: Int[Tensor, "batch source"],
        source_lengths: Int[Tensor, "batch"],
        *,
        end_id: int,
        shortest: int = 1,
        candidates: Int[Tensor, "candidate"] | None = None,
    ) -> None:
        self.lean, self.candidates = lean, candidates
        self.end_id, self.shortest = end_id, shortest
        self.project = lean.project if candidates is None else lean.narrow(candidates)
        self.n_rows, self.device = len(source_ids), source_ids.device
        self.length = 0
        memory = lean.encode(source_ids, source_lengths)
        self.sources = _Sources(lean, memory, source_lengths)
        self.owners = torch.arange(self.n_rows, device=self.device)
        self.store = _Store(lean, memory, self.n_rows)
        self.places = _places(lean, memory, 1)

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        state = ids.new_empty(0)
        for tokens in ids.unbind(1):
            state = self._read(tokens)
        logits = self.project(state)
        if self.candidates is not None:
            wide = logits.new_full((len(ids), len(self.lean.matrix)), -inf)
            logits = wide.index_copy_(1, self.candidates, logits)
        if self.length - 1 < self.shortest:  # without the start token
            logits[:, self.end_id] = -inf
        return log_softmax(logits)

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        self.store.keep(rows, self.length)
        self.n_rows = len(rows)
        owners = self.owners[rows]
        if len(owners) == len(self.owners) and torch.equal(owners, self.owners):
            return
        sources, counts = owners.unique_consecutive(return_counts=True)
        if int(counts.min()) != int(counts.max()):  # then every row has its source for itself
            sources = owners
        self.sources.keep(sources)
        self.owners = torch.arange(len(sources), device=self.device)
        self.owners = self.owners.repeat_interleave(len(rows) // len(sources))

    def _read(self, tokens: Int[Tensor, "rows"]) -> Float[Tensor, "rows d_model"]:
        """The decoder's last state after one more token of each row."""
        lean = self.lean
        self.store.make_room(self.length)
        table = lean.model.tokens
        x = F.embedding(tokens, table.weight) * table.scale
        if self.places is not None:
            x = x + self._place()
        for number, layer in enumerate(lean.layers):
            assert layer.cross is not None, "decoders read their sources"
            x = lean.added(x, layer.own.norm, partial(self._attend_own, layer.own, number))
            x = lean.added(x, layer.cross.norm, partial(self._attend_source, layer.cross, number))
            x = lean.added(x, layer.norm, layer.feed_forward)
        self.length += 1
        return x if lean.norm is None else lean.norm(x)

    def _place(self) -> Float[Tensor, "d_model"]:
        """What is added to the embedding of the token at this position."""
        assert self.places is not None
        if self.length == len(self.places):
            self.places = _places(self.lean, self.store.like, self.length + 1)
            assert self.places is not None
        return self.places[self.length]

    def _attend_own(self, part: Attention, layer: int, x: Tensor) -> Tensor:
        query, key, value = part.three(x)
        keys, values = self.store.add(layer, self.length, key, value)
        query = query.reshape(-1, 1, self.lean.d_k)
        return part.output(_weighed(query, keys, values, self.store.nothing).view(self.n_rows, -1))

    def _attend_source(self, part: Attention, layer: int, x: Tensor) -> Tensor:
        """The sequences of one sentence are queries to the same keys."""
        sources, d_k = self.sources, self.lean.d_k
        query = part.query(x)
        n_each = self.n_rows // sources.count
        if n_each == 1:
            query = query.view(-1, 1, d_k)
        else:
            query = query.view(sources.count, n_each, -1, d_k).transpose(1, 2).flatten(0, 1)
        context = _weighed(query, sources.keys[layer], sources.values[layer], sources.hidden)
        if n_each > 1:
            context = context.view(sources.count, -1, n_each, d_k).transpose(1, 2)
        return part.output(context.reshape(self.n_rows, -1))


class _Sources:
    """Keys (turned, as products need them) and values of the sources, for each layer."""

    def __init__(self, lean: LeanTransformer, memory: Tensor, lengths: Tensor) -> None:
        self.count, self.n_heads = len(memory), lean.n_heads
        self.hidden = _hidden(lengths, memory.size(1), lean.n_heads, memory)
        crossing = [layer.cross for layer in lean.layers if layer.cross is not None]
        keys = [lean.split(part.key(memory)).transpose(2, 3) for part in crossing]
        values = [lean.split(part.value(memory)) for part in crossing]
        self.keys, self.values = (
            [one.contiguous().flatten(0, 1) for one in many] for many in (keys, values)
        )

    def keep(self, sources: Tensor) -> None:
        """Go on with these sources, in this order."""

        def kept(one: Tensor) -> Tensor:
            return one.unflatten(0, (self.count, -1))[sources].flatten(0, 1)

        self.keys, self.values = (list(map(kept, many)) for many in (self.keys, self.values))
        self.hidden = kept(self.hidden) if self.hidden.dim() else self.hidden
        self.count = len(sources)


class _Store:
    """Keys and values of what was written: position, layer, key or value, row, numbers.

    Two buffers take turns, because rows cannot be put into another order in place, and fresh
    memory of this size would cost more than the copy.
    """

    def __init__(self, lean: LeanTransformer, like: Tensor, n_rows: int) -> None:
        self.lean, self.like, self.nothing = lean, like, like.new_zeros(())
        self.n_layers, self.width = len(lean.layers), lean.n_heads * lean.d_k
        self._buffers = [like.new_empty(0), like.new_empty(0)]
        self._open(_ROOM, n_rows)

    def add(self, layer: int, at: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store one more position; all keys of the layer, turned, and all values."""
        room = self.of_layer[layer][at]
        room[0], room[1] = key, value
        return self.keys[layer][:, :, : at + 1], self.values[layer][:, : at + 1]

    def keep(self, rows: Tensor, length: int) -> None:
        """Go on with these rows, in this order; `length` positions are filled."""
        before = self.all
        self._open(len(before), len(rows))
        torch.index_select(before[:length], 3, rows, out=self.all[:length])

    def make_room(self, length: int) -> None:
        """Twice as many positions, if all are filled."""
        if length == len(self.all):
            before = self.all
            self._open(2 * length, before.size(3))
            self.all[:length] = before

    def _open(self, room: int, n_rows: int) -> None:
        """The other buffer, and every layer's views of it."""
        self._buffers.reverse()
        shape = (room, self.n_layers, 2, n_rows, self.width)
        size = room * self.n_layers * 2 * n_rows * self.width
        if self._buffers[0].numel() < size:
            self._buffers[0] = self.like.new_empty(size)
        self.all = self._buffers[0][:size].view(shape)
        self.of_layer = self.all.unbind(1)
        heads = self.all.view(room, self.n_layers, 2, -1, self.lean.d_k)
        self.keys = heads[:, :, 0].permute(1, 2, 3, 0).unbind(0)
        self.values = heads[:, :, 1].permute(1, 2, 0, 3).unbind(0)


def _places(lean: LeanTransformer, like: Tensor, needed: int) -> Tensor | None:
    """The vectors of so many positions, and of as many after them while there are any."""
    positions, config = lean.model.decoder_embedding.positions, lean.model.config
    if positions is None:
        return None
    count = max(2 * needed, _ROOM)
    if config.positions == "learned":
        count = max(min(count, config.max_positions), needed)
    where = torch.arange(count, device=like.device)[None]
    return positions(where, like, stop=count)[0]


def _weighed(query: Tensor, turned: Tensor, value: Tensor, hidden: Tensor) -> Tensor:
    """Scaled dot-product attention of many small problems; `hidden` is added to the scores.

    A single number stands for nothing hidden.
    """
    scale, kept = query.size(-1) ** -0.5, int(hidden.dim() > 0)
    scores = torch.baddbmm(hidden, query, turned, beta=kept, alpha=scale)
    return torch.bmm(torch.softmax(scores, dim=-1), value)


def _hidden(lengths: Tensor, n_source: int, n_heads: int, like: Tensor) -> Tensor:
    """-inf for padding, for every head of every sentence; a number where there is no padding."""
    if bool((lengths == n_source).all()):
        return like.new_zeros(())
    padding = torch.arange(n_source, device=like.device) >= lengths[:, None]
    hidden = torch.zeros(padding.shape, device=like.device, dtype=like.dtype)
    hidden = hidden.masked_fill_(padding, -inf)
    return hidden.repeat_interleave(n_heads, dim=0)[:, None]
