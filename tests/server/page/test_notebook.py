"""A trace in a notebook: the widget in a host with anywidget's protocol, and the frame."""

import sys
from types import SimpleNamespace

import pytest

from regard.server import html_export
from regard.server.html_export import mimebundle, widget_class
from regard.trace.trace import Trace

SITE = "decoder.layers.1.cross"
VIEW = "application/vnd.jupyter.widget-view+json"

# A host as in https://anywidget.dev/en/afm: values with get, set, save_changes, on, off.
HOST = """async ([esm, css, values, width]) => {
  const style = document.createElement("style");
  style.textContent = css;
  document.head.append(style);
  const listeners = {};
  window.saved = [];
  window.model = {
    get: (name) => values[name],
    set: (name, value) => { values[name] = value; },
    save_changes: () => window.saved.push(values.state),
    on: (event, f) => (listeners[event] ??= []).push(f),
    off: (event, f) => { listeners[event] = listeners[event].filter((one) => one !== f); },
    send: (name, value) => {
      values[name] = value;
      (listeners[`change:${name}`] ?? []).forEach((f) => f());
    },
    count: () => Object.values(listeners).flat().length,
  };
  const cell = document.createElement("div");
  cell.style.width = `${width}px`;
  document.body.append(document.createElement("textarea"), cell);
  const url = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }));
  const { render } = (await import(url)).default;
  window.end = await render({ model: window.model, el: cell });
}"""


@pytest.fixture
def cell(browser, trace):
    """Opens the widget in a cell; fails the test if the page reports an error."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, locale="en-GB")
    page, errors = context.new_page(), []
    page.on("console", lambda m: errors.append(m.text) if m.type != "log" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))

    def show(state="", width=1200):
        made = widget_class()(data=html_export.as_json(trace))
        page.evaluate(HOST, [made._esm, made._css, {"data": made.data, "state": state}, width])
        page.wait_for_selector(".regard[data-ready]")
        return page

    yield show
    context.close()
    assert errors == []


def test_the_widget_shows_the_numbers_of_the_trace(cell, trace, shown):
    page = cell(f"site={SITE}&head=1&query=2&key=3&pinned=1")
    assert page.inner_text(".reading .weights b") == shown(trace[SITE].weights(1)[2, 3].item())
    assert page.is_visible(".pane.overview")


def test_python_and_the_widget_share_the_selection(cell):
    page = cell(f"site={SITE}&head=1&query=2&key=3&pinned=1")
    page.click(".more summary")  # the widget is narrow
    page.click('[data-choice="bars"]')
    page.wait_for_function("window.saved.some((one) => one.includes('view=bars'))")
    page.evaluate(f"window.model.send('state', 'site={SITE}&head=2&query=0&key=0')")
    page.wait_for_function("document.querySelector('.headname').textContent === 'head 2'")


def test_keys_work_only_after_a_click_into_the_widget(cell):
    page = cell(f"site={SITE}&head=1&query=0&key=0&pinned=1")
    page.focus("textarea")
    page.keyboard.press("]")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("]")
    assert page.inner_text(".headname") == "head 1"
    page.click(".sentence")
    page.keyboard.press("]")
    page.wait_for_function("document.querySelector('.headname').textContent === 'head 2'")


def test_a_narrow_cell_has_tabs(cell):
    page = cell(f"site={SITE}&head=1", width=640)
    assert page.is_visible(".tabs")
    assert page.is_hidden(".pane.steps")
    assert page.locator(".regard").bounding_box()["width"] <= 640


def test_a_removed_widget_removes_its_listeners(cell):
    page = cell()
    page.evaluate("window.end()")
    assert page.locator(".regard").count() == 0
    assert page.evaluate("window.model.count()") == 0


def test_a_notebook_gets_the_widget_and_a_frame(trace):
    made = trace._repr_mimebundle_(include=None, exclude=None)
    assert set(made) == {"text/plain", "text/html", VIEW}
    assert made[VIEW]["model_id"]
    assert made["text/plain"] == repr(trace)


def test_without_anywidget_the_frame_is_interactive(browser, trace, monkeypatch, shown):
    monkeypatch.setattr(html_export, "find_spec", lambda name: None)
    made = mimebundle(trace)
    assert set(made) == {"text/plain", "text/html"}
    context = browser.new_context(viewport={"width": 1300, "height": 900}, locale="en-GB")
    page, errors, requests = context.new_page(), [], []
    page.on("console", lambda m: errors.append(m.text) if m.type != "log" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.set_content(f"<!doctype html><h1>a notebook</h1>{made['text/html']}")
    inside = page.frame_locator("iframe")
    inside.locator("#regard[data-ready]").wait_for()
    inside.locator(".edit-toggle").click()
    inside.locator(".headOff input").check()
    inside.locator(".drawer .close").click()
    inside.locator(".edit-list li").wait_for()
    inside.locator(".more summary").click()
    inside.locator('[data-choice="lines"]').click()
    inside.locator("svg.lines").first.wait_for()
    page.wait_for_timeout(150)  # a page with an address would write it
    context.close()
    assert errors == []
    assert [url for url in requests if not url.startswith(("about:", "data:"))] == []


def test_an_empty_trace_is_only_text():
    assert set(mimebundle(Trace())) == {"text/plain"}


@pytest.mark.parametrize(("kernel", "kinds"), [({}, 1), ({"kernel": 1}, 3)])
def test_a_terminal_gets_text_and_a_notebook_more(trace, monkeypatch, kernel, kinds):
    shell = SimpleNamespace(**kernel)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert len(mimebundle(trace)) == kinds
