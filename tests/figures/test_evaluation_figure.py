from dataclasses import replace

import pytest

from regard.errors import InputError
from regard.evaluation.alignment_heads import AlignmentHeads, HeadError, HeadErrors
from regard.evaluation.report import ModelReadings, evaluate
from regard.figures.colors import SERIES
from regard.figures.evaluation_figure import draw_evaluation, evaluation_html, mark_differences
from tests.figures.svg import parse, texts, tooltips

SOURCES = ["A <man> & a hat.", "Two dogs run over a green meadow in the sun."] * 3
REFERENCES = ["Ein <Mann> & ein Hut.", "Zwei Hunde laufen über eine grüne Wiese in der Sonne."] * 3
ONE = ["Ein <Mann> & ein Hut.", "Zwei Hunde laufen über eine Wiese in der Sonne."] * 3
TWO = ["Ein <Mann> & ein Hut.", "Hunde Hunde laufen im Gras."] * 3
HEADS = [HeadError("decoder.layers.0.cross", i, 0.5 + i / 10, 0.4 - i / 10) for i in range(3)]
BEST = AlignmentHeads((("decoder.layers.0.cross", 2),), True, "dictionary", 0.2, 30)


@pytest.fixture(scope="module")
def found():
    systems = {"one": ModelReadings(ONE, 2.0, HeadErrors(HEADS, BEST)), "two": ModelReadings(TWO)}
    return evaluate(SOURCES, REFERENCES, systems, samples=20)


def test_every_value_and_label_is_shown(found):
    shown = texts(draw_evaluation(found))
    assert "BLEU by length of the source in words" in shown
    assert "F1 of words by their frequency in the references" in shown
    for system in found.systems:
        for group in (*system.lengths, *system.words):
            assert f"{group.value:.1f}" in shown
            assert group.label in shown
    assert [text for text in shown if text.startswith("0.")][-3:] == ["0.400", "0.300", "0.200"]


def test_the_figure_says_when_heads_are_read(found):
    assert "read after the word is written · outlined: chosen" in texts(draw_evaluation(found))
    early = HeadErrors(HEADS, replace(BEST, after=False))
    systems = [replace(found.systems[0], alignment=early)]
    shown = texts(draw_evaluation(replace(found, systems=systems)))
    assert "read to write the word · outlined: chosen" in shown
    assert "0.700" in shown


def test_only_the_chosen_head_is_outlined(found):
    outlined = [
        one for one in parse(draw_evaluation(found)).iter() if one.get("stroke-width") == "2"
    ]
    assert len(outlined) == 1


def test_captions_are_english_or_korean(found):
    assert "원문 길이(단어 수)별 BLEU" in texts(draw_evaluation(found, language="ko"))
    with pytest.raises(InputError, match="language is 'fr'"):
        draw_evaluation(found, language="fr")


def test_heights_of_bars_are_proportional_to_their_values(found):
    bars = tooltips(draw_evaluation(found), "rect")
    shown = [
        (float(text), float(bar.get("height")))
        for text, bar in bars
        if bar.get("fill") == SERIES[0]
    ]
    first = found.systems[0]
    values = [group.value for group in (*first.lengths, *first.words)]
    assert [value for value, _ in shown] == [pytest.approx(value, abs=6e-5) for value in values]
    for chart in (shown[: len(first.lengths)], shown[len(first.lengths) :]):
        scale = max(height for _, height in chart) / max(value for value, _ in chart)
        for value, height in chart:
            assert height == pytest.approx(scale * value, abs=0.1)


def test_differences_are_marked_by_hand():
    assert mark_differences("a b c", "a x c") == "a <del>b</del> <ins>x</ins> c"
    assert mark_differences("a b", "a b") == "a b"
    assert mark_differences("a b c", "a c") == "a <del>b</del> c"
    assert mark_differences("a", "a b") == "a <ins>b</ins>"
    assert mark_differences("", "") == ""
    assert mark_differences("<b>", "<b>") == "&lt;b&gt;"


def test_the_page_has_every_sentence_and_no_external_references(found):
    page = evaluation_html(found)
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


def test_the_largest_differences_come_first(found):
    rows = evaluation_html(found).rpartition("<tbody>")[2].split("<tr")[1:]
    assert "Two dogs" in rows[0]
    assert "hat" in rows[-1]
    single = evaluate(SOURCES, REFERENCES, {"two": ModelReadings(TWO)}, samples=5)
    page = evaluation_html(single, language="ko")
    assert 'id="same">' not in page
    assert "점수가 낮은 문장부터" in page
