"""ViT and DeiT: images as patches."""

from typing import Any

import torch

from regard.errors import InputError
from regard.interop.bert import n_labels
from regard.interop.families import (
    ACTIVATIONS,
    Kind,
    Settings,
    Tensors,
    attention,
    each_layer,
    require,
    their_activation,
)
from regard.models.vision import VisionConfig

_POOLERS = {"tanh": "tanh", "relu": "relu"}
_SPECIAL = ("embeddings.cls_token", "embeddings.distillation_token")
_POSITIONS = "embeddings.position_embeddings"
_CLASSES, _TEACHER = "classifier.", "cls_classifier."
"""The classifier of the class token, which has another name beside a teacher's."""
_PATCHES = "embeddings.patch_embeddings.projection.weight"


def _read(settings: Settings) -> VisionConfig:
    size, patch = (
        _side(settings, name, n) for name, n in (("image_size", 224), ("patch_size", 16))
    )
    classes, d_model = n_labels(settings), settings.need("hidden_size")
    distillation = "none"
    if settings.kind == "deit":
        distillation = "classifier" if "WithTeacher" in settings.architecture else "token"
    pooler = "none" if classes else settings.choice("pooler_act", _POOLERS, "tanh")
    return VisionConfig(
        n_classes=classes,
        image_size=size,
        patch_size=patch,
        n_channels=settings.get("num_channels", 3),
        d_model=d_model,
        n_heads=settings.need("num_attention_heads"),
        n_layers=settings.need("num_hidden_layers"),
        d_ff=settings.need("intermediate_size"),
        dropout=settings.get("hidden_dropout_prob", 0.0),
        attention_dropout=settings.get("attention_probs_dropout_prob", 0.0),
        norm_eps=settings.get("layer_norm_eps", 1e-12),
        activation=settings.choice("hidden_act", ACTIVATIONS, "gelu"),
        pooler=pooler,
        d_pooler=None if pooler == "none" else settings.get("pooler_output_size", d_model),
        distillation=distillation,
    )


def _side(settings: Settings, name: str, default: int) -> int:
    """The side of a square, which may be stated as height and width."""
    given = settings.get(name, default)
    sides = {given} if isinstance(given, int) else set(given)
    if len(sides) != 1:
        raise InputError(f"{settings.file} says {name} = {given}; regard's ViT reads squares.")
    return sides.pop()


def _write_shared(config: VisionConfig, name: str) -> dict[str, Any]:
    require(config.attention == "exact", f"{name} has exact attention, not {config.attention}")
    require(config.stem == "linear", f"{name} has no {config.stem} before its patches")
    require(config.pool == "class", f"{name} has a class token, not the mean of all patches")
    activation = their_activation(config.activation)
    require(activation is not None, f"{name} has no activation {config.activation}")
    require(
        (config.pooler == "none") == (config.n_classes is not None),
        f"{name} has a pooler exactly where it has no classes",
    )
    return {
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        "num_channels": config.n_channels,
        "hidden_size": config.d_model,
        "num_attention_heads": config.n_heads,
        "num_hidden_layers": config.n_layers,
        "intermediate_size": config.d_ff,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": config.norm_eps,
        "hidden_act": activation,
        "qkv_bias": True,
        "pooler_act": config.pooler if config.n_classes is None else "tanh",
        "pooler_output_size": config.d_pooler or config.d_model,
    }


def _write_vit(config: VisionConfig) -> dict[str, Any]:
    architecture = "ViTModel" if config.n_classes is None else "ViTForImageClassification"
    return {"architectures": [architecture], **_write_shared(config, "ViT")}


def _write_deit(config: VisionConfig) -> dict[str, Any]:
    architecture = "DeiTModel" if config.n_classes is None else "DeiTForImageClassification"
    if config.distillation == "classifier":
        architecture = "DeiTForImageClassificationWithTeacher"
    return {"architectures": [architecture], **_write_shared(config, "DeiT")}


def _unpack(tensors: Tensors, config: VisionConfig) -> Tensors:
    """Patches as rows, the special tokens in one matrix, no batch axes."""
    del config
    plain = {_renamed(name, _TEACHER, _CLASSES): tensor for name, tensor in tensors.items()}
    if all(name in plain for name in (_PATCHES, _POSITIONS, _SPECIAL[0])):
        plain[_PATCHES] = plain[_PATCHES].flatten(1)
        plain[_POSITIONS] = plain[_POSITIONS][0]
        own = [plain.pop(name)[0] for name in _SPECIAL if name in plain]
        plain[_SPECIAL[0]] = torch.cat(own)
    return plain


def _pack(tensors: Tensors, config: VisionConfig) -> Tensors:
    """The other way round."""
    packed = dict(tensors)
    side = config.patch_size
    packed[_PATCHES] = packed[_PATCHES].unflatten(1, (config.n_channels, side, side))
    packed[_POSITIONS] = packed[_POSITIONS][None]
    for name, token in zip(_SPECIAL, packed.pop(_SPECIAL[0]), strict=False):
        packed[name] = token[None, None]
    if config.distillation == "classifier":
        packed = {_renamed(name, _CLASSES, _TEACHER): tensor for name, tensor in packed.items()}
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
            **attention(
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
_BIASLESS = (r"attention\.attention\.\w+\.bias$",)  # qkv_bias = false
_IGNORED = (r"^pooler\.", r"^embeddings\.mask_token$")

VIT = Kind(
    name="ViT",
    model_types=("vit",),
    architectures={"ViTForImageClassification": "classification", "ViTModel": "embedding"},
    headless=("ViTModel",),
    prefix="vit.",
    names=_NAMES,
    heads={"classifier": "classifier"},
    ignored=_IGNORED,
    biasless=_BIASLESS,
    read_config=_read,
    write_config=_write_vit,
    unpack=_unpack,
    pack=_pack,
)

DEIT = Kind(
    name="DeiT",
    model_types=("deit",),
    architectures={
        "DeiTForImageClassification": "classification",
        "DeiTForImageClassificationWithTeacher": "classification",
        "DeiTModel": "embedding",
    },
    headless=("DeiTModel",),
    prefix="deit.",
    names=_NAMES,
    heads={"classifier": "classifier", "distillation_classifier": "distillation_classifier"},
    outside=(_TEACHER,),
    ignored=_IGNORED,
    biasless=_BIASLESS,
    read_config=_read,
    write_config=_write_deit,
    unpack=_unpack,
    pack=_pack,
)
