"""The lessons: each has a task, notices when it is done, and leads to the next."""

import pytest

LESSONS = 10
CROSS = "decoder.layers.1.cross"


def is_done(explorer) -> bool:
    explorer.settle()
    return explorer.page.get_attribute(".lesson .task", "data-done") == "true"


def cell(explorer, right=0, down=0):
    """Return the middle of a cell, counted from the selected one."""
    box = explorer.page.locator(".plot svg.grid rect.chosen").last.bounding_box()
    return (box["x"] + box["width"] * (right + 0.5), box["y"] + box["height"] * (down + 0.5))


def hover(explorer, page):
    page.mouse.move(*cell(explorer))


def pin(explorer, page):
    page.mouse.click(*cell(explorer, right=1))


def show_scores(explorer, page):
    page.click('[data-choice="scores"]')


def switch_scaling_off(explorer, page):
    page.uncheck(".scaleOn input")


def forbid(explorer, page):
    page.click("button.pencil")
    assert not is_done(explorer)  # mask mode alone does not change anything
    page.mouse.click(*cell(explorer))


def change_temperature(explorer, page):
    page.fill(".edit-controls input[type=range]", "0.1")
    assert not is_done(explorer)  # one end is not both
    page.fill(".edit-controls input[type=range]", "4")


def select_largest(explorer, page):
    for _ in range(12):
        page.keyboard.press("ArrowLeft")
    for _ in range(12):
        if is_done(explorer):
            break
        page.keyboard.press("ArrowRight")


def open_heads(explorer, page):
    page.keyboard.press("[")
    assert not is_done(explorer)  # one other head is not two
    page.keyboard.press("[")


def click_answer(explorer, page):
    page.click('.token[data-side="output"] >> nth=0')
    explorer.settle()
    page.click('.token[data-side="output"] >> nth=2')


def switch_head_off(explorer, page):
    page.check(".headOff input")


TASKS = [
    *(hover, pin, show_scores, switch_scaling_off, forbid, change_temperature),
    *(select_largest, open_heads, click_answer, switch_head_off),
]


def test_every_task_is_noticed_and_leads_to_the_next_lesson(explorer):
    page = explorer.open(f"site={CROSS}&head=1&query=1&key=1&lesson=2")
    page.click('[data-go="dot1"]')
    explorer.settle()
    for number, do in enumerate(TASKS, 1):
        assert explorer.text(".lesson h2").startswith(f"{number} ")
        page.mouse.move(5, 5)
        assert not is_done(explorer), do.__name__
        assert "edits" not in explorer.state()  # every lesson starts without edits
        do(explorer, page)
        assert is_done(explorer), do.__name__
        assert "Done." in explorer.text(".lesson .done-note")
        assert explorer.text('[data-go="on"]') == ("finish" if number == LESSONS else "next")
        page.click('[data-go="on"]')
        explorer.settle()
    assert page.is_hidden(".lesson")
    assert explorer.state()["learned"] == ",".join(map(str, range(1, LESSONS + 1)))


def test_lessons_by_keyboard(explorer):
    page = explorer.open()
    assert page.is_hidden(".lesson")
    page.keyboard.press("l")
    explorer.settle()
    assert explorer.text(".lesson h2") == "1 What attention is"
    page.keyboard.press("ArrowDown")
    assert is_done(explorer)
    page.keyboard.press(">")
    page.keyboard.press("Enter")
    assert is_done(explorer)
    assert explorer.state()["learned"] == "1,2"
    page.keyboard.press("<")
    explorer.settle()
    assert explorer.text(".lesson h2").startswith("1 ")
    page.keyboard.press("l")
    explorer.settle()
    assert page.is_hidden(".lesson")
    page.keyboard.press("l")  # continues with the first that is not done
    explorer.settle()
    assert explorer.text(".lesson h2").startswith("3 ")


def test_a_link_opens_a_lesson_with_its_progress(explorer):
    page = explorer.open(f"site={CROSS}&head=1&query=1&key=1&lesson=5&learned=1,3")
    assert explorer.text(".lesson h2") == "5 Masking"
    assert page.locator('.dots [data-done="true"]').all_inner_texts() == ["✓", "✓"]
    assert explorer.state()["lesson"] == "5"
    page.click(".lesson .close")
    assert "lesson" not in explorer.state()


def test_an_offline_file_refers_to_the_model(explorer):
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
    assert not is_done(explorer)
    page.keyboard.press("2")
    assert is_done(explorer)


@pytest.mark.parametrize("language", ["en", "ko"])
def test_lessons_fit_on_a_phone(open_page, file, language):
    explorer = open_page(file, width=390, height=844)
    page = explorer.open(f"lesson=1&language={language}")
    for number in range(1, LESSONS + 1):
        page.evaluate(f"location.hash = '#lesson={number}&language={language}'")
        explorer.settle(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator(".lesson").bounding_box()["height"] < 844 / 2, number
