"""Encoders and vision models as graphs, run by OpenVINO or ONNX Runtime instead of torch.

A graph is exported once and kept in the user's cache. Which engine is fastest is measured in less
than a second, once for each machine, model and precision, when there is enough work to pay for it.

The engines of a loaded model: opened when first needed, kept, and replaced if weights change.
"""

import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.capabilities import choose_engine, choose_writer, usable_readers
from regard.errors import InputError
from regard.files import cache_folder, cache_key, cached_folder, write_atomic
from regard.generation.ctranslate2_engine import fingerprint
from regard.generation.numpy_decoder import NumpyDecoder
from regard.generation.search import SamplingOptions, SearchOptions
from regard.generation.text_generation import (
    CTranslate2Writer,
    NumpyWriter,
    TextGenerator,
    Writer,
)
from regard.generation.torch_engine import TorchEngine, TorchWriter, precision_of
from regard.generation.translator import Translator, max_positions, open_translator
from regard.hardware import Clock, cpu_count, idle_cpus
from regard.interop.onnx import export_graph
from regard.model import Model
from regard.models.config import ModelConfig, build_from_weights
from regard.text.tokenizer import Tokenizer

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
        elif model.changed:
            reasons[name] = "weights were changed after loading"
        elif model.device.type != "cpu":
            reasons[name] = f"the model is on {model.device}"
        elif dtype != "float32":
            reasons[name] = f"its weights are {dtype}"
    return reasons


def _fastest(model: Model, names: Sequence[str], precision: str, n_inputs: int) -> str:
    """Return the engine that was measured as fastest, or torch if nothing was measured."""
    machine = [platform.machine(), platform.processor(), cpu_count(), torch.__version__]
    about = cache_key({"machine": machine, "names": list(names), "precision": precision})
    place = cache_folder() / "fastest" / f"{_stored(model)}-{about}"
    with suppress(OSError):
        if (known := place.read_text("ascii")) in names:
            return known
    if n_inputs < WORTHWHILE:
        return "torch"
    with model.open_engines.lock:
        with suppress(OSError):  # another thread has measured meanwhile
            if (known := place.read_text("ascii")) in names:
                return known
        chosen = _measure(model, names, precision)
    with suppress(OSError):  # a cache that cannot be written only costs time
        write_atomic(place, chosen)
    return chosen


def _measure(model: Model, names: Sequence[str], precision: str) -> str:
    """Open all engines and keep the fastest."""
    example = _example(model)
    readers = {name: _open(model, name, precision) for name in names}
    # On a busy machine engines have one thread each, and its time says more than the clock.
    clock = perf_counter if idle_cpus() > 1 else process_time
    calls = {name: lambda r=r: r(*example) for name, r in readers.items()}
    chosen = measured_fastest(calls, clock=clock)
    for name in set(names) - {chosen}:
        model.open_engines.pop(("read", name, precision), None)
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
    """Return a batch of the usual size, or a smaller one for a model that needs long for it."""
    config = model.config
    rows = 32 if sum(one.numel() for one in model.module.parameters()) < _SMALL else 8
    if model.family == "vision":
        return (torch.zeros(rows, config.n_channels, config.image_size, config.image_size),)
    return torch.zeros(rows, 24, dtype=torch.long), torch.full((rows,), 24)


def _stored(model: Model) -> str:
    """Return a hash of the files that hold the model."""
    folder = model.folder or model.checkpoint
    assert folder is not None
    return fingerprint(folder)


def _graph(model: Model, precision: str = "float32") -> str:
    place = cache_folder() / "graphs" / _stored(model)

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


def translator_of(
    model: Model, options: SearchOptions, *, engine: str = "auto", precision: str = "float32"
) -> Translator:
    """Return the translator of a model that supports these options.

    CTranslate2 reads the model folder, so a model without one, or whose weights were changed after
    loading, is run by torch.
    """
    feature = options.torch_feature or folder_refusal(model)
    _, target = model.translation_tokenizers()
    settings = model.config.to_dict()
    engine, precision = choose_engine(
        model.family, settings, engine, precision, torch_feature=feature
    )
    with model.open_engines.lock:
        key = _key(model, "translate", engine, precision, copies=engine == "torch")
        if key not in model.open_engines:
            if engine == "torch" or model.folder is None:
                module = _in_precision(model, precision)
                searcher = TorchEngine([module], target, int8=precision == "int8")
                _forget(model, "translate", engine)
                opened = model.translator_with(searcher)
            else:
                opened = open_translator(model.folder, engine=engine, precision=precision)
            model.open_engines[key] = opened
        return model.open_engines[key]


def _in_precision(model: Model, precision: str) -> Any:
    """Return the module, or a copy of it in bfloat16."""
    module = model.module.eval()
    if precision != "bfloat16" or next(module.parameters()).dtype == torch.bfloat16:
        return module
    if not isinstance(model.config, ModelConfig):
        return deepcopy(module).to(torch.bfloat16)
    weights = module.state_dict()  # converted one by one
    return build_from_weights(model.config, weights, dtype=torch.bfloat16, source="the model")


def generator_of(
    model: Model, options: SamplingOptions, *, engine: str = "auto", precision: str = "float32"
) -> TextGenerator:
    """Return the text generator of a model that supports these options."""
    if model.family != "decoder" or model.tokenizer is None:
        raise InputError(
            f"this model is of the family {model.family}; only one of the family decoder with a "
            "tokenizer continues a text."
        )
    settings = model.config.to_dict()
    chosen, precision = choose_writer(
        model.family, settings, engine, precision, excluded=_unusable_writers(model, options)
    )
    if chosen == "torch":
        model.module.eval()
    with model.open_engines.lock:
        return _open_generator(model, model.tokenizer, chosen, precision)


def _open_generator(
    model: Model, tokenizer: Tokenizer, chosen: str, precision: str
) -> TextGenerator:
    # The NumPy engine shares the module's memory, so only replaced weights need a new one.
    key = _key(model, "generate", chosen, precision, copies=precision == "bfloat16")
    key = (*key[:3], model.weights_state()) if chosen == "numpy" else key
    if key not in model.open_engines:
        _forget(model, "generate", chosen)
        changed = model.changed
        writer = _open_writer(model, chosen, precision)
        if chosen == "numpy":  # the module's weights were moved
            key = (*key[:3], model.weights_state())
            model.loaded_weights = () if changed else model.weights_state()
        positions = max_positions(model.config.to_dict())
        model.open_engines[key] = TextGenerator(writer, tokenizer, n_positions=positions)
    return model.open_engines[key]


def folder_refusal(model: Model) -> str:
    """Return what keeps an engine from reading the model's folder instead, or an empty string."""
    if model.folder is None:
        return "models that are not loaded from a folder"
    if (precision := precision_of(model.module)) != "float32":
        return f"a model that was loaded in {precision}"
    return "weights that were changed after loading" if model.changed else ""


def _unusable_writers(model: Model, options: SamplingOptions) -> dict[str, str]:
    assert model.tokenizer is not None
    reasons = {}
    dtype = precision_of(model.module)
    if model.device.type != "cpu" or dtype != "float32":
        reasons["numpy"] = f"its weights are {dtype} on {model.device}"
    refusal = options.ctranslate2_refusal
    if model.tokenizer.end_id is None:
        refusal = "its tokenizer has no end token"
    elif feature := folder_refusal(model):
        refusal = f"it does not support {feature}"
    if refusal:
        reasons["ctranslate2"] = refusal
    return reasons


def _open_writer(model: Model, engine: str, precision: str) -> Writer:
    assert model.tokenizer is not None
    if engine == "numpy":
        return NumpyWriter(NumpyDecoder.of_module(model.module), model.tokenizer)
    if engine == "ctranslate2" and model.folder is not None:
        return CTranslate2Writer(model.folder, model.tokenizer, int8=precision == "int8")
    return TorchWriter(_in_precision(model, precision), model.tokenizer)


def _key(model: Model, task: str, *engine: Any, copies: bool) -> tuple[Any, ...]:
    """Return a key that changes with the weights, if the engine copies them."""
    weights: tuple[Any, ...] = model.weights_state() if copies else ()
    if copies:  # `weight.data` can be changed without a new version
        weights += tuple(float(one.detach().sum()) for one in model.module.parameters())
    return (task, *engine, weights)


def _forget(model: Model, task: str, engine: str) -> None:
    """Close engines of the same kind with other weights."""
    for key in [key for key in model.open_engines if key[:2] == (task, engine)]:
        if key[-1]:
            del model.open_engines[key]
