import inspect
import re

import pytest

from regard.errors import InputError, UnknownNameError
from regard.figures.kinds import (
    CONCEPT_KINDS,
    KINDS,
    LENGTHS,
    TRACE_KINDS,
    concept_figure,
    model_figure,
)
from regard.server.html_export import write_html
from regard.trace.capture import trace_model
from regard.trace.trace import Trace
from tests.figures.svg import texts, tooltips

CROSS = "decoder.layers.0.cross"


def is_korean(figure):
    return bool(re.search("[가-힣]", " ".join(texts(figure))))


@pytest.mark.parametrize("kind", [*TRACE_KINDS, "architecture"])
def test_figures_of_a_trace_have_captions_in_both_languages(trace_of, kind):
    options = {"other_head": 1} if kind == "compare" else {}
    for language in ("en", "ko"):
        figure = trace_of(kind).figure(kind, **options, language=language)
        assert is_korean(figure) == (language == "ko")
        assert "href" not in re.sub(r'href="data:image/png;base64,[^"]*"', "", figure.svg)


@pytest.mark.parametrize("kind", CONCEPT_KINDS)
def test_figures_of_concepts_have_captions_in_both_languages(kind):
    for language in ("en", "ko"):
        assert is_korean(concept_figure(kind, language=language)) == (language == "ko")


def test_every_kind_is_listed_once():
    assert sorted(KINDS) == sorted(
        {*TRACE_KINDS, *CONCEPT_KINDS, "schedule", "architecture", "merges", "training"}
    )
    assert set(LENGTHS) <= set(KINDS)


def test_an_architecture_has_the_layers_and_shapes_of_the_model(make_bundle):
    model = make_bundle("transformer", settings={"n_encoder_layers": 3})
    shown = texts(trace_model(model, "A dog", "Ein Hund").figure("architecture"))
    assert "× 3" in shown
    assert "× 1" in shown
    assert shown.count("2 heads, d_k 4, d_v 4") == 3
    assert "8 → 12" in shown


def test_an_architecture_names_norms_residuals_masks_and_the_softmax(make_bundle):
    figure = model_figure(make_bundle("transformer", settings={"norm": "post"}).module)
    shown = texts(figure)
    assert shown.count("Add & Norm") == 5  # two sub-layers of the encoder, three of the decoder
    assert [text for text, _ in tooltips(figure, "polyline")].count("residual connection") == 5
    assert shown.count("masked self-attention") == shown.count("self-attention") == 1
    assert "decoder: input (shifted right)" in shown
    assert "softmax → output" in shown
    korean = texts(model_figure(make_bundle("transformer").module, language="ko"))
    assert "마스크드 셀프 어텐션" in korean
    assert not [text for text in korean if "heads" in text or "sinusoidal" in text]


@pytest.mark.parametrize("family", ["seq2seq", "encoder", "decoder", "vision"])
def test_every_family_has_an_architecture(make_bundle, family):
    shown = texts(model_figure(make_bundle(family).module, name="mine", language="ko"))
    assert shown[0] == "mine"
    assert any(text.endswith("출력") for text in shown)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("patern", {}, "no figure 'patern'; the nearest .* pattern"),
        ("masks", {}, "no figure 'masks'"),
        ("pattern", {"site": "decoder.layers.9.cross"}, "no attention site"),
        ("pattern", {"site": CROSS, "head": 7}, "no head 7; it has 3, 0 to 2"),
        ("steps", {"site": CROSS, "query": 99}, "no query 99"),
        ("pattern", {"style": "stars"}, "style is 'stars'"),
        ("alignment", {"site": "encoder.layers.0.self"}, "does not align two texts"),
        ("pattern", {"language": "de"}, "language is 'de'"),
        ("pattern", {"queries": "left"}, "queries is 'left'; choose one of rows, columns"),
        ("reference", {"key": 99}, "no key 99"),
        ("compare", {}, "something to compare with"),
        ("pattern", {"other_head": 1}, "only compare takes another one"),
        ("additive", {}, "does not use additive attention"),
        ("image", {}, "image is a figure of a vision model"),
        ("decode", {"site": "encoder.layers.0.self"}, "choose a model that has one"),
    ],
)
def test_invalid_options_raise(trace, kind, options, message):
    with pytest.raises(InputError, match=message):
        trace.figure(kind, **options)


def test_invalid_lengths_and_kinds_of_concepts_raise():
    with pytest.raises(InputError, match="length is 1; for masks it can be 2 to 24"):
        concept_figure("masks", length=1)
    with pytest.raises(UnknownNameError, match="unknown figure 'mask'"):
        concept_figure("mask")


def test_html_has_the_options_of_the_function_it_calls():
    def options(callable):
        parameters = inspect.signature(callable).parameters.values()
        return {one.name: one.default for one in parameters if one.kind == one.KEYWORD_ONLY}

    assert options(Trace.html) == options(write_html)
