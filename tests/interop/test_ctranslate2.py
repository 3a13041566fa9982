"""CTranslate2: the engine gives what the model gives, and converting needs no torch."""

import subprocess
import sys

import ctranslate2
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from regard.errors import FileError, InputError
from regard.interop.ctranslate2 import N_POSITIONS, convert, position_table, read_arrays
from regard.layers.embedding import sinusoid
from regard.model import Model
from regard.models.config import build, config_from_dict
from regard.models.decoder import Decoder, DecoderConfig, llama_config
from regard.text.tokenizer import token_names
from regard.trace.capture import trace_model

TEXTS = ["abcde", "hgf", "aabbcc", "dada", "h"]
TRANSLATORS = [
    {"norm": "pre", "activation": "swiglu", "attention_bias": False, "feed_forward_bias": False},
    {"positions": "learned", "activation": "gelu", "norm_eps": 1e-3, "tie": "target"},
    {"positions": "rotary", "norm": "pre", "norm_kind": "rms", "n_kv_heads": 2, "d_rotary": 4},
    {"tie": "none", "logits_bias": True, "scale_embedding": False, "position_layout": "halves"},
    {"d_k": 16, "activation": "gelu_new", "n_kv_heads": 1},
    {"positions": "none", "activation": "geglu", "n_encoder_layers": 2, "n_decoder_layers": 3},
]


@pytest.fixture
def engine(tmp_path):
    """Saves and converts a bundle, and opens it in the engine."""

    def open_engine(model, *, quantization=None, compute_type="float32"):
        model.save(tmp_path / "model")
        convert(tmp_path / "model", tmp_path / "engine", quantization=quantization)
        kind = ctranslate2.Translator if model.task == "translation" else ctranslate2.Generator
        return kind(str(tmp_path / "engine"), device="cpu", compute_type=compute_type)

    return open_engine


def names(tokenizer, ids):
    return [tokenizer.token_of(id) for id in ids]


@torch.no_grad()
@pytest.mark.parametrize("settings", TRANSLATORS)
def test_every_kind_of_transformer_gives_the_same_probabilities(engine, shaken, reverser, settings):
    cutter = reverser().tokenizer
    sizes = {"n_vocab": 20, "d_model": 32, "n_heads": 4, "d_ff": 24}
    stacks = {"n_encoder_layers": 1, "n_decoder_layers": 1}
    torch.manual_seed(0)
    config = config_from_dict({"family": "transformer", **sizes, **stacks, **settings})
    model = Model(module=shaken(build(config)), task="translation", tokenizer=cutter)
    translator = engine(model)
    for source, target in (("abcde", "hgf"), ("h", "abcdefgh"), ("gfedcba", "a")):
        trace = trace_model(model, source, target)
        (scored,) = translator.score_batch([names(cutter, cutter.encode(source))], [[*target]])
        ours = torch.tensor(trace.output["log_probabilities"])
        assert_close(torch.tensor(scored.log_probs), ours, rtol=0, atol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"norm": "pre", "attention_bias": False}])
def test_greedy_translations_are_the_same(engine, reverser, settings):
    model = reverser(**settings)
    translator, cutter = engine(model), model.tokenizer
    seen = set()
    for text in TEXTS:
        ids = model.translate(text, engine="torch", beam=1).parts[0].ids
        (greedy,) = translator.translate_batch(
            [names(cutter, cutter.encode(text))],
            beam_size=1,
            max_decoding_length=len(ids) + 1,
            suppress_sequences=[["[CLS]"], ["[PAD]"]],
        )
        assert greedy.hypotheses[0] == names(cutter, ids)
        seen.add(tuple(ids))
    assert len(seen) == len(TEXTS)  # it reads what it is given


def test_every_hypothesis_of_a_beam_has_the_probability_that_the_model_gives_it(engine, reverser):
    model = reverser()
    translator, cutter = engine(model), model.tokenizer
    for text in TEXTS:
        source = cutter.encode(text)
        (found,) = translator.translate_batch(
            [names(cutter, source)],
            beam_size=4,
            num_hypotheses=4,
            length_penalty=0,
            min_decoding_length=0,
            max_decoding_length=30,
            return_scores=True,
        )
        for tokens, score in zip(found.hypotheses, found.scores, strict=True):
            target = [cutter.start_id, *map(cutter.id_of, tokens), cutter.end_id]
            trace = trace_model(model, source, target)
            assert sum(trace.output["log_probabilities"]) == pytest.approx(score, abs=1e-4)


DECODERS = [
    DecoderConfig(n_vocab=50, d_model=16, n_heads=4, d_ff=24, n_layers=2),
    DecoderConfig(
        n_vocab=50,
        d_model=18,
        n_heads=3,
        d_ff=24,
        n_layers=2,
        positions="alibi",
        activation="relu",
        tie=False,
    ),
    DecoderConfig(
        n_vocab=50, d_model=16, n_heads=4, d_ff=24, n_layers=1, norm="post", positions="none"
    ),
    llama_config(n_vocab=50, d_model=16, n_heads=4, d_ff=24, n_layers=2, n_kv_heads=2),
    llama_config(
        n_vocab=50,
        d_model=16,
        n_heads=4,
        d_ff=24,
        n_layers=1,
        n_kv_heads=1,
        d_k=6,
        activation="geglu",
        rotary_theta=100.0,
    ),
]


@torch.no_grad()
@pytest.mark.parametrize("config", DECODERS)
def test_logits_of_decoders_are_the_same(engine, shaken, reverser, config):
    torch.manual_seed(0)
    cutter = reverser().tokenizer
    model = shaken(Decoder(config), strength=0.3)
    generator = engine(Model(module=model, task="language", tokenizer=cutter))
    ids = cutter.encode("abc hgf edc")
    logits = torch.from_numpy(np.array(generator.forward_batch([names(cutter, ids)])))
    assert_close(logits, model(torch.tensor([ids])), rtol=0, atol=1e-4)


def test_eight_bits_give_the_same_translation_of_what_the_model_is_sure_of(engine, reverser):
    translator = engine(reverser(), quantization="int8", compute_type="int8")
    (found,) = translator.translate_batch([["[CLS]", *"abcde", "[SEP]"]], beam_size=1)
    assert found.hypotheses[0] == [*"edcba"]


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("d_model", [8, 7])
def test_sinusoids_in_numpy_are_those_of_the_model(layout, d_model):
    model = {"d_model": d_model, "positions": "sinusoidal", "position_layout": layout}
    ours = torch.from_numpy(position_table("encoder", model, {}))
    assert ours.shape == (N_POSITIONS, d_model)
    expected = sinusoid(N_POSITIONS, d_model, layout=layout).float()
    assert_close(ours, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_arrays_are_what_torch_reads(reverser, tmp_path, dtype):
    reverser().save(tmp_path / "model", dtype=dtype)
    file = tmp_path / "model" / "model.safetensors"
    arrays, tensors = read_arrays(file), load_file(file)
    assert set(arrays) == set(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(torch.from_numpy(arrays[name]), tensor.float())


def test_converting_and_translating_loads_no_torch(reverser, tmp_path):
    reverser().save(tmp_path / "model")
    program = (
        "import sys; from regard.interop.ctranslate2 import convert; import ctranslate2; "
        f"convert({str(tmp_path / 'model')!r}, {str(tmp_path / 'engine')!r}); "
        f"engine = ctranslate2.Translator({str(tmp_path / 'engine')!r}, device='cpu'); "
        "found = engine.translate_batch([['[CLS]', 'a', 'b', 'c', 'd', 'e', '[SEP]']]); "
        "print(*found[0].hypotheses[0], 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.stdout.split() == [*"edcba", "False", "False"], result.stderr


@pytest.mark.parametrize(
    ("family", "settings", "sentence"),
    [
        ("encoder", {"n_layers": 1}, "runs transformer and decoder models"),
        ("decoder", {"n_layers": 1, "d_v": 3}, "values as wide as keys"),
        ("decoder", {"n_layers": 1, "attention": "efficient"}, "exact attention only"),
        (
            "decoder",
            {"n_layers": 1, "positions": "rotary", "rotary_scaling": (4.0, 1.0, 4.0, 16.0)},
            "does not scale rotary positions",
        ),
        ("transformer", {"positions": "alibi"}, "encoders have no ALiBi"),
    ],
)
def test_what_the_engine_cannot_do_is_refused(tmp_path, reverser, family, settings, sentence):
    sizes = {"n_vocab": 50, "d_model": 8, "n_heads": 2, "d_ff": 8}
    model = build(config_from_dict({"family": family, **sizes, **settings}))
    Model(module=model, task="language", tokenizer=reverser().tokenizer).save(tmp_path / "model")
    with pytest.raises(InputError, match=f"CTranslate2 cannot run this model because .*{sentence}"):
        convert(tmp_path / "model", tmp_path / "engine")
    assert not (tmp_path / "engine").exists()


def test_a_folder_without_tokenizer_or_with_damaged_weights_is_refused(tmp_path, reverser):
    model = reverser()
    with pytest.raises(InputError, match="quantization is 'int3'"):
        convert(tmp_path, tmp_path / "engine", quantization="int3")
    Model(module=model.module, task="translation").save(tmp_path / "model")
    with pytest.raises(InputError, match="needs the names of all tokens"):
        convert(tmp_path / "model", tmp_path / "engine")
    model.save(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(FileError, match=r"model\.safetensors is damaged, truncated"):
        convert(tmp_path / "model", tmp_path / "engine")


def test_ids_that_no_token_has_get_names_of_their_own(reverser):
    tokenizer = reverser().tokenizer
    listed = token_names(tokenizer, len(tokenizer) + 2)
    assert listed[:3] == ["[PAD]", "[UNK]", "[CLS]"]
    assert listed[-2:] == [f"[unused {len(tokenizer)}]", f"[unused {len(tokenizer) + 1}]"]
    assert len(set(listed)) == len(listed)
