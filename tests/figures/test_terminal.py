import pytest

from regard.figures.terminal import PLAIN_SHADES, draw_pattern, width


def test_a_picture_by_hand():
    picture = draw_pattern([[1.0, 0.0], [0.25, 0.75]], ["I", "see"], ["나", "b"])
    assert picture.lines == [
        "    나 b",
        "  I ██     1.00 나",
        "see ·· ▓▓  0.75 b",
    ]


@pytest.mark.parametrize(
    ("weight", "shade"), [(0, " "), (0.09, " "), (0.11, "·"), (0.89, "▓"), (0.91, "█"), (1, "█")]
)
def test_shades_grow_with_the_weight(weight, shade):
    (_, line) = draw_pattern([[weight, 0.0]], ["q"], ["k", "l"]).lines
    assert line[2] == shade


def test_columns_stand_under_their_names_in_any_script():
    picture = draw_pattern([[0.5, 0.5]] * 2, ["쿼리", "q"], ["열쇠들", "k"])
    ends = {width(line[: line.index("▒")]) for line in picture.lines[1:]}
    assert len(ends) == 1


def test_long_names_are_shortened_and_spaces_shown():
    picture = draw_pattern([[1.0]], ["a very long query indeed"], [" "])
    assert "a␣very␣long…" in picture.lines[1]
    assert "␣" in picture.lines[0]


def test_a_row_that_sees_nothing_says_so_and_ascii_is_enough():
    picture = draw_pattern([[0.0, 0.0]], ["q"], ["k", "l"], shades=PLAIN_SHADES)
    assert picture.lines[1].endswith("sees nothing")
    assert picture.legend.isascii()
