"""Answers to torch's attention functions inside `watch(model)`.

A TorchFunctionMode sees every function of torch that Python code calls in this thread. Those that
are attention run as `tapped_attention`, whose kernel is the function itself as long as nothing is
edited, so that results are the same to the last bit.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from inspect import signature
from math import inf
from threading import local
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._dynamo.eval_frame import get_eval_frame_callback
from torch._C._functorch import peek_interpreter_stack
from torch.overrides import TorchFunctionMode

from regard.attention.attend import tapped_attention
from regard.attention.mask import Causal
from regard.attention.multi_head import WeightsRecorder
from regard.attention.pattern import ExactPattern
from regard.attention.tile import broadcast_lead
from regard.errors import InputError
from regard.tap import is_attending, listen
from regard.trace.handwritten import SOFTMAX, Follower
from regard.trace.products import HIDDEN, dot_similarity, read_mask, with_heads, with_mask_heads
from regard.trace.stream_graph import StreamGraph
from regard.trace.trace import CallFacts
from regard.trace.watched_model import (
    COMPILED,
    WATCHES,
    Place,
    cannot_nest,
    cannot_transform,
    cannot_watch,
    find_places,
    note_calls,
    sites,
)
from regard.trace.weighted_sums import answer_product, note_softmax

_MULTI_HEAD = signature(F.multi_head_attention_forward)
_REFUSED = ("varlen_attn", "flash_attn", "flash_attention", "_scaled_dot_product", "flex_attention")
_ATTENDS = SOFTMAX | {"scaled_dot_product_attention", "multi_head_attention_forward"}
_NO_TENSOR = frozenset(
    (
        *("size", "dim", "ndim", "shape", "numel", "stride", "dtype", "device", "layout", "item"),
        *("is_floating_point", "is_contiguous", "is_complex", "is_cuda", "is_sparse", "__len__"),
        *("requires_grad", "is_quantized", "element_size", "data_ptr", "storage_offset", "tolist"),
    )
)
"""Functions and attributes whose results are not followed."""
_THREAD = local()


class _Function(NamedTuple):
    """Facts about a function of torch, from its name."""

    name: str
    """Without the mark of functions that change their argument."""
    inert: bool
    changes: bool
    """True if it changes its first argument."""
    may_change: bool
    """True if it can change its first argument: always, or with `inplace=True`."""
    refused: bool
    asks_nested: bool
    """True for the attribute that flex attention asks for first."""


@cache
def _known(func: Any) -> _Function:
    full = func.__self__.__name__ if func.__name__ == "__get__" else func.__name__
    changes = full[-1] == "_" and full[0] != "_"
    name = full[:-1] if changes else full
    refused = any(word in name for word in _REFUSED) and func is not F.scaled_dot_product_attention
    inputs = getattr(getattr(func, "__code__", None), "co_varnames", ())
    may_change = changes or name == "__setitem__" or "inplace" in inputs
    return _Function(name, name in _NO_TENSOR, changes, may_change, refused, name == "is_nested")


@contextmanager
def answering() -> "Iterator[AttentionCalls]":
    """Answer attention functions in this thread, for all blocks that it is in."""
    calls = getattr(_THREAD, "calls", None)
    if calls is None:
        calls = _THREAD.calls = AttentionCalls()
        calls.__enter__()
    calls.n_blocks += 1
    try:
        yield calls
    finally:
        calls.n_blocks -= 1
        if not calls.n_blocks:  # blocks of interleaved tasks need not end in order
            _THREAD.calls = None
            calls.__exit__(None, None, None)


class AttentionCalls(TorchFunctionMode):
    """Answers attention functions and follows all others."""

    def __init__(self) -> None:
        super().__init__()
        self.n_blocks = 0
        self.start()

    def start(self) -> None:
        """Forget everything that was followed."""
        self.follower = Follower(note_softmax, answer_product)
        self.streams = StreamGraph()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if get_eval_frame_callback():  # torch.compile is about to trace what runs here
            raise InputError(COMPILED)
        kwargs = kwargs or {}
        known, watches = _known(func), WATCHES.get()
        if known.inert or not watches or is_attending():
            return func(*args, **kwargs)
        if known.refused or known.asks_nested:
            _check_function(known, func, args, sys._getframe(1))
        if known.may_change or "out" in kwargs:
            _keep_recorded(known, args, kwargs)
        edited = False
        for one in watches:
            if not one.called:
                note_calls()
            one.entered = None
            edited = edited or one.stream_editor is not None
        if edited:
            return self._call_and_edit(known, func, args, kwargs, sys._getframe(1))
        return self._call(known, func, args, kwargs)

    # what torch.compiler.disable sets, without importing the compiler
    vars(__torch_function__).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=COMPILED)

    def _call_and_edit(
        self, known: _Function, func: Any, args: Any, kwargs: Any, frame: FrameType
    ) -> Any:
        """Call a function from `frame` and replace values of streams in its result."""
        editors = [one.stream_editor for one in WATCHES.get() if one.stream_editor is not None]
        for editor in editors:
            editor.enter(known.name, frame)
        earlier = self.streams.node(args[0]) if args else None
        result = self._call(known, func, args, kwargs)
        if known.changes or not args or result is not args[0]:
            for editor in editors:
                result = self._edit_streams(editor, result, in_place=known.changes)
        elif earlier is not None and (node := self.streams.node(result)) is not None:
            node.place = earlier.place  # nothing new: `to` of the type that a tensor has
        return result

    def _call(self, known: _Function, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function, or answer it, and follow its result."""
        changes = known.may_change and _changes_first(known, args, kwargs)
        before = self.streams.before(args) if changes else args
        result, site = self._compute(known.name, func, args, kwargs), None
        for one in WATCHES.get():
            site = one.entered if site is None else site
        if site is None:
            self.streams.note(known.name, func, before, kwargs, result)
            return result
        first = result[0] if isinstance(result, tuple) else result
        self.streams.note_site(site, func, before, kwargs, first)
        for one in WATCHES.get():
            if one.stream_editor is not None and site.linear is not None:
                self.streams.nodes.get(site.linear[0]).place = one.stream_editor.place("joined")
        return result

    def _edit_streams(self, editor: Any, result: Any, *, in_place: bool) -> Any:
        """Note places of results in a rehearsal; after it, return what edits make of them."""
        several = type(result) in (tuple, list)
        given = result if several else (result,)
        replaced = []
        for index, old in enumerate(given):
            node = self.streams.node(old)
            new = old if node is None else editor.replace(index, old)
            if node is not None and node.place is None:
                node.place = editor.place(index)
            if new is not old and in_place:
                new = old.copy_(new)
                self.streams.replace(old, new)
            elif new is not old:
                self.follower.notes[new] = self.follower.note(old)
                self.streams.replace(old, new)
            replaced.append(new)
        return type(result)(replaced) if several else replaced[0]

    def edit_joined(self, joined: Tensor) -> Tensor:
        """Return what edits make of the joined heads inside torch's attention function."""
        for one in WATCHES.get():
            if one.stream_editor is not None:
                joined = one.stream_editor.replace("joined", joined)
        return joined

    def _compute(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        if name in _ATTENDS and any(isinstance(x, Tensor) and x.is_nested for x in args):
            raise cannot_nest()
        if name in _ATTENDS and peek_interpreter_stack() and find_places():
            raise cannot_transform()
        if func is F.scaled_dot_product_attention:
            return self._answer(answer_sdpa, func, args, kwargs)
        if func is F.multi_head_attention_forward:
            return self._answer(answer_multi_head, func, args, kwargs)
        return self.follower.follow(name, func, args, kwargs)

    def _answer(self, answer: Callable[..., Any], func: Any, args: Any, kwargs: Any) -> Any:
        places = find_places()
        if not places:
            return func(*args, **kwargs)
        return answer(self, places, func, *args, **kwargs)


def _check_function(known: _Function, func: Any, args: Any, frame: FrameType) -> None:
    """Refuse what cannot be watched."""
    if known.asks_nested and func(*args):
        raise cannot_nest()
    # flex attention asks whether its tensors are nested first
    if known.refused or frame.f_code.co_filename.endswith("flex_attention.py"):
        raise cannot_watch("flex_attention" if known.asks_nested else known.name)


def _changes_first(known: _Function, args: Any, kwargs: Any) -> bool:
    """Return True if a function returns its first argument, changed."""
    return known.changes or kwargs.get("inplace", args[-1] if args else False) is True


def _keep_recorded(known: _Function, args: Any, kwargs: Any) -> None:
    """Copy what was recorded from the tensors that a function is about to change."""
    is_cache = known.name in ("__setitem__", "copy", "index_copy")
    first = args[:1] if is_cache or _changes_first(known, args, kwargs) else ()
    for changed in (*first, kwargs.get("out")):
        if isinstance(changed, Tensor):
            for one in WATCHES.get():
                one.recorder.copy_before(changed, is_cache=is_cache)


def answer_sdpa(  # noqa: PLR0913  torch's own signature
    calls: AttentionCalls,
    places: Sequence[Place],
    func: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Answer F.scaled_dot_product_attention."""
    if any(x.is_quantized for x in (query, key, value)):
        raise cannot_watch("scaled_dot_product_attention of quantized tensors")
    options = {"scale": scale, "enable_gqa": enable_gqa}
    result = partial(func, query, key, value, attn_mask, dropout_p, is_causal, **options)
    notes = calls.follower
    crosses = notes.origin(query) != notes.origin(key)
    factor = query.size(-1) ** -0.5 if scale is None else scale
    before = notes.note(query).factor * notes.note(key).factor
    if enable_gqa:
        groups = query.size(-3) // key.size(-3)
        key, value = (x.repeat_interleave(groups, dim=-3) for x in (key, value))
    if attn_mask is not None and not crosses and key.size(-2) > query.size(-2):
        n_key = _count_used(attn_mask, key.size(-2))
        key, value, attn_mask = key[..., :n_key, :], value[..., :n_key, :], attn_mask[..., :n_key]
    lead = broadcast_lead(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    heads = tuple(with_heads(x, lead) for x in (query, key, value))
    allowed, table = read_mask(with_mask_heads(attn_mask, lead))
    allowed = Causal() if is_causal else allowed
    facts = CallFacts(query.size(-1), factor * before, dropout_p)
    similarity = dot_similarity(factor, query.size(-1), table)
    with sites(places, heads[0], heads[1], crosses, facts) as site:
        context = tapped_attention(
            heads[0],
            heads[1],
            heads[2],
            ExactPattern(similarity, factor, 1.0, allowed),
            site=site,
            dropout=dropout_p,
            kernel=lambda: with_heads(result(), lead),
        )
    return context.reshape(*lead, *context.shape[-2:])


def _count_used(mask: Tensor, n_key: int) -> int:
    """Return the number of keys without the unused places at the end of a cache of fixed size."""
    seen = mask if mask.dtype == torch.bool else mask > HIDDEN
    used = seen.reshape(-1, seen.size(-1)).any(0).nonzero()
    return int(used[-1]) + 1 if len(used) and seen.size(-1) == n_key else n_key


def answer_multi_head(
    calls: AttentionCalls,
    places: Sequence[Place],
    func: Callable[..., tuple[Tensor, Tensor | None]],
    *args: Any,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Answer F.multi_head_attention_forward, with the weights if the caller asks for them."""
    given = _MULTI_HEAD.bind(*args, **kwargs)
    given.apply_defaults()
    call = SimpleNamespace(**given.arguments)
    crosses = not _is_same(call.query, call.key)
    batched = call.query.dim() == 3
    if not batched:
        call.query, call.key, call.value = (
            x.unsqueeze(1) for x in (call.query, call.key, call.value)
        )
        padding = call.key_padding_mask
        call.key_padding_mask = None if padding is None else padding.unsqueeze(0)
    heads, n_extra = _project(call)
    mask = _multi_head_mask(call, heads[0], heads[1].size(2) - n_extra, n_extra)
    allowed, table = read_mask(mask)
    factor, dropout = heads[0].size(-1) ** -0.5, call.dropout_p if call.training else 0.0
    recorder = WeightsRecorder() if call.need_weights else None
    facts = CallFacts(heads[0].size(-1), factor, dropout)
    similarity = dot_similarity(factor, heads[0].size(-1), table)
    pattern = ExactPattern(similarity, factor, 1.0, allowed)
    with (
        listen(recorder) if recorder else nullcontext(),
        sites(places, heads[0], heads[1], crosses, facts) as site,
    ):
        context = tapped_attention(*heads, pattern, site=site, dropout=dropout)
    joined = calls.edit_joined(context.permute(2, 0, 1, 3).flatten(2))
    output = F.linear(joined, call.out_proj_weight, call.out_proj_bias)
    for place in places:
        if place.watch.entered is not None:
            place.watch.entered.linear = (joined, call.out_proj_weight, call.out_proj_bias)
    weights = recorder.weights() if recorder else None
    if weights is not None and call.average_attn_weights:
        weights = weights.mean(dim=1)
    if not batched:
        output, weights = output.squeeze(1), None if weights is None else weights.squeeze(0)
    return output, weights


def _project(call: SimpleNamespace) -> tuple[tuple[Tensor, Tensor, Tensor], int]:
    """Return queries, keys and values of each head, and the number of added keys."""
    if call.use_separate_proj_weight:
        matrices = (call.q_proj_weight, call.k_proj_weight, call.v_proj_weight)
    else:
        matrices = call.in_proj_weight.chunk(3)
    biases = (None,) * 3 if call.in_proj_bias is None else call.in_proj_bias.chunk(3)
    inputs = (call.query, call.key, call.value)
    query, key, value = map(F.linear, inputs, matrices, biases)
    n_extra = 0
    if call.bias_k is not None:
        n_batch, n_extra = key.size(1), 1
        key = torch.cat([key, call.bias_k.expand(1, n_batch, -1)])
        value = torch.cat([value, call.bias_v.expand(1, n_batch, -1)])
    heads = [x.unflatten(-1, (call.num_heads, -1)).permute(1, 2, 0, 3) for x in (query, key, value)]
    for i, static in ((1, call.static_k), (2, call.static_v)):
        if static is not None:
            heads[i] = static.unflatten(0, (-1, call.num_heads))
    if call.add_zero_attn:
        n_extra += 1
        heads[1:] = [F.pad(x, (0, 0, 0, 1)) for x in heads[1:]]
    return (heads[0], heads[1], heads[2]), n_extra


def _multi_head_mask(
    call: SimpleNamespace, query: Tensor, n_key: int, n_extra: int
) -> Tensor | None:
    """Join both masks of nn.MultiheadAttention, whose booleans mean "must not see"."""
    masks = []
    if call.attn_mask is not None:
        mask = call.attn_mask
        masks.append(mask if mask.dim() == 2 else mask.unflatten(0, (-1, call.num_heads)))
    if call.key_padding_mask is not None:
        masks.append(call.key_padding_mask.view(-1, 1, 1, n_key))
    if not masks:
        return None
    if all(mask.dtype == torch.bool for mask in masks):
        hidden = masks[0] if len(masks) == 1 else masks[0] | masks[1]
        return ~F.pad(hidden, (0, n_extra))
    added = [
        query.new_zeros(()).expand(mask.shape).masked_fill(mask, -inf)
        if mask.dtype == torch.bool
        else mask.to(query.dtype)
        for mask in masks
    ]
    return F.pad(added[0] if len(added) == 1 else added[0] + added[1], (0, n_extra))


def _is_same(left: Tensor, right: Tensor) -> bool:
    """Return True if two tensors are the same numbers in memory."""
    places = [(x.data_ptr(), x.shape, x.stride()) for x in (left, right)]
    return left is right or places[0] == places[1]
