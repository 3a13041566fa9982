"""ViT and DeiT: images as patches."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard.data.images import FILTERS, Normalization, Resize, parse_normalization
from regard.errors import FileError, InputError
from regard.interop import families as hf
from regard.interop.bert import n_labels
from regard.models.vision import VisionConfig
from regard.text.tokenizer_files import read_json

PREPROCESSOR = "preprocessor_config.json"

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
    given = settings.get(name)  # a number or a list
    given = default if given is None else given
    height, width = given if isinstance(given, list) and len(given) == 2 else (given, given)
    if height != width or not isinstance(height, int):
        raise InputError(f"{settings.file} has {name} = {given}, but regard's ViT reads squares.")
    return height


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


_CLIP = {
    "size": {"shortest_edge": 224},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "do_convert_rgb": True,
}
_PROCESSORS: Mapping[str, Mapping[str, Any]] = {
    "ViT": {"size": 224, "resample": 2},
    "DeiT": {"size": 256, "resample": 3, "do_center_crop": True, "crop_size": 224},
    "CLIP": _CLIP,
    "Bit": _CLIP,
}
"""The settings of transformers' image processors where they differ from `_SHARED`."""
_SHARED = {
    "do_resize": True,
    "do_center_crop": False,
    "crop_size": None,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": 0.5,
    "image_std": 0.5,
    "do_convert_rgb": False,
    "do_pad": False,
}
_NOTES = (
    *("image_processor_type", "feature_extractor_type", "processor_class", "data_format"),
    *("input_data_format", "return_tensors", "device", "default_to_square"),
)
"""Keys of a preprocessor's file that do not change pixels."""


def read_preprocessing(folder: Path, config: VisionConfig, name: str) -> Normalization:
    """Return what transformers' image processor (the one that uses Pillow) does to images.

    Args:
        name: ViT or DeiT, whose processor is taken where the folder does not name another.
    """
    file = folder / PREPROCESSOR
    stated = read_json(file) if file.is_file() else {}
    full = stated.get("image_processor_type") or stated.get("feature_extractor_type") or name
    kind = re.sub(r"(ImageProcessor|FeatureExtractor)?(Fast|Pil)?$", "", str(full))
    if kind not in _PROCESSORS:
        raise InputError(
            f"{file} names the image processor {full}, which regard does not know; it knows those "
            f"of {', '.join(_PROCESSORS)}."
        )
    known = {**_SHARED, **_PROCESSORS[kind]}
    for key, value in stated.items():
        if key not in known and key not in _NOTES and key[:1] != "_" and value not in (None, False):
            raise InputError(f"{file} has {key} = {value!r}, which regard does not know.")
    given = {**known, **stated}  # null is not the default: it switches a step off
    resize = _read_resize(file, given, short=kind in ("CLIP", "Bit"))
    side = (config.image_size,) * 2
    if (made := resize.crop or resize.size) and len(made) == 2 and made != side:
        if "size" in stated or "crop_size" in stated:
            raise InputError(
                f"{file} makes images of {made[0]} × {made[1]} pixels, but the model reads "
                f"{side[0]} × {side[1]}."
            )
        resize = Resize(side, resize.filter, background=resize.background)
    mean, deviation = _read_scale(file, given, config.n_channels)
    return Normalization(mean, deviation, resize)


def _read_resize(file: Path, given: Mapping[str, Any], *, short: bool) -> Resize:
    number = given["resample"]
    if type(number) is not int or not 0 <= number < len(FILTERS):
        raise FileError(f"{file} has resample = {number!r}, which is not a filter of Pillow.")
    if given["do_pad"]:
        raise InputError(f"{file} has do_pad = {given['do_pad']!r}, which regard does not do.")
    return Resize(
        _read_size(file, given, "size", short=short) if given["do_resize"] else (),
        FILTERS[number],
        crop=_read_size(file, given, "crop_size", short=False) if given["do_center_crop"] else (),
        background="white" if given["do_convert_rgb"] else "none",
    )


def _read_size(file: Path, given: Mapping[str, Any], name: str, *, short: bool) -> tuple[int, ...]:
    """Return height and width, or only the shorter edge; `short`: that is what a number means."""
    size = given[name]
    if isinstance(size, int):
        size = {"shortest_edge": size} if short else [size, size]
    if isinstance(size, list) and len(size) == 2:
        size = {"height": size[0], "width": size[1]}
    keys = ({"height", "width"}, {"shortest_edge"}) if name == "size" else ({"height", "width"},)
    if not isinstance(size, dict) or {k for k, x in size.items() if x is not None} not in keys:
        raise InputError(
            f"{file} has {name} = {size!r}; regard reads "
            f"{' or '.join(' and '.join(sorted(names)) for names in keys)}."
        )
    return tuple(size[key] for key in ("shortest_edge", "height", "width") if size.get(key))


def _read_scale(
    file: Path, given: Mapping[str, Any], n_channels: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation that include the factor by which pixels are multiplied."""
    factor = given["rescale_factor"] if given["do_rescale"] else 1.0
    if not isinstance(factor, int | float) or not 0 < factor < 1e6:
        raise FileError(f"{file} has rescale_factor = {factor!r}; it must be above 0.")
    mean, deviation = (given["image_mean"], given["image_std"]) if given["do_normalize"] else (0, 1)
    sides = [x if isinstance(x, list) else [x] * n_channels for x in (mean, deviation)]
    checked = parse_normalization({"mean": sides[0], "deviation": sides[1]})
    assert checked is not None
    if len(checked.mean) != n_channels:
        raise FileError(f"{file} has {len(checked.mean)} means for {n_channels} channels.")
    scale = 1.0 if factor == 1 / 255 else 255 * factor
    return tuple(x / scale for x in checked.mean), tuple(x / scale for x in checked.deviation)


def write_preprocessing(config: VisionConfig, pixels: Normalization | None) -> dict[str, Any]:
    """Return the contents of preprocessor_config.json for a model's images."""
    scale = pixels or Normalization((0.5,) * config.n_channels, (0.5,) * config.n_channels)
    resize = scale.resize or Resize((config.image_size,) * 2)
    keys = ("height", "width") if len(resize.size) == 2 else ("shortest_edge",)
    written = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": bool(resize.size),
        "size": dict(zip(keys, resize.size or (config.image_size,), strict=True)),
        "resample": FILTERS.index(resize.filter),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(scale.mean),
        "image_std": list(scale.deviation),
    }
    if resize.crop:
        written["do_center_crop"] = True
        written["crop_size"] = dict(zip(("height", "width"), resize.crop, strict=True))
    return written | ({"do_convert_rgb": True} if resize.background == "white" else {})
