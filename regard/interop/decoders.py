"""Decoders of transformers: GPT-2 and the Llama family.

GPT-2 has learned positions, transposed matrices, and Q, K and V in one matrix. The family is Llama,
and Mistral and Qwen2 where they compute the same.
"""

import re
from typing import Any

import torch

from regard.errors import InputError
from regard.interop import families as hf
from regard.models.decoder import DecoderConfig

_PARTS = ("to_query", "to_key", "to_value")
_TRANSPOSED = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")
_GPT2_FIELDS = {
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


def _read_gpt2(settings: hf.CheckpointSettings) -> DecoderConfig:
    settings.check(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
    settings.check(add_cross_attention=False)
    fields = settings.read(_GPT2_FIELDS)
    return DecoderConfig(
        **fields,
        d_ff=settings.get("n_inner", 4 * fields["d_model"]),
        activation=settings.choice("activation_function", hf.ACTIVATIONS, "gelu_new"),
        activation_dropout=0.0,
        pad_id=settings.get("pad_token_id", 0),
    )


def _write_gpt2(config: DecoderConfig) -> dict[str, Any]:
    hf.require_fields("GPT-2", config, norm="pre", norm_kind="layer", attention="exact")
    hf.require_fields("GPT-2", config, attention_bias=True, feed_forward_bias=True)
    hf.require(config.plain_heads, "GPT-2 has heads that share d_model evenly")
    return {
        "architectures": ["GPT2LMHeadModel"],
        **hf.write_fields(config, _GPT2_FIELDS),
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
    read_config=_read_gpt2,
    write_config=_write_gpt2,
    unpack=_unpack,
    pack=_pack,
)


_GATED = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu"}
_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_LLAMA_FIELDS = {
    **hf.SIZES,
    "n_vocab": ("vocab_size", hf.REQUIRED),
    "norm_eps": ("rms_norm_eps", 1e-6),
    "feed_forward_bias": ("mlp_bias", False),
    "attention_dropout": ("attention_dropout", 0.0),
    "max_positions": ("max_position_embeddings", 2048),
    "tie": ("tie_word_embeddings", False),
}


def _read_llama(settings: hf.CheckpointSettings) -> DecoderConfig:
    _check_window(settings)
    fields = settings.read(_LLAMA_FIELDS)
    d_model, n_heads = fields["d_model"], fields["n_heads"]
    d_k = settings.get("head_dim", d_model // max(n_heads, 1))
    theta, scaling = _read_rotary(settings)
    return DecoderConfig(
        **fields,
        n_kv_heads=settings.get("num_key_value_heads", n_heads),
        d_k=None if d_k * n_heads == d_model else d_k,
        activation=settings.choice("hidden_act", _GATED, "silu"),
        norm_kind="rms",
        attention_bias=bool(settings.get("attention_bias", settings.model_type == "qwen2")),
        dropout=0.0,
        positions="rotary",
        rotary_theta=float(theta),
        rotary_scaling=scaling,
        pad_id=max(settings.get("pad_token_id", 0), 0),
    )


def _check_window(settings: hf.CheckpointSettings) -> None:
    """Refuse sliding windows; Mistral has one of 4,096 if its settings do not mention it."""
    stated = settings.values.get(
        "sliding_window", 4096 if settings.model_type == "mistral" else None
    )
    settings.used.add("sliding_window")
    used = settings.get("use_sliding_window", settings.model_type != "qwen2")
    if (stated is not None and used) or "sliding_attention" in settings.get("layer_types", []):
        raise InputError(
            f"{settings.file} has sliding_window = {stated}, but regard's Llama has no sliding "
            "windows: set it to null if no input is longer."
        )


def _read_rotary(
    settings: hf.CheckpointSettings,
) -> tuple[float, tuple[float, float, float, float] | None]:
    """Return the base of the rotary frequencies, and their scaling for long texts."""
    stated = settings.get("rope_parameters", settings.get("rope_scaling", {}))
    inner = hf.CheckpointSettings(settings.file, stated)
    theta = inner.get("rope_theta", settings.get("rope_theta", 10000.0))
    kind = stated.get("rope_type", stated.get("type", "default"))
    part = stated.get("partial_rotary_factor", settings.get("partial_rotary_factor", 1.0))
    if kind == "llama3" and all(name in stated for name in _LLAMA3) and part == 1.0:
        factor, low, high, original = (float(inner.get(name, 1.0)) for name in _LLAMA3)
        return theta, (factor, low, high, original)
    if kind != "default" or part != 1.0:
        raise InputError(
            f"{settings.file} scales rotary positions by {kind!r} for a part of {part}; regard's "
            "Llama supports 'default' and 'llama3' for whole heads."
        )
    return theta, None


def _write_llama(config: DecoderConfig) -> dict[str, Any]:
    name = f"GPT-2 has positions = 'learned', not {config.positions!r}, and Llama"
    hf.require_fields(name, config, positions="rotary", norm="pre", norm_kind="rms")
    hf.require_fields(name, config, attention="exact")
    gates = {"swiglu": "silu", "geglu": "gelu"}
    hf.require(
        config.activation in gates, f"{name} has a gated feed-forward, not {config.activation}"
    )
    d_k = config.d_k or config.d_model // config.n_heads
    hf.require(config.d_v in (None, d_k), "Llama's values are as wide as its keys")
    hf.require(config.d_rotary in (None, d_k), "Llama rotates whole heads")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rotary_theta}
    if config.rotary_scaling is not None:
        rope |= {"rope_type": "llama3", **dict(zip(_LLAMA3, config.rotary_scaling, strict=True))}
        rope[_LLAMA3[-1]] = int(rope[_LLAMA3[-1]])
    return {
        "architectures": ["LlamaForCausalLM"],
        **hf.write_fields(config, _LLAMA_FIELDS),
        "num_key_value_heads": config.n_kv_heads or config.n_heads,
        "head_dim": d_k,
        "hidden_act": gates[config.activation],
        "attention_bias": config.attention_bias,
        "rope_parameters": rope,
    }


LLAMA = hf.CheckpointFamily(
    name="Llama",
    model_types=("llama", "mistral", "qwen2"),
    architectures=dict.fromkeys(
        ("LlamaForCausalLM", "LlamaModel", "MistralForCausalLM", "Qwen2ForCausalLM"), "language"
    ),
    prefix="model.",
    names={
        "tokens": "embed_tokens",
        "decoder.norm": "norm",
        **hf.layer_names(
            "decoder",
            "layers",
            "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj input_layernorm "
            "mlp.up_proj mlp.down_proj post_attention_layernorm",
        ),
        "decoder.layers.N.feed_forward.inner.to_gate": "layers.N.mlp.gate_proj",
    },
    heads={"projection": "lm_head"},
    copies={"lm_head.weight": "embed_tokens.weight"},
    biasless=(r"o_proj\.bias$",),  # Qwen2 has biases in the other three
    ignored=(r"rotary_emb\.inv_freq$", r"^lm_head\.weight$"),
    read_config=_read_llama,
    write_config=_write_llama,
)
