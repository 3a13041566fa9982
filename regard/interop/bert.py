"""BERT and DistilBERT, which has no token types and other names."""

from typing import Any

import torch

from regard.interop.families import (
    ACTIVATIONS,
    REQUIRED,
    CheckpointFamily,
    CheckpointSettings,
    Tensors,
    attention_names,
    each_layer,
    hf_activation,
    require,
    write_fields,
)
from regard.models.encoder import EncoderConfig
from regard.text.tokenizer_files import read_json

_ABSOLUTE = "but regard's BERT has only absolute positions"
_NO_DECODER = "but regard reads BERT as an encoder only"
_TIED = "but regard's masked-token head shares the embedding matrix"
_BERT_FIELDS = {
    "n_vocab": ("vocab_size", REQUIRED),
    "n_layers": ("num_hidden_layers", REQUIRED),
    "d_model": ("hidden_size", REQUIRED),
    "n_heads": ("num_attention_heads", REQUIRED),
    "d_ff": ("intermediate_size", REQUIRED),
    "norm_eps": ("layer_norm_eps", 1e-12),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "max_positions": ("max_position_embeddings", 512),
    "n_token_types": ("type_vocab_size", 2),
}
_DISTILBERT_FIELDS = {
    "n_vocab": ("vocab_size", REQUIRED),
    "n_layers": ("n_layers", REQUIRED),
    "d_model": ("dim", REQUIRED),
    "n_heads": ("n_heads", REQUIRED),
    "d_ff": ("hidden_dim", REQUIRED),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.1),
    "max_positions": ("max_position_embeddings", 512),
}


def n_labels(settings: CheckpointSettings) -> int | None:
    """Return the number of classes of a classifier; None for other models."""
    if "Classification" not in settings.architecture:
        return None
    labels = settings.get("id2label", {})
    return len(labels) or settings.get("num_labels", 2)


def _read_bert(settings: CheckpointSettings) -> EncoderConfig:
    settings.check("position_embedding_type", "absolute", why=_ABSOLUTE)
    settings.check("is_decoder", False, why=_NO_DECODER)
    settings.check("add_cross_attention", False, why=_NO_DECODER)
    fills = settings.architecture in ("BertForMaskedLM", "BertForPreTraining")
    if fills:
        settings.check("tie_word_embeddings", True, why=_TIED)
    pool, pooler = "first", "none" if settings.architecture == "BertForMaskedLM" else "tanh"
    if (settings.file.parent / "modules.json").is_file():
        pool, pooler = _read_pooling(settings), "none"
    return EncoderConfig(
        **settings.read(_BERT_FIELDS),
        activation=settings.choice("hidden_act", ACTIVATIONS, "gelu"),
        activation_dropout=0.0,
        pad_id=settings.get("pad_token_id", 0),
        fill_head=fills,
        pool=pool,
        pooler=pooler,
        n_classes=n_labels(settings),
    )


def _read_pooling(settings: CheckpointSettings) -> str:
    """Return how sentence-transformers pools token vectors into one."""
    file = settings.file.parent / "1_Pooling" / "config.json"
    if file.is_file() and read_json(file).get("pooling_mode_cls_token"):
        return "first"
    return "mean"


def _write_bert(config: EncoderConfig) -> dict[str, Any]:
    _require_encoder(config, "BERT")
    require(config.n_token_types > 0, "BERT has token types, and this model has none")
    require(
        config.n_classes is None or config.pooler == "tanh",
        f"BERT classifies after a pooler with tanh, and this pooler is {config.pooler!r}",
    )
    require(config.pooler in ("tanh", "none"), "BERT has a pooler with tanh or none")
    if config.fill_head:
        architecture = "BertForMaskedLM" if config.pooler == "none" else "BertForPreTraining"
    else:
        architecture = "BertModel" if config.n_classes is None else "BertForSequenceClassification"
    return {
        "architectures": [architecture],
        **write_fields(config, _BERT_FIELDS),
        "hidden_act": hf_activation(config.activation, "BERT"),
        "tie_word_embeddings": True,
    }


def _pack_bert(tensors: Tensors, config: EncoderConfig) -> Tensors:
    """Add zeros for a pooler or a head that their model has and ours does not."""
    if config.fill_head and config.pooler == "tanh":
        name, n_rows = "cls.seq_relationship", 2  # next-sentence prediction
    elif not config.fill_head and config.pooler == "none":
        name, n_rows = "pooler.dense", config.d_model
    else:
        return tensors
    zeros = {"weight": torch.zeros(n_rows, config.d_model), "bias": torch.zeros(n_rows)}
    return tensors | {f"{name}.{leaf}": tensor for leaf, tensor in zeros.items()}


def _require_encoder(config: EncoderConfig, name: str) -> None:
    """Refuse an encoder that is neither a BERT nor a DistilBERT."""
    require(config.norm == "post" and config.norm_kind == "layer", f"{name} is post-norm LayerNorm")
    require(config.positions == "learned", f"{name} has learned positions, not {config.positions}")
    require(config.attention == "exact", f"{name} has exact attention, not {config.attention}")
    require(config.embedding_norm, f"{name} normalizes its embeddings")
    require(config.plain_heads, f"{name} has heads that share d_model evenly")
    require(config.attention_bias and config.feed_forward_bias, f"{name} has biases everywhere")
    require(
        config.pool == "first" or config.n_classes is None,
        f"{name} classifies by the first token, not by the mean of all",
    )
    require(
        not (config.fill_head and config.n_classes),
        f"{name} has a masked-token head or a classifier, not both",
    )


BERT = CheckpointFamily(
    name="BERT",
    model_types=("bert",),
    architectures={
        "BertModel": "embedding",
        "BertForMaskedLM": "masked",
        "BertForPreTraining": "masked",
        "BertForSequenceClassification": "classification",
    },
    headless=("BertModel",),
    prefix="bert.",
    names={
        "tokens": "embeddings.word_embeddings",
        "embedding.positions": "embeddings.position_embeddings",
        "embedding.types": "embeddings.token_type_embeddings",
        "embedding.norm": "embeddings.LayerNorm",
        "pooler": "pooler.dense",
        **each_layer(
            "encoder.layers",
            "encoder.layer",
            {
                **attention_names(
                    "self_attention",
                    "attention.self.query attention.self.key attention.self.value "
                    "attention.output.dense",
                ),
                "self_attention.norm": "attention.output.LayerNorm",
                "feed_forward.inner.to_hidden": "intermediate.dense",
                "feed_forward.inner.to_output": "output.dense",
                "feed_forward.norm": "output.LayerNorm",
            },
        ),
    },
    heads={
        "fill.to_hidden": "cls.predictions.transform.dense",
        "fill.norm": "cls.predictions.transform.LayerNorm",
        "fill.bias": "cls.predictions.bias",
        "classifier": "classifier",
    },
    outside=("cls.",),
    # cls.: a copy of the embeddings, and next-sentence prediction
    ignored=(r"embeddings\.position_ids$", r"^cls\.", r"^pooler\."),
    read_config=_read_bert,
    write_config=_write_bert,
    pack=_pack_bert,
)


def _read_distilbert(settings: CheckpointSettings) -> EncoderConfig:
    fills = settings.architecture == "DistilBertForMaskedLM"
    if fills:
        settings.check("tie_word_embeddings", True, why=_TIED)
    n_classes = n_labels(settings)
    return EncoderConfig(
        **settings.read(_DISTILBERT_FIELDS),
        activation=settings.choice("activation", ACTIVATIONS, "gelu"),
        norm_eps=1e-12,
        activation_dropout=0.0,
        pad_id=settings.get("pad_token_id", 0),
        fill_head=fills,
        pooler="none" if n_classes is None else "relu",
        n_classes=n_classes,
    )


def _write_distilbert(config: EncoderConfig) -> dict[str, Any]:
    _require_encoder(config, "DistilBERT")
    require(config.n_token_types == 0, "DistilBERT has no token types")
    require(config.norm_eps == 1e-12, f"DistilBERT's norms add 1e-12, not {config.norm_eps}")
    require(
        config.pooler == ("none" if config.n_classes is None else "relu"),
        "DistilBERT has a pooler, with relu, only if it is a classifier",
    )
    architecture = "DistilBertModel"
    if config.fill_head:
        architecture = "DistilBertForMaskedLM"
    elif config.n_classes is not None:
        architecture = "DistilBertForSequenceClassification"
    return {
        "architectures": [architecture],
        **write_fields(config, _DISTILBERT_FIELDS),
        "activation": hf_activation(config.activation, "DistilBERT"),
        "tie_word_embeddings": True,
    }


DISTILBERT = CheckpointFamily(
    name="DistilBERT",
    model_types=("distilbert",),
    architectures={
        "DistilBertModel": "embedding",
        "DistilBertForMaskedLM": "masked",
        "DistilBertForSequenceClassification": "classification",
    },
    headless=("DistilBertModel",),
    prefix="distilbert.",
    names={
        "tokens": "embeddings.word_embeddings",
        "embedding.positions": "embeddings.position_embeddings",
        "embedding.norm": "embeddings.LayerNorm",
        **each_layer(
            "encoder.layers",
            "transformer.layer",
            {
                **attention_names(
                    "self_attention",
                    "attention.q_lin attention.k_lin attention.v_lin attention.out_lin",
                ),
                "self_attention.norm": "sa_layer_norm",
                "feed_forward.inner.to_hidden": "ffn.lin1",
                "feed_forward.inner.to_output": "ffn.lin2",
                "feed_forward.norm": "output_layer_norm",
            },
        ),
    },
    heads={
        "fill.to_hidden": "vocab_transform",
        "fill.norm": "vocab_layer_norm",
        "fill.bias": "vocab_projector.bias",
        "pooler": "pre_classifier",
        "classifier": "classifier",
    },
    ignored=(r"^vocab_projector\.weight$", r"^vocab_", r"embeddings\.position_ids$"),
    read_config=_read_distilbert,
    write_config=_write_distilbert,
)
