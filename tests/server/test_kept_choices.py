"""What a reader chose stays: heads, rows, views and edits, for other texts and models."""

import json

from tests.server.page.conftest import ADDRESS_DELAY, SETTLE

SELF = "encoder.layers.1.self"
CROSS = "decoder.layers.0.cross"
SHORT, LONG = "the dog", "the dog is sleeping in the garden"


def opened(page, address, text, state=""):
    page.goto("about:blank")
    page.goto(f"{address}/?model=transformer&text={text}#language=en&page=explore&{state}")
    page.wait_for_selector("#regard[data-ready]")
    settle(page)


def settle(page):
    page.evaluate(SETTLE, ADDRESS_DELAY)


def run(page, text):
    page.fill(".input-bar .text", text)
    page.press(".input-bar .text", "Enter")
    shows_it = (
        f"() => document.querySelector('.text .tokens').innerText.includes({json.dumps(text[-3:])})"
    )
    page.wait_for_function(shows_it)
    page.wait_for_function("() => !document.querySelector('.status progress')")
    settle(page)


def state(page):
    settle(page)
    parts = page.evaluate("decodeURIComponent(location.hash)").lstrip("#").split("&")
    return dict(part.split("=", 1) for part in parts if "=" in part)


def pin(page):
    return page.get_attribute(".head-pin", "data-pin")


def test_a_chosen_head_row_view_and_edit_stay_for_another_text(page, address):
    opened(page, address, LONG)
    assert pin(page) == "auto"
    chosen = f"site={SELF}&head=1&query=2&key=1&pinned=1&view=lines&edits=ablate:{SELF}:0"
    opened(page, address, LONG, chosen)
    assert pin(page) == "kept"
    run(page, "the garden is sleeping")
    now = state(page)
    assert (now["site"], now["head"], now["query"], now["key"]) == (SELF, "1", "2", "1")
    assert now["view"] == "lines"
    assert now["edits"] == f"ablate:{SELF}:0"
    page.reload()
    page.wait_for_selector("#regard[data-ready]")
    again = state(page)
    assert {name: again[name] for name in ("site", "head", "query", "view", "edits")} == {
        name: now[name] for name in ("site", "head", "query", "view", "edits")
    }
    assert pin(page) == "kept"


def test_the_pin_returns_to_the_head_that_the_page_chooses(page, address, trace):
    start = trace(text=LONG)["start"]
    other = 1 - start["head"]
    opened(page, address, LONG, f"site={start['site']}&head={other}")
    page.click(".head-pin")
    settle(page)
    assert pin(page) == "auto"
    assert state(page)["head"] == str(start["head"])
    run(page, SHORT)
    start = trace(text=SHORT)["start"]
    now = state(page)
    assert (now["site"], now["head"]) == (start["site"], str(start["head"]))
    page.click(".head-pin")  # keep it
    settle(page)
    assert state(page)["kept"] == f"{start['site']}@{start['head']}"


def test_an_edit_rests_with_its_reason_until_its_position_exists_again(page, address, trace):
    n = len(trace(text=LONG)["tokens"]["source"])
    edit = f"forbid:{SELF}:0:{n - 1}:0"
    opened(page, address, LONG, f"site={SELF}&head=0&edits={edit}")
    assert page.locator(".edit-list li.resting").count() == 0
    run(page, SHORT)
    assert f"position {n - 1} is not in this text" in page.inner_text(".edit-list li.resting")
    assert state(page).get("edits") is None
    assert state(page)["resting"] == edit
    assert not page.evaluate("document.querySelector('#regard').classList.contains('changed')")
    run(page, LONG)
    assert page.locator(".edit-list li").count() == 1
    assert page.locator(".edit-list li.resting").count() == 0
    assert state(page)["edits"] == edit


def test_back_and_forward_restore_text_selection_and_edits(page, address):
    edit = f"ablate:{SELF}:1"
    opened(page, address, LONG, f"site={SELF}&head=1&query=3&pinned=1&edits={edit}")
    run(page, SHORT)
    page.click(".edit-list .icon[aria-label='remove this edit']")
    page.keyboard.press("[")
    settle(page)
    assert state(page)["head"] == "0"
    page.go_back()
    page.wait_for_function(
        "() => document.querySelector('.text .tokens').innerText.includes('garden')"
    )
    back = state(page)
    assert (back["head"], back["query"], back["edits"]) == ("1", "3", edit)
    page.go_forward()
    page.wait_for_function(
        "() => !document.querySelector('.text .tokens').innerText.includes('garden')"
    )
    forward = state(page)
    assert forward["head"] == "0"
    assert "edits" not in forward


def test_a_head_that_another_model_does_not_have_comes_back_with_its_model(page, address):
    opened(page, address, SHORT, f"site={CROSS}&head=1&kept={CROSS}@1")
    page.select_option(".models", "decoder")
    page.wait_for_function("() => document.querySelector('.head-pin')?.dataset.pin === 'lost'")
    assert page.inner_text(".head-pin") == "L0H1 not here"
    page.select_option(".models", "transformer")
    page.wait_for_function("() => document.querySelector('.head-pin')?.dataset.pin === 'kept'")
    now = state(page)
    assert (now["site"], now["head"]) == (CROSS, "1")


def test_clicking_an_answer_token_moves_the_key_to_the_largest_weight(page, address, model, trace):
    described = trace(text=LONG)
    ids = [model.target_tokenizer.start_id, *described["answer"]["ids"]]
    weights = model.trace(LONG, ids)[CROSS].weights(1)
    opened(page, address, LONG, f"site={CROSS}&head=1&query=0&key=0")
    row = min(2, len(weights) - 1)
    page.click(f".answer .token >> nth={row}")
    now = state(page)
    assert (now["query"], now["key"]) == (str(row), str(int(weights[row].argmax())))


def test_a_refused_token_rests_and_the_strip_keeps_the_old_one(browser, address, trace):
    page = browser.new_page()  # which logs that the server refused a request
    first = trace(text=SHORT)["tokens"]["source"][1].strip()
    opened(page, address, SHORT, f"site={SELF}&head=0&key=1&pinned=1&editing=1")
    page.fill(".drawer .replaced input", "garden dog")
    page.press(".drawer .replaced input", "Enter")
    page.wait_for_selector(".edit-list li.resting")
    assert "give a single one" in page.inner_text(".edit-list li.resting .reason")
    assert page.inner_text(".text .token >> nth=1").strip() == first
    assert page.locator(".token.replaced").count() == 0
    page.click(".language [data-code=ko]")
    page.wait_for_selector(".edit-list :text('토큰 하나만 입력하세요')")
    page.close()


def test_a_rollout_opens_with_all_layers_and_goes_back(page, address):
    opened(page, address, LONG, "site=encoder.layers.0.self&head=1")
    page.keyboard.press("Escape")
    page.evaluate("document.querySelector('[data-choice=rollout]').click()")
    settle(page)
    assert state(page)["site"] == SELF
    page.evaluate("document.querySelector('[data-choice=grid]').click()")
    settle(page)
    assert state(page)["site"] == "encoder.layers.0.self"


def test_a_click_on_an_answer_word_from_the_encoder_opens_a_head_that_reads_the_input(
    page, address, model
):
    opened(page, address, LONG, f"site={SELF}&head=1&query=2&key=1")
    tokens = page.locator(".text.answer .token")
    tokens.nth(2).click()
    page.wait_for_url(lambda url: f"site={CROSS}" in url)
    now = state(page)
    assert now["query"] == "2"
    weights = model.trace(LONG)[CROSS].weights(int(now["head"]))[2]
    assert int(now["key"]) == int(weights.argmax())
    assert page.locator(".token.asks").all_inner_texts() == [tokens.nth(2).inner_text()]


def test_a_head_that_is_edited_is_kept(page, address, trace):
    opened(page, address, LONG)
    start = trace(text=LONG)["start"]
    page.keyboard.press("e")
    page.check(".headOff input")
    settle(page)
    assert pin(page) == "kept"
    run(page, SHORT)
    now = state(page)
    assert (now["site"], now["head"]) == (start["site"], str(start["head"]))
    assert now["kept"] == f"{start['site']}@{start['head']}"
