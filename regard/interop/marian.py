"""Marian's translators, and Pegasus, which is the same with norms in front of the sub-layers."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
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
from regard.layers.position import sinusoid
from regard.models.transformer import TransformerConfig

_EPS = 1e-5
_BIAS, _SHARED = "final_logits_bias", "shared.weight"
_SOURCE, _TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"


def _read(settings: Settings, *, norm: str) -> TransformerConfig:
    n_heads, d_ff = (
        _both(settings, f"encoder_{name}", f"decoder_{name}")
        for name in ("attention_heads", "ffn_dim")
    )
    n_source = settings.need("vocab_size")
    tied = settings.get("tie_word_embeddings", True)
    shared = settings.get("share_encoder_decoder_embeddings", True)
    return TransformerConfig(
        n_vocab=settings.get("decoder_vocab_size", n_source),
        n_source_vocab=n_source,
        d_model=settings.need("d_model"),
        n_heads=n_heads,
        d_ff=d_ff,
        n_encoder_layers=settings.need("encoder_layers"),
        n_decoder_layers=settings.need("decoder_layers"),
        activation=settings.choice("activation_function", ACTIVATIONS, "gelu"),
        norm=norm,
        norm_eps=_EPS,
        dropout=settings.get("dropout", 0.1),
        attention_dropout=settings.get("attention_dropout", 0.0),
        activation_dropout=settings.get("activation_dropout", 0.0),
        positions="sinusoidal",
        position_layout="halves",
        max_positions=settings.get("max_position_embeddings", 1024),
        scale_embedding=settings.get("scale_embedding", False),
        logits_bias=True,
        tie=("all" if shared else "target") if tied else "none",
        pad_id=settings.get("pad_token_id", 0),
    )


def _both(settings: Settings, encoder: str, decoder: str) -> int:
    """A number that regard's Transformer has once for both stacks."""
    value = settings.need(encoder)
    settings.only(decoder, value, why=f"but {encoder} = {value}; regard has one number for both")
    return value


def _write(config: TransformerConfig, *, name: str, norm: str) -> dict[str, Any]:
    require(config.norm == norm and config.norm_kind == "layer", f"{name} is {norm}-norm LayerNorm")
    require(config.norm_eps == _EPS, f"{name}'s norms add {_EPS:g}, not {config.norm_eps:g}")
    require(
        config.positions == "sinusoidal" and config.d_model % 2 == 0,
        f"{name} has sinusoidal positions of an even width, not {config.positions} ones of "
        f"{config.d_model}",
    )
    require(config.attention == "exact", f"{name} has exact attention, not {config.attention}")
    require(config.plain_heads, f"{name} has heads that share d_model evenly")
    activation = their_activation(config.activation)
    require(activation is not None, f"{name} has no activation {config.activation}")
    require(
        norm == "post" or config.tie == "all",
        f"{name} shares one matrix of embeddings, and this model has tie = {config.tie!r}",
    )
    return {
        "architectures": ["MarianMTModel" if norm == "post" else "PegasusForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": config.n_source_vocab or config.n_vocab,
        "decoder_vocab_size": config.n_vocab,
        "d_model": config.d_model,
        "encoder_layers": config.n_encoder_layers,
        "decoder_layers": config.n_decoder_layers,
        "encoder_attention_heads": config.n_heads,
        "decoder_attention_heads": config.n_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": activation,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.plan().activation_dropout,
        "max_position_embeddings": config.max_positions,
        "scale_embedding": config.scale_embedding,
        "share_encoder_decoder_embeddings": config.tie == "all",
        "tie_word_embeddings": config.tie != "none",
    }


def _unpack(tensors: Tensors, config: TransformerConfig) -> Tensors:
    """No batch axis at the bias, and each embedding under its own name."""
    plain = dict(tensors)
    for name in (name for name in tensors if name.endswith("embed_positions.weight")):
        _check_positions(plain.pop(name), config)
    shared = plain.pop(_SHARED, None)
    if _BIAS in plain:
        plain[_BIAS] = plain[_BIAS].flatten()
    else:
        plain[_BIAS] = torch.zeros(config.n_vocab)
    if shared is not None:
        plain.setdefault(_TARGET, shared)
        plain.setdefault(_SOURCE, shared)
    if config.tie == "all":
        plain.pop(_SOURCE, None)
    return plain


def _check_positions(positions: Tensor, config: TransformerConfig) -> None:
    """Refuse positions that are stored and are no sinusoids: then they were learned."""
    waves = sinusoid(len(positions), config.d_model, layout="halves").to(torch.float32)
    if not torch.allclose(positions.float(), waves, atol=1e-2):
        raise InputError(
            "the positions of this checkpoint are no sinusoids, and regard's Marian has no others: "
            "it cannot be imported."
        )


def _pack(tensors: Tensors, config: TransformerConfig) -> Tensors:
    """The other way round, with biases of zeros where ours has none and theirs must have some."""
    packed = {name: _in_halves(name, tensor, config) for name, tensor in tensors.items()}
    for name, tensor in list(packed.items()):
        if name.endswith(("_proj.weight", "fc1.weight", "fc2.weight")):
            packed.setdefault(name.removesuffix("weight") + "bias", tensor.new_zeros(len(tensor)))
    bias = packed.pop(_BIAS, None)
    packed[_BIAS] = (torch.zeros(config.n_vocab) if bias is None else bias)[None]
    if config.tie == "all":
        packed[_SHARED] = packed.pop(_TARGET)
    return packed


def _in_halves(name: str, tensor: Tensor, config: TransformerConfig) -> Tensor:
    """A tensor of a model whose sines and cosines stand in turn, for one that has them in halves.

    Nothing in a Transformer depends on the order of the d_model numbers of the residual stream,
    except the positions that are added to it: so the whole stream is put into their order.
    """
    if config.position_layout == "halves" or name == _BIAS:
        return tensor
    order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
    module = name.rpartition(".")[0].rpartition(".")[2]
    writes = module in ("out_proj", "fc2") or module.endswith("layer_norm")
    if writes:  # to the stream, along the first axis
        return tensor[order]
    return tensor[:, order] if tensor.dim() > 1 else tensor


def _stack(side: str, sites: dict[str, str]) -> dict[str, str]:
    """Names of one stack's layers, with the sites of attention that it has."""
    parts: dict[str, str] = {}
    for ours, theirs in sites.items():
        parts |= attention(ours, " ".join(f"{theirs}.{p}_proj" for p in ("q", "k", "v", "out")))
        parts[f"{ours}.norm"] = f"{theirs}_layer_norm"
    parts["feed_forward.inner.to_hidden"] = "fc1"
    parts["feed_forward.inner.to_output"] = "fc2"
    parts["feed_forward.norm"] = "final_layer_norm"
    return each_layer(f"{side}.layers", f"{side}.layers", parts)


_NAMES = {
    "tokens": _TARGET.removesuffix(".weight"),
    "source_tokens": _SOURCE.removesuffix(".weight"),
    **_stack("encoder", {"self_attention": "self_attn"}),
    **_stack("decoder", {"self_attention": "self_attn", "cross_attention": "encoder_attn"}),
}
_HEADS = {"logits_bias": _BIAS, "projection": "lm_head"}
_IGNORED = (r"^lm_head\.weight$",)

MARIAN = Kind(
    name="Marian",
    model_types=("marian",),
    architectures={"MarianMTModel": "translation"},
    prefix="model.",
    names=_NAMES,
    heads=_HEADS,
    ignored=_IGNORED,
    read_config=partial(_read, norm="post"),
    write_config=partial(_write, name="Marian", norm="post"),
    unpack=_unpack,
    pack=_pack,
)

PEGASUS = Kind(
    name="Pegasus",
    model_types=("pegasus",),
    architectures={"PegasusForConditionalGeneration": "translation"},
    prefix="model.",
    names={**_NAMES, "encoder.norm": "encoder.layer_norm", "decoder.norm": "decoder.layer_norm"},
    heads=_HEADS,
    ignored=_IGNORED,
    read_config=partial(_read, norm="pre"),
    write_config=partial(_write, name="Pegasus", norm="pre"),
    unpack=_unpack,
    pack=_pack,
)
