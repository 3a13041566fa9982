"""Training runs are replayed: in Python, over the API and in a real browser."""

import json

import pytest
import torch
from fastapi.testclient import TestClient

from regard.errors import FileError, InputError
from regard.model import Model
from regard.server.app import make_app
from regard.server.catalog import Catalog, Runs, is_run, open_run
from regard.server.service import Service
from regard.trace.capture import trace_model
from regard.trace.trace import Trace
from tests.server.conftest import serving, window

TEXTS = ["the dog is sleeping\tder hund", "the garden\tim garten"]
CROSS = "decoder.layers.0.cross"


def write_run(folder, model, steps, texts=TEXTS, **evaluate):
    """Write a run as `regard train` does, with different weights at each step."""
    training = folder / "training"
    training.mkdir(parents=True)
    settings = {name: getattr(model.module.config, name) for name in ("d_model", "n_heads")}
    recipe = {"task": model.task, "model": settings, "evaluate": {"snapshots": texts, **evaluate}}
    (training / "recipe.json").write_text(json.dumps(recipe))
    lines = []
    for number, step in enumerate(steps):
        torch.manual_seed(step)
        for weight in (one for one in model.module.parameters() if one.dim() > 1):
            torch.nn.init.normal_(weight, std=0.1 + 0.2 * number)
        place = training / "snapshots" / f"step-{step:08d}"
        place.mkdir(parents=True)
        for i, text in enumerate(texts):
            trace = trace_model(model, *text.split("\t"))
            trace.values.clear()
            trace.save(place / f"{i}.safetensors")
        lines.append({"step": step - 1, "epoch": step / 100, "loss": 3.0 - number})
        lines.append({"step": step, "validation": {"loss": 2.5 - number, "bleu": 10.0 * number}})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (training / "metrics.jsonl").write_text(text + '{"step": 9')  # an incomplete line
    return folder


@pytest.fixture(scope="module")
def folder(folders, tmp_path_factory):
    model = Model.load(folders["transformer"])
    return write_run(tmp_path_factory.mktemp("runs") / "toy", model, (10, 20, 40), metric="bleu")


@pytest.fixture(scope="module")
def served(service, folder):
    return Service(service.catalog, Runs([folder]))


@pytest.fixture(scope="module")
def app(served):
    return make_app(served)


def test_checkpoints_have_the_last_loss_and_score(folder):
    run = open_run(folder).describe()
    assert run.texts == ["the dog is sleeping", "the garden"]
    assert run.metric == "bleu"
    found = [(x.step, x.epoch, x.loss, x.score) for x in run.checkpoints]
    assert found == [(10, 0.1, 3.0, 0.0), (20, 0.2, 2.0, 10.0), (40, 0.4, 1.0, 20.0)]


def test_a_snapshot_is_the_trace_that_training_saved(folder, served):
    stored = served.snapshot("toy", 20, 1)
    path = folder / "training" / "snapshots" / "step-00000020" / "1.safetensors"
    assert torch.equal(stored.trace[CROSS].weights(1), Trace.load(path)[CROSS].weights(1))
    assert served.snapshot("toy", 20, 1) is stored


def test_an_incomplete_checkpoint_is_not_listed(folder, tmp_path):
    (tmp_path / "training" / "snapshots" / "step-00000010").mkdir(parents=True)
    recipe = {"evaluate": {"snapshots": ["a"]}}
    (tmp_path / "training" / "recipe.json").write_text(json.dumps(recipe))
    assert open_run(tmp_path).describe().checkpoints == []
    assert is_run(tmp_path)
    assert not is_run(tmp_path / "training")


def test_runs_with_the_same_name_get_different_names(folder, folders, tmp_path):
    model = Model.load(folders["transformer"])
    other = write_run(tmp_path / "toy", model, (5,), texts=["the dog\tder hund"])
    assert list(Runs([folder, other, folder]).runs) == ["toy", "toy-2"]


def test_folders_without_snapshots_are_refused(tmp_path):
    (tmp_path / "training").mkdir()
    for recipe, kind, message in (
        (None, FileError, "is not a training run"),
        ("{}", InputError, "has no snapshots"),
        ("[", FileError, "cannot be read"),
    ):
        if recipe:
            (tmp_path / "training" / "recipe.json").write_text(recipe)
        with pytest.raises(kind, match=message):
            open_run(tmp_path)


def test_the_api_lists_runs_and_describes_snapshots(app):
    client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    assert client.get("/api/models").json()["runs"] == ["toy"]
    runs = client.get("/api/runs").json()["runs"]
    assert [(run["name"], run["models"]) for run in runs] == [("toy", ["transformer"])]
    described = client.get("/api/runs/toy/40?text=1").json()
    assert described["tokens"]["source"][1:-1] != []
    assert client.get(f"/api/trace/{described['id']}").json() == described
    for path, code, message in (
        ("tox/10", "unknown_run", "no run tox"),
        ("toy/41", "unknown_step", "no snapshot of step 41; it has 3, 10 to 40"),
        ("toy/10?text=2", "unknown_text", "no text 2"),
        ("toy/nine", "invalid_field", "step is"),
    ):
        response = client.get(f"/api/runs/{path}")
        error = response.json()["error"]
        status = 404 if code in ("unknown_run", "unknown_step") else 422
        assert (response.status_code, error["code"]) == (status, code)
        assert message in error["message"]


@pytest.fixture(scope="module")
def address(app):
    with serving(app) as address:
        yield address


@pytest.fixture
def page(browser, address):
    with window(browser, address) as page:
        page.goto(f"{address}/?run=toy")
        page.wait_for_selector("#regard[data-ready]")
        yield page


def weight(folder, page, step):
    """Return the weight that the page shows, and that of the snapshot."""
    shown = page.inner_text(".reading .figure.weights b")
    state = dict(part.split("=") for part in page.evaluate("location.hash.slice(1)").split("&"))
    path = folder / "training" / "snapshots" / f"step-{step:08d}" / "0.safetensors"
    site = Trace.load(path)[state["site"]]
    table = site.weights(int(state["head"]))
    return shown, f"{table[int(state['query']), int(state['key'])].item():.3f}"


def until(page, known):
    """Wait for a condition; the page's policy forbids wait_for_function."""
    for _ in range(100):
        if known():
            break
        page.wait_for_timeout(100)
    page.wait_for_timeout(300)
    assert known()


def at(page, step):
    until(page, lambda: page.url.split("#")[0].endswith(f"step={step}"))


def test_the_slider_selects_checkpoints_and_the_head_stays_open(page, folder):
    assert "step 40" in " ".join(page.inner_text(".numbers").split())
    title = page.inner_text(".pattern .title")
    page.focus(".timeline")
    for step, score in ((20, "10.00"), (10, "0.000")):
        page.keyboard.press("ArrowLeft")
        at(page, step)
        assert f"BLEU {score}" in " ".join(page.inner_text(".numbers").split())
        shown, expected = weight(folder, page, step)
        assert shown == expected
    assert page.inner_text(".pattern .title") == title
    assert page.evaluate("document.activeElement.className") == "timeline"


def test_keys_and_links_select_checkpoints(page, folder):
    page.keyboard.press(",")
    at(page, 20)
    page.reload()
    page.wait_for_selector("#regard[data-ready]")
    assert page.input_value(".timeline") == "1"
    page.keyboard.press(",")
    at(page, 10)
    page.click(".play")
    at(page, 40)
    page.wait_for_selector(".play[aria-pressed=false]")
    shown, expected = weight(folder, page, 40)
    assert shown == expected


def test_another_text_and_the_link_to_the_models(page):
    before = page.inner_text(".texts")
    page.select_option(".replay select >> nth=1", "1")
    until(page, lambda: "text=1" in page.url and page.inner_text(".texts") != before)
    assert page.locator(".score-curve circle").count() == 3
    assert page.locator(".replay .visually-hidden tr").count() == 4
    page.set_viewport_size({"width": 390, "height": 844})  # what is chosen can be read on a phone
    assert all(one.bounding_box()["width"] > 120 for one in page.locator(".replay select").all())
    if not page.is_visible("nav a.link"):  # in the menu of a narrow window
        page.click(".pages-button")
    page.click("nav a.link")
    page.wait_for_selector("#regard[data-ready] .input-bar .text")
    assert page.locator("nav a.link").get_attribute("href") == "?run="


def test_the_bar_is_above_the_pattern_and_inside_the_window(page):
    for width in (1366, 390):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(300)
        bar = page.locator(".replay").bounding_box()
        assert bar["height"] < 200  # it once took what the pattern needs
        for part in page.locator(".replay :is(select, button, input, .numbers):visible").all():
            box = part.bounding_box()
            assert box["x"] >= 8
            assert box["x"] + box["width"] <= width - 8


@pytest.mark.parametrize("size", [(683, 384), (844, 390)])
def test_the_picture_is_in_view_in_low_windows(page, size):
    width, height = size
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(300)
    board, bottom = (page.locator(one).bounding_box() for one in (".board", ".bottom"))
    assert (bottom["y"] - board["y"]) / height > 0.55
    assert page.is_hidden(".score-curve")
    page.click(".replay .unfold")
    curve = page.locator(".score-curve").bounding_box()
    assert curve["x"] + curve["width"] <= width
    for part in page.locator(".replay :is(select, button, input, .numbers):visible").all():
        box = part.bounding_box()
        assert box["x"] >= 8
        assert box["x"] + box["width"] <= width - 8


def test_without_a_run_the_page_leads_to_the_models(browser, folders):
    service = Service(Catalog([folders["transformer"]]), Runs([]))
    with serving(make_app(service)) as address, window(browser, address) as page:
        page.goto(f"{address}/?run=gone")
        assert "regard serve --run" in page.inner_text(".nothing p")
        page.click(".nothing .run")
        page.wait_for_selector("#regard[data-ready] .input-bar .text")
    service.close()
