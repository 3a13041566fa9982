"""Comparisons, patches and sweeps on the page: their numbers are those of Python and of the API."""

import pytest
import torch

from regard.model import Model
from regard.server.app import make_app
from regard.server.catalog import Catalog, Runs
from regard.server.service import Service
from regard.trace.edits import ablate, patch
from regard.trace.trace import Trace
from tests.server.conftest import serving, window
from tests.server.test_replay import write_run

TEXT, OTHER, SHORTER = "the dog is sleeping", "the dog is garden", "the dog"
ENCODER, CROSS = "encoder.layers.1.self", "decoder.layers.0.cross"
READY = ".custom-view[data-ready]"
EDITS = """async () => {
  const { readEdits, useSchema } = await import("/js/edits.js");
  useSchema(await (await fetch("/api/edits/schema")).json());
  return readEdits(decodeURIComponent(/edits=([^&]*)/.exec(location.hash)[1]));
}"""
# Where a cell of one of the two grids is on the screen.
CELL = """([side, query, key]) => {
  const plot = document.querySelectorAll(".compare-figures .plot")[side];
  const box = plot.querySelector(".hairlines").getBoundingClientRect();
  const count = (role) => plot.querySelectorAll(`text.tick.${role}`).length;
  const [across, down] = [(key + 0.5) / count("key"), (query + 0.5) / count("query")];
  return [box.left + across * box.width, box.top + down * box.height];
}"""
# The rows and columns that are marked in both grids.
MARKED = """() => [...document.querySelectorAll(".compare-figures .plot")].map((plot) =>
  ["query", "key"].map((role) => plot.querySelector(`text.tick.${role}.on`)?.dataset.i ?? ""))"""
SECOND_IS = """(x) => Math.abs(
  parseFloat(document.querySelector(".reading .second b")?.title) - x
) < 1e-6"""


@pytest.fixture(scope="module")
def run(folders, tmp_path_factory):
    model = Model.load(folders["transformer"])
    return write_run(tmp_path_factory.mktemp("compared") / "toy", model, (10, 20))


@pytest.fixture(scope="module")
def finetuned(folders, tmp_path_factory):
    """The translator with other weights in one layer, as after more training."""
    model = Model.load(folders["transformer"])
    torch.manual_seed(1)
    for weight in model.module.encoder.layers[0].parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    folder = tmp_path_factory.mktemp("models") / "finetuned"
    model.save(folder)
    return Model.load(folder)


@pytest.fixture(scope="module")
def address(folders, finetuned, run):
    service = Service(Catalog([*folders.values(), finetuned.folder]), Runs([run]))
    with serving(make_app(service)) as address:
        yield address
    service.close()


@pytest.fixture
def opened(browser, address):
    """Open a comparison on the real server; the page must log no errors."""
    with window(browser, address) as page:

        def visit(compare="", *, site=ENCODER, query=1, key=0, width=1366, language="en"):
            page.goto("about:blank")
            page.set_viewport_size({"width": width, "height": 768})
            place = f"page=explore&language={language}&site={site}&head=1&query={query}&key={key}"
            written = compare.replace("=", "%3D").replace("&", "%26")
            page.goto(f"{address}/?model=transformer&text={TEXT}#{place}&compare={written}")
            page.wait_for_selector("#regard[data-ready]")
            if compare:
                page.wait_for_selector(READY)
            return page

        yield visit


def number(text):
    return float(text.replace("−", "-"))


def shown(page, kind):
    """Return the full number of the selected cell: "first", "second" or "difference"."""
    return number(page.get_attribute(f".reading .figure.{kind} b", "title"))


def changes(page):
    """Return the texts of the bar that compares probabilities before and after edits."""
    page.wait_for_selector(".comparison .moved li")
    page.wait_for_selector(".comparison .pending", state="detached")
    return page.locator(".comparison .moved li").all_inner_texts()


def test_the_difference_is_that_of_the_two_weights(opened, model):
    first, second = (model.trace(text)[ENCODER].weights(1) for text in (TEXT, OTHER))
    assert first.shape == second.shape
    page = opened(f"kind=text&text={OTHER}", query=3, key=1)
    x, y = first[3, 1].item(), second[3, 1].item()
    found = [shown(page, kind) for kind in ("first", "second", "difference")]
    assert found == pytest.approx([x, y, y - x], abs=1e-6)
    page.click(".compare-mode [data-choice=difference]")
    page.wait_for_selector("figure.difference")
    low, high = page.get_attribute("figure.difference .range", "title").split(" … ")
    difference = second - first
    assert [number(low), number(high)] == pytest.approx(
        [difference.min().item(), difference.max().item()], abs=1e-6
    )
    # discs are positive, rings negative; nearly equal weights are dots
    largest = difference.abs().max()
    for name, cells in (("positive", difference > 0), ("negative", difference < 0)):
        path = page.get_attribute(f"figure.difference svg.grid path.{name}", "d")
        count = (cells & (difference.abs() > 0.05 * largest)).sum().item()
        assert path.count("M") >= count


def test_a_comparison_survives_reload_and_language_and_ends(opened):
    page = opened(f"kind=text&text={OTHER}&difference=1")
    page.reload()
    page.wait_for_selector("figure.difference")
    assert page.input_value(".compare-text") == OTHER
    page.click(".language [data-code=ko]")
    page.wait_for_selector("html[lang=ko]")
    page.wait_for_selector("figure.difference")
    assert "둘째 − 첫째" in page.inner_text("figure.difference figcaption")
    page.click(".compare-close")
    page.wait_for_selector(".compare-bar", state="hidden")
    page.wait_for_function("() => !location.hash.includes('compare')")
    page.click(".compare-button")  # without a pair, the second sentence starts as the first
    page.wait_for_selector(READY)
    assert page.input_value(".compare-text") == TEXT


def test_texts_of_other_lengths_are_linked_by_token(opened, model):
    page = opened(f"kind=text&text={SHORTER}", query=1, key=1)
    assert "by token" in page.inner_text(".linked")
    assert page.is_disabled(".compare-mode [data-choice=difference]")
    tokens = [model.trace(text).tokens["source"] for text in (TEXT, SHORTER)]
    last = len(tokens[0]) - 1  # the end is at another position of the shorter text
    other = len(tokens[1]) - 1
    page.locator(".compare-figures .plot >> nth=0").locator(
        f"text.tick.query[data-i='{last}']"
    ).click()
    page.wait_for_function(f"() => location.hash.includes('query={last}')")
    on = page.locator(".compare-figures .plot >> nth=1").locator("text.tick.query.on")
    assert on.get_attribute("data-i") == str(other)
    missing = next(i for i, token in enumerate(tokens[0]) if token not in tokens[1])
    page.locator(".compare-figures .plot >> nth=0").locator(
        f"text.tick.query[data-i='{missing}']"
    ).click()
    page.wait_for_function(
        "() => document.querySelector('.sentence').textContent.includes('Only the first')"
    )
    assert on.count() == 0


def test_hovering_one_side_marks_and_reads_the_same_place_on_the_other(opened, model):
    first, second = (model.trace(text)[ENCODER].weights(1) for text in (TEXT, OTHER))
    page = opened(f"kind=text&text={OTHER}", query=0, key=0)
    for side, query, key in ((1, 3, 1), (0, 2, 3)):
        page.mouse.move(*page.evaluate(CELL, [side, query, key]))
        x, y = first[query, key].item(), second[query, key].item()
        page.wait_for_function(SECOND_IS, arg=y)
        assert shown(page, "first") == pytest.approx(x, abs=1e-6)
        assert shown(page, "difference") == pytest.approx(y - x, abs=1e-6)
        assert page.evaluate(MARKED) == [[str(query), str(key)]] * 2
    page.mouse.move(1, 1)
    page.wait_for_function(SECOND_IS, arg=second[0, 0].item())  # back to the pinned cell
    assert "query=0" in page.url


def test_hovering_a_token_that_only_one_side_has_marks_it_there_alone(opened, model):
    tokens = [model.trace(text).tokens["source"] for text in (SHORTER, TEXT)]
    page = opened(f"kind=text&text={TEXT}&model=transformer", query=0, key=0)
    page.fill(".input-bar .text", SHORTER)
    page.press(".input-bar .text", "Enter")
    count = "n => document.querySelectorAll('.plot text.tick.query').length === n"
    page.wait_for_function(count, arg=sum(map(len, tokens)))
    alone = next(i for i, token in enumerate(tokens[1]) if token not in tokens[0])
    page.mouse.move(*page.evaluate(CELL, [1, alone, 0]))
    page.wait_for_function(f"() => ({MARKED})()[1][0] === '{alone}'")
    assert page.evaluate(MARKED)[0][0] == "0"  # the first side stays where it is


def test_patching_with_itself_changes_nothing(opened):
    page = opened(f"kind=text&text={TEXT}")
    assert page.get_attribute(".reading .figure.difference b", "title") == "0"
    for count, name in enumerate(("head", "residual", "row")):
        page.wait_for_selector(READY)
        page.select_option(".patch-what", name)
        page.click(".patch-go >> nth=0")
        page.locator(".edit-list .chip").nth(count).wait_for()
        page.wait_for_selector('#regard:not([aria-busy="true"])')  # the view is drawn again
    page.wait_for_selector('.comparison .pair[data-same=""]')  # the answer stays
    assert all(text.rstrip().endswith("=") for text in changes(page))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("head", {"path": f"{ENCODER}.context", "head": 1}),
        ("residual", {"path": f"{ENCODER}.residual", "position": 2}),
        ("row", {"path": f"{ENCODER}.weights", "head": 1, "query": 2}),
    ],
)
def test_a_patch_gives_the_probabilities_of_python(opened, model, name, place):
    path, rest = place["path"], {key: x for key, x in place.items() if key != "path"}
    edit = patch(path, model.trace(OTHER), **rest)
    before = model.trace(TEXT)
    start = model.target_tokenizer.start_id
    forced = model.trace(TEXT, [start, *before.output.ids], edits=[edit])
    after = torch.tensor(forced.output.log_probs).exp().tolist()
    page = opened(f"kind=text&text={OTHER}", query=2)
    page.select_option(".patch-what", name)
    page.click(".patch-go >> nth=0")
    page.wait_for_function("() => location.hash.includes('patch')")
    for _ in range(2):  # once after the click, once after the link is opened again
        found = page.evaluate(EDITS)
        assert found == [{"kind": "patch", "source": {"text": OTHER}, **place}]
        texts = changes(page)
        shown_after = [float(text.split("→")[1].split()[0]) for text in texts]
        largest = sorted(after, reverse=True)
        assert all(any(abs(x - y) < 6e-4 for y in largest) for x in shown_after)
        page.reload()
        page.wait_for_selector(READY)
    page.click(".edit-list .undo")
    page.wait_for_selector(".edit-list", state="hidden")


@pytest.mark.parametrize(
    ("name", "site", "place"),
    [
        ("head", ENCODER, {"path": f"{ENCODER}.context", "head": 1}),
        ("head", CROSS, {"path": f"{CROSS}.context", "head": 1, "position": 1}),
        ("residual", ENCODER, {"path": f"{ENCODER}.residual", "position": 1}),
    ],
)
def test_a_value_of_another_model_is_carried_over(opened, model, finetuned, name, site, place):
    rest = {key: x for key, x in place.items() if key != "path"}
    edit = patch(place["path"], finetuned.trace(TEXT), **rest)
    target = [model.target_tokenizer.start_id, *model.trace(TEXT).output.ids]
    runs = [model.trace(TEXT, target, edits=edits).output.log_probs for edits in ([], [edit])]
    before, after = (torch.tensor(one).exp().tolist() for one in runs)
    assert max(abs(x - y) for x, y in zip(before, after, strict=True)) > 1e-3
    page = opened("kind=model&model=finetuned", site=site)
    if site == ENCODER:  # the answers of both models differ
        weights = [one.trace(TEXT)[site].weights(1)[1, 0].item() for one in (model, finetuned)]
        assert [shown(page, "first"), shown(page, "second")] == pytest.approx(weights, abs=1e-6)
    page.select_option(".patch-what", name)
    page.click(".patch-go >> nth=0")
    page.wait_for_function("() => location.hash.includes('patch')")
    source = {"model": "finetuned", "text": TEXT}
    assert page.evaluate(EDITS) == [{"kind": "patch", "source": source, **place}]
    for text in changes(page):
        old, new = (
            float(one.split()[-1 if i == 0 else 0]) for i, one in enumerate(text.split("→"))
        )
        pairs = zip(before, after, strict=True)
        assert any(abs(old - x) < 6e-4 and abs(new - y) < 6e-4 for x, y in pairs), text
    page.click(".edit-list .undo")
    page.wait_for_selector(".edit-list", state="hidden")


def test_a_model_without_the_site_is_compared_but_not_patched(opened, client):
    page = opened("kind=model&model=seq2seq", site=ENCODER)
    other = client.post("/api/trace", json={"model": "seq2seq", "text": TEXT}).json()
    assert other["start"]["site"] not in (ENCODER, CROSS)
    assert "does not have this head" in page.inner_text(".linked")
    assert page.is_disabled(".patch-go >> nth=0")
    assert "same size" in page.get_attribute(".patch-go >> nth=0", "title")


def test_carrying_into_the_second_exchanges_the_sides(opened):
    page = opened(f"kind=text&text={OTHER}", query=2)
    page.click(".patch-go >> nth=1")
    page.wait_for_selector(".edit-list .chip")
    page.wait_for_selector(READY)
    assert TEXT in page.inner_text(".edit-list .chip")
    assert page.input_value(".compare-text") == TEXT
    assert page.evaluate("new URLSearchParams(location.search).get('text')") == OTHER
    page.click(".edit-list .undo")
    page.wait_for_selector(".edit-list", state="hidden")


def test_heads_checkpoints_and_the_edited_run_are_compared(opened, model, run):
    page = opened(f"kind=head&site={ENCODER}&head=0", query=2, key=1)
    weights = [model.trace(TEXT)[ENCODER].weights(head)[2, 1].item() for head in (1, 0)]
    assert [shown(page, "first"), shown(page, "second")] == pytest.approx(weights, abs=1e-6)
    page.select_option(".compare-kind", "run")
    page.wait_for_function("() => location.hash.includes('step')")
    page.wait_for_selector(READY)
    path = run / "training" / "snapshots" / "step-00000010" / "0.safetensors"
    expected = Trace.load(path)[ENCODER].weights(1)[2, 1].item()
    page.wait_for_function(SECOND_IS, arg=expected)
    page.select_option(".compare-kind", "edited")
    page.wait_for_function(
        "() => document.querySelector('.linked')?.textContent.includes('no edits')"
    )
    assert shown(page, "difference") == 0


def test_a_cell_of_the_sweep_is_one_ablation(opened, model):
    page = opened()
    page.click(".sweep-start")
    cell = page.locator(f'.sweep-table [data-site="{CROSS}"][data-head="0"]')
    cell.wait_for()
    before = model.trace(TEXT)
    start = model.target_tokenizer.start_id
    target = [start, *before.output.ids]
    logs = [
        model.trace(TEXT, target, edits=edits).output.log_probs
        for edits in ([], [ablate(CROSS, head=0)])
    ]
    change = [after - old for old, after in zip(*logs, strict=True)]
    title = cell.get_attribute("title")
    assert number(title.split(": ")[1]) == pytest.approx(sum(change), abs=1e-4)
    page.select_option(".sweep-token", "1")
    title = cell.get_attribute("title")
    assert number(title.split(": ")[1]) == pytest.approx(change[1], abs=1e-4)
    cell.click()
    page.wait_for_function(f"() => location.hash.includes('{CROSS}')")
    assert cell.get_attribute("aria-pressed") == "true"
    page.click(".sweep-off:enabled")
    page.wait_for_function(f"() => location.hash.includes('edits=ablate:{CROSS}:0')")
    page.click(".language [data-code=ko]")  # the result stays while the text stays
    page.wait_for_selector("html[lang=ko] .sweep-table")
    cell.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.head") == "1"
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash.includes('head=1')")


def test_a_sweep_can_be_canceled(opened):
    page = opened(width=1280)
    page.route("**/api/sweep", lambda route: None)  # never answered
    page.click(".sweep-start")
    page.click(".sweep-stop")
    page.wait_for_selector(".sweep-start")
    assert page.locator(".sweep .error").count() == 0


@pytest.mark.parametrize("width", [390, 1024])
def test_narrow_pages_stack_both_sides(opened, width):
    page = opened(f"kind=text&text={OTHER}", width=width, language="ko")
    boxes = [one.bounding_box() for one in page.locator(".compare-figures figure").all()]
    assert (boxes[0]["x"] == boxes[1]["x"]) == (width < 640)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_training_replay_compares_two_checkpoints(browser, address, run):
    first, second = (
        Trace.load(run / "training" / "snapshots" / f"step-{step:08d}" / "0.safetensors")[ENCODER]
        for step in (20, 10)
    )
    compare = "kind%3Drun%26run%3Dtoy%26step%3D10%26item%3D0"
    place = f"language=en&site={ENCODER}&head=1&query=2&key=1&compare={compare}"
    with window(browser, address) as page:
        page.goto(f"{address}/?run=toy&text=0&step=20#{place}")
        page.wait_for_selector(READY)
        found = [shown(page, kind) for kind in ("first", "second")]
        expected = [site.weights(1)[2, 1].item() for site in (first, second)]
        assert found == pytest.approx(expected, abs=1e-6)
        assert page.locator(".patch-go").count() == 0  # a snapshot has no model to patch


def test_in_a_low_window_the_choices_of_a_comparison_are_not_over_other_tools(opened):
    page = opened(f"kind=text&text={OTHER}")
    page.set_viewport_size({"width": 683, "height": 384})
    page.reload()
    page.wait_for_selector(READY)
    assert page.is_hidden(".toolbar .choice.stage")  # in the menu
    menu, modes = (page.locator(x).bounding_box() for x in (".toolbar .more", ".compare-mode"))
    assert menu["x"] + menu["width"] <= modes["x"]
