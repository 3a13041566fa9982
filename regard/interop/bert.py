"""BERT and DistilBERT, which has no token types and other names."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.errors import FileError, InputError
from regard.interop import families as hf
from regard.models.encoder import EncoderConfig
from regard.text.tokenizer_files import read_json

_BERT_FIELDS = {
    **hf.SIZES,
    "n_vocab": ("vocab_size", hf.REQUIRED),
    "norm_eps": ("layer_norm_eps", 1e-12),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "max_positions": ("max_position_embeddings", 512),
    "n_token_types": ("type_vocab_size", 2),
}
_DISTILBERT_FIELDS = {
    "n_vocab": ("vocab_size", hf.REQUIRED),
    "n_layers": ("n_layers", hf.REQUIRED),
    "d_model": ("dim", hf.REQUIRED),
    "n_heads": ("n_heads", hf.REQUIRED),
    "d_ff": ("hidden_dim", hf.REQUIRED),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.1),
    "max_positions": ("max_position_embeddings", 512),
}


def n_labels(settings: hf.CheckpointSettings) -> int | None:
    """Return the number of classes of a classifier; None for other models."""
    if "Classification" not in settings.architecture:
        return None
    names = settings.get("id2label", {})
    if not isinstance(names, dict) or not all(str(id).isdigit() for id in names):
        raise FileError(f"{settings.file} has id2label = {names!r}, not names of numbers.")
    count = len(names) or settings.get("num_labels", 2)
    problem = settings.get("problem_type") or ("regression" if count == 1 else _ONE_CLASS)
    if problem != _ONE_CLASS:
        raise InputError(
            f"{settings.file} is for {problem}; regard imports classifiers that choose one of "
            f"several classes ({_ONE_CLASS})."
        )
    return count


_ONE_CLASS = "single_label_classification"


@dataclass(frozen=True)
class SentenceModules:
    """The modules of sentence-transformers that follow an encoder."""

    pool: str
    normalize: bool
    longest: int | None  # tokens of a text; it cuts longer ones off


_POOLS = {
    "cls_token": "first",
    "mean_tokens": "mean",
    "max_tokens": "max",
    "mean_sqrt_len_tokens": "sqrt_length",
    "lasttoken": "last",
}


def read_sentence_modules(folder: Path) -> SentenceModules | None:
    """Read the modules of sentence-transformers; refuse those that regard does not compute."""
    file = folder / "modules.json"
    if not file.is_file():
        return None
    try:
        modules = json.loads(file.read_text("utf-8"))
        kinds = [str(one["type"]).rpartition(".")[2] for one in modules]
        paths = {kind: str(one["path"]) for kind, one in zip(kinds, modules, strict=True)}
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(f"{file} is damaged ({error}): download the checkpoint again.") from error
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise InputError(
            f"{file} has the modules {', '.join(kinds)}; regard imports a Transformer with Pooling "
            "and Normalize only."
        )
    for path in map(Path, paths.values()):
        if path.is_absolute() or ".." in path.parts:
            raise FileError(f"{file} lists {str(path)!r}, which is outside of its folder.")
    own = folder / "sentence_bert_config.json"
    about = read_json(own) if own.is_file() else {}
    _check_off(own, about, "do_lower_case")
    transformer = about.get("transformer_task") or "feature-extraction"
    if transformer != "feature-extraction":
        raise InputError(f"{own} has transformer_task = {transformer!r}, which regard does not do.")
    _check_encoding(folder / "config_sentence_transformers.json")
    longest = about.get("max_seq_length")
    if longest is not None and (type(longest) is not int or longest < 1):
        raise FileError(f"{own} has max_seq_length = {longest!r:.40}; it must be 1 or more.")
    pool = _read_pool(folder / paths["Pooling"] / "config.json")
    return SentenceModules(pool, "Normalize" in kinds, longest)


def _check_encoding(file: Path) -> None:
    """Refuse what sentence-transformers does to every text or vector if this file says so."""
    stated = read_json(file) if file.is_file() else {}
    _check_off(file, stated, "truncate_dim")
    name, prompts = stated.get("default_prompt_name"), stated.get("prompts")
    if name is not None and (not isinstance(prompts, dict) or prompts.get(str(name)) != ""):
        raise InputError(
            f"{file} puts the prompt {name!r:.60} before every text, which regard does not do: set "
            "default_prompt_name to null, and give texts with their prompt."
        )


def _check_off(file: Path, stated: dict[str, Any], name: str) -> None:
    if value := stated.get(name):
        raise InputError(f"{file} has {name} = {value!r:.60}, which regard does not support.")


def _read_pool(file: Path) -> str:
    stated = read_json(file)
    prefix = "pooling_mode_"
    modes = [name.removeprefix(prefix) for name in stated if name.startswith(prefix)]
    chosen = [name for name in modes if stated[prefix + name] is True]
    if "pooling_mode" in stated:  # the format since version 5
        mode = str(stated["pooling_mode"])
        names = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
        chosen = [names.get(mode, mode)]
    if len(chosen) != 1 or chosen[0] not in _POOLS:
        raise InputError(
            f"{file} pools by {' and '.join(chosen) or 'nothing'}, which regard does not support; "
            f"it supports one of {', '.join(_POOLS)}."
        )
    return _POOLS[chosen[0]]


def _read_encoder(settings: hf.CheckpointSettings, activation: str) -> dict[str, Any]:
    """Return the fields of both families, given the name of the activation's setting."""
    fills = settings.architecture.endswith(("ForMaskedLM", "ForPreTraining"))
    if not settings.get("tie_word_embeddings", True) and fills:
        settings.check(tie_word_embeddings=True)
    return {
        "activation": settings.choice(activation, hf.ACTIVATIONS, "gelu"),
        "activation_dropout": 0.0,
        "pad_id": settings.get("pad_token_id", 0),
        "fill_head": fills,
        "n_classes": n_labels(settings),
    }


def _read_bert(settings: hf.CheckpointSettings) -> EncoderConfig:
    settings.check(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    pool, pooler = "first", "none" if settings.architecture == "BertForMaskedLM" else "tanh"
    if found := read_sentence_modules(settings.file.parent):
        pool, pooler = found.pool, "none"
    fields = settings.read(_BERT_FIELDS) | _read_encoder(settings, "hidden_act")
    return EncoderConfig(**fields, pool=pool, pooler=pooler)


def _read_distilbert(settings: hf.CheckpointSettings) -> EncoderConfig:
    fields = settings.read(_DISTILBERT_FIELDS) | _read_encoder(settings, "activation")
    pooler = "none" if fields["n_classes"] is None else "relu"
    found = read_sentence_modules(settings.file.parent)
    pool = found.pool if found else "first"
    return EncoderConfig(**fields, norm_eps=1e-12, pool=pool, pooler=pooler)


def _write_bert(config: EncoderConfig) -> dict[str, Any]:
    head = _write_head(config, "BERT")
    hf.require(config.n_token_types > 0, "BERT has token types, and this model has none")
    hf.require(
        config.n_classes is None or config.pooler == "tanh",
        f"BERT classifies after a pooler with tanh, and this pooler is {config.pooler!r}",
    )
    hf.require(config.pooler in ("tanh", "none"), "BERT has a pooler with tanh or none")
    if config.fill_head and config.pooler == "tanh":
        head = "ForPreTraining"
    return {
        "architectures": [f"Bert{head}"],
        **hf.write_fields(config, _BERT_FIELDS),
        "hidden_act": hf.hf_activation(config.activation, "BERT"),
        "tie_word_embeddings": True,
    }


def _write_distilbert(config: EncoderConfig) -> dict[str, Any]:
    pooler = "none" if config.n_classes is None else "relu"
    hf.require_fields("DistilBERT", config, n_token_types=0, norm_eps=1e-12, pooler=pooler)
    return {
        "architectures": [f"DistilBert{_write_head(config, 'DistilBERT')}"],
        **hf.write_fields(config, _DISTILBERT_FIELDS),
        "activation": hf.hf_activation(config.activation, "DistilBERT"),
        "tie_word_embeddings": True,
    }


def _write_head(config: EncoderConfig, name: str) -> str:
    """Return the end of the class name; refuse an encoder that neither family has."""
    hf.require_fields(name, config, norm="post", norm_kind="layer", positions="learned")
    hf.require_fields(name, config, attention="exact", embedding_norm=True)
    hf.require_fields(name, config, attention_bias=True, feed_forward_bias=True)
    hf.require(config.plain_heads, f"{name} has heads that share d_model evenly")
    if config.n_classes is None:
        return "ForMaskedLM" if config.fill_head else "Model"
    hf.require(config.pool == "first", f"{name} classifies by the first token, not by the mean")
    hf.require(not config.fill_head, f"{name} has a masked-token head or a classifier, not both")
    return "ForSequenceClassification"


def _pack_bert(tensors: hf.Tensors, config: EncoderConfig) -> hf.Tensors:
    """Add zeros for a pooler or a head that their model has and ours does not."""
    if config.fill_head and config.pooler == "tanh":
        name, n_rows = "cls.seq_relationship", 2  # next-sentence prediction
    elif not config.fill_head and config.pooler == "none":
        name, n_rows = "pooler.dense", config.d_model
    else:
        return tensors
    zeros = {"weight": torch.zeros(n_rows, config.d_model), "bias": torch.zeros(n_rows)}
    return tensors | {f"{name}.{leaf}": tensor for leaf, tensor in zeros.items()}


_EMBEDDINGS = {
    "tokens": "embeddings.word_embeddings",
    "embedding.positions": "embeddings.position_embeddings",
    "embedding.norm": "embeddings.LayerNorm",
}
BERT = hf.CheckpointFamily(
    name="BERT",
    model_types=("bert",),
    architectures={
        "BertModel": "embedding",
        "BertForMaskedLM": "masked",
        "BertForPreTraining": "masked",
        "BertForSequenceClassification": "classification",
    },
    prefix="bert.",
    names={
        **_EMBEDDINGS,
        "embedding.types": "embeddings.token_type_embeddings",
        "pooler": "pooler.dense",
        **hf.layer_names(
            "encoder",
            "encoder.layer",
            "attention.self.query attention.self.key attention.self.value attention.output.dense "
            "attention.output.LayerNorm intermediate.dense output.dense output.LayerNorm",
        ),
    },
    heads={
        "fill.to_hidden": "cls.predictions.transform.dense",
        "fill.norm": "cls.predictions.transform.LayerNorm",
        "fill.bias": "cls.predictions.bias",
        "classifier": "classifier",
    },
    outside=("cls.",),
    copies={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    # cls.: a copy of the embeddings, and next-sentence prediction
    ignored=(r"embeddings\.position_ids$", r"^cls\.", r"^pooler\."),
    read_config=_read_bert,
    write_config=_write_bert,
    pack=_pack_bert,
)
DISTILBERT = hf.CheckpointFamily(
    name="DistilBERT",
    model_types=("distilbert",),
    architectures={
        "DistilBertModel": "embedding",
        "DistilBertForMaskedLM": "masked",
        "DistilBertForSequenceClassification": "classification",
    },
    prefix="distilbert.",
    names={
        **_EMBEDDINGS,
        **hf.layer_names(
            "encoder",
            "transformer.layer",
            "attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm "
            "ffn.lin1 ffn.lin2 output_layer_norm",
        ),
    },
    heads={
        "fill.to_hidden": "vocab_transform",
        "fill.norm": "vocab_layer_norm",
        "fill.bias": "vocab_projector.bias",
        "pooler": "pre_classifier",
        "classifier": "classifier",
    },
    ignored=(r"^vocab_", r"embeddings\.position_ids$"),
    copies={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    read_config=_read_distilbert,
    write_config=_write_distilbert,
)
