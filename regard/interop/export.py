"""Export models for other systems; decoders also as GGUF files for llama.cpp and Ollama."""

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from regard.errors import InputError, MissingExtraError, check_choice
from regard.files import atomic_path
from regard.interop.decoders import GPT2, LLAMA
from regard.model import Model
from regard.text.pieces import is_byte_token
from regard.text.tokenizer import Tokenizer, token_names

if TYPE_CHECKING:
    from regard.model import Model


_TRANSPOSED = ("attn.c_attn.weight", "c_proj.weight", "mlp.c_fc.weight")  # GPT-2's Conv1D
_NORMAL, _UNKNOWN, _CONTROL, _UNUSED, _BYTE = 1, 2, 3, 5, 6  # types of tokens


def export_gguf(model: Model, path: str | Path) -> str:
    """Write a decoder and its tokenizer in float32; return a description."""
    try:
        import gguf
    except ImportError as error:
        raise MissingExtraError("this export needs gguf: pip install 'regard[gguf]'.") from error
    if model.family != "decoder" or model.tokenizer is None:
        raise InputError(
            f"this model is of the family {model.family}; only one of the family decoder with a "
            "tokenizer can be exported to GGUF."
        )
    is_gpt2 = model.config.positions == "learned"
    family, name = (GPT2, "gpt2") if is_gpt2 else (LLAMA, "llama")
    settings = family.write_config(model.config)  # refuses what the family does not have
    tensors = family.to_hf(model.module.state_dict(), model.config, settings["architectures"][0])
    tokens = _tokens(model.tokenizer, model.config.n_vocab)
    arch = gguf.MODEL_ARCH.GPT2 if is_gpt2 else gguf.MODEL_ARCH.LLAMA
    names = gguf.get_tensor_name_map(arch, model.config.n_layers)
    with atomic_path(path) as fresh:
        writer = gguf.GGUFWriter(fresh, name)
        _add_settings(writer, model.config, settings)
        _add_tokens(writer, model.tokenizer, tokens)
        for key, tensor in tensors.items():
            renamed = names.get_name(key, try_suffixes=(".weight", ".bias"))
            if renamed is None:
                raise InputError(f"GGUF has no name for the weight {key} of this model.")
            if key == "lm_head.weight" and model.config.tie:
                continue
            values = tensor.detach().float().cpu().numpy()
            writer.add_tensor(renamed, np.ascontiguousarray(_laid_out(key, values, model.config)))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return f"a GGUF file of the architecture {name}"


def _laid_out(key: str, values: np.ndarray, config: Any) -> np.ndarray:
    """Return a weight as GGUF stores it: Llama's rotated pairs next to each other."""
    if key.endswith(_TRANSPOSED) and config.positions == "learned":
        return values.T
    heads = {"q_proj": config.n_heads, "k_proj": config.n_kv_heads or config.n_heads}
    n_heads = next((n for part, n in heads.items() if f".{part}." in key), 0)
    if not n_heads:
        return values
    pairs = values.reshape(n_heads, 2, len(values) // n_heads // 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _add_settings(writer: Any, config: Any, settings: dict[str, Any]) -> None:
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.n_layers)
    writer.add_feed_forward_length(config.d_ff)
    writer.add_head_count(config.n_heads)
    writer.add_file_type(0)  # float32
    if config.positions == "learned":
        writer.add_layer_norm_eps(config.norm_eps)
        return
    if config.rotary_scaling is not None or config.attention_bias:
        raise InputError("this export has no scaled rotary positions and no biases of attention.")
    writer.add_head_count_kv(config.n_kv_heads or config.n_heads)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_dimension_count(config.d_k or config.d_model // config.n_heads)
    writer.add_rope_freq_base(config.rotary_theta)
    writer.add_vocab_size(config.n_vocab)


def _tokens(tokenizer: Tokenizer, n_vocab: int) -> dict[str, Any]:
    """Return the names, types, scores and merges of all tokens."""
    described = json.loads(tokenizer.backend.to_str())
    bpe, before = described["model"], (described["pre_tokenizer"] or {}).get("type")
    if bpe["type"] != "BPE" or before not in ("ByteLevel", "Metaspace"):
        raise InputError("only byte-level BPE and BPE of SentencePiece can be exported to GGUF.")
    names = token_names(tokenizer, n_vocab)
    merges = [one if isinstance(one, list) else one.split(" ") for one in bpe["merges"]]
    scores: dict[str, float] = {}
    for rank, (left, right) in enumerate(merges):
        scores.setdefault(left + right, -float(rank + 1))
    special = tokenizer.special_ids
    types = [_NORMAL] * len(names)
    for id, name in enumerate(names):
        if id == tokenizer.unknown_id:
            types[id] = _UNKNOWN
        elif id in special:
            types[id] = _CONTROL
        elif id >= len(tokenizer):
            types[id] = _UNUSED
        elif before == "Metaspace" and is_byte_token(name):
            types[id] = _BYTE
    return {
        "kind": "gpt2" if before == "ByteLevel" else "llama",
        "names": names,
        "types": types,
        "scores": [
            scores.get(name, -1e9 if type == _NORMAL else 0.0)
            for name, type in zip(names, types, strict=True)
        ],
        "merges": [" ".join(pair) for pair in merges],
        "space": (described["pre_tokenizer"] or {}).get("prepend_scheme") in ("first", "always"),
    }


def _add_tokens(writer: Any, tokenizer: Tokenizer, tokens: dict[str, Any]) -> None:
    writer.add_tokenizer_model(tokens["kind"])
    writer.add_token_list(tokens["names"])
    writer.add_token_types(tokens["types"])
    if tokens["kind"] == "gpt2":
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_merges(tokens["merges"])
    else:
        writer.add_token_scores(tokens["scores"])
        writer.add_add_space_prefix(tokens["space"])
    ids = {"bos": tokenizer.start_id, "eos": tokenizer.end_id, "unk": tokenizer.unknown_id}
    for role, id in ids.items():
        if id is not None:
            getattr(writer, f"add_{role}_token_id")(id)
    starts = tokenizer.encode_prompt("a")[:1] == [tokenizer.start_id]
    writer.add_add_bos_token(starts)


System = Literal["huggingface", "onnx", "ctranslate2", "gguf"]
SYSTEMS = get_args(System)


def export(
    model: "Model | str | Path", folder: str | Path, *, to: System, quantization: str | None = None
) -> str:
    """Write a model for another system; return a description of what was written.

    Args:
        model: a model, the name of a bundled model, or a model folder.
        to: "huggingface" for a folder that `transformers` loads, "onnx" for graphs with any batch
            size and length, "ctranslate2" for the fast engine, "gguf" for a file (instead of a
            folder) that llama.cpp and Ollama run.
        quantization: for "ctranslate2", the type of the stored weights: int8, int8_float32, int16,
            float16 or float32.
    """
    check_choice("to", to, SYSTEMS)
    if to == "ctranslate2":
        from regard.interop.ctranslate2 import convert
        from regard.interop.model_names import find_model

        with tempfile.TemporaryDirectory() as temporary:
            if isinstance(model, str | Path):
                source = find_model(model)
            else:
                model.save(source := Path(temporary))
            convert(source, folder, quantization=quantization)
        return "a CTranslate2 model"
    if quantization is not None:
        raise InputError(f"quantization is for ctranslate2; {to} keeps the weights as they are.")
    from regard.model import load

    loaded = load(model) if isinstance(model, str | Path) else model
    if to == "onnx":
        from regard.interop.onnx import export_onnx

        return ", ".join(export_onnx(loaded, folder))
    if to == "gguf":
        from regard.interop.export import export_gguf

        return export_gguf(loaded, folder)
    from regard.interop.huggingface import export_huggingface

    return export_huggingface(loaded, folder)
