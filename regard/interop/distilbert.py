"""DistilBERT: BERT without kinds of tokens, with names of its own."""

from typing import Any

from regard.interop.bert import TIED, n_labels, require_encoder
from regard.interop.checkpoint import Settings
from regard.interop.kind import ACTIVATIONS, Kind, attention, each_layer, require, their_activation
from regard.models.encoder import EncoderConfig


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
