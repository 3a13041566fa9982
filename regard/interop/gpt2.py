"""GPT-2: a decoder with learned positions; its matrices stand transposed, Q, K and V in one."""

import re
from typing import Any

import torch

from regard.interop.families import (
    ACTIVATIONS,
    Kind,
    Settings,
    Tensors,
    each_layer,
    require,
    their_activation,
)
from regard.models.decoder import DecoderConfig

_PARTS = ("to_query", "to_key", "to_value")
_TRANSPOSED = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")
_OTHER = "and regard computes attention of GPT-2 only by its definition"


def _read(settings: Settings) -> DecoderConfig:
    settings.only("scale_attn_weights", True, why=_OTHER)
    settings.only("scale_attn_by_inverse_layer_idx", False, why=_OTHER)
    settings.only("add_cross_attention", False, why="and regard's GPT-2 reads no encoder")
    d_model = settings.need("n_embd")
    return DecoderConfig(
        n_vocab=settings.need("vocab_size"),
        n_layers=settings.need("n_layer"),
        d_model=d_model,
        n_heads=settings.need("n_head"),
        d_ff=settings.get("n_inner", 4 * d_model),
        activation=settings.choice("activation_function", ACTIVATIONS, "gelu_new"),
        norm_eps=settings.get("layer_norm_epsilon", 1e-5),
        dropout=settings.get("resid_pdrop", 0.1),
        attention_dropout=settings.get("attn_pdrop", 0.1),
        activation_dropout=0.0,
        max_positions=settings.get("n_positions", 1024),
        pad_id=settings.get("pad_token_id", 0),
        tie=settings.get("tie_word_embeddings", True),
    )


def fits(config: DecoderConfig) -> bool:
    """Whether a decoder is GPT-like rather than Llama-like."""
    return config.positions == "learned"


def _write(config: DecoderConfig) -> dict[str, Any]:
    require(config.norm == "pre" and config.norm_kind == "layer", "GPT-2 is pre-norm LayerNorm")
    require(config.attention == "exact", f"GPT-2 has exact attention, not {config.attention}")
    require(config.attention_bias and config.feed_forward_bias, "GPT-2 has biases everywhere")
    require(config.plain_heads, "GPT-2 has heads that share d_model evenly")
    activation = their_activation(config.activation)
    require(activation is not None, f"GPT-2 has no activation {config.activation}")
    return {
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": config.d_model,
        "n_layer": config.n_layers,
        "n_head": config.n_heads,
        "n_inner": config.d_ff,
        "n_positions": config.max_positions,
        "activation_function": activation,
        "layer_norm_epsilon": config.norm_eps,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "tie_word_embeddings": config.tie,
    }


def _unpack(tensors: Tensors, config: DecoderConfig) -> Tensors:
    """Matrices as ours stand, and Q, K and V each by itself."""
    del config
    plain = {}
    for name, tensor in tensors.items():
        tensor = tensor.T if _TRANSPOSED.search(name) else tensor
        if ".attn.c_attn." in name:
            for part, chunk in zip(_PARTS, tensor.chunk(3), strict=True):
                plain[name.replace("c_attn", part)] = chunk
        else:
            plain[name] = tensor
    return plain


def _pack(tensors: Tensors, config: DecoderConfig) -> Tensors:
    """The other way round."""
    del config
    packed = {}
    for name, tensor in tensors.items():
        if ".attn.to_query." in name:
            own = [tensors[name.replace("to_query", part)] for part in _PARTS]
            name, tensor = name.replace("to_query", "c_attn"), torch.cat(own)
        elif ".attn.to_" in name:
            continue
        packed[name] = tensor.T if _TRANSPOSED.search(name) else tensor
    return packed


GPT2 = Kind(
    name="GPT-2",
    model_types=("gpt2",),
    architectures={"GPT2LMHeadModel": "language", "GPT2Model": "language"},
    prefix="transformer.",
    names={
        "tokens": "wte",
        "embedding.positions": "wpe",
        "decoder.norm": "ln_f",
        **each_layer(
            "decoder.layers",
            "h",
            {
                **{f"self_attention.inner.{part}": f"attn.{part}" for part in _PARTS},
                "self_attention.inner.to_output": "attn.c_proj",
                "self_attention.norm": "ln_1",
                "feed_forward.inner.to_hidden": "mlp.c_fc",
                "feed_forward.inner.to_output": "mlp.c_proj",
                "feed_forward.norm": "ln_2",
            },
        ),
    },
    heads={"projection": "lm_head"},
    ignored=(r"\.attn\.(masked_)?bias$", r"^lm_head\.weight$"),
    read_config=_read,
    write_config=_write,
    unpack=_unpack,
    pack=_pack,
)
