"""Export models as ONNX graphs for any batch size and length.

| family      | files                      | inputs → outputs                              |
|-------------|----------------------------|-----------------------------------------------|
| encoder     | model.onnx                 | ids, lengths → states, logits (fill), classes |
| decoder     | model.onnx                 | ids, lengths → logits                         |
| vision      | model.onnx                 | images → classes, or one vector each          |
| transformer | encoder.onnx, decoder.onnx | source_ids, source_lengths → memory;          |
|             |                            | target_ids, memory, source_lengths → logits   |
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError, MissingExtraError
from regard.files import atomic_folder
from regard.model import Model
from regard.model_folder import TARGET_TOKENIZER, TOKENIZER, write_tokenizer

_NAMES = ("model.onnx", "encoder.onnx", "decoder.onnx", TOKENIZER, TARGET_TOKENIZER)
_AXES = {
    "ids": ("batch", "token"),
    "lengths": ("batch",),
    "images": ("batch",),
    "source_ids": ("batch", "source"),
    "source_lengths": ("batch",),
    "target_ids": ("batch", "target"),
    "memory": ("batch", "source"),
}
"""The leading axes of each input, which may have any size."""
_SIZES = {"batch": 2, "token": 3, "source": 5, "target": 3}
"""The sizes in the traced example: not 1, and source ≠ target, which would become constants."""

_ANY_FORM = ("exact", "efficient", "linformer")
_FORMS = {
    "encoder": _ANY_FORM,
    "vision": _ANY_FORM,
    "decoder": ("exact",),
    "transformer": ("exact",),
}
"""The attention forms of each family whose graphs have any batch size and equal the model."""


class _FunctionModule(nn.Module):
    """A module that calls a function of a model and tensors, for the exporter."""

    def __init__(self, model: Any, compute: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.compute = model, compute

    def forward(self, *inputs: Tensor) -> Any:
        return self.compute(self.model, *inputs)


@dataclass(frozen=True)
class _Graph:
    """A graph to export, with an example of each input."""

    file: str
    compute: Callable[..., Any]  # a function of the model and the inputs
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]


def export_onnx(model: Model, folder: str | Path) -> list[str]:
    """Write the model's graphs; return the names of their files."""
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("this export needs onnx: pip install 'regard[onnx]'.") from error
    graphs = _graphs(model)
    with atomic_folder(folder, names=_NAMES) as fresh:
        for graph in graphs:
            _write(graph, model, fresh)
        if model.tokenizer is not None:
            write_tokenizer(fresh / TOKENIZER, model.tokenizer)
        if model.target_tokenizer is not None and model.target_tokenizer is not model.tokenizer:
            write_tokenizer(fresh / TARGET_TOKENIZER, model.target_tokenizer)
    return [graph.file for graph in graphs]


def export_graph(model: Model, path: Path) -> None:
    """Write an encoder's states or a vision model's answers as one graph.

    torch's older exporter takes a fifth of the time of the newer one, but cannot resize positions.
    """
    (graph,) = _graphs(model)
    if model.family == "vision":
        _write(graph, model, path.parent)
        return
    axes = {one: dict(enumerate(_AXES[one])) for one in graph.inputs}
    with _quiet(), torch.no_grad():
        torch.onnx.export(
            _FunctionModule(model.module, _call).eval(),
            tuple(graph.inputs.values()),
            str(path),
            dynamo=False,
            input_names=list(graph.inputs),
            output_names=["states"],
            dynamic_axes=axes,
        )


def _write(graph: _Graph, model: Model, folder: Path) -> None:
    config = model.config
    learned = getattr(config, "positions", "") == "learned"
    dims: dict[str, Any] = {}
    for name in {axis for given in graph.inputs for axis in _AXES[given]}:
        bound = {"max": config.max_positions} if learned and name != "batch" else {}
        dims[name] = torch.export.Dim(name, **bound)
    shapes = [{i: dims[axis] for i, axis in enumerate(_AXES[name])} for name in graph.inputs]
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            _FunctionModule(model.module, graph.compute).eval(),
            tuple(graph.inputs.values()),
            dynamo=True,
            dynamic_shapes={"inputs": tuple(shapes)},
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            verbose=False,
        )
        assert program is not None  # None only if a file is given
        program.save(folder / graph.file)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings and logs of the exporter."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _zeros(*names: str) -> dict[str, Tensor]:
    """Return examples of token ids or lengths."""
    shapes = {name: [_SIZES[axis] for axis in _AXES[name]] for name in names}
    return {name: torch.zeros(shape, dtype=torch.long) for name, shape in shapes.items()}


def _graphs(model: Model) -> list[_Graph]:
    """Return the graphs of a model; refuse attention and families that ONNX cannot represent."""
    config, module = model.config, model.module
    forms = _FORMS.get(model.family, ())
    if forms and config.attention not in forms:
        raise InputError(
            f"{model.family} models with {config.attention} attention cannot be exported to ONNX; "
            f"those with {' or '.join(forms)} attention can."
        )
    if model.family == "encoder":
        heads = {"logits": module.fill, "classes": module.classifier}
        outputs = ("states", *(name for name, head in heads.items() if head is not None))
        return [_Graph("model.onnx", _encode_text, _zeros("ids", "lengths"), outputs)]
    if model.family == "decoder":
        return [_Graph("model.onnx", _call, _zeros("ids", "lengths"), ("logits",))]
    if model.family == "vision":
        shape = (_SIZES["batch"], config.n_channels, config.image_size, config.image_size)
        output = "vectors" if config.n_classes is None else "classes"
        return [_Graph("model.onnx", _call, {"images": torch.zeros(shape)}, (output,))]
    if model.family == "transformer":
        memory = torch.zeros(_SIZES["batch"], _SIZES["source"], config.d_model)
        source = _zeros("source_ids", "source_lengths")
        target = _zeros("target_ids") | {"memory": memory} | _zeros("source_lengths")
        return [
            _Graph(
                "encoder.onnx", lambda module, *given: module.encode(*given), source, ("memory",)
            ),
            _Graph("decoder.onnx", _decode_target, target, ("logits",)),
        ]
    raise InputError(
        f"{model.family} models cannot be exported to ONNX because they loop over the text; "
        "encoder, decoder, vision and transformer models can."
    )


def _call(module: Any, *inputs: Tensor) -> Tensor:
    return module(*inputs)


def _encode_text(module: Any, ids: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    results = [states := module(ids, lengths)]
    if module.fill is not None:
        results.append(module.fill_logits(states))
    if module.classifier is not None:
        results.append(module.classify(states, lengths))
    return tuple(results)


def _decode_target(module: Any, target_ids: Tensor, memory: Tensor, lengths: Tensor) -> Tensor:
    return module.project(module.decode(target_ids, memory, lengths))
