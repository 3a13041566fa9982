"""ViT and DeiT: images as patches."""

import re
from typing import Any

import torch

from regard.errors import InputError
from regard.interop import families as hf
from regard.interop.bert import n_labels
from regard.models.vision import VisionConfig

_SPECIAL = ("embeddings.cls_token", "embeddings.distillation_token")
_POSITIONS = "embeddings.position_embeddings"
_WITH_TEACHER = "cls_classifier."
"""The name of the classifier in a model that has a distillation classifier too."""
_PATCHES = "embeddings.patch_embeddings.projection.weight"
_FIELDS = {
    **hf.SIZES,
    "n_channels": ("num_channels", 3),
    "dropout": ("hidden_dropout_prob", 0.0),
    "attention_dropout": ("attention_probs_dropout_prob", 0.0),
    "norm_eps": ("layer_norm_eps", 1e-12),
}


def _read(settings: hf.CheckpointSettings) -> VisionConfig:
    classes, fields = n_labels(settings), settings.read(_FIELDS)
    distillation = "none"
    if settings.model_type == "deit":
        distillation = "classifier" if "WithTeacher" in settings.architecture else "token"
    poolers, pooler, width = {"tanh": "tanh", "relu": "relu"}, "none", None
    if not classes:
        pooler = settings.choice("pooler_act", poolers, "tanh")
        width = settings.get("pooler_output_size", fields["d_model"])
    return VisionConfig(
        **fields,
        n_classes=classes,
        image_size=_side(settings, "image_size", 224),
        patch_size=_side(settings, "patch_size", 16),
        activation=settings.choice("hidden_act", hf.ACTIVATIONS, "gelu"),
        pooler=pooler,
        d_pooler=width,
        distillation=distillation,
    )


def _side(settings: hf.CheckpointSettings, name: str, default: int) -> int:
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
    plain = VisionConfig()
    same = ("d_k", "d_v", "n_kv_heads", "norm", "norm_kind", "activation_dropout", "attention")
    hf.require_fields(name, config, **{field: getattr(plain, field) for field in same})
    hf.require_fields(name, config, attention_bias=True, feed_forward_bias=True)
    hf.require_fields(name, config, stem="linear", pool="class")
    hf.require(
        (config.pooler == "none") == (config.n_classes is not None),
        f"{name} has a pooler only if it has no classes",
    )
    return {
        "architectures": [architecture],
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        **hf.write_fields(config, _FIELDS),
        "hidden_act": hf.hf_activation(config.activation, name),
        "qkv_bias": True,
        "pooler_act": config.pooler if config.n_classes is None else "tanh",
        "pooler_output_size": config.d_pooler or config.d_model,
    }


def _unpack(tensors: hf.Tensors, _config: VisionConfig) -> hf.Tensors:
    """Flatten patches, join the special tokens, and remove batch axes."""
    unpacked = {name.replace(_WITH_TEACHER, "classifier."): t for name, t in tensors.items()}
    if all(name in unpacked for name in (_PATCHES, _POSITIONS, _SPECIAL[0])):
        unpacked[_PATCHES] = unpacked[_PATCHES].flatten(1)
        unpacked[_POSITIONS] = unpacked[_POSITIONS][0]
        special = [unpacked.pop(name)[0] for name in _SPECIAL if name in unpacked]
        unpacked[_SPECIAL[0]] = torch.cat(special)
    return unpacked


def _pack(tensors: hf.Tensors, config: VisionConfig) -> hf.Tensors:
    packed = dict(tensors)
    side = config.patch_size
    packed[_PATCHES] = packed[_PATCHES].unflatten(1, (config.n_channels, side, side))
    packed[_POSITIONS] = packed[_POSITIONS][None]
    for name, token in zip(_SPECIAL, packed.pop(_SPECIAL[0]), strict=False):
        packed[name] = token[None, None]
    if config.distillation == "classifier":
        packed = {re.sub(r"^classifier\.", _WITH_TEACHER, name): t for name, t in packed.items()}
    return packed


_NAMES = {
    "embedding.special": _SPECIAL[0],
    "embedding.positions": _POSITIONS,
    "embedding.to_token": _PATCHES.removesuffix(".weight"),
    "encoder.norm": "layernorm",
    "pooler": "pooler.dense",
    **hf.layer_names(
        "encoder",
        "encoder.layer",
        "attention.attention.query attention.attention.key attention.attention.value "
        "attention.output.dense layernorm_before intermediate.dense output.dense layernorm_after",
    ),
}


def _family(name: str, *classifiers: str) -> hf.CheckpointFamily:
    heads = ("classifier", "distillation_classifier") if name == "DeiT" else ("classifier",)
    return hf.CheckpointFamily(
        name=name,
        model_types=(name.lower(),),
        architectures={**dict.fromkeys(classifiers, "classification"), f"{name}Model": "embedding"},
        prefix=f"{name.lower()}.",
        names=_NAMES,
        heads={head: head for head in heads},
        outside=(_WITH_TEACHER,),
        ignored=(r"^pooler\.", r"^embeddings\.mask_token$"),
        biasless=(r"attention\.attention\.\w+\.bias$",),
        bias_setting="qkv_bias",
        read_config=_read,
        write_config=_write,
        unpack=_unpack,
        pack=_pack,
    )


VIT = _family("ViT", "ViTForImageClassification")
DEIT = _family("DeiT", "DeiTForImageClassification", "DeiTForImageClassificationWithTeacher")
