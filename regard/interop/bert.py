"""DistilBERT: BERT without kinds of tokens, with names of its own."""

from typing import Any

import torch

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
from regard.models.encoder import EncoderConfig
from regard.text.tokenizer_files import read_json

_ABSOLUTE = "and regard's BERT has only absolute positions"
_NO_DECODER = "and regard reads BERT as an encoder only"
TIED = "and regard's head for masked tokens shares the matrix of the embeddings"


def _read_bert(settings: Settings) -> EncoderConfig:
    settings.only("position_embedding_type", "absolute", why=_ABSOLUTE)
    settings.only("is_decoder", False, why=_NO_DECODER)
    settings.only("add_cross_attention", False, why=_NO_DECODER)
    fills = settings.architecture in ("BertForMaskedLM", "BertForPreTraining")
    if fills:
        settings.only("tie_word_embeddings", True, why=TIED)
    pool, pooler = "first", "none" if settings.architecture == "BertForMaskedLM" else "tanh"
    if (settings.file.parent / "modules.json").is_file():
        pool, pooler = _read_pooling(settings), "none"
    return EncoderConfig(
        n_vocab=settings.need("vocab_size"),
        n_layers=settings.need("num_hidden_layers"),
        d_model=settings.need("hidden_size"),
        n_heads=settings.need("num_attention_heads"),
        d_ff=settings.need("intermediate_size"),
        activation=settings.choice("hidden_act", ACTIVATIONS, "gelu"),
        norm_eps=settings.get("layer_norm_eps", 1e-12),
        dropout=settings.get("hidden_dropout_prob", 0.1),
        attention_dropout=settings.get("attention_probs_dropout_prob", 0.1),
        activation_dropout=0.0,
        max_positions=settings.get("max_position_embeddings", 512),
        n_token_types=settings.get("type_vocab_size", 2),
        pad_id=settings.get("pad_token_id", 0),
        fill_head=fills,
        pool=pool,
        pooler=pooler,
        n_classes=n_labels(settings),
    )


def _read_pooling(settings: Settings) -> str:
    """How sentence-transformers makes one vector of a text."""
    file = settings.file.parent / "1_Pooling" / "config.json"
    if file.is_file() and read_json(file).get("pooling_mode_cls_token"):
        return "first"
    return "mean"


def n_labels(settings: Settings) -> int | None:
    """How many classes a model that classifies tells apart."""
    if "Classification" not in settings.architecture:
        return None
    labels = settings.get("id2label", {})
    return len(labels) or settings.get("num_labels", 2)


def _write_bert(config: EncoderConfig) -> dict[str, Any]:
    require_encoder(config, "BERT")
    require(config.n_token_types > 0, "BERT has kinds of tokens, and it has none (DistilBERT has)")
    require(
        config.n_classes is None or config.pooler == "tanh",
        f"BERT classifies after a pooler with tanh, and its pooler is {config.pooler!r}",
    )
    require(config.pooler in ("tanh", "none"), "BERT has a pooler with tanh or none")
    if config.fill_head:
        architecture = "BertForMaskedLM" if config.pooler == "none" else "BertForPreTraining"
    else:
        architecture = "BertModel" if config.n_classes is None else "BertForSequenceClassification"
    return {
        "architectures": [architecture],
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "intermediate_size": config.d_ff,
        "hidden_act": their_activation(config.activation),
        "layer_norm_eps": config.norm_eps,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.max_positions,
        "type_vocab_size": config.n_token_types,
        "tie_word_embeddings": True,
    }


def _pack_bert(tensors: Tensors, config: EncoderConfig) -> Tensors:
    """With zeros for what theirs must have and ours has not: a pooler, or a head of its own."""
    if config.fill_head and config.pooler == "tanh":
        name, n_rows = "cls.seq_relationship", 2  # whether a sentence follows another
    elif not config.fill_head and config.pooler == "none":
        name, n_rows = "pooler.dense", config.d_model
    else:
        return tensors
    zeros = {"weight": torch.zeros(n_rows, config.d_model), "bias": torch.zeros(n_rows)}
    return tensors | {f"{name}.{leaf}": tensor for leaf, tensor in zeros.items()}


def require_encoder(config: EncoderConfig, name: str) -> None:
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
        their_activation(config.activation) is not None,
        f"{name} has no activation {config.activation}",
    )
    require(
        not (config.fill_head and config.n_classes),
        f"{name} has a head for masked tokens or one for classes, not both",
    )


BERT = Kind(
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
                **attention(
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
    ignored=(
        r"embeddings\.position_ids$",
        r"^cls\.",  # the embeddings once more, and whether a sentence follows another
        r"^pooler\.",
    ),
    read_config=_read_bert,
    write_config=_write_bert,
    pack=_pack_bert,
)


def _read(settings: Settings) -> EncoderConfig:
    fills = settings.architecture == "DistilBertForMaskedLM"
    if fills:
        settings.only("tie_word_embeddings", True, why=TIED)
    n_classes = n_labels(settings)
    return EncoderConfig(
        n_vocab=settings.need("vocab_size"),
        n_layers=settings.need("n_layers"),
        d_model=settings.need("dim"),
        n_heads=settings.need("n_heads"),
        d_ff=settings.need("hidden_dim"),
        activation=settings.choice("activation", ACTIVATIONS, "gelu"),
        norm_eps=1e-12,
        dropout=settings.get("dropout", 0.1),
        attention_dropout=settings.get("attention_dropout", 0.1),
        activation_dropout=0.0,
        max_positions=settings.get("max_position_embeddings", 512),
        pad_id=settings.get("pad_token_id", 0),
        fill_head=fills,
        pooler="none" if n_classes is None else "relu",
        n_classes=n_classes,
    )


def _write(config: EncoderConfig) -> dict[str, Any]:
    require_encoder(config, "DistilBERT")
    require(config.n_token_types == 0, "DistilBERT has no kinds of tokens (BERT has)")
    require(config.norm_eps == 1e-12, f"DistilBERT's norms add 1e-12, not {config.norm_eps}")
    require(
        config.pooler == ("none" if config.n_classes is None else "relu"),
        "DistilBERT has a pooler, with relu, exactly where it classifies",
    )
    if config.fill_head:
        architecture = "DistilBertForMaskedLM"
    elif config.n_classes is None:
        architecture = "DistilBertModel"
    else:
        architecture = "DistilBertForSequenceClassification"
    return {
        "architectures": [architecture],
        "dim": config.d_model,
        "n_layers": config.n_layers,
        "n_heads": config.n_heads,
        "hidden_dim": config.d_ff,
        "activation": their_activation(config.activation),
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "max_position_embeddings": config.max_positions,
        "tie_word_embeddings": True,
    }


DISTILBERT = Kind(
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
                **attention(
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
    read_config=_read,
    write_config=_write,
)
