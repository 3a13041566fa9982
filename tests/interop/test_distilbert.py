"""DistilBERT: the same numbers as `transformers` on the same weights, in both directions."""

import pytest
import torch
from torch.testing import assert_close

from regard.errors import InputError
from regard.interop.huggingface import export_huggingface
from regard.model import Model
from regard.models.encoder import Encoder, EncoderConfig
from regard.trace.capture import trace_model

SMALL = {
    "vocab_size": 40,
    "dim": 16,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 24,
    "max_position_embeddings": 12,
}
VARIED = [
    {},
    {"n_layers": 3, "n_heads": 2, "activation": "relu"},
    {"sinusoidal_pos_embds": True, "dim": 12, "n_heads": 3},
]
IDS = torch.tensor([[2, 7, 9, 11, 4, 30, 3]])


@torch.no_grad()
@pytest.mark.parametrize("changes", VARIED)
def test_logits_and_attention_are_those_of_transformers(saved, same_patterns, changes):
    both = saved("DistilBertForMaskedLM", settings=SMALL | changes)
    theirs = both.theirs(IDS, output_attentions=True)
    trace = trace_model(both.ours, IDS[0])
    assert_close(trace.value("output.logits"), theirs.logits, rtol=0, atol=1e-4)
    same_patterns(trace, "encoder.layers.N.self", theirs.attentions)


@torch.no_grad()
def test_states_and_classes_are_those_of_transformers(saved, tmp_path):
    both = saved("DistilBertModel", settings=SMALL)
    assert_close(both.ours.module(IDS), both.theirs(IDS).last_hidden_state, rtol=0, atol=1e-4)
    both = saved(
        "DistilBertForSequenceClassification",
        settings=SMALL | {"num_labels": 3},
        folder=tmp_path / "other",
    )
    ours = both.ours.module.classify(both.ours.module(IDS))
    assert_close(ours, both.theirs(IDS).logits, rtol=0, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(
    "kind", ["DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification"]
)
def test_what_is_exported_is_loaded_by_transformers_with_the_same_results(saved, exported, kind):
    both = saved(kind, settings=SMALL)
    again = exported(both.ours, kind)
    assert_close(again(IDS)[0], both.theirs(IDS)[0], rtol=0, atol=1e-6)


def test_an_encoder_unlike_distilbert_is_refused(tmp_path):
    config = EncoderConfig(n_vocab=9, d_model=8, n_heads=2, d_ff=8, n_layers=1, norm_eps=1e-5)
    with pytest.raises(InputError, match="DistilBERT has norm_eps = 1e-12, not 1e-05"):
        export_huggingface(Model(module=Encoder(config), task="masked"), tmp_path / "out")
