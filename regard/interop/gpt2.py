"""GPT-2: a decoder with learned positions, transposed matrices, and Q, K and V in one matrix."""

import re
from typing import Any

import torch

from regard.interop.families import (
    ACTIVATIONS,
    REQUIRED,
    CheckpointFamily,
    CheckpointSettings,
    Tensors,
    each_layer,
    hf_activation,
    require,
    write_fields,
)
from regard.models.decoder import DecoderConfig

_PARTS = ("to_query", "to_key", "to_value")
_TRANSPOSED = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")
_OTHER = "but regard's GPT-2 scales scores by 1/sqrt(d_k) only"
_FIELDS = {
    "n_vocab": ("vocab_size", REQUIRED),
    "n_layers": ("n_layer", REQUIRED),
    "d_model": ("n_embd", REQUIRED),
    "n_heads": ("n_head", REQUIRED),
    "norm_eps": ("layer_norm_epsilon", 1e-5),
    "dropout": ("resid_pdrop", 0.1),
    "attention_dropout": ("attn_pdrop", 0.1),
    "max_positions": ("n_positions", 1024),
    "tie": ("tie_word_embeddings", True),
}


def _read(settings: CheckpointSettings) -> DecoderConfig:
    settings.check("scale_attn_weights", True, why=_OTHER)
    settings.check("scale_attn_by_inverse_layer_idx", False, why=_OTHER)
    settings.check("add_cross_attention", False, why="but regard's GPT-2 has no cross-attention")
    fields = settings.read(_FIELDS)
    return DecoderConfig(
        **fields,
        d_ff=settings.get("n_inner", 4 * fields["d_model"]),
        activation=settings.choice("activation_function", ACTIVATIONS, "gelu_new"),
        activation_dropout=0.0,
        pad_id=settings.get("pad_token_id", 0),
    )


def _write(config: DecoderConfig) -> dict[str, Any]:
    require(config.norm == "pre" and config.norm_kind == "layer", "GPT-2 is pre-norm LayerNorm")
    require(config.attention == "exact", f"GPT-2 has exact attention, not {config.attention}")
    require(config.attention_bias and config.feed_forward_bias, "GPT-2 has biases everywhere")
    require(config.plain_heads, "GPT-2 has heads that share d_model evenly")
    return {
        "architectures": ["GPT2LMHeadModel"],
        **write_fields(config, _FIELDS),
        "n_inner": config.d_ff,
        "activation_function": hf_activation(config.activation, "GPT-2"),
        "embd_pdrop": config.dropout,
    }


def _unpack(tensors: Tensors, config: DecoderConfig) -> Tensors:
    """Transpose matrices, and split Q, K and V."""
    del config
    unpacked = {}
    for name, tensor in tensors.items():
        tensor = tensor.T if _TRANSPOSED.search(name) else tensor
        if ".attn.c_attn." in name:
            for part, chunk in zip(_PARTS, tensor.chunk(3), strict=True):
                unpacked[name.replace("c_attn", part)] = chunk
        else:
            unpacked[name] = tensor
    return unpacked


def _pack(tensors: Tensors, config: DecoderConfig) -> Tensors:
    """Join Q, K and V, and transpose matrices."""
    del config
    packed = {}
    for name, tensor in tensors.items():
        if ".attn.to_query." in name:
            parts = [tensors[name.replace("to_query", part)] for part in _PARTS]
            name, tensor = name.replace("to_query", "c_attn"), torch.cat(parts)
        elif ".attn.to_" in name:
            continue
        packed[name] = tensor.T if _TRANSPOSED.search(name) else tensor
    return packed


GPT2 = CheckpointFamily(
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
