import io
import re
import xml.etree.ElementTree as ET
from math import pi, sqrt

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.errors import InputError, UnknownNameError
from regard.figures.captions import _CAPTIONS, caption
from regard.figures.grid import circle_radius
from regard.figures.kinds import KINDS, OF_NOTHING, OF_TRACES, draw_plain, draw_trace
from regard.trace.capture import trace_model

CROSS = "decoder.layers.0.cross"
SVG = "{http://www.w3.org/2000/svg}"


def texts(figure):
    return ["".join(text.itertext()) for text in ET.fromstring(figure.svg).iter(f"{SVG}text")]


def notes(figure, element):
    """The numbers that a reader sees who points at things."""
    root = ET.fromstring(figure.svg)
    return [
        (float(shape.findtext(f"{SVG}title").rsplit(": ")[-1]), shape)
        for shape in root.iter(f"{SVG}{element}")
        if shape.find(f"{SVG}title") is not None
    ]


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("kind", [*OF_TRACES, "architecture"])
def test_every_picture_of_a_trace_is_an_image_in_both_languages(trace, kind, language):
    figure = trace.figure(kind, language=language)
    assert bool(re.search("[가-힣]", " ".join(texts(figure)))) == (language == "ko")
    assert "href" not in re.sub(r'href="data:image/png;base64,[^"]*"', "", figure.svg)


@pytest.mark.parametrize("kind", OF_NOTHING)
def test_every_picture_without_a_model_is_an_image_in_both_languages(kind):
    for language in ("en", "ko"):
        found = " ".join(texts(draw_plain(kind, language=language)))
        assert bool(re.search("[가-힣]", found)) == (language == "ko")


def test_the_area_of_a_circle_is_its_weight_and_that_of_1_fits_a_cell():
    areas = [pi * circle_radius(weight, 40) ** 2 for weight in (0.25, 0.5, 1.0)]
    assert areas[1] == pytest.approx(2 * areas[0])
    assert areas[2] == pytest.approx(4 * areas[0])
    assert 16 < circle_radius(1.0, 40) <= 20


def test_circles_hold_the_weights_of_the_trace(trace):
    figure = trace.figure("pattern", site=CROSS, head=1)
    weights = trace[CROSS].weights(1).flatten().tolist()
    found = notes(figure, "circle")
    assert [number for number, _ in found] == [pytest.approx(w, abs=6e-5) for w in weights]
    radii = [float(circle.get("r")) for _, circle in found]
    assert radii == [pytest.approx(circle_radius(w, 46.0), abs=0.01) for w in weights]


def test_cells_hold_the_weights_as_digits(trace):
    weights = trace["encoder.layers.0.self"].weights(0)
    figure = trace.figure("pattern", site="encoder.layers.0.self", head=0, style="heat")
    shown = [text for text in texts(figure) if re.fullmatch(r"\d\.\d\d", text)]
    assert shown == [f"{w:.2f}" for w in weights.flatten().tolist()]


def test_lines_are_as_thick_as_their_weights(trace):
    figure = trace.figure("lines", site=CROSS, head=2)
    weights = trace[CROSS].weights(2)
    found = notes(figure, "polyline")
    assert len(found) == int((weights >= 0.005).sum())
    for number, line in found:
        assert float(line.get("stroke-width")) == pytest.approx(0.5 + 5 * number, abs=0.01)


def test_the_queries_of_cross_attention_are_named_by_what_they_write(trace):
    shown = texts(trace.figure("lines", site=CROSS, head=0))
    assert shown.count(trace.tokens["target"][0]) == trace.tokens["source"].count("[CLS]")
    assert "queries: the token being written" in shown


def test_the_steps_of_a_query_end_in_its_weights_and_their_sum(trace):
    site, row = trace["decoder.layers.0.self"], 1
    shown = texts(trace.figure("steps", site=site.path, head=2, query=row))
    for name, digits in (("compared", 4), ("scores", 4), ("weights", 4)):
        for number in getattr(site, name)(2, rows=[row])[0].tolist():
            assert f"{number:.{digits}f}".replace("-", "−") in shown
    assert shown.count("−∞") == site.n_key - 2  # it may see itself and the one before
    assert "Σ = 1.0000" in shown
    assert f"÷ √{site.key.size(-1)}" in shown


def test_steps_by_hand():
    # q·k = 2 and 0, ÷ √2; exp(0) = 1 and exp(−√2) = 0.2431; 1 / 1.2431 = 0.8044
    query, key = torch.tensor([[1.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    with regard.watch() as trace:
        regard.attend(query, key, key, site="s")
    shown = texts(trace.figure("steps", site="s"))
    for number in ("2.0000", f"{sqrt(2):.4f}", "1.0000", "0.2431", "0.8044", "0.1956"):
        assert number in shown


def test_a_query_that_sees_nothing_has_steps_too():
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 2, 4), allowed=torch.tensor([[False, False]] * 2), site="s")
    shown = texts(trace.figure("steps", site="s", query=0))
    assert shown.count("−∞") == 2
    assert "Σ = 0.0000" in shown


def test_alignments_add_over_source_tokens_and_average_over_target_tokens(trace):
    figure = trace.figure("alignment", site=CROSS, head=0)
    weights = trace[CROSS].weights(0).numpy()
    source, written = trace.words["source"], trace.words["output"]
    shown = [number for number, _ in notes(figure, "rect")]
    expected = [
        weights[[i for i, w in enumerate(written) if w == target]][
            :, [j for j, w in enumerate(source) if w == word]
        ]
        .sum(axis=1)
        .mean()
        for target in sorted({w for w in written if w is not None})
        for word in sorted({w for w in source if w is not None})
    ]
    assert shown == [pytest.approx(x, abs=6e-5) for x in expected]
    assert "dog" in texts(figure)


def test_all_heads_are_there_each_with_its_own_picture(trace):
    figure = trace.figure("heads", site=CROSS)
    assert [f"head {i}" in texts(figure) for i in range(4)] == [True, True, True, False]
    images = ET.fromstring(figure.svg).findall(f"{SVG}image")
    assert len({image.get("href") for image in images[:3]}) == 3


def test_long_texts_become_one_image_and_stay_small():
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 300, 4), site="s")
    svg = trace.figure("pattern").svg
    assert svg.count("<image") == 2  # the pattern and the scale beside it
    assert len(svg) < 300_000
    with pytest.raises(InputError, match="300 keys, more than the 40"):
        trace.figure("steps")


def test_masks_are_drawn_as_they_mask():
    root = ET.fromstring(draw_plain("masks", length=6).svg)
    found = [title.text for title in root.iter(f"{SVG}title") if title.text.count("→")]
    assert len(found) == 4 * 36
    allowed = [text.endswith("may see") for text in found]
    pictures = np.array(allowed).reshape(4, 6, 6)
    assert (pictures[0] == np.tri(6, dtype=bool)).all()
    assert (pictures[1] == (np.arange(6) < 3)).all()
    assert (pictures[2] == (abs(np.subtract.outer(range(6), range(6))) <= 1)).all()
    assert (pictures[3] == pictures[0] & pictures[1]).all()


def test_costs_grow_as_the_formulas_say():
    from regard.analysis.cost import FORMS

    by_name = {form.name: form for form in FORMS}
    exact, fused = by_name["exact, n² d"], by_name["exact, fused"]
    assert exact.products(1024, 512) == 2 * 1024**2 * 512
    assert exact.numbers(2048, 512) == 4 * exact.numbers(1024, 512)
    assert fused.numbers(2048, 512) == 2 * fused.numbers(1024, 512)
    for form in FORMS[2:]:  # all others grow with n, up to the logarithm of sorting
        assert form.products(8192, 512) == pytest.approx(2 * form.products(4096, 512), rel=0.01)


def test_the_schedule_of_the_paper_has_its_peak_where_warm_up_ends():
    shown = texts(draw_plain("schedule"))
    assert f"{(256 * 4000) ** -0.5:.1e}" in shown  # the highest of the three peaks


def test_the_plan_of_a_model_has_its_layers_and_all_its_shapes(make_bundle):
    model = make_bundle("transformer", settings={"n_encoder_layers": 3})
    figure = trace_model(model, "A dog", "Ein Hund").figure("architecture")
    shown = texts(figure)
    assert "× 3" in shown
    assert "× 1" in shown
    assert shown.count("2 heads, d_k 4, d_v 4") == 3
    assert "8 → 12" in shown


@pytest.mark.parametrize("family", ["seq2seq", "encoder", "decoder", "vision"])
def test_every_family_has_a_plan(make_bundle, family):
    from regard.figures.kinds import draw_model

    shown = texts(draw_model(make_bundle(family).model, name="mine", language="ko"))
    assert shown[0] == "mine"
    assert "출력" in shown


@pytest.mark.parametrize("ending", [".svg", ".png", ".pdf"])
def test_pictures_are_saved_as_what_their_name_says(trace, tmp_path, ending):
    path = tmp_path / f"picture{ending}"
    figure = trace.figure("pattern", language="ko")
    figure.save(path)
    data = path.read_bytes()
    assert data.startswith({".svg": b"<svg", ".png": b"\x89PNG", ".pdf": b"%PDF"}[ending])
    if ending == ".png":
        size = Image.open(io.BytesIO(data)).size
        assert size == (2 * int(figure.drawing.width), 2 * int(figure.drawing.height))


def test_the_pixels_of_a_heat_map_are_the_colors_of_its_weights(tmp_path):
    from regard.figures.color import shade

    with regard.watch() as trace:
        regard.attend(torch.eye(2) * 9, torch.eye(2) * 9, torch.eye(2), site="s")
    figure = trace.figure("pattern", style="heat")
    figure.save(tmp_path / "a.png")
    box = next(s for s in figure.drawing.shapes if getattr(s, "note", "").startswith("0 → 0"))
    pixel = Image.open(tmp_path / "a.png").getpixel((int(2 * box.x) + 8, int(2 * box.y) + 8))
    assert "#{:02X}{:02X}{:02X}".format(*pixel[:3]) == shade(1.0)


def test_a_machine_without_a_fitting_font_says_so_and_draws_boxes(trace, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.figures.raster.families", lambda: ("DejaVu Sans",))
    monkeypatch.setattr("regard.figures.raster.families", lambda: ("DejaVu Sans",))
    with pytest.warns(UserWarning, match="no font of this machine can write .* save .* as .svg"):
        trace.figure("pattern", language="ko").save(tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("patern", {}, "no picture 'patern'; the nearest .* pattern"),
        ("masks", {}, "no picture 'masks'"),
        ("pattern", {"site": "decoder.layers.9.cross"}, "no attention site"),
        ("pattern", {"site": CROSS, "head": 7}, "no head 7; it has 3, 0 to 2"),
        ("steps", {"site": CROSS, "query": 99}, "no query 99"),
        ("pattern", {"style": "stars"}, "style is 'stars'"),
        ("alignment", {"site": "encoder.layers.0.self"}, "does not align two texts"),
        ("pattern", {"language": "de"}, "language is 'de'"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(trace, kind, options, said):
    with pytest.raises(InputError, match=said):
        draw_trace(trace, kind, **options)


def test_other_endings_and_lengths_are_refused(trace, tmp_path):
    with pytest.raises(InputError, match=r"must end in \.svg, \.png, \.pdf"):
        trace.figure("pattern").save(tmp_path / "a.jpg")
    with pytest.raises(InputError, match="length is 1; for masks it can be 2 to 24"):
        draw_plain("masks", length=1)
    with pytest.raises(UnknownNameError, match="no picture 'mask'"):
        draw_plain("mask")


def test_names_of_tokens_cannot_break_the_picture():
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 2, 4), site="encoder.layers.0.self")
    trace.tokens = {"source": ["<script>", "$a_b$ & \n"]}
    figure = trace.figure("pattern", style="heat")
    assert "<script>" in texts(figure)  # as text, for the picture still parses
    from regard.figures.raster import to_png

    assert to_png(figure.drawing)


def test_both_languages_have_every_caption():
    assert set(KINDS) == {*OF_TRACES, *OF_NOTHING, "architecture"}
    for key, (english, korean) in _CAPTIONS.items():
        assert english
        assert re.search("[가-힣]", korean), key
    assert caption("head", "ko") == "헤드"
