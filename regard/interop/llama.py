"""The Llama family: Llama, and Mistral and Qwen2 where they compute the same."""

from typing import Any

from regard.errors import InputError
from regard.interop import families as hf
from regard.models.decoder import DecoderConfig

_GATED = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu"}
_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_FIELDS = {
    **hf.SIZES,
    "n_vocab": ("vocab_size", hf.REQUIRED),
    "norm_eps": ("rms_norm_eps", 1e-6),
    "feed_forward_bias": ("mlp_bias", False),
    "attention_dropout": ("attention_dropout", 0.0),
    "max_positions": ("max_position_embeddings", 2048),
    "tie": ("tie_word_embeddings", False),
}


def _read(settings: hf.CheckpointSettings) -> DecoderConfig:
    _check_window(settings)
    fields = settings.read(_FIELDS)
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


def _write(config: DecoderConfig) -> dict[str, Any]:
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
        **hf.write_fields(config, _FIELDS),
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
    read_config=_read,
    write_config=_write,
)
