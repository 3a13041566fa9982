"""GPT-2: the same numbers and the same text as `transformers` on the same weights."""

import pytest
import torch
from torch.testing import assert_close

from regard.errors import InputError
from regard.interop.huggingface import export_huggingface
from regard.interop.import_checkpoint import import_checkpoint
from regard.model import Model
from regard.models.decoder import Decoder, DecoderConfig
from regard.trace.capture import trace_model

SMALL = {
    "vocab_size": 40,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 32,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
VARIED = [
    {},
    {"n_layer": 3, "n_head": 1, "n_inner": 20, "activation_function": "relu"},
    {"tie_word_embeddings": False, "activation_function": "gelu", "layer_norm_epsilon": 1e-3},
]
IDS = torch.tensor([[2, 7, 9, 11, 4, 30, 3]])


@torch.no_grad()
@pytest.mark.parametrize("changes", VARIED)
def test_logits_and_attention_are_those_of_transformers(saved, same_patterns, changes):
    both = saved("GPT2LMHeadModel", settings=SMALL | changes)
    theirs = both.theirs(IDS, output_attentions=True)
    trace = trace_model(both.ours, IDS[0])
    assert_close(trace.value("output.logits"), theirs.logits, rtol=0, atol=1e-4)
    same_patterns(trace, "decoder.layers.N.self", theirs.attentions)


@torch.no_grad()
@pytest.mark.parametrize("seed", range(3))
def test_the_best_tokens_one_after_another_are_those_of_transformers(saved, seed):
    both = saved("GPT2LMHeadModel", settings=SMALL)
    ids = torch.randint(1, 40, (1, 4), generator=torch.Generator().manual_seed(seed))
    theirs = both.theirs.generate(
        ids, do_sample=False, max_new_tokens=20, min_new_tokens=20, pad_token_id=0
    )
    cache, written, fresh = both.ours.module.new_cache(), ids[0].tolist(), ids
    for _ in range(20):
        logits = both.ours.module(fresh, cache=cache)[0, -1]
        logits[0] = -torch.inf  # the end is not to come before 20 tokens are written
        written.append(int(logits.argmax()))
        fresh = torch.tensor([written[-1:]])
    assert written == theirs[0].tolist()
    assert len(set(written)) > 4  # not one token again and again


@torch.no_grad()
@pytest.mark.parametrize("changes", VARIED)
def test_what_is_exported_is_loaded_by_transformers_with_the_same_results(saved, exported, changes):
    both = saved("GPT2LMHeadModel", settings=SMALL | changes)
    again = exported(both.ours, "GPT2LMHeadModel")
    assert_close(again(IDS).logits, both.theirs(IDS).logits, rtol=0, atol=1e-6)


@pytest.mark.data("vocabularies/gpt2.vocab.json", "vocabularies/gpt2.merges.txt")
def test_the_vocabulary_of_gpt2_is_read_from_its_two_files(saved, transformers, data, tmp_path):
    both = saved("GPT2LMHeadModel", settings=SMALL | {"vocab_size": 50257})
    for name in ("vocab.json", "merges.txt"):
        (both.folder / name).write_bytes((data / "vocabularies" / f"gpt2.{name}").read_bytes())
    again = import_checkpoint(both.folder)
    text = "Héllo, how are  you doing?"
    assert again.tokenizer.decode(again.tokenizer.encode(text)) == text
    export_huggingface(again, tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs(text)["input_ids"] == again.tokenizer.encode(text)
    assert theirs.eos_token == "<|endoftext|>"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "_idx = True, but .* only with False"),
        ({"scale_attn_weights": False}, "scale_attn_weights = False, but .* only with T"),
        ({"activation_function": "quick_gelu"}, "which regard does not support"),
        ({"architectures": ["GPT2ForSequenceClassification"]}, "which regard does not import"),
    ],
)
def test_a_checkpoint_that_computes_something_else_is_refused(refused, changes, sentence):
    refused("GPT2LMHeadModel", settings=SMALL, changes=changes, sentence=sentence)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"norm": "post"}, "GPT-2 has norm = 'pre', not 'post'"),
        ({"n_kv_heads": 1}, "heads that share d_model evenly"),
        ({"activation": "swiglu"}, "GPT-2 has no activation swiglu"),
        ({"attention_bias": False}, "GPT-2 has attention_bias = True"),
        ({"attention": "efficient"}, "attention = 'exact', not 'efficient'"),
    ],
)
def test_a_decoder_unlike_gpt2_is_refused_with_the_reason(tmp_path, changes, sentence):
    sizes = {"n_vocab": 9, "d_model": 8, "n_heads": 2, "d_ff": 8, "n_layers": 1}
    model = Model(module=Decoder(DecoderConfig(**(sizes | changes))), task="language")
    with pytest.raises(InputError, match=f"cannot be exported: .*{sentence}"):
        export_huggingface(model, tmp_path / "out")
