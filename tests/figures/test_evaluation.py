from dataclasses import replace
from xml.etree import ElementTree

import pytest

from regard.errors import InputError
from regard.evaluation.alignment_heads import HeadError, Heads, Measured
from regard.evaluation.report import Options, Own, evaluate
from regard.figures.evaluation_figure import evaluation_svg
from regard.figures.translation_diff import comparison_html, marked

SOURCES = ["A <man> & a hat.", "Two dogs run over a green meadow in the sun."] * 3
REFERENCES = ["Ein <Mann> & ein Hut.", "Zwei Hunde laufen über eine grüne Wiese in der Sonne."] * 3
ONE = ["Ein <Mann> & ein Hut.", "Zwei Hunde laufen über eine Wiese in der Sonne."] * 3
TWO = ["Ein <Mann> & ein Hut.", "Hunde Hunde laufen im Gras."] * 3
HEADS = [HeadError("decoder.layers.0.cross", i, 0.5 + i / 10, 0.4 - i / 10) for i in range(3)]
BEST = Heads((("decoder.layers.0.cross", 2),), True, "dictionary", 0.2, 30)


@pytest.fixture(scope="module")
def found():
    systems = {"one": Own(ONE, 2.0, Measured(HEADS, BEST)), "two": Own(TWO)}
    return evaluate(SOURCES, REFERENCES, systems, Options(samples=20))


def texts_of(svg):
    return [node.text for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")]


def test_the_picture_is_whole_and_its_text_is_text(found):
    told = texts_of(evaluation_svg(found))
    assert "BLEU by length of the source, in words" in told
    assert "F1 of words by how often they are in the references" in told
    for system in found.systems:
        for group in (*system.lengths, *system.words):
            assert f"{group.value:.1f}" in told
            assert group.label in told
    assert [text for text in told if text.startswith("0.")][-3:] == ["0.400", "0.300", "0.200"]


def test_the_picture_says_whether_heads_are_read_before_or_after_a_word(found):
    assert "read after a word is written · outlined: chosen" in texts_of(evaluation_svg(found))
    early = Measured(HEADS, replace(BEST, after=False))
    systems = [replace(found.systems[0], alignment=early)]
    told = texts_of(evaluation_svg(replace(found, systems=systems)))
    assert "read to write a word · outlined: chosen" in told
    assert "0.700" in told


def test_the_chosen_head_alone_is_outlined(found):
    svg = evaluation_svg(found)
    assert svg.count('stroke-width="2"') == 1


def test_the_picture_speaks_korean_and_no_other_language(found):
    assert "원문 길이(단어 수)별 BLEU" in texts_of(evaluation_svg(found, "ko"))
    with pytest.raises(InputError, match="language is 'fr'"):
        evaluation_svg(found, "fr")


def test_bars_are_as_high_as_their_numbers(found):
    root = ElementTree.fromstring(evaluation_svg(found))
    heights = [
        float(n.get("height"))
        for n in root.iter()
        if n.get("fill") == "#5B4B8A" and n.get("fill-opacity") is None and n.get("height") != "12"
    ]
    values = [group.value for group in found.systems[0].lengths]
    values += [group.value for group in found.systems[0].words]
    assert len(heights) == len(values)
    first = len(found.systems[0].lengths)
    for some in (slice(0, first), slice(first, None)):
        pairs = list(zip(heights[some], values[some], strict=True))
        scale = max(height for height, _ in pairs) / max(value for _, value in pairs)
        for height, value in pairs:
            assert height == pytest.approx(scale * value, abs=0.1)


def test_differences_are_marked_by_hand():
    assert marked("a b c", "a x c") == "a <del>b</del> <ins>x</ins> c"
    assert marked("a b", "a b") == "a b"
    assert marked("a b c", "a c") == "a <del>b</del> c"
    assert marked("a", "a b") == "a <ins>b</ins>"
    assert marked("", "") == ""
    assert marked("<b>", "<b>") == "&lt;b&gt;"


def test_the_page_asks_for_nothing_and_shows_every_sentence(found):
    page = comparison_html(found)
    body = page.rpartition("<tbody>")[2]
    assert body.count("<tr") == 6
    assert body.count('class="same"') == 3
    assert "<man>" not in page
    assert "http" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "<del>grüne</del>" in page
    assert found.systems[0].scores[0].signature in page
    scores = page.partition("<tbody>")[2].partition("</tbody>")[0]
    assert f"{found.systems[1].scores[0].value:.2f} <small>±" in scores
    assert f"<td>{found.systems[1].scores[0].p_value:.3f}</td>" in scores


def test_what_differs_most_comes_first(found):
    rows = comparison_html(found).rpartition("<tbody>")[2].split("<tr")[1:]
    assert "Two dogs" in rows[0]
    assert "hat" in rows[-1]
    single = evaluate(SOURCES, REFERENCES, {"two": Own(TWO)}, Options(samples=5))
    page = comparison_html(single, "ko")
    assert 'id="same">' not in page
    assert "점수가 낮은 문장부터" in page
