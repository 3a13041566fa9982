"""The tables of capabilities compared with what the engines and exports really do."""

from pathlib import Path

import pytest

from regard import capabilities
from regard.capabilities import (
    FAMILIES,
    choose_engine,
    family_markdown,
    unsupported_reason,
    usable_writers,
)
from regard.errors import InputError, translate
from regard.generation.fast_decoder import can_run
from regard.generation.search import SearchOptions
from regard.generation.translator import open_translator
from regard.interop.export import SYSTEMS, export
from regard.interop.import_checkpoint import FAMILIES as IMPORTED
from regard.model import Model, load
from regard.models.config import build, config_from_dict
from regard.training.build import FAMILIES_OF
from tests.generation.conftest import lively
from tests.generation.toy import pairs, tokenizer

LINES = [f"{source} one two three four five six" for source, _ in pairs(2, seed=-3)]
SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 32}
SETTINGS = [
    {},
    {"norm": "pre", "norm_kind": "rms", "activation": "swiglu"},
    {"activation": "gelu_new", "attention_bias": False, "feed_forward_bias": False},
    {"positions": "learned", "max_positions": 60},
    {"positions": "none"},
    {"positions": "rotary"},
    {"positions": "rotary", "rotary_scaling": (8.0, 1.0, 4.0, 64.0)},
    {"positions": "alibi"},
    {"position_layout": "halves"},
    {"d_k": 4},
    {"d_k": 4, "d_v": 6},
    {"n_kv_heads": 1},
    {"attention": "longformer", "attention_size": 4},
]
TRANSFORMERS = [
    {"family": "transformer", "n_encoder_layers": 1, "n_decoder_layers": 1, **SIZES, **settings}
    for settings in [*SETTINGS, {"tie": "none", "logits_bias": True}, {"scale_embedding": False}]
]
DECODERS = [{"family": "decoder", "n_layers": 1, **SIZES, **settings} for settings in SETTINGS]


def make(settings, folder, *, task):
    words = tokenizer()
    config = config_from_dict({**settings, "n_vocab": len(words)})
    model = Model(module=lively(build(config)), task=task, tokenizer=words)
    model.save(folder)
    described = config.to_dict()
    return model, described.pop("family"), described


def describe(settings):
    return ", ".join(
        f"{k}={v}" for k, v in settings.items() if k not in SIZES and "layers" not in k
    )


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def assert_supported_iff_equal(reason, fast, plain, monkeypatch):
    """Compare with torch; a refused model must fail or differ if the rule is ignored."""
    if reason is None:
        assert fast() == plain()
        return
    with pytest.raises(InputError, match="CTranslate2 cannot run this model"):
        fast()
    for module in ("interop.ctranslate2", "capabilities"):
        monkeypatch.setattr(f"regard.{module}.unsupported_reason", lambda *args, **options: None)
    try:
        found = fast()
    except Exception:
        return
    assert found != plain()


@pytest.mark.long
@pytest.mark.parametrize("settings", TRANSFORMERS, ids=describe)
def test_transformers_run_exactly_where_the_table_says(settings, tmp_path, monkeypatch):
    model, family, described = make(settings, tmp_path / "m", task="translation")

    def translated(engine):
        found = open_translator(tmp_path / "m", engine=engine).translate(
            LINES, SearchOptions(beam=2)
        )
        return [(one.tokens, pytest.approx(one.score, abs=1e-4)) for one in found]

    reason = unsupported_reason("ctranslate2", family, described)
    int8 = unsupported_reason("torch", family, described, int8=True)
    assert can_run(model.module) == (int8 is None)
    assert_supported_iff_equal(
        reason, lambda: translated("ctranslate2"), lambda: translated("torch"), monkeypatch
    )


@pytest.mark.long
@pytest.mark.parametrize("settings", DECODERS, ids=describe)
def test_decoders_run_exactly_where_the_table_says(settings, tmp_path, monkeypatch):
    model, family, described = make(settings, tmp_path / "m", task="language")
    greedy = {"temperature": 0.0, "max_tokens": 30}
    model = load(tmp_path / "m")

    def generated(engine):
        return model.generate(LINES[0], engine=engine, **greedy).written

    plain = generated("torch")
    if unsupported_reason("numpy", family, described) is None:
        assert generated("numpy") == plain
        # Prompts of different lengths, of which some have padding.
        lines = [LINES[0], LINES[1][:9]]
        alone = [model.generate(line, engine="torch", **greedy).written for line in lines]
        assert [one.written for one in model.generate(lines, engine="numpy", **greedy)] == alone
    else:
        with pytest.raises(InputError, match="The numpy engine cannot run this model"):
            generated("numpy")
    reason = unsupported_reason("ctranslate2", family, described)
    assert_supported_iff_equal(reason, lambda: generated("ctranslate2"), lambda: plain, monkeypatch)


def test_writers_are_chosen_by_precision_and_refused_with_a_reason():
    plain = {**SIZES, "activation": "gelu_new"}
    assert usable_writers("decoder", plain) == (["numpy", "ctranslate2", "torch"], "float32")
    assert usable_writers("decoder", plain, precision="auto") == (["ctranslate2"], "int8")
    assert usable_writers("decoder", {**SIZES, "activation": "gelu"})[0] == ["ctranslate2", "torch"]
    no_end = {"ctranslate2": "its tokenizer has no end token"}
    assert usable_writers("decoder", plain, precision="auto", excluded=no_end)[1] == "float32"
    for arguments, message in (
        (("decoder", plain, "magic"), "engine is 'magic'"),
        (("decoder", plain, "auto", "half"), "precision is 'half'"),
        (("decoder", plain, "numpy", "bfloat16"), "bfloat16 needs the torch engine"),
        (("decoder", plain, "numpy", "int8"), "the numpy engine computes in float32"),
        (("decoder", {**plain, "attention": "performer"}, "numpy"), "exact attention only"),
    ):
        with pytest.raises(InputError, match=message):
            usable_writers(*arguments)


def test_the_fastest_engine_is_chosen_and_a_request_is_obeyed_or_refused():
    plain, rotary = {**SIZES}, {**SIZES, "positions": "rotary"}
    assert choose_engine("transformer", plain) == ("ctranslate2", "float32")
    assert choose_engine("transformer", plain, "torch") == ("torch", "float32")
    assert choose_engine("transformer", plain, torch_feature="edits") == ("torch", "float32")
    assert choose_engine("transformer", plain, precision="bfloat16") == ("torch", "bfloat16")
    assert choose_engine("transformer", plain, precision="auto") == ("ctranslate2", "int8")
    assert choose_engine("seq2seq", {}, precision="auto") == ("torch", "float32")
    for arguments, options, message in (
        (("transformer", plain, "magic"), {}, "engine is 'magic'; choose one of auto, "),
        (("seq2seq", {}, "ctranslate2"), {}, "runs transformer and decoder models"),
        (("seq2seq", {}), {"precision": "int8"}, "int8 with the torch engine"),
        (
            ("transformer", rotary, "torch"),
            {"precision": "int8"},
            "sinusoidal, learned or no positions",
        ),
        (("transformer", plain, "ctranslate2"), {"torch_feature": "x"}, "does not support x"),
        (("transformer", plain, "ctranslate2", "bfloat16"), {}, "float32 or int8, not in bfloat16"),
        (("transformer", plain, "auto", "half"), {}, "precision is 'half'"),
    ):
        with pytest.raises(InputError, match=message):
            choose_engine(*arguments, **options)


def test_the_table_of_families_says_what_is_imported_and_trained():
    stated = {kind for row in FAMILIES for kind in row.model_types}
    assert stated == {kind for family in IMPORTED for kind in family.model_types}
    trained = {family for several in FAMILIES_OF.values() for family in several}
    assert {row.family for row in FAMILIES if row.trains} == trained


EXPORTABLE = {"decoder": {"positions": "learned", "max_positions": 30, "activation": "gelu_new"}}


@pytest.mark.parametrize("row", [row for row in FAMILIES if row.family], ids=lambda row: row.family)
def test_the_table_of_families_says_what_can_be_exported(row, make_bundle, tmp_path):
    model = make_bundle(row.family, settings=EXPORTABLE.get(row.family))
    for system in SYSTEMS:
        if system in ("onnx", "gguf") and system in row.exports:
            continue  # tests/interop/test_onnx.py and test_gguf.py export and compare
        if system in row.exports:
            assert export(model, tmp_path / system, to=system)
        else:
            with pytest.raises(InputError):
                export(model, tmp_path / system, to=system)


@pytest.mark.parametrize(
    ("page", "language"),
    [
        ("README.md", "en"),
        ("README.ko.md", "ko"),
        ("docs/models.md", "en"),
        ("docs/how-to/open-any-model.md", "en"),
        ("docs/how-to/open-any-model.ko.md", "ko"),
    ],
)
def test_documents_print_the_table_of_families(page, language):
    root = Path(__file__).resolve().parents[1]
    assert family_markdown(language) in (root / page).read_text("utf-8")


def test_every_reason_exists_in_korean():
    rules = (*capabilities._RULES.values(), capabilities._TORCH_INT8)
    reasons = {reason for rule in rules for _, reason in rule}
    assert [one for one in reasons if translate(one, "ko") == one] == []
