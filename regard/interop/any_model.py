"""Wrap a module in memory, of whatever origin, so that it is a model of regard."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Backend
from torch import nn

from regard.data.images import Normalization
from regard.errors import InputError, RegardError, first_line
from regard.interop.adapters import (
    AdaptedConfig,
    AdaptedDecoder,
    AdaptedEncoder,
    AdaptedTransformer,
    AdaptedVision,
    Adapter,
    EncodedText,
)
from regard.model import Model
from regard.model_folder import Card
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_files import ROLE_KEYS
from regard.trace.trace import Trace
from regard.trace.watch import check_watchable, watch

_KINDS = {
    "ForCausalLM": ("decoder", "language"),
    "LMHeadModel": ("decoder", "language"),
    "ForMaskedLM": ("encoder", "masked"),
    "ForConditionalGeneration": ("transformer", "translation"),
    "ForSequenceClassification": ("encoder", "classification"),
    "ForImageClassification": ("vision", "classification"),
    "Model": ("encoder", "embedding"),
}
"""For the end of a class's name in transformers: family and task."""
KNOWN = "decoders, masked models, encoder–decoders, and classifiers of texts and images"


def adapt(module: nn.Module, *, tokenizer: Any = None, processor: Any = None) -> Model:
    """Wrap a module in memory, which is put into evaluation mode and otherwise not changed.

    Args:
        tokenizer: one of regard, a fast one of transformers, or a file; None for ids or images.
        processor: an image processor of transformers, for models that read images.
    """
    if not isinstance(module, nn.Module):
        raise InputError(
            f"a {type(module).__name__} is not a model: give a name, a folder or a torch module."
        )
    check_watchable(module)
    text = None if tokenizer is None else convert_tokenizer(tokenizer)
    family, task, config = _describe(module.eval())
    adapter = _adapter(family, task, module, config)
    adapter.processor = processor
    trace = _probe(adapter)
    adapter.config = _with_sizes(adapter, trace)
    if task == "classification":  # the outputs of a module without settings are known only now
        n_classes = adapter.config.n_classes or 1
        problem = "regression" if n_classes == 1 else "single_label_classification"
        _check_problem(config.architecture, problem, n_classes)
    source = target = text
    if family == "transformer" and text is not None:
        target = _target_tokenizer(module, text)
    labels = getattr(getattr(module, "config", None), "id2label", None)
    if task != "classification" or not labels or len(labels) != adapter.config.n_classes:
        labels = None
    return Model(
        module=adapter,
        task=task,
        tokenizer=source,
        target_tokenizer=target,
        labels=None if labels is None else tuple(str(labels[i]) for i in sorted(labels)),
        pixels=_normalization(processor),
        card=Card(others={"architecture": type(module).__name__}),
    )


def _describe(module: nn.Module) -> tuple[str, str, AdaptedConfig]:
    """Return family, task and configuration of a module."""
    name, stated = type(module).__name__, getattr(module, "config", None)
    if not hasattr(stated, "model_type"):
        tables = [p.num_embeddings for p in module.modules() if isinstance(p, nn.Embedding)]
        if not tables:
            return "vision", "classification", _image_config(module, name, "classification")
        return _own_kind(module, name, tables)
    family, task = _transformers_kind(module, name)
    if family == "vision":
        return family, task, _image_config(module, name, task)
    config = AdaptedConfig(
        family=family,
        architecture=name,
        n_vocab=getattr(module, "get_input_embeddings")().num_embeddings,  # noqa: B009
        n_classes=getattr(stated, "num_labels", None) if task == "classification" else None,
        pad_id=getattr(stated, "pad_token_id", None) or 0,
        max_positions=_usable_positions(stated),
    )
    return family, task, config


def _transformers_kind(module: nn.Module, name: str) -> tuple[str, str]:
    reads = getattr(module, "main_input_name", "input_ids")
    suffix = next((end for end in _KINDS if name.endswith(end)), None)
    if suffix == "Model" and reads == "pixel_values":
        return "vision", "embedding"
    family, task = _KINDS.get(suffix or "", ("", ""))
    needed = "pixel_values" if family == "vision" else "input_ids"
    pair = bool(getattr(getattr(module, "config", None), "is_encoder_decoder", False))
    if not family or reads != needed or pair != (family == "transformer"):
        raise InputError(
            f"{name} reads {reads} and is none of what regard opens, which is {KNOWN}: call it "
            "inside `with regard.watch(model)` to look into it."
        )
    config = getattr(module, "config", None)
    problem = getattr(config, "problem_type", None) or "single_label_classification"
    if task == "classification":
        _check_problem(name, problem, getattr(config, "num_labels", 2))
    return family, task


def _check_problem(name: str, problem: str, n_classes: int) -> None:
    """Refuse a head whose outputs are not the logits of one choice among several classes."""
    if problem != "single_label_classification" or n_classes < 2:
        raise InputError(
            f"{name} is for {problem} with {n_classes} labels; regard opens classifiers that "
            "choose one of several classes."
        )


def _own_kind(module: nn.Module, name: str, tables: list[int]) -> tuple[str, str, AdaptedConfig]:
    """Find out what a module that is not of transformers does with token ids.

    Args:
        tables: the sizes of its embeddings, of tokens and of positions.
    """
    config = AdaptedConfig(family="encoder", architecture=name, n_vocab=min(tables))
    adapter = AdaptedDecoder(module, config)
    ids = _probe_ids(adapter)
    changed = ids.clone()
    changed[0, -1] = 0
    first, second = (_tried(name, adapter.states, x) for x in (ids, changed))
    n_out = first.size(-1)
    config = replace(config, n_vocab=n_out if n_out in tables else tables[0])
    if first.dim() == 3 and first.size(1) == ids.size(1):
        causal = torch.allclose(first[:, :-1], second[:, :-1], atol=1e-5)
        if causal and n_out in tables:
            return "decoder", "language", replace(config, family="decoder")
        return "encoder", "masked" if n_out in tables else "embedding", config
    if first.dim() == 2 and len(first) == 1:
        return "encoder", "classification", replace(config, n_classes=n_out)
    raise InputError(
        f"{name} returned a tensor of shape {tuple(first.shape)} for {ids.size(1)} tokens: regard "
        "opens modules that return a row for each token, or one for a whole text."
    )


def _image_config(module: nn.Module, name: str, task: str) -> AdaptedConfig:
    stated = getattr(module, "config", None) or module
    kernel = next((p for p in module.modules() if isinstance(p, nn.Conv2d)), None)
    built = getattr(getattr(module, "patch_embed", None), "img_size", None)  # of timm
    defaults = getattr(module, "default_cfg", {}).get("input_size", (None,))
    size = _one(getattr(stated, "image_size", None) or built or defaults[-1])
    if kernel is None or size is None:
        raise InputError(
            f"{name} has neither an embedding of tokens nor patches of an image with a known "
            "image_size, so regard does not know what it reads: call it inside "
            "`with regard.watch(model)`."
        )
    patch = _one(kernel.stride) or size
    return AdaptedConfig(
        family="vision",
        architecture=name,
        n_classes=getattr(stated, "num_labels", 1) if task == "classification" else None,
        image_size=size,
        patch_size=size if size % patch else patch,  # patches that overlap are not shown
        n_channels=kernel.in_channels,
    )


def _one(size: Any) -> int | None:
    """Return the only side of a square."""
    if isinstance(size, tuple | list):
        if len(set(size)) != 1:
            raise InputError(f"the model reads images of {size} pixels; regard opens square ones.")
        return int(size[0])
    return None if size is None else int(size)


def _usable_positions(stated: Any) -> int:
    """Return the longest text; RoBERTa's positions start after its padding token."""
    limit = getattr(stated, "max_position_embeddings", None) or 0
    shifted = stated.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")
    return 2048 if limit < 1 else int(limit) - (stated.pad_token_id + 1 if shifted else 0)


def _adapter(family: str, task: str, module: nn.Module, config: AdaptedConfig) -> Adapter:
    if family == "encoder":
        head = {"masked": "fill", "classification": "classify"}.get(task, "none")
        return AdaptedEncoder(module, config, head=head)
    kinds = {"decoder": AdaptedDecoder, "transformer": AdaptedTransformer, "vision": AdaptedVision}
    adapter = kinds[family](module, config)
    settings = getattr(module, "generation_config", None)
    forced = getattr(settings, "forced_bos_token_id", None)
    if family == "transformer" and forced is not None:
        adapter.forced_ids = (int(forced),)
    return adapter


def _probe_ids(adapter: Adapter) -> torch.Tensor:
    device = next(adapter.parameters()).device
    return torch.arange(1, 6, device=device).remainder(adapter.config.n_vocab or 1)[None]


@torch.no_grad()
def _tried(name: str, call: Callable[..., Any], *inputs: Any) -> Any:
    """Return what a module computes, or say that it cannot be run."""
    try:
        return call(*inputs)
    except RegardError:
        raise
    except Exception as error:  # of code that is not ours
        raise InputError(f"{name} cannot be run on a short input: {first_line(error)}.") from error


def _probe(adapter: Adapter) -> Trace:
    """Run a module once, and refuse one whose attention cannot be seen."""
    config, ids = adapter.config, _probe_ids(adapter)
    inputs = [ids, ids] if config.family == "transformer" else [ids]
    if config.family == "vision":
        size = config.image_size
        inputs = [torch.zeros(1, config.n_channels, size, size, device=ids.device)]
    with watch() as trace:
        trace.output = _tried(config.architecture, adapter, *inputs)
    if not trace.sites:
        raise InputError(
            f"{config.architecture} computes no attention that regard can see, so there is nothing "
            "to look into: give a Transformer."
        )
    return trace


def _with_sizes(adapter: Adapter, trace: Trace) -> AdaptedConfig:
    config, first = adapter.config, next(iter(trace.sites.values()))
    sizes = {"n_layers": len(trace.sites), "n_heads": first.n_heads}
    config = replace(config, **sizes, d_model=first.n_heads * first.value.size(-1))
    if isinstance(trace.output, EncodedText) and trace.output.hidden is not None:
        config = replace(config, d_model=trace.output.hidden.size(-1))
    if config.family == "vision":
        n_patches = (config.image_size // config.patch_size) ** 2
        config = replace(config, n_special=max(first.n_key - n_patches, 0))
        if config.n_classes is not None:
            config = replace(config, n_classes=trace.value("output.classes").size(-1))
    if isinstance(adapter, AdaptedDecoder | AdaptedTransformer):
        adapter.caches = _can_cache(adapter)
    return config


@torch.no_grad()
def _can_cache(adapter: AdaptedDecoder | AdaptedTransformer) -> bool:
    """Return True if a step with cached keys and values works as regard needs it."""
    if not adapter.is_transformers:
        return False
    ids, cache = _probe_ids(adapter), adapter.new_cache()
    if isinstance(adapter, AdaptedTransformer):
        adapter.decode(ids, adapter.encode(ids), cache=cache)
    elif adapter.accepts("past_key_values"):
        adapter.states(ids, cache=cache)
    return hasattr(cache["past"].value, "reorder_cache")


def convert_tokenizer(given: Any) -> Tokenizer:
    """Return a tokenizer of regard with the same rules."""
    if isinstance(given, Tokenizer):
        return given
    if isinstance(given, str | Path):
        return Tokenizer.load(given)
    backend = given if isinstance(given, Backend) else getattr(given, "backend_tokenizer", None)
    if not isinstance(backend, Backend):
        raise InputError(
            f"the tokenizer is a {type(given).__name__}, which has no rules that regard can read: "
            "give a fast tokenizer of transformers, one of regard, or a tokenizer.json."
        )
    roles = {}
    for role, keys in ROLE_KEYS.items():
        tokens = (getattr(given, key, None) for key in keys)
        token = next((str(token) for token in tokens if token), None)
        if token is not None and backend.token_to_id(token) is not None:
            roles[role] = token
    return Tokenizer(Backend.from_str(backend.to_str()), roles=roles)


def _target_tokenizer(module: nn.Module, tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer of the target, which starts with the decoder's start token."""
    config = module.config
    settings = getattr(module, "generation_config", None) or config
    start = getattr(settings, "decoder_start_token_id", None)
    start = getattr(config, "decoder_start_token_id", None) if start is None else start
    end = getattr(settings, "eos_token_id", None)
    roles = dict(tokenizer.roles)
    for role, id in (("start", start), ("end", end)):
        if isinstance(id, int) and id < len(tokenizer):
            roles[role] = tokenizer.token_of(id)
    return Tokenizer(Backend.from_str(tokenizer.backend.to_str()), roles=roles)


def _normalization(processor: Any) -> Normalization | None:
    mean, deviation = (getattr(processor, f"image_{x}", None) for x in ("mean", "std"))
    if not mean or not deviation or not getattr(processor, "do_normalize", True):
        return None
    return Normalization(tuple(map(float, mean)), tuple(map(float, deviation)))
