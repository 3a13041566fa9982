import pytest
from rich.cells import cell_len

from regard.figures.captions import ASCII_SHADES, text_pattern


def test_a_pattern_by_hand():
    pattern = text_pattern([[1.0, 0.0], [0.25, 0.75]], ["I", "see"], ["나", "b"])
    assert pattern.lines == [
        "    나 b",
        "  I ██     1.00 나",
        "see ·· ▓▓  0.75 b",
    ]


@pytest.mark.parametrize(
    ("weight", "shade"), [(0, " "), (0.09, " "), (0.11, "·"), (0.89, "▓"), (0.91, "█"), (1, "█")]
)
def test_shades_grow_with_the_weight(weight, shade):
    (_, line) = text_pattern([[weight, 0.0]], ["q"], ["k", "l"]).lines
    assert line[2] == shade


def test_columns_are_aligned_for_wide_characters():
    pattern = text_pattern([[0.5, 0.5]] * 2, ["쿼리", "q"], ["열쇠들", "k"])
    assert len({cell_len(line[: line.index("▒")]) for line in pattern.lines[1:]}) == 1


def test_long_labels_are_truncated_and_spaces_shown():
    pattern = text_pattern([[1.0]], ["a very long query indeed"], [" "])
    assert "a␣very␣long…" in pattern.lines[1]
    assert "␣" in pattern.lines[0]


def test_a_row_that_sees_nothing_and_ascii_shades():
    pattern = text_pattern([[0.0, 0.0]], ["q"], ["k", "l"], shades=ASCII_SHADES)
    assert pattern.lines[1].endswith("sees nothing")
    assert pattern.legend.isascii()
