"""The engines of a loaded model that translate and continue texts.

They are opened when first needed, kept, and replaced if weights change.
"""

from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import torch

from regard.capabilities import choose_engine, usable_writers
from regard.errors import InputError
from regard.generation.ctranslate2_writer import CTranslate2Writer
from regard.generation.numpy_decoder import NumpyDecoder
from regard.generation.search import SamplingOptions, SearchOptions
from regard.generation.text_generation import (
    NumpyWriter,
    TextGenerator,
    Writer,
    choose_writer,
    writing_class,
)
from regard.generation.torch_engine import TorchEngine, TorchWriter, precision_of
from regard.generation.translator import Translator, max_positions, open_translator
from regard.hardware import chosen_device
from regard.model import Model, load
from regard.model_folder import is_transformers_folder
from regard.models.config import ModelConfig, build_from_weights
from regard.text.tokenizer import Tokenizer


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


def loaded_translator(
    folder: Path,
    languages: tuple[str | None, str | None],
    *,
    engine: str,
    precision: str,
    narrowed: bool = False,
) -> Translator:
    """Open a folder of transformers, or one whose model runs on another device than the CPU.

    Args:
        languages: of source and target, for models that have many.
        narrowed: True if a shortlist or an ensemble is wanted, which is refused.
    """
    if narrowed and is_transformers_folder(folder):
        raise InputError(
            f"{folder} is a Hugging Face folder, which cannot be used with a shortlist or an "
            f"ensemble: convert it with `regard import {folder} -o FOLDER`."
        )
    if narrowed:
        raise InputError(
            f"shortlists and ensembles run on the CPU, and the device is {chosen_device()}: leave "
            "one of them out."
        )
    model = load(folder)
    if any(languages):
        model = model.between(*languages)
    return translator_of(model, SearchOptions(), engine=engine, precision=precision)


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
    model: Model,
    options: SamplingOptions,
    *,
    engine: str = "auto",
    precision: str = "float32",
    n_prompts: int = 1,
) -> TextGenerator:
    """Return the text generator of a model that supports these options.

    Args:
        n_prompts: number of texts to continue; few are not worth a measurement of engines.
    """
    # Choosing again would take a tenth of the time to a first token.
    asked = engine, precision, options.temperature > 0, options.ctranslate2_refusal
    n_rows, enough = writing_class(options, n_prompts)
    with model.open_engines.lock:
        chosen, weights = model.open_engines.chosen, model.weights_state()
        known, opened = chosen.get((*asked, n_rows, enough), (None, None))
        if known != weights:
            # A measurement can choose another engine for what is known.
            if enough or any(others != weights for others, _ in chosen.values()):
                chosen.clear()
            opened = _choose_generator(model, options, engine, precision, n_prompts)
            if precision != "bfloat16":  # a copy, whose key has more of the weights
                chosen[*asked, n_rows, enough] = model.weights_state(), opened
        if opened.writer.name == "torch":
            model.module.eval()
        return opened


def _choose_generator(
    model: Model, options: SamplingOptions, engine: str, precision: str, n_prompts: int
) -> TextGenerator:
    if model.family != "decoder" or model.tokenizer is None:
        raise InputError(
            f"this model is of the family {model.family}; only one of the family decoder with a "
            "tokenizer continues a text."
        )
    settings = model.config.to_dict()
    names, precision = usable_writers(
        model.family, settings, engine, precision, excluded=_unusable_writers(model, options)
    )
    open_one = partial(_open_generator, model, model.tokenizer, precision=precision)
    folder = None if model.changed else model.folder or model.checkpoint
    before = set(model.open_engines)
    chosen = choose_writer(folder, names, options, open_one, n_prompts)
    for key in set(model.open_engines) - before:  # what was only measured
        if key[1] != chosen:
            del model.open_engines[key]
    return open_one(chosen)


def _open_generator(
    model: Model, tokenizer: Tokenizer, chosen: str, *, precision: str
) -> TextGenerator:
    # The NumPy engine shares the module's memory, so only replaced weights need a new one.
    key = _key(model, "generate", chosen, precision, copies=precision == "bfloat16")
    key = (*key[:3], model.weights_state()) if chosen == "numpy" else key
    if key not in model.open_engines:
        _forget(model, "generate", chosen)
        changed = model.changed
        writer = _open_writer(model, chosen, precision)
        if chosen != "ctranslate2":  # the module's weights were moved
            moved = model.weights_state()
            key = (*key[:3], moved) if chosen == "numpy" else key
            model.loaded_weights = () if changed else moved
        positions = max_positions(model.config.to_dict())
        model.open_engines[key] = TextGenerator(writer, tokenizer, n_positions=positions)
    return model.open_engines[key]


def folder_refusal(model: Model) -> str:
    """Return what keeps an engine from reading the model's folder instead, or an empty string."""
    if model.folder is None:
        return "models that are not loaded from a folder"
    if (precision := precision_of(model.module)) != "float32":
        return f"a model that was loaded in {precision}"
    if model.device.type != "cpu":
        return f"a model on {model.device}"
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
