"""Marian: the same numbers and the same translations as `transformers` on the same weights."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from regard.errors import FileError, InputError
from regard.interop.huggingface import export_huggingface
from regard.interop.import_checkpoint import import_checkpoint
from regard.model import Model
from regard.models.transformer import Transformer, TransformerConfig
from regard.trace.capture import trace_model
from tests.interop.changes import change_config


@torch.no_grad()
def greedy(model, source_ids):
    """Take the best token again and again, as the reference does with num_beams=1."""
    tokenizer = model.target_tokenizer
    ids, never = [tokenizer.start_id], sorted({tokenizer.start_id, model.config.pad_id})
    while len(ids) <= 2 * len(source_ids) + 16 and ids[-1:] != [tokenizer.end_id]:
        logits = model.module(torch.tensor([source_ids]), torch.tensor([[*ids, 0]]))[0, -1]
        logits[[id for id in never if id != tokenizer.end_id]] = -torch.inf
        ids.append(int(logits.argmax()))
    return ids


SMALL = {
    "vocab_size": 30,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "pad_token_id": 29,
    "decoder_start_token_id": 29,
    "eos_token_id": 0,
    "forced_eos_token_id": None,
}
OWN_VOCABULARY = {
    "share_encoder_decoder_embeddings": False,
    "decoder_vocab_size": 24,
    "pad_token_id": 23,
    "decoder_start_token_id": 23,
}
VARIED = [
    ("MarianMTModel", {"scale_embedding": True, "activation_function": "swish"}),
    ("MarianMTModel", {"encoder_layers": 1, "decoder_layers": 3, "activation_function": "relu"}),
    ("MarianMTModel", OWN_VOCABULARY),
    ("MarianMTModel", {"tie_word_embeddings": False}),
    ("PegasusForConditionalGeneration", {"scale_embedding": True}),
]
SOURCE = torch.tensor([[5, 9, 11, 4, 22, 0], [7, 2, 0, 29, 29, 29]])
TARGET = torch.tensor([[23, 7, 19, 11, 2, 0]])


@torch.no_grad()
@pytest.mark.parametrize(("kind", "changes"), VARIED)
def test_logits_and_attention_are_those_of_transformers(saved, same_patterns, kind, changes):
    both = saved(kind, settings=SMALL | changes)
    theirs = both.theirs(
        input_ids=SOURCE[:1], decoder_input_ids=TARGET[:, :-1], output_attentions=True
    )
    trace = trace_model(both.ours, SOURCE[0], TARGET[0])
    assert_close(trace.value("output.logits"), theirs.logits, rtol=0, atol=1e-4)
    same_patterns(trace, "encoder.layers.N.self", theirs.encoder_attentions)
    same_patterns(trace, "decoder.layers.N.self", theirs.decoder_attentions)
    same_patterns(trace, "decoder.layers.N.cross", theirs.cross_attentions)


@torch.no_grad()
def test_padding_is_not_read(saved):
    both = saved("MarianMTModel", settings=SMALL)
    target = TARGET[:, :-1].expand(2, -1)
    real = (SOURCE != 29).long()
    theirs = both.theirs(input_ids=SOURCE, attention_mask=real, decoder_input_ids=target).logits
    model, lengths = both.ours.module, [6, 3]
    ours = model.project(model.decode(target, model.encode(SOURCE, lengths), lengths))
    assert_close(ours, theirs, rtol=0, atol=1e-4)


def write_vocabulary(file, pieces):
    """A SentencePiece file, by the library of protocol buffers."""
    from transformers.utils import sentencepiece_model_pb2_new as messages

    message = messages.ModelProto()
    message.trainer_spec.model_type = 1
    message.pieces.add(piece="<unk>", score=0.0, type=2)
    for piece, score in pieces.items():
        message.pieces.add(piece=piece, score=score)
    file.write_bytes(message.SerializeToString())


ENGLISH = {"▁a": -2.0, "▁dog": -3.0, "▁run": -3.5, "s": -2.5, ".": -2.2, "▁": -4.0}
ENGLISH |= dict.fromkeys("adgnoru", -6.0)
GERMAN = {"▁ein": -2.0, "▁Hund": -3.0, "▁läuft": -3.5, ".": -2.2, "▁": -4.0, "a": -6.0}


@pytest.fixture
def translator(saved):
    """A model of Marian with its three files of vocabulary."""

    def make(**changes):
        settings = SMALL | {"scale_embedding": True} | changes
        both = saved("MarianMTModel", settings=settings, strength=0.3)
        pieces = list(dict.fromkeys([*ENGLISH, *GERMAN, ">>de<<"]))
        names = ["</s>", "<unk>", *pieces]
        names += [f"▁more{i}" for i in range(29 - len(names))] + ["<pad>"]
        ids = {name: id for id, name in enumerate(names)}
        (both.folder / "vocab.json").write_text(json.dumps(ids))
        write_vocabulary(both.folder / "source.spm", ENGLISH)
        write_vocabulary(both.folder / "target.spm", GERMAN)
        both.ours = import_checkpoint(both.folder)
        return both

    return make


def test_each_side_cuts_text_by_its_own_pieces_into_ids_that_both_share(translator):
    ours = translator().ours
    tokens = [ours.tokenizer.token_of(id) for id in ours.tokenizer.encode("a dog runs.")]
    assert tokens == ["▁a", "▁dog", "▁run", "s", ".", "</s>"]
    target = ours.target_tokenizer.encode("ein Hund läuft.")
    tokens = [ours.target_tokenizer.token_of(id) for id in target]
    assert tokens == ["<pad>", "▁ein", "▁Hund", "▁läuft", ".", "</s>"]
    assert ours.target_tokenizer.decode(target) == "ein Hund läuft."
    assert ours.tokenizer.decode(ours.tokenizer.encode("a dog runs.")) == "a dog runs."
    start = [ours.tokenizer.token_of(id) for id in ours.tokenizer.encode(">>de<< a dog")]
    assert start == [">>de<<", "▁a", "▁dog", "</s>"]


def test_separate_vocabularies_of_different_sizes_are_read_each_for_its_side(saved):
    folder = saved("MarianMTModel", settings=SMALL | OWN_VOCABULARY, strength=0.3).folder
    table = {}
    for side, pieces, size in (("", ENGLISH, 30), ("target_", GERMAN, 24)):
        names = ["</s>", "<unk>", *pieces]
        names += [f"▁other{i}" for i in range(23 - len(names))] + ["<pad>"]
        names += [f"▁more{i}" for i in range(size - len(names))]
        table = {name: id for id, name in enumerate(names)}
        (folder / f"{side}vocab.json").write_text(json.dumps(table))
        write_vocabulary(folder / f"{side.strip('_') or 'source'}.spm", pieces)
    ours = import_checkpoint(folder)
    assert (len(ours.tokenizer), len(ours.target_tokenizer)) == (30, 24)
    assert ours.target_tokenizer.encode("ein Hund") == [23, table["▁ein"], table["▁Hund"], 0]
    found = ours.translate("a dog runs.", engine="torch", beam=1)
    written = greedy(ours, ours.tokenizer.encode("a dog runs."))[1:]
    tokens = [ours.target_tokenizer.token_of(id).replace("▁", " ") for id in written if id]
    assert found.tokens[:9] == tokens[:9]
    assert {one.replace(" ", "▁") for one in found.tokens} <= set(table)


@pytest.mark.long
@torch.no_grad()
def test_greedy_translations_are_those_of_transformers(translator):
    both = translator()
    seen = set()
    for text in ("a dog runs.", "dog", "runs a dog a.", "a a a a a a"):
        ids = both.ours.tokenizer.encode(text)
        ours = greedy(both.ours, ids)
        theirs = both.theirs.generate(
            torch.tensor([ids]),
            do_sample=False,
            num_beams=1,
            max_new_tokens=len(ours) - 1,
            suppress_tokens=[29],
        )
        assert ours == theirs[0].tolist()
        seen |= set(ours)
    assert len(seen) > 3  # not one token again and again


@torch.no_grad()
@pytest.mark.parametrize(("kind", "changes"), VARIED)
def test_what_is_exported_is_loaded_by_transformers_with_the_same_results(
    saved, exported, kind, changes
):
    both = saved(kind, settings=SMALL | changes)
    without = ("positions", "model.shared.weight")  # computed; unused where nothing is shared
    again = exported(both.ours, kind, without=without)
    inputs = {"input_ids": SOURCE[:1], "decoder_input_ids": TARGET}
    assert_close(again(**inputs).logits, both.theirs(**inputs).logits, rtol=0, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("settings", [{}, {"norm": "pre", "attention_bias": False}])
def test_our_own_translators_are_loaded_by_transformers_though_their_sinusoids_stand_in_turn(
    transformers, reverser, tmp_path, settings
):
    ours = reverser(**settings)
    assert ours.config.position_layout == "interleaved"
    export_huggingface(ours, tmp_path / "out")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    cutter = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    again = import_checkpoint(tmp_path / "out")
    for text in ("abcde", "hgf", "aabbcc"):
        ids = torch.tensor([ours.tokenizer.encode(text)])
        assert cutter(text)["input_ids"] == again.tokenizer.encode(text) == ids[0].tolist()
        written = greedy(ours, ids[0].tolist())
        trace = trace_model(ours, ids[0].tolist(), written)
        logits = theirs(input_ids=ids, decoder_input_ids=torch.tensor([written[:-1]])).logits
        assert_close(trace.value("output.logits"), logits, rtol=0, atol=1e-4)
        assert theirs.generate(ids, max_new_tokens=40, num_beams=1)[0].tolist() == written
        assert greedy(again, ids[0].tolist()) == written
        assert len(set(written)) > 4


def test_a_target_with_its_own_tokenizer_is_exported_beside(translator, transformers, tmp_path):
    ours = translator().ours
    export_huggingface(ours, tmp_path / "out")
    cutter = transformers.AutoTokenizer.from_pretrained(tmp_path / "out" / "target")
    text = "ein Hund läuft."
    assert cutter(text)["input_ids"] == ours.target_tokenizer.encode(text)
    again = import_checkpoint(tmp_path / "out")
    assert again.target_tokenizer.encode(text) == ours.target_tokenizer.encode(text)
    assert again.tokenizer.encode("a dog") == ours.tokenizer.encode("a dog")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"decoder_ffn_dim": 12}, "decoder_ffn_dim = 12, but .* only with 24"),
        ({"decoder_attention_heads": 2}, "decoder_attention_heads = 2, but .* only with 4"),
        ({"activation_function": "quick_gelu"}, "which regard does not support"),
    ],
)
def test_a_checkpoint_that_computes_something_else_is_refused(refused, changes, sentence):
    refused("MarianMTModel", settings=SMALL, changes=changes, sentence=sentence)


def test_positions_that_were_learned_are_refused(saved):
    folder = saved("PegasusForConditionalGeneration", settings=SMALL).folder
    tensors = load_file(folder / "model.safetensors")
    tensors["model.encoder.embed_positions.weight"] += 0.1
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(InputError, match="positions are not sinusoids"):
        import_checkpoint(folder)


def test_vocabularies_that_do_not_fit_are_refused(translator):
    folder = translator().folder
    change_config(folder, decoder_start_token_id=77)
    with pytest.raises(FileError, match=r"start and end tokens that .*vocab\.json does not"):
        import_checkpoint(folder)
    change_config(folder, decoder_start_token_id=29)
    ids = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").write_text(json.dumps(ids | {"▁more0": 55}))
    with pytest.raises(InputError, match="has missing or repeated ids"):
        import_checkpoint(folder)
    (folder / "vocab.json").write_text(json.dumps(ids | {"▁more0": [1]}))
    with pytest.raises(FileError, match=r"vocab\.json has '▁more0' = \[1\], which is not an id"):
        import_checkpoint(folder)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"positions": "learned"}, "Marian has positions = 'sinusoidal', not 'learned'"),
        ({"norm_kind": "rms"}, "Marian has norm_kind = 'layer', not 'rms'"),
        ({"norm_eps": 1e-3}, "Marian has norm_eps = 1e-05, not 0.001"),
        ({"activation": "swiglu"}, "Marian has no activation swiglu"),
        ({"d_k": 3}, "heads that share d_model evenly"),
        ({"norm": "pre", "tie": "none"}, "Pegasus has tie = 'all', not 'none'"),
        ({"attention": "efficient"}, "attention = 'exact', not 'efficient'"),
    ],
)
def test_a_transformer_unlike_marian_is_refused_with_the_reason(tmp_path, changes, sentence):
    sizes = {"n_vocab": 9, "d_model": 8, "n_heads": 2, "d_ff": 8}
    config = TransformerConfig(**(sizes | {"n_encoder_layers": 1, "n_decoder_layers": 1} | changes))
    model = Model(module=Transformer(config), task="translation")
    with pytest.raises(InputError, match=f"cannot be exported: .*{sentence}"):
        export_huggingface(model, tmp_path / "out")
