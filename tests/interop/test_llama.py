"""The Llama family: the same numbers as `transformers` on the same weights, in both directions."""

import json

import pytest
import torch
from torch.testing import assert_close

from regard.errors import InputError
from regard.interop.huggingface import export_huggingface
from regard.interop.import_checkpoint import import_checkpoint
from regard.model import Model
from regard.models.decoder import Decoder, llama_config
from regard.trace.capture import trace_model
from tests.interop.changes import change_config

SMALL = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
VARIED = [
    ("LlamaForCausalLM", {}),
    ("LlamaForCausalLM", {"num_key_value_heads": 1, "head_dim": 6, "tie_word_embeddings": True}),
    ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3}),
    ("LlamaForCausalLM", {"hidden_act": "gelu", "num_key_value_heads": 4, "rms_norm_eps": 1e-3}),
    ("MistralForCausalLM", {"sliding_window": None}),
    ("Qwen2ForCausalLM", {}),
]
IDS = torch.randint(0, 40, (1, 30), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
@pytest.mark.parametrize(("kind", "changes"), VARIED)
def test_logits_and_attention_are_those_of_transformers(saved, same_patterns, kind, changes):
    both = saved(kind, settings=SMALL | changes)
    theirs = both.theirs(IDS, output_attentions=True)
    trace = trace_model(both.ours, IDS[0])
    assert_close(trace.value("output.logits"), theirs.logits, rtol=0, atol=1e-4)
    same_patterns(trace, "decoder.layers.N.self", theirs.attentions)


@torch.no_grad()
@pytest.mark.parametrize(("kind", "changes"), VARIED)
def test_what_is_exported_is_loaded_by_transformers_with_the_same_results(
    saved, exported, kind, changes
):
    both = saved(kind, settings=SMALL | changes)
    again = exported(both.ours, "LlamaForCausalLM", loader="AutoModelForCausalLM")
    assert_close(again(IDS).logits, both.theirs(IDS).logits, rtol=0, atol=1e-5)


def test_settings_as_older_versions_wrote_them_mean_the_same(saved):
    both = saved("LlamaForCausalLM", settings=SMALL | {"rope_parameters": LLAMA3})
    file = both.folder / "config.json"
    config = json.loads(file.read_text())
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    file.write_text(json.dumps({**config, "rope_scaling": scaling}))
    assert import_checkpoint(both.folder).config == both.ours.config


def test_half_precision_checkpoints_are_read_as_float32(saved, tmp_path):
    both = saved("LlamaForCausalLM", settings=SMALL)
    both.theirs.half().save_pretrained(tmp_path / "half")
    again = import_checkpoint(tmp_path / "half")
    weight = again.module.tokens.weight
    assert weight.dtype == torch.float32
    assert torch.equal(weight, both.ours.module.tokens.weight.half().float())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"rope_parameters": {"rope_type": "yarn"}},
            "by 'yarn' .* 'default' and 'llama3'",
        ),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear"}}, "by 'linear'"),
        ({"partial_rotary_factor": 0.5}, "for a part of 0.5"),
        ({"sliding_window": 64}, "has sliding_window = 64, but regard.s Llama has no sliding"),
        ({"model_type": "mistral"}, "has sliding_window = 4096"),
        ({"layer_types": ["sliding_attention"]}, "no sliding windows"),
        ({"hidden_act": "relu"}, "hidden_act = 'relu', which regard does not support"),
        ({"model_type": "gemma"}, "model type 'gemma'"),
    ],
)
def test_a_checkpoint_that_computes_something_else_is_refused(refused, changes, sentence):
    refused("LlamaForCausalLM", settings=SMALL, changes=changes, sentence=sentence)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"norm_kind": "layer"},
            "'learned', not 'rotary', and Llama has norm_kind = 'rms', not 'layer'",
        ),
        ({"positions": "alibi"}, "Llama has positions = 'rotary', not 'alibi'"),
        ({"activation": "relu"}, "a gated feed-forward, not relu"),
        ({"d_v": 3}, "values are as wide as its keys"),
        ({"d_rotary": 2}, "Llama rotates whole heads"),
    ],
)
def test_a_decoder_unlike_llama_is_refused_with_the_reason(tmp_path, changes, sentence):
    sizes = {"n_vocab": 9, "d_model": 8, "n_heads": 2, "d_ff": 8, "n_layers": 1}
    model = Model(module=Decoder(llama_config(**(sizes | changes))), task="language")
    with pytest.raises(InputError, match=f"cannot be exported: .*{sentence}"):
        export_huggingface(model, tmp_path / "out")


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": "x"},
        {"hidden_size": {}},
        {"rope_parameters": 7},
        {"rope_parameters": {"rope_type": "default", "rope_theta": []}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10**400}},
        {"pad_token_id": "0"},
    ],
)
def test_settings_of_another_type_are_refused_by_name(saved, changes):
    settings = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1}
    settings |= {"num_attention_heads": 4, "intermediate_size": 24}
    folder = saved("LlamaForCausalLM", settings=settings).folder
    change_config(folder, **changes)
    with pytest.raises(InputError, match="which must be of type"):
        import_checkpoint(folder)
