"""ViT and DeiT: images as patches."""

from typing import Any

import torch

from regard.errors import InputError
from regard.interop.bert import n_labels
from regard.interop.families import (
    ACTIVATIONS,
    REQUIRED,
    CheckpointFamily,
    CheckpointSettings,
    Tensors,
    attention_names,
    each_layer,
    hf_activation,
    require,
    write_fields,
)
from regard.models.vision import VisionConfig

_POOLERS = {"tanh": "tanh", "relu": "relu"}
_SPECIAL = ("embeddings.cls_token", "embeddings.distillation_token")
_POSITIONS = "embeddings.position_embeddings"
_CLASSES, _WITH_TEACHER = "classifier.", "cls_classifier."
"""The classifier of the class token, and its name in a model with a distillation classifier."""
_PATCHES = "embeddings.patch_embeddings.projection.weight"
_FIELDS = {
    "n_channels": ("num_channels", 3),
    "d_model": ("hidden_size", REQUIRED),
    "n_heads": ("num_attention_heads", REQUIRED),
    "n_layers": ("num_hidden_layers", REQUIRED),
    "d_ff": ("intermediate_size", REQUIRED),
    "dropout": ("hidden_dropout_prob", 0.0),
    "attention_dropout": ("attention_probs_dropout_prob", 0.0),
    "norm_eps": ("layer_norm_eps", 1e-12),
}


def _read(settings: CheckpointSettings) -> VisionConfig:
    classes, fields = n_labels(settings), settings.read(_FIELDS)
    distillation = "none"
    if settings.model_type == "deit":
        distillation = "classifier" if "WithTeacher" in settings.architecture else "token"
    pooler = "none" if classes else settings.choice("pooler_act", _POOLERS, "tanh")
    return VisionConfig(
        **fields,
        n_classes=classes,
        image_size=_side(settings, "image_size", 224),
        patch_size=_side(settings, "patch_size", 16),
        activation=settings.choice("hidden_act", ACTIVATIONS, "gelu"),
        pooler=pooler,
        d_pooler=None
        if pooler == "none"
        else settings.get("pooler_output_size", fields["d_model"]),
        distillation=distillation,
    )


def _side(settings: CheckpointSettings, name: str, default: int) -> int:
    """Return the side of a square, which may be stated as height and width."""
    given = settings.get(name, default)
    sides = {given} if isinstance(given, int) else set(given)
    if len(sides) != 1:
        raise InputError(f"{settings.file} has {name} = {given}, but regard's ViT reads squares.")
    return sides.pop()


def _write(config: VisionConfig) -> dict[str, Any]:
    name = "ViT" if config.distillation == "none" else "DeiT"
    architecture = f"{name}Model" if config.n_classes is None else f"{name}ForImageClassification"
    if config.distillation == "classifier":
        architecture += "WithTeacher"
    require(config.attention == "exact", f"{name} has exact attention, not {config.attention}")
    plain = VisionConfig()
    for field in ("d_k", "d_v", "n_kv_heads", "norm", "norm_kind", "activation_dropout"):
        value = getattr(config, field)
        require(value == getattr(plain, field), f"{name} has no {field} = {value!r}")
    require(config.attention_bias and config.feed_forward_bias, f"{name} has biases in its layers")
    require(config.stem == "linear", f"{name} has no {config.stem} before its patches")
    require(config.pool == "class", f"{name} has a class token, not the mean of all patches")
    require(
        (config.pooler == "none") == (config.n_classes is not None),
        f"{name} has a pooler only if it has no classes",
    )
    return {
        "architectures": [architecture],
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        **write_fields(config, _FIELDS),
        "hidden_act": hf_activation(config.activation, name),
        "qkv_bias": True,
        "pooler_act": config.pooler if config.n_classes is None else "tanh",
        "pooler_output_size": config.d_pooler or config.d_model,
    }


def _unpack(tensors: Tensors, config: VisionConfig) -> Tensors:
    """Flatten patches, join the special tokens, and remove batch axes."""
    del config
    unpacked = {_renamed(name, _WITH_TEACHER, _CLASSES): tensor for name, tensor in tensors.items()}
    if all(name in unpacked for name in (_PATCHES, _POSITIONS, _SPECIAL[0])):
        unpacked[_PATCHES] = unpacked[_PATCHES].flatten(1)
        unpacked[_POSITIONS] = unpacked[_POSITIONS][0]
        special = [unpacked.pop(name)[0] for name in _SPECIAL if name in unpacked]
        unpacked[_SPECIAL[0]] = torch.cat(special)
    return unpacked


def _pack(tensors: Tensors, config: VisionConfig) -> Tensors:
    packed = dict(tensors)
    side = config.patch_size
    packed[_PATCHES] = packed[_PATCHES].unflatten(1, (config.n_channels, side, side))
    packed[_POSITIONS] = packed[_POSITIONS][None]
    for name, token in zip(_SPECIAL, packed.pop(_SPECIAL[0]), strict=False):
        packed[name] = token[None, None]
    if config.distillation == "classifier":
        packed = {_renamed(name, _CLASSES, _WITH_TEACHER): t for name, t in packed.items()}
    return packed


def _renamed(name: str, old: str, new: str) -> str:
    return new + name.removeprefix(old) if name.startswith(old) else name


_NAMES = {
    "embedding.special": _SPECIAL[0],
    "embedding.positions": _POSITIONS,
    "embedding.to_token": _PATCHES.removesuffix(".weight"),
    "encoder.norm": "layernorm",
    "pooler": "pooler.dense",
    **each_layer(
        "encoder.layers",
        "encoder.layer",
        {
            **attention_names(
                "self_attention",
                "attention.attention.query attention.attention.key attention.attention.value "
                "attention.output.dense",
            ),
            "self_attention.norm": "layernorm_before",
            "feed_forward.inner.to_hidden": "intermediate.dense",
            "feed_forward.inner.to_output": "output.dense",
            "feed_forward.norm": "layernorm_after",
        },
    ),
}


def _family(name: str, *classifiers: str) -> CheckpointFamily:
    heads = ("classifier", "distillation_classifier") if name == "DeiT" else ("classifier",)
    return CheckpointFamily(
        name=name,
        model_types=(name.lower(),),
        architectures={**dict.fromkeys(classifiers, "classification"), f"{name}Model": "embedding"},
        headless=(f"{name}Model",),
        prefix=f"{name.lower()}.",
        names=_NAMES,
        heads={head: head for head in heads},
        outside=(_WITH_TEACHER,),
        ignored=(r"^pooler\.", r"^embeddings\.mask_token$"),
        biasless=(r"attention\.attention\.\w+\.bias$",),  # qkv_bias = false
        read_config=_read,
        write_config=_write,
        unpack=_unpack,
        pack=_pack,
    )


VIT = _family("ViT", "ViTForImageClassification")
DEIT = _family("DeiT", "DeiTForImageClassification", "DeiTForImageClassificationWithTeacher")
