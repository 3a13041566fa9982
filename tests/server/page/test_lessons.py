"""The guided tour: each lesson asks for something, notices when it was done, and goes on."""

import pytest

LESSONS = 10
CROSS = "decoder.layers.1.cross"


def tick(explorer) -> bool:
    explorer.settle()
    return explorer.page.get_attribute(".lesson .task", "data-done") == "true"


def middle(explorer, cells_right=0, cells_down=0):
    box = explorer.page.locator(".plot svg.grid rect.chosen").last.bounding_box()
    return (
        box["x"] + box["width"] * (cells_right + 0.5),
        box["y"] + box["height"] * (cells_down + 0.5),
    )


def open_lesson(explorer, number):
    """A lesson as readers open it: with a click on its number."""
    page = explorer.open(f"site={CROSS}&head=1&query=1&key=1&lesson={1 if number > 1 else 2}")
    page.click(f'[data-go="dot{number}"]')
    explorer.settle()
    assert not tick(explorer)
    return page


def point(explorer, page):
    page.mouse.move(*middle(explorer))


def pin(explorer, page):
    page.mouse.click(*middle(explorer, 1, 0))


def show_scores(explorer, page):
    page.click('[data-choice="scores"]')


def take_scale_off(explorer, page):
    page.uncheck(".scaleOn input")


def forbid(explorer, page):
    page.click("button.pencil")
    explorer.settle()
    assert not tick(explorer)  # the pencil alone changes nothing
    page.mouse.click(*middle(explorer))


def heat(explorer, page):
    page.fill(".edit-controls input[type=range]", "0.1")
    assert not tick(explorer)  # one end is not both
    page.fill(".edit-controls input[type=range]", "4")


def choose_heaviest(explorer, page):
    for _ in range(12):
        page.keyboard.press("ArrowLeft")
    for _ in range(12):
        if tick(explorer):
            break
        page.keyboard.press("ArrowRight")


def open_heads(explorer, page):
    page.keyboard.press("[")
    assert not tick(explorer)  # one other head is not two
    page.keyboard.press("[")


def click_answer(explorer, page):
    page.click('.token[data-side="output"] >> nth=0')
    explorer.settle()
    page.click('.token[data-side="output"] >> nth=2')


def switch_off(explorer, page):
    page.check(".headOff input")


DEEDS = [
    *(point, pin, show_scores, take_scale_off, forbid, heat),
    *(choose_heaviest, open_heads, click_answer, switch_off),
]


@pytest.mark.parametrize("number", range(1, LESSONS + 1))
def test_what_a_lesson_asks_for_is_noticed(explorer, number):
    page = open_lesson(explorer, number)
    DEEDS[number - 1](explorer, page)
    assert tick(explorer)
    assert "Done." in explorer.text(".lesson .done-note")
    assert explorer.state()["learned"] == str(number)
    last = number == LESSONS
    assert explorer.text('[data-go="on"]') == ("finish" if last else "next")
    page.click('[data-go="on"]')
    explorer.settle()
    if last:
        assert page.is_hidden(".lesson")
    else:
        assert explorer.text(".lesson h2").startswith(f"{number + 1} ")
        assert "edits" not in explorer.state()  # each lesson begins with the model as it is


def test_lessons_are_opened_and_walked_by_keys(explorer):
    page = explorer.open()
    assert page.is_hidden(".lesson")
    page.keyboard.press("l")
    explorer.settle()
    assert explorer.text(".lesson h2") == "1 What attention is"
    page.keyboard.press("ArrowDown")
    assert tick(explorer)
    page.keyboard.press(">")
    page.keyboard.press("Enter")
    assert tick(explorer)
    assert explorer.state()["learned"] == "1,2"
    page.keyboard.press("<")
    explorer.settle()
    assert explorer.text(".lesson h2").startswith("1 ")
    page.keyboard.press("l")
    explorer.settle()
    assert page.is_hidden(".lesson")
    page.keyboard.press("l")  # goes on where it was left
    explorer.settle()
    assert explorer.text(".lesson h2").startswith("3 ")


def test_a_link_opens_the_lesson_and_what_was_learned(explorer):
    page = explorer.open(f"site={CROSS}&head=1&query=1&key=1&lesson=5&learned=1,3")
    assert explorer.text(".lesson h2") == "5 Masking"
    done = page.locator('.dots [data-done="true"]').all_inner_texts()
    assert done == ["✓", "✓"]
    assert explorer.state()["lesson"] == "5"
    page.click(".lesson .close")
    assert "lesson" not in explorer.state()


def test_a_file_says_that_the_answer_needs_the_model(explorer):
    page = explorer.open("lesson=10")
    assert "regard serve" in explorer.text(".lesson .task")
    page.click('.language [lang="ko"]')
    explorer.settle()
    assert explorer.text(".lesson h2") == "10 트랜스포머"
    assert "regard serve" in explorer.text(".lesson .task")


def test_a_model_that_does_not_translate_has_another_task(open_page, image_file):
    explorer = open_page(image_file)
    page = explorer.open("lesson=9&view=grid")
    assert "does not translate" in explorer.text(".lesson .task")
    assert not tick(explorer)
    page.keyboard.press("2")
    assert tick(explorer)


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("number", range(1, LESSONS + 1, 3))
def test_lessons_fit_on_a_phone(open_page, file, language, number):
    explorer = open_page(file, width=390, height=844)
    page = explorer.open(f"lesson={number}&language={language}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(".lesson").bounding_box()["height"] < 844 / 2
