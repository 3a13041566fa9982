"""Marian's translators, and Pegasus, which is the same with pre-norm."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.interop import families as hf
from regard.layers.embedding import sinusoid
from regard.models.transformer import TransformerConfig

_EPS = 1e-5
_BIAS, _SHARED, _HEAD = "final_logits_bias", "shared.weight", "lm_head.weight"
_SOURCE, _TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
_FIELDS = {
    "d_model": ("d_model", hf.REQUIRED),
    "n_encoder_layers": ("encoder_layers", hf.REQUIRED),
    "n_decoder_layers": ("decoder_layers", hf.REQUIRED),
    "n_heads": ("encoder_attention_heads", hf.REQUIRED),
    "d_ff": ("encoder_ffn_dim", hf.REQUIRED),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.0),
    "max_positions": ("max_position_embeddings", 1024),
    "scale_embedding": ("scale_embedding", False),
}


def _read(settings: hf.CheckpointSettings, *, norm: str) -> TransformerConfig:
    fields = settings.read(_FIELDS)
    settings.check(num_hidden_layers=fields["n_encoder_layers"])
    settings.get("decoder_attention_heads", hf.REQUIRED)  # without it transformers takes 16
    settings.check(decoder_attention_heads=fields["n_heads"], decoder_ffn_dim=fields["d_ff"])
    n_source = settings.get("vocab_size", hf.REQUIRED)
    tied = settings.get("tie_word_embeddings", True)
    shared = settings.get("share_encoder_decoder_embeddings", True)
    return TransformerConfig(
        **fields,
        n_vocab=settings.get("decoder_vocab_size", n_source),
        n_source_vocab=n_source,
        activation=settings.choice("activation_function", hf.ACTIVATIONS, "gelu"),
        activation_dropout=settings.get("activation_dropout", 0.0),
        norm=norm,
        norm_eps=_EPS,
        positions="sinusoidal",
        position_layout="halves",
        logits_bias=True,
        tie=("all" if shared else "target") if tied else "none",
        pad_id=settings.get("pad_token_id", 0),
    )


def _write(config: TransformerConfig, *, name: str, norm: str) -> dict[str, Any]:
    hf.require_fields(name, config, norm=norm, norm_kind="layer", norm_eps=_EPS)
    hf.require_fields(name, config, positions="sinusoidal", attention="exact")
    hf.require(config.d_model % 2 == 0, f"{name} has an even d_model, not {config.d_model}")
    hf.require(config.plain_heads, f"{name} has heads that share d_model evenly")
    if norm == "pre":
        hf.require_fields(name, config, tie="all")
    activation_dropout = config.activation_dropout
    return {
        "architectures": ["MarianMTModel" if norm == "post" else "PegasusForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": config.n_source_vocab or config.n_vocab,
        "decoder_vocab_size": config.n_vocab,
        **hf.write_fields(config, _FIELDS),
        "decoder_attention_heads": config.n_heads,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": hf.hf_activation(config.activation, name),
        "activation_dropout": config.dropout if activation_dropout is None else activation_dropout,
        "share_encoder_decoder_embeddings": config.tie == "all",
        "tie_word_embeddings": config.tie != "none",
    }


def _unpack(tensors: hf.Tensors, config: TransformerConfig) -> hf.Tensors:
    """Remove the batch axis of the bias, and give each embedding its own name."""
    unpacked = dict(tensors)
    for name in [name for name in tensors if name.endswith("embed_positions.weight")]:
        stored = unpacked.pop(name).float()
        expected = sinusoid(len(stored), config.d_model, layout="halves").to(torch.float32)
        if not torch.allclose(stored, expected, atol=1e-2):
            raise InputError(
                "this checkpoint cannot be imported: its positions are not sinusoids, and regard's "
                "Marian has no others."
            )
    _check_ties(unpacked, config)
    shared = unpacked.pop(_SHARED, None)
    bias = unpacked.get(_BIAS)
    unpacked[_BIAS] = torch.zeros(config.n_vocab) if bias is None else bias.flatten()
    if shared is not None:
        unpacked.setdefault(_TARGET, shared)
        unpacked.setdefault(_SOURCE, shared)
    if config.tie == "all":
        unpacked.pop(_SOURCE, None)
    return unpacked


def _check_ties(tensors: hf.Tensors, config: TransformerConfig) -> None:
    """Refuse tied embeddings and projections that are stored with different values."""
    names = {"all": (_SHARED, _SOURCE, _TARGET, _HEAD), "target": (_TARGET, _HEAD), "none": ()}
    stored = [(name, tensors[name]) for name in names[config.tie] if name in tensors]
    for name, tensor in stored[1:]:
        if not torch.equal(tensor, stored[0][1]):
            raise InputError(
                f"this checkpoint cannot be imported: {name!r} and {stored[0][0]!r} have different "
                "values, but its settings say that they are one matrix."
            )


def _pack(tensors: hf.Tensors, config: TransformerConfig) -> hf.Tensors:
    """Undo `_unpack`, and add biases of zeros where our model has none."""
    packed = {name: _to_halves(name, tensor, config) for name, tensor in tensors.items()}
    for name, tensor in list(packed.items()):
        if name.endswith(("_proj.weight", "fc1.weight", "fc2.weight")):
            packed.setdefault(name.removesuffix("weight") + "bias", tensor.new_zeros(len(tensor)))
    bias = packed.pop(_BIAS, None)
    packed[_BIAS] = (torch.zeros(config.n_vocab) if bias is None else bias)[None]
    if config.tie == "all":
        packed[_SHARED] = packed.pop(_TARGET)
    return packed


def _to_halves(name: str, tensor: Tensor, config: TransformerConfig) -> Tensor:
    """Permute the residual stream so that all sines come before all cosines.

    A Transformer does not depend on the order of the d_model numbers of its residual stream, except
    for the positions that are added to it.
    """
    if config.position_layout == "halves" or name == _BIAS:
        return tensor
    order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
    module = name.rpartition(".")[0].rpartition(".")[2]
    if module.endswith(("out_proj", "fc2", "layer_norm")):  # they write into the stream
        return tensor[order]
    return tensor[:, order] if tensor.dim() > 1 else tensor


_LAYER = (
    "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj self_attn_layer_norm "
    "fc1 fc2 final_layer_norm"
)
_DECODER = hf.layer_names("decoder", "decoder.layers", _LAYER)
_NAMES = {
    "tokens": _TARGET.removesuffix(".weight"),
    "source_tokens": _SOURCE.removesuffix(".weight"),
    **hf.layer_names("encoder", "encoder.layers", _LAYER),
    **_DECODER,
    **{
        ours.replace("self_attention", "cross_attention"): theirs.replace("self_", "encoder_")
        for ours, theirs in _DECODER.items()
    },
}


def _family(name: str, architecture: str, norm: str, names: dict[str, str]) -> hf.CheckpointFamily:
    return hf.CheckpointFamily(
        name=name,
        model_types=(name.lower(),),
        architectures={architecture: "translation"},
        prefix="model.",
        names=names,
        heads={"logits_bias": _BIAS, "projection": "lm_head"},
        ignored=(r"^lm_head\.weight$",),
        read_config=partial(_read, norm=norm),
        write_config=partial(_write, name=name, norm=norm),
        unpack=_unpack,
        pack=_pack,
    )


_FINAL_NORMS = {"encoder.norm": "encoder.layer_norm", "decoder.norm": "decoder.layer_norm"}
MARIAN = _family("Marian", "MarianMTModel", "post", _NAMES)
PEGASUS = _family("Pegasus", "PegasusForConditionalGeneration", "pre", {**_NAMES, **_FINAL_NORMS})
