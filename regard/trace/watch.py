"""The block that records what is computed inside it, by regard or by any other model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from regard.errors import InputError
from regard.tap import listen
from regard.trace.edit import Edit, Editor
from regard.trace.found_stream import note_streams
from regard.trace.recorder import Recorder
from regard.trace.stream_edits import STREAM_VALUES, editing_streams
from regard.trace.torch_calls import answering
from regard.trace.trace import Trace
from regard.trace.watched_model import WATCHES, LocalListener, Watch

_TRANSFORMERS_KERNELS = ("eager", "sdpa", "regard")


@contextmanager
def watch(
    model: Any = None, *, edits: Sequence[Edit] = (), only: Sequence[str] = ()
) -> Iterator[Trace]:
    """Record everything that is computed inside the block, changed by `edits`.

    with regard.watch(model, edits=[regard.ablate("layers.0.self_attn", head=1)]) as trace:
        trace.output = model(x)

    Args:
        model: any nn.Module, function or object with methods; it is not changed. Only attention
            that it computes is recorded, and sites are named by its parts
            ("model.layers.3.self_attn"). Without a model, only values that pass through
            `regard.tap` are recorded, which is enough for models of regard.
        edits: changes to what is computed, which must all fit.
        only: paths of sites and values to record, such as "decoder.*.cross"; by default all.
    """
    recorder, editor = Recorder(only), Editor(edits, may_grow=model is not None)
    trace = Trace(values=recorder.values)
    if model is None:
        with listen(editor, recorder):
            yield trace
    else:
        check_watchable(model)
        one = Watch(model, trace, recorder)
        WATCHES.set((*WATCHES.get(), one))
        try:
            used = (editor, recorder) if editor.edits else (recorder,)
            listeners = [LocalListener(one, listener) for listener in used]
            with listen(*listeners), answering() as calls:
                edits_streams = editor.names_any(STREAM_VALUES)
                with editing_streams(calls, one) if edits_streams else nullcontext():
                    yield trace
        finally:
            WATCHES.set(tuple(x for x in WATCHES.get() if x is not one))
            recorder.copy_caches()
        trace.unwatched += [softmax.describe() for softmax in one.softmaxes if not softmax.used]
        trace.sites.update(recorder.sites())
        if not (trace.unwatched or trace.sites or recorder.stopped):
            _explain_no_site(one)
        note_streams(trace, calls.streams, one, editor.wants)
    trace.sites.update(recorder.sites())
    editor.finish()


def _explain_no_site(one: Watch) -> None:
    """Leave a note if the model was not called; refuse it if it was and has no attention."""
    kind = type(one.model).__name__
    if not one.called:
        one.trace.note = f"the watched {kind} was not called inside the block, in its thread"
        return
    raise InputError(
        f"no attention of this {kind} was computed: regard looks for "
        "F.scaled_dot_product_attention, nn.MultiheadAttention, and a softmax whose result is "
        "multiplied with values."
    )


def check_watchable(model: Any) -> None:
    """Refuse what runs outside Python, where nothing can be seen."""
    modules = model.named_modules() if isinstance(model, nn.Module) else [("", model)]
    for path, module in modules:
        name = f"{path or 'the model'} ({type(module).__name__})"
        compiled = hasattr(module, "_orig_mod") or hasattr(module, "_torchdynamo_orig_callable")
        if compiled or getattr(module, "_compiled_call_impl", None) is not None:
            raise InputError(
                f"{name} is compiled, and compiled code cannot be watched: watch the plain module "
                "(model._orig_mod, or the model before torch.compile)."
            )
        if isinstance(module, torch.jit.ScriptModule | torch.jit.ScriptFunction):
            raise InputError(
                f"{name} is TorchScript, which cannot be watched: watch the Python module that it "
                "was made from."
            )
    kernel = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if isinstance(kernel, str) and kernel not in _TRANSFORMERS_KERNELS:
        raise InputError(
            f"the model was loaded with attn_implementation={kernel!r}, whose kernel cannot be "
            'watched: call model.set_attn_implementation("sdpa") first.'
        )
