"""Convert models for CTranslate2, the fast CPU engine, without loading torch.

The engine runs Transformers and decoder-only models. It works with token names instead of ids; see
`regard.text.tokenizer.token_names`.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from regard.capabilities import unsupported_reason
from regard.errors import FileError, InputError
from regard.files import atomic_folder, map_tensors
from regard.model_folder import read_description, read_tokenizers, weights_file
from regard.text.tokenizer import Tokenizer, token_names

Weights = Mapping[str, np.ndarray]

QUANTIZATIONS = ("int8", "int8_float32", "int16", "float16", "float32")
N_POSITIONS = 2048  # the number of sinusoidal positions, which is the maximum length of a text
_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_new": "GELUTanh",
    "silu": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELU",
}
_GATED = ("swiglu", "geglu")
_NAMES = (
    *("model.bin", "config.json", "vocabulary.json"),
    *("shared_vocabulary.json", "source_vocabulary.json", "target_vocabulary.json"),
)


def convert(
    folder: str | Path,
    output: str | Path,
    *,
    quantization: str | None = None,
    suppressed: Sequence[int] = (),
) -> None:
    """Convert a model folder to a folder for CTranslate2.

    Args:
        quantization: the type of stored weights; "int8" is small and fast but changes results
            slightly. Unchanged if None.
        suppressed: tokens that must not be generated.
    """
    if quantization is not None and quantization not in QUANTIZATIONS:
        raise InputError(f"quantization is {quantization!r}; choose {', '.join(QUANTIZATIONS)}.")
    path = Path(folder)
    description = read_description(path)
    family, model = description.family, description.model
    if reason := unsupported_reason("ctranslate2", family, model):
        raise InputError(f"CTranslate2 cannot run this model because {reason}.")
    tokenizer, target_tokenizer = read_tokenizers(path, description)
    if tokenizer is None:
        raise InputError(f"{path} has no tokenizer, and CTranslate2 needs the names of all tokens.")
    weights = read_arrays(weights_file(path))
    with _without_torch():
        from ctranslate2 import specs
    try:
        build = _translator if family == "transformer" else _generator
        spec = build(specs, model, weights)
    except KeyError as error:
        raise FileError(f"{path} has no {error}: download it or save it again.") from error
    _suppress(spec.decoder.projection, suppressed)
    _set_tokens(spec, model, tokenizer, target_tokenizer)
    spec.config.layer_norm_epsilon = float(model["norm_eps"])
    spec.validate()
    spec.optimize(quantization)
    with atomic_folder(output, names=_NAMES) as fresh:
        spec.save(str(fresh))


@contextmanager
def _without_torch() -> Iterator[None]:
    """Make `import torch` fail inside the block, unless it is loaded already.

    CTranslate2's converter imports torch if it can, which takes longer than the conversion.
    """
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """Return all tensors of a safetensors file as float32; those stored so are mapped."""
    stored, arrays = map_tensors(file), {}
    for name in list(stored):
        kind, array = stored.pop(name)
        if kind == "BF16":  # the upper half of a float32
            array = (array.astype(np.uint32) << 16).view(np.float32)
        arrays[name] = array.astype(np.float32, copy=False)
    return arrays


def _stack_options(specs: Any, model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the engine's options that encoders and decoders share."""
    d_k = model["d_k"] or model["d_model"] // model["n_heads"]
    options: dict[str, Any] = {
        "pre_norm": model["norm"] == "pre",
        "activation": getattr(specs.common_spec.Activation, _ACTIVATIONS[model["activation"]]),
        "ffn_glu": model["activation"] in _GATED,
        "rms_norm": model["norm_kind"] == "rms",
    }
    if d_k * model["n_heads"] != model["d_model"]:
        options["head_dim"] = d_k
    if model["n_kv_heads"] not in (None, model["n_heads"]):
        options["num_heads_kv"] = model["n_kv_heads"]
    if model["positions"] == "rotary":
        options |= {
            "rotary_dim": model["d_rotary"] or 0,
            "rotary_interleave": False,
            "rotary_base": model["rotary_theta"],
        }
    return options


def _translator(specs: Any, model: Mapping[str, Any], weights: Weights) -> Any:
    options = _stack_options(specs, model)
    encoder = specs.TransformerEncoderSpec(model["n_encoder_layers"], model["n_heads"], **options)
    decoder = specs.TransformerDecoderSpec(model["n_decoder_layers"], model["n_heads"], **options)
    _fill_stack(encoder, "encoder", model, weights)
    _fill_stack(decoder, "decoder", model, weights)
    tokens = weights["tokens.weight"]
    encoder.embeddings[0].weight = weights.get("source_tokens.weight", tokens)
    _fill_projection(decoder, tokens, weights)
    encoder.scale_embeddings = decoder.scale_embeddings = model["scale_embedding"]
    return specs.TransformerSpec(encoder, decoder)


def _generator(specs: Any, model: Mapping[str, Any], weights: Weights) -> Any:
    decoder = specs.TransformerDecoderSpec(
        model["n_layers"],
        model["n_heads"],
        with_encoder_attention=False,
        alibi=model["positions"] == "alibi",
        **_stack_options(specs, model),
    )
    _fill_stack(decoder, "decoder", model, weights)
    _fill_projection(decoder, weights["tokens.weight"], weights)
    decoder.scale_embeddings = False
    return specs.TransformerDecoderModelSpec(decoder)


def _fill_projection(decoder: Any, tokens: np.ndarray, weights: Weights) -> None:
    decoder.embeddings.weight = tokens
    decoder.projection.weight = weights.get("projection.weight", tokens)
    if "logits_bias" in weights:
        decoder.projection.bias = weights["logits_bias"]


def _suppress(projection: Any, ids: Sequence[int]) -> None:
    """Suppress tokens by their bias, which is faster than by an option of the search."""
    if ids:
        bias = getattr(projection, "bias", None)
        missing = not isinstance(bias, np.ndarray)
        bias = np.zeros(len(projection.weight), np.float32) if missing else bias.copy()
        bias[list(ids)] = -1e9  # -inf would become NaN in some kernels
        projection.bias = bias


def _fill_stack(stack: Any, side: str, model: Mapping[str, Any], weights: Weights) -> None:
    """Fill in the weights of one stack's layers, norms and positions."""
    for i, layer in enumerate(stack.layer):
        path = f"{side}.layers.{i}"
        _fill_attention(layer.self_attention, f"{path}.self_attention", weights)
        if hasattr(layer, "attention"):
            _fill_attention(layer.attention, f"{path}.cross_attention", weights)
        inner = f"{path}.feed_forward.inner"
        gated = model["activation"] in _GATED
        _fill_linear(layer.ffn.linear_0, weights, f"{inner}.to_{'gate' if gated else 'hidden'}")
        if gated:
            _fill_linear(layer.ffn.linear_0_noact, weights, f"{inner}.to_hidden")
        _fill_linear(layer.ffn.linear_1, weights, f"{inner}.to_output")
        _fill_norm(layer.ffn.layer_norm, weights, f"{path}.feed_forward.norm")
    if hasattr(stack, "layer_norm"):
        _fill_norm(stack.layer_norm, weights, f"{side}.norm")
    if hasattr(stack, "position_encodings") and model["positions"] != "rotary":
        stack.position_encodings.encodings = position_table(side, model, weights)


def _fill_attention(attention: Any, path: str, weights: Weights) -> None:
    """Join Q, K and V into one matrix; in cross-attention, only K and V."""
    parts = [f"{path}.inner.to_{name}" for name in ("query", "key", "value")]
    joined = [parts] if len(attention.linear) == 2 else [parts[:1], parts[1:]]
    for linear, names in zip(attention.linear, joined, strict=False):
        _fill_linear(linear, weights, *names)
    _fill_linear(attention.linear[-1], weights, f"{path}.inner.to_output")
    _fill_norm(attention.layer_norm, weights, f"{path}.norm")


def _fill_linear(linear: Any, weights: Weights, *names: str) -> None:
    linear.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
    if f"{names[0]}.bias" in weights:
        linear.bias = np.concatenate([weights[f"{name}.bias"] for name in names])


def _fill_norm(norm: Any, weights: Weights, name: str) -> None:
    norm.gamma = weights[f"{name}.weight"]
    if f"{name}.bias" in weights:
        norm.beta = weights[f"{name}.bias"]


def position_table(side: str, model: Mapping[str, Any], weights: Weights) -> np.ndarray:
    """Return the position embeddings: learned, zeros, or `layers.position.sinusoid` in NumPy."""
    for name in (f"{side}_embedding.positions.weight", "embedding.positions.weight"):
        if name in weights:
            return weights[name]
    table = np.zeros((N_POSITIONS, model["d_model"]), np.float32)
    if model["positions"] != "sinusoidal":
        return table
    steps = np.arange(0, model["d_model"], 2)
    angles = np.arange(N_POSITIONS)[:, None] * np.exp(-np.log(10000.0) * steps / model["d_model"])
    sines, cosines = np.sin(angles), np.cos(angles)[:, : model["d_model"] // 2]
    if model["position_layout"] == "halves":
        return np.concatenate([sines, cosines], axis=1).astype(np.float32)
    table[:, 0::2], table[:, 1::2] = sines, cosines
    return table


def _set_tokens(
    spec: Any, model: Mapping[str, Any], source: Tokenizer, target: Tokenizer | None
) -> None:
    target = target or source
    n_vocab, roles, config = model["n_vocab"], target.roles, spec.config
    if hasattr(spec, "register_vocabulary"):  # of a language model
        spec.register_vocabulary(token_names(target, n_vocab))
        end = roles.get("end") or target.token_of(0)
        config.bos_token = roles.get("start", end)
    else:
        spec.register_source_vocabulary(token_names(source, model["n_source_vocab"] or n_vocab))
        spec.register_target_vocabulary(token_names(target, n_vocab))
        start, end = (target.token_of(target.required_id(role)) for role in ("start", "end"))
        config.decoder_start_token = config.bos_token = start
    config.eos_token, config.unk_token = end, roles.get("unknown", end)
