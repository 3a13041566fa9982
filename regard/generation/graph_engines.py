"""Encoders and vision models as graphs, run by OpenVINO or ONNX Runtime instead of torch.

A graph is exported once and kept in the user's cache. Which engine is fastest is measured in less
than a second, once for each machine, model and precision, when there is enough work to pay for it.
"""

import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.capabilities import usable_readers
from regard.files import cache_folder, cache_key, cached_folder, write_atomic
from regard.generation.ctranslate2_engine import fingerprint
from regard.hardware import Clock, cpu_count, idle_cpus
from regard.interop.onnx import export_graph
from regard.model import Model

WORTHWHILE = 256
"""Texts or images from which on "auto" exports a graph and measures."""
_MODULES = {"openvino": "openvino", "onnx": "onnxruntime"}
_GRAPH_FILE = "model.onnx"


class Reader:
    """Computes the states of texts, or the answers to images, of one model.

    Args:
        run: the computation, from arrays to an array, or from tensors to a tensor with torch.
    """

    def __init__(self, name: str, precision: str, run: Callable[..., Any]) -> None:
        self.name, self.precision, self._run = name, precision, run

    def __call__(self, *inputs: Tensor) -> Any:
        """Return a tensor; for models that run as they are, what their adapter returns."""
        if self.name == "torch":
            return self._run(*inputs)
        return torch.from_numpy(self._run(*(one.cpu().numpy() for one in inputs)))


def reader_of(
    model: Model, engine: str = "auto", precision: str = "float32", *, n_inputs: int = 1
) -> Reader:
    """Return the engine that embeds, classifies or fills with a model; it stays open.

    Args:
        n_inputs: number of texts or images; few are not worth a measurement.
    """
    settings = model.config.to_dict()
    names = usable_readers(
        model.family, settings, engine, precision, excluded=_excluded(model, engine)
    )
    name = names[0] if len(names) == 1 else _fastest(model, names, precision, n_inputs)
    return _open(model, name, precision)


def _open(model: Model, name: str, precision: str) -> Reader:
    key = ("read", name, precision)
    if key not in model.open_engines:
        run = _OPEN[name](model, precision)
        model.open_engines[key] = Reader(name, precision, run)
    return model.open_engines[key]


def _excluded(model: Model, engine: str) -> dict[str, str]:
    reasons = {}
    for name, module in _MODULES.items():
        if any(find_spec(one) is None for one in (module, "onnx", "onnxscript")):
            reasons[name] = f"it is not installed (pip install 'regard[{name}]' installs it)"
        elif model.folder is None:
            reasons[name] = "the model was not loaded from a folder"
        elif model.changed:
            reasons[name] = "weights were changed after loading"
        elif model.device.type != "cpu":
            reasons[name] = f"the model is on {model.device}"
    return reasons


def _fastest(model: Model, names: Sequence[str], precision: str, n_inputs: int) -> str:
    """Return the engine that was measured as fastest, or torch if nothing was measured."""
    assert model.folder is not None
    machine = [platform.machine(), platform.processor(), cpu_count(), torch.__version__]
    about = cache_key({"machine": machine, "names": list(names), "precision": precision})
    place = cache_folder() / "fastest" / f"{fingerprint(model.folder)}-{about}"
    with suppress(OSError):
        if (known := place.read_text("ascii")) in names:
            return known
    if n_inputs < WORTHWHILE:
        return "torch"
    example = _example(model)
    readers = {name: _open(model, name, precision) for name in names}
    chosen = measured_fastest({name: lambda r=r: r(*example) for name, r in readers.items()})
    for name in set(names) - {chosen}:
        del model.open_engines["read", name, precision]
    with suppress(OSError):  # a cache that cannot be written only costs time
        write_atomic(place, chosen)
    return chosen


@torch.inference_mode()
def measured_fastest(
    calls: dict[str, Callable[[], object]], *, seconds: float = 0.8, clock: Clock = perf_counter
) -> str:
    """Call contenders in turns for so long; return the name of the one with the fastest call."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()  # the first call prepares memory
    end = clock() + seconds
    while True:
        for name, call in calls.items():
            start = clock()
            call()
            best[name] = min(best[name], clock() - start)
        if clock() >= end:
            return min(best, key=lambda name: best[name])


def _example(model: Model) -> tuple[Tensor, ...]:
    config = model.config
    if model.family == "vision":
        return (torch.zeros(8, config.n_channels, config.image_size, config.image_size),)
    return torch.zeros(8, 24, dtype=torch.long), torch.full((8,), 24)


def _graph(model: Model) -> str:
    assert model.folder is not None
    place = cache_folder() / "graphs" / fingerprint(model.folder)
    return str(
        cached_folder(place, lambda fresh: export_graph(model, fresh / _GRAPH_FILE)) / _GRAPH_FILE
    )


def _inputs(model: Model) -> tuple[str, ...]:
    return ("images",) if model.family == "vision" else ("ids", "lengths")


def _open_openvino(model: Model, precision: str) -> Callable[..., np.ndarray]:
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": idle_cpus(),
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[precision],
    }
    compiled = openvino.Core().compile_model(_graph(model), "CPU", settings)
    request, names = compiled.create_infer_request(), _inputs(model)
    return lambda *given: request.infer(dict(zip(names, given, strict=True)))[0]


def _open_onnx(model: Model, precision: str) -> Callable[..., np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = idle_cpus()
    options.log_severity_level = 3
    session: Any = onnxruntime.InferenceSession(_graph(model), options)
    names = _inputs(model)
    return lambda *given: session.run(None, dict(zip(names, given, strict=True)))[0]


def _open_torch(model: Model, precision: str) -> Callable[..., Any]:
    module, half = model.module, precision == "bfloat16"

    def run(first: Tensor, *lengths: Tensor) -> Any:
        # Without padding no mask is needed, which is faster.
        even = bool(lengths) and bool((lengths[0] == first.shape[1]).all())
        with torch.autocast(first.device.type, torch.bfloat16, enabled=half):
            found = module.eval()(first, *(() if even else lengths))
        return found.float() if half and isinstance(found, Tensor) else found

    return run


_OPEN: dict[str, Callable[[Model, str], Callable[..., Any]]] = {
    "openvino": _open_openvino,
    "onnx": _open_onnx,
    "torch": _open_torch,
}
