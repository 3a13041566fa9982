"""The engines of a loaded model: opened when first needed, kept, and replaced if weights change."""

from typing import Any

import torch

from regard.capabilities import choose_engine, choose_writer
from regard.errors import InputError
from regard.generation.numpy_decoder import NumpyDecoder
from regard.generation.search import SamplingOptions, SearchOptions
from regard.generation.text_generation import (
    CTranslate2Writer,
    NumpyWriter,
    TextGenerator,
    Writer,
    repetition_refusal,
)
from regard.generation.torch_engine import TorchEngine, TorchWriter
from regard.generation.translator import Translator, max_positions, open_translator
from regard.model import Model


def translator_of(
    model: Model, options: SearchOptions, *, engine: str = "auto", int8: bool = False
) -> Translator:
    """Return the translator of a model that supports these options.

    CTranslate2 reads the model folder, so a model without one, or whose weights were changed after
    loading, is run by torch.
    """
    feature = options.torch_feature or folder_refusal(model)
    _, target = model.translation_tokenizers()
    settings = model.config.to_dict()
    engine = choose_engine(model.family, settings, engine, int8=int8, torch_feature=feature)
    key = _key(model, "translate", engine, int8, copies=engine == "torch")
    if key not in model.open_engines:
        if engine == "torch" or model.folder is None:
            model.module.eval()
            opened = TorchEngine([model.module], target, int8=int8)
            _forget(model, "translate", engine)
            model.open_engines[key] = model.translator_with(opened)
        else:
            model.open_engines[key] = open_translator(model.folder, engine=engine, int8=int8)
    return model.open_engines[key]


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
        model.family, settings, engine, precision, excluded=_excluded(model, options)
    )
    key = _key(model, "generate", chosen, precision, copies=chosen == "numpy")
    if key not in model.open_engines:
        _forget(model, "generate", chosen)
        writer = _open_writer(model, chosen, precision)
        positions = max_positions(settings)
        model.open_engines[key] = TextGenerator(writer, model.tokenizer, n_positions=positions)
    model.module.eval()
    return model.open_engines[key]


def folder_refusal(model: Model) -> str:
    """Return what keeps an engine from reading the model's folder instead, or an empty string."""
    if model.folder is None:
        return "models that are not loaded from a folder"
    return "weights that were changed after loading" if model.changed else ""


def _excluded(model: Model, options: SamplingOptions) -> dict[str, str]:
    assert model.tokenizer is not None
    reasons = {}
    dtype = next(model.module.parameters()).dtype
    if model.device.type != "cpu" or dtype != torch.float32:
        reasons["numpy"] = f"its weights are {dtype} on {model.device}"
    refusal = repetition_refusal(options)
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
    return TorchWriter(model.module, model.tokenizer)


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
