"""GPT-2: a decoder with learned positions, transposed matrices, and Q, K and V in one matrix."""

import re
from typing import Any

import torch

from regard.interop import families as hf
from regard.models.decoder import DecoderConfig

_PARTS = ("to_query", "to_key", "to_value")
_TRANSPOSED = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")
_FIELDS = {
    "n_vocab": ("vocab_size", hf.REQUIRED),
    "n_layers": ("n_layer", hf.REQUIRED),
    "d_model": ("n_embd", hf.REQUIRED),
    "n_heads": ("n_head", hf.REQUIRED),
    "norm_eps": ("layer_norm_epsilon", 1e-5),
    "dropout": ("resid_pdrop", 0.1),
    "attention_dropout": ("attn_pdrop", 0.1),
    "max_positions": ("n_positions", 1024),
    "tie": ("tie_word_embeddings", True),
}


def _read(settings: hf.CheckpointSettings) -> DecoderConfig:
    settings.check(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
    settings.check(add_cross_attention=False)
    fields = settings.read(_FIELDS)
    return DecoderConfig(
        **fields,
        d_ff=settings.get("n_inner", 4 * fields["d_model"]),
        activation=settings.choice("activation_function", hf.ACTIVATIONS, "gelu_new"),
        activation_dropout=0.0,
        pad_id=settings.get("pad_token_id", 0),
    )


def _write(config: DecoderConfig) -> dict[str, Any]:
    hf.require_fields("GPT-2", config, norm="pre", norm_kind="layer", attention="exact")
    hf.require_fields("GPT-2", config, attention_bias=True, feed_forward_bias=True)
    hf.require(config.plain_heads, "GPT-2 has heads that share d_model evenly")
    return {
        "architectures": ["GPT2LMHeadModel"],
        **hf.write_fields(config, _FIELDS),
        "n_inner": config.d_ff,
        "activation_function": hf.hf_activation(config.activation, "GPT-2"),
        "embd_pdrop": config.dropout,
    }


def _unpack(tensors: hf.Tensors, _config: DecoderConfig) -> hf.Tensors:
    """Transpose matrices, and split Q, K and V."""
    unpacked = {}
    for name, tensor in tensors.items():
        tensor = tensor.T if _TRANSPOSED.search(name) else tensor
        if ".attn.c_attn." in name:
            for part, chunk in zip(_PARTS, tensor.chunk(3), strict=True):
                unpacked[name.replace("c_attn", part)] = chunk
        else:
            unpacked[name] = tensor
    return unpacked


def _pack(tensors: hf.Tensors, _config: DecoderConfig) -> hf.Tensors:
    """Join Q, K and V, and transpose matrices."""
    packed = {}
    for name, tensor in tensors.items():
        if ".attn.to_query." in name:
            parts = [tensors[name.replace("to_query", part)] for part in _PARTS]
            name, tensor = name.replace("to_query", "c_attn"), torch.cat(parts)
        elif ".attn.to_" in name:
            continue
        packed[name] = tensor.T if _TRANSPOSED.search(name) else tensor
    return packed


GPT2 = hf.CheckpointFamily(
    name="GPT-2",
    model_types=("gpt2",),
    architectures={"GPT2LMHeadModel": "language", "GPT2Model": "language"},
    prefix="transformer.",
    names={
        "tokens": "wte",
        "embedding.positions": "wpe",
        "decoder.norm": "ln_f",
        **hf.layer_names(
            "decoder",
            "h",
            "attn.to_query attn.to_key attn.to_value attn.c_proj ln_1 mlp.c_fc mlp.c_proj ln_2",
        ),
    },
    heads={"projection": "lm_head"},
    copies={"lm_head.weight": "wte.weight"},
    ignored=(r"\.attn\.(masked_)?bias$", r"^lm_head\.weight$"),
    read_config=_read,
    write_config=_write,
    unpack=_unpack,
    pack=_pack,
)
