import io
import re
import zlib

import av
import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.errors import InputError
from regard.figures.captions import CAPTIONS, caption, text_width, truncate
from regard.figures.colors import ROLES, darken, shade, to_oklab
from regard.figures.curves import draw_curves
from regard.figures.drawing import THEMES, Box, Drawing, Look, recolor
from regard.figures.formats import Figure, html_page, rasterize, to_svg
from regard.figures.kinds import concept_figure
from tests.figures.svg import texts

STARTS = {".svg": b"<svg", ".png": b"\x89PNG", ".pdf": b"%PDF"}


@pytest.mark.parametrize("extension", STARTS)
def test_figures_are_saved_in_the_format_of_their_extension(trace, tmp_path, extension):
    figures = {"pattern": trace.figure("pattern", language="ko"), "curves": Figure(draw_curves([]))}
    for name, figure in figures.items():
        path = tmp_path / f"{name}{extension}"
        figure.save(path)
        data = path.read_bytes()
        assert data.startswith(STARTS[extension])
        if extension == ".png":
            size = figure.drawing.width, figure.drawing.height
            assert Image.open(io.BytesIO(data)).size == tuple(2 * int(side) for side in size)


def test_other_extensions_are_refused(trace, tmp_path):
    with pytest.raises(InputError, match=r"a\.jpg must end in \.svg, \.png, \.pdf"):
        trace.figure("pattern").save(tmp_path / "a.jpg")


def test_pixels_of_a_heat_map_are_the_colors_of_its_weights(tmp_path):
    with regard.watch() as trace:
        regard.attend(torch.eye(2) * 9, torch.eye(2) * 9, torch.eye(2), site="s")
    figure = trace.figure("pattern", style="heat")
    figure.save(tmp_path / "a.png")
    box = next(s for s in figure.drawing.shapes if getattr(s, "tooltip", "").startswith("0 → 0"))
    pixel = Image.open(tmp_path / "a.png").getpixel((int(2 * box.x) + 8, int(2 * box.y) + 8))
    assert "#{:02X}{:02X}{:02X}".format(*pixel[:3]) == shade(1.0)


def test_missing_fonts_give_a_warning_and_boxes(trace, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.figures.formats.installed_fonts", lambda: ("DejaVu Sans",))
    with pytest.warns(UserWarning, match="no installed font has .* save the figure as .svg"):
        trace.figure("pattern", language="ko").save(tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


def test_tokens_cannot_break_a_figure():
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 2, 4), site="encoder.layers.0.self")
    trace.tokens = {"source": ["<script>", "$a_b$ & \n"]}
    figure = trace.figure("pattern", style="heat")
    assert "<script>" in texts(figure)  # escaped, because the SVG still parses
    assert rasterize(figure.drawing, "png")
    assert "<h1>&lt;b&gt;</h1>" in html_page("<b>", "")


def test_colors_by_hand():
    assert shade(0) == "#FFFFFF"
    assert shade(0.6) == "#5B4B8A"  # the role's own color
    assert shade(7) == shade(1) == "#2A1E52"
    light, dark = (sum(bytes.fromhex(code[1:])) for code in ("#E69F00", darken("#E69F00")))
    assert dark < light


def test_long_texts_are_truncated_to_a_width():
    assert truncate("short", 100) == "short"
    cut = truncate("a very long text indeed", 60)
    assert cut.endswith("…")
    assert text_width(cut) <= 60
    assert text_width("한") == pytest.approx(13)


def test_every_caption_exists_in_both_languages():
    for key, (english, korean) in CAPTIONS.items():
        assert english
        assert re.search("[가-힣]", korean), key
    assert caption("head", "ko") == "헤드"
    with pytest.raises(InputError, match="language is 'de'; it can be en or ko"):
        caption("head", "de")


def test_pdf_files_embed_truetype_fonts_only(tmp_path):
    figure = concept_figure("masks", language="ko")
    figure.save(tmp_path / "a.pdf")
    data = (tmp_path / "a.pdf").read_bytes()
    assert b"/Type3" not in data
    assert b"/CIDFontType2" in data
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, re.DOTALL)
    unpacked = [zlib.decompress(one) for one in streams if one[:1] == b"x"]
    fonts = [one for one in unpacked if one[:4] in (b"OTTO", b"\0\1\0\0", b"true")]
    assert len(fonts) == data.count(b"/FontFile2")
    assert {one[:4] for one in fonts} == {b"\0\1\0\0"}


def test_a_look_has_a_size_a_title_and_a_theme(tmp_path):
    figure = concept_figure("masks").styled(size="column", title="Mine", theme="dark", font="Lato")
    assert 'width="84mm"' in figure.svg
    assert "font-family=\"'Lato', Inter" in figure.svg
    assert texts(figure)[0] == "Mine"
    assert 'fill="#FFFFFF"/>' not in figure.svg
    with pytest.warns(UserWarning, match="smallest text will be .* points high"):
        figure.save(tmp_path / "a.svg")
    page = concept_figure("masks").styled(width=127, dpi=100)  # 127 mm are 5 inches
    page.save(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width == 500
    wide = concept_figure("waves").styled(size="slide")
    assert wide.look.millimeters(wide.drawing) <= 320


@pytest.mark.parametrize(
    ("look", "message"),
    [
        ({"size": "poster"}, "size is 'poster'; choose one of column, page, slide"),
        ({"size": "page", "width": 100}, "leave one of them out"),
        ({"width": 5}, "width is 5 mm; it can be 10 to 2000"),
        ({"dpi": 5}, "dpi is 5; it can be 36 to 1200"),
        ({"theme": "sepia"}, "theme is 'sepia'"),
    ],
)
def test_invalid_looks_are_refused(look, message):
    with pytest.raises(InputError, match=message):
        concept_figure("masks").styled(**look)


def test_a_font_that_is_not_installed_is_refused(tmp_path):
    with pytest.raises(InputError, match="the font 'No Such Font' is not installed"):
        concept_figure("masks").styled(font="No Such Font").save(tmp_path / "a.png")


def test_a_veil_over_a_photo_keeps_its_color_on_a_dark_background():
    veil, plain = Box(0, 0, 9, 9, "#5B4B8A", photo=True), Box(0, 0, 9, 9, "#009E73")
    svg = to_svg(Drawing(9, 9, shapes=[veil, plain]), Look(theme="dark"))
    assert "#5B4B8A" in svg
    assert "#009E73" not in svg


def test_themes_keep_contrast():
    for theme in THEMES:
        light, ink = (to_oklab(read(recolor(code, theme)))[0] for code in ("#FFFFFF", "#222222"))
        assert abs(light - ink) > 0.6
        for role in ROLES.values():
            assert abs(light - to_oklab(read(recolor(role, theme)))[0]) > 0.2


def read(code):
    return np.array([int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)])


@pytest.mark.long
@pytest.mark.parametrize("extension", [".gif", ".webp"])
def test_figures_that_move_have_a_frame_for_each_step(trace, extension, tmp_path):
    path = tmp_path / f"a{extension}"
    trace.figure("decode").styled(dpi=36).save(path)
    with Image.open(path) as moving:
        assert moving.n_frames == len(trace.tokens["output"]) + 1
    with pytest.raises(InputError, match="does not move: only decode, temperature and training do"):
        trace.figure("pattern").save(path)


def test_a_video_has_a_frame_for_each_step_and_the_last_one_stays(trace, tmp_path):
    path = tmp_path / "a.mp4"
    trace.figure("decode").styled(dpi=36).save(path)
    with av.open(path) as video:
        frames = list(video.decode(video=0))
    assert len(frames) == len(trace.tokens["output"]) + 1 + 4
    assert (frames[0].width % 2, frames[0].height % 2) == (0, 0)
    paper = frames[0].to_ndarray(format="rgb24")[2, 2]
    assert paper.min() > 250  # white, as everywhere else
