"""GGUF files hold the weights, settings and tokens of the model."""

import numpy as np
import pytest
from gguf import GGUFReader

from regard.errors import InputError
from regard.interop.export import export_gguf
from regard.model import Model, load
from regard.models.decoder import Decoder, DecoderConfig
from regard.text.tokenizer_training import train_tokenizer
from tests.generation.conftest import lively

SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 16, "n_layers": 1, "max_positions": 32}
GPT2 = {"positions": "learned", "norm": "pre", "activation": "gelu_new"}
LLAMA = {
    "positions": "rotary",
    "norm": "pre",
    "norm_kind": "rms",
    "activation": "swiglu",
    "attention_bias": False,
    "feed_forward_bias": False,
}


def exported(path, **settings):
    tokenizer = train_tokenizer(["the dog is here"] * 3, kind="byte-bpe", vocab_size=300)
    config = DecoderConfig(n_vocab=len(tokenizer) + 2, **SIZES, **settings)
    model = Model(module=lively(Decoder(config)), task="language", tokenizer=tokenizer)
    export_gguf(model, path)
    return model, GGUFReader(path)


def tensors_of(reader):
    return {one.name: np.array(one.data) for one in reader.tensors}


def test_gpt2_keeps_its_weights_settings_and_tokens(tmp_path):
    model, reader = exported(tmp_path / "m.gguf", **GPT2)
    found, state = tensors_of(reader), model.module.state_dict()
    layer = "decoder.layers.0.feed_forward.inner"
    np.testing.assert_array_equal(found["token_embd.weight"], state["tokens.weight"])
    np.testing.assert_array_equal(found["blk.0.ffn_up.weight"], state[f"{layer}.to_hidden.weight"])
    assert reader.fields["gpt2.block_count"].contents() == 1
    names = reader.fields["tokenizer.ggml.tokens"].contents()
    assert len(names) == model.config.n_vocab
    assert names[5] == model.tokenizer.token_of(5)


def test_rotated_pairs_of_llama_are_neighbors(tmp_path):
    model, reader = exported(tmp_path / "m.gguf", **LLAMA)
    found = tensors_of(reader)["blk.0.attn_q.weight"]
    ours = model.module.state_dict()["decoder.layers.0.self_attention.inner.to_query.weight"]
    # heads of 4 numbers: regard rotates (0, 2) and (1, 3), GGUF (0, 1) and (2, 3)
    np.testing.assert_array_equal(found, ours[[0, 2, 1, 3, 4, 6, 5, 7]])
    assert reader.fields["llama.attention.head_count_kv"].contents() == 2


def test_other_families_are_refused(tmp_path):
    with pytest.raises(InputError, match="only one of the family decoder"):
        export_gguf(load("digits"), tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()
