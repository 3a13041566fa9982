"""Encoders and vision models as graphs, run by OpenVINO or ONNX Runtime instead of torch.

A graph is exported once and kept in the user's cache. Which engine is fastest is measured when
there is enough work to pay for it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.capabilities import usable_readers
from regard.files import cache_folder, cached_folder
from regard.generation.ctranslate2_engine import fingerprint
from regard.generation.fastest_engine import fastest_engine, measured_fastest
from regard.generation.torch_engine import precision_of
from regard.hardware import idle_cpus
from regard.interop.onnx import export_graph
from regard.model import Model

WORTHWHILE = 256
"""Texts or images from which on "auto" exports a graph and measures."""
_SMALL = 2_000_000  # parameters
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
    names, precision = usable_readers(
        model.family, settings, engine, precision, excluded=_unusable_readers(model)
    )
    name = names[0] if len(names) == 1 else _fastest(model, names, precision, n_inputs)
    return _open(model, name, precision)


def _open(model: Model, name: str, precision: str) -> Reader:
    key = ("read", name, precision)
    with model.open_engines.lock:
        if key not in model.open_engines:
            run = _OPEN[name](model, precision)
            model.open_engines[key] = Reader(name, precision, run)
        return model.open_engines[key]


def _unusable_readers(model: Model) -> dict[str, str]:
    reasons, dtype = {}, precision_of(model.module)
    for name, module in _MODULES.items():
        if any(find_spec(one) is None for one in (module, "onnx", "onnxscript")):
            reasons[name] = f"it is not installed (pip install 'regard[{name}]' installs it)"
        elif (model.folder or model.checkpoint) is None:
            reasons[name] = "it reads folders that regard wrote (regard import makes one)"
        elif model.device.type != "cpu":
            reasons[name] = f"the model is on {model.device}"
        elif model.changed:
            reasons[name] = "weights were changed after loading"
        elif dtype != "float32":
            reasons[name] = f"its weights are {dtype}"
    return reasons


def _fastest(model: Model, names: Sequence[str], precision: str, n_inputs: int) -> str:
    """Return the engine that was measured as fastest, or torch if nothing was measured."""
    about = {"precision": precision, "torch": torch.__version__}
    measure = partial(_measure, model, names, precision)
    with model.open_engines.lock:  # so that only one thread measures
        found = fastest_engine(
            _folder(model), names, about, measure, worthwhile=n_inputs >= WORTHWHILE
        )
    return found or "torch"


@torch.inference_mode()
def _measure(model: Model, names: Sequence[str], precision: str) -> str:
    """Open all engines and keep the fastest."""
    example = _example(model)
    readers = {name: _open(model, name, precision) for name in names}
    chosen = measured_fastest({name: partial(r, *example) for name, r in readers.items()})
    for name in set(names) - {chosen}:
        model.open_engines.pop(("read", name, precision), None)
    return chosen


def _example(model: Model) -> tuple[Tensor, ...]:
    """Return a batch of the usual size, or a smaller one for a model that needs long for it."""
    config = model.config
    rows = 32 if sum(one.numel() for one in model.module.parameters()) < _SMALL else 8
    if model.family == "vision":
        return (torch.zeros(rows, config.n_channels, config.image_size, config.image_size),)
    return torch.zeros(rows, 24, dtype=torch.long), torch.full((rows,), 24)


def _folder(model: Model) -> Path:
    """Return the folder that holds the model."""
    folder = model.folder or model.checkpoint
    assert folder is not None
    return folder


def _graph(model: Model, precision: str = "float32") -> str:
    place = cache_folder() / "graphs" / fingerprint(_folder(model))

    def quantize(fresh: Path) -> None:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from onnxruntime.quantization.quant_utils import add_pre_process_metadata

        graph = onnx.load(whole)
        del graph.graph.value_info[:]  # shapes that the exporter's optimizer has left are wrong
        add_pre_process_metadata(graph)  # it is optimized, and needs no advice to do so
        signed = {"weight_type": QuantType.QInt8, "per_channel": True}
        quantize_dynamic(graph, fresh / _GRAPH_FILE, **signed)

    if precision == "int8":
        whole = _graph(model)  # before the lock of the cache is held
        place = place.with_name(f"{place.name}-int8")
        return str(cached_folder(place, quantize) / _GRAPH_FILE)
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
    session: Any = onnxruntime.InferenceSession(_graph(model, precision), options)
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
