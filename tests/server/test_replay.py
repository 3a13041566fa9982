"""Training runs replayed: in Python, over the API and in a real browser."""

import json
import threading

import pytest
import torch
import uvicorn
from starlette.testclient import TestClient

from regard.errors import FileError, InputError, UnknownNameError
from regard.model import Model
from regard.server.app import address_of, bind, make_app
from regard.server.catalog import Runs, is_run, open_run
from regard.server.service import Service
from regard.trace.capture import trace_model
from regard.trace.trace import Trace

TEXTS = ["the dog is sleeping\tder hund", "the garden\tim garten"]
CROSS = "decoder.layers.0.cross"


def write_run(folder, model, steps, texts=TEXTS, **evaluate):
    """A run as `regard train` leaves it: at each step the model is another."""
    training = folder / "training"
    training.mkdir(parents=True)
    recipe = {"task": "translation", "evaluate": {"snapshots": texts, **evaluate}}
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
    (training / "metrics.jsonl").write_text(text + '{"step": 9')  # being written right now
    return folder


@pytest.fixture(scope="module")
def folder(folders, tmp_path_factory):
    model = Model.load(folders["transformer"])
    return write_run(tmp_path_factory.mktemp("runs") / "toy", model, (10, 20, 40), metric="bleu")


@pytest.fixture(scope="module")
def app(service, folder):
    return make_app(Service(service.catalog, Runs([folder])))


def test_checkpoints_have_their_loss_and_score_by_hand(folder):
    told = open_run(folder).describe()
    assert told["texts"] == ["the dog is sleeping", "the garden"]
    assert told["metric"] == "bleu"
    short = [(x["step"], x["epoch"], x["loss"], x["score"]) for x in told["checkpoints"]]
    assert short == [(10, 0.1, 3.0, 0.0), (20, 0.2, 2.0, 10.0), (40, 0.4, 1.0, 20.0)]


def test_a_snapshot_is_the_trace_that_training_kept(folder, service):
    runs = Runs([folder])
    kept = runs.snapshot(service.store, "toy", 20, 1)
    path = folder / "training" / "snapshots" / "step-00000020" / "1.safetensors"
    assert torch.equal(kept.trace[CROSS].weights(1), Trace.load(path)[CROSS].weights(1))
    assert runs.snapshot(service.store, "toy", 20, 1) is kept


def test_a_checkpoint_that_is_not_whole_yet_is_not_offered(folder, tmp_path):
    (tmp_path / "training" / "snapshots" / "step-00000010").mkdir(parents=True)
    recipe = {"evaluate": {"snapshots": ["a"]}}
    (tmp_path / "training" / "recipe.json").write_text(json.dumps(recipe))
    assert open_run(tmp_path).describe()["checkpoints"] == []
    assert is_run(tmp_path)
    assert not is_run(tmp_path / "training")


def test_two_runs_of_one_name_are_told_apart_and_one_named_twice_is_one(folder, folders, tmp_path):
    model = Model.load(folders["transformer"])
    other = write_run(tmp_path / "toy", model, (5,), texts=["the dog\tder hund"])
    assert list(Runs([folder, other, folder]).runs) == ["toy", "toy-2"]


def test_what_is_not_there_is_refused_in_a_sentence(folder, tmp_path, service):
    with pytest.raises(FileError, match="holds no training run"):
        open_run(tmp_path)
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "recipe.json").write_text("{}")
    with pytest.raises(InputError, match="keeps no snapshots"):
        open_run(tmp_path)
    (tmp_path / "training" / "recipe.json").write_text("[")
    with pytest.raises(FileError, match="cannot be read"):
        open_run(tmp_path)
    runs = Runs([folder])
    for name, step, text, said in (
        ("tox", 10, 0, "no run 'tox'"),
        ("toy", 11, 0, "no snapshot of step 11; it has 3, from 10 to 40"),
        ("toy", 10, 2, "no text 2"),
    ):
        with pytest.raises(UnknownNameError, match=said):
            runs.snapshot(service.store, name, step, text)


def test_the_api_tells_runs_and_describes_snapshots(app):
    client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    assert client.get("/api/models").json()["runs"] == ["toy"]
    assert [run["name"] for run in client.get("/api/runs").json()["runs"]] == ["toy"]
    told = client.get("/api/runs/toy/40?text=1").json()
    assert told["tokens"]["source"][1:-1] != []
    assert client.get(f"/api/trace/{told['id']}").json()["id"] == told["id"]
    missing = client.get("/api/runs/toy/41")
    assert missing.status_code == 422
    assert "step 41" in missing.json()["error"]
    assert client.get("/api/runs/toy/nine").status_code == 404


@pytest.fixture(scope="module")
def address(app):
    bound = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    yield address_of(bound, "127.0.0.1")
    server.should_exit = True
    thread.join()


@pytest.fixture
def page(browser, address):
    context = browser.new_context(viewport={"width": 1280, "height": 860}, locale="en-GB")
    made, faults = context.new_page(), []
    made.on("console", lambda m: faults.append(m.text) if m.type != "log" else None)
    made.on("pageerror", lambda error: faults.append(str(error)))
    made.goto(f"{address}/?run=toy")
    made.wait_for_selector("#regard[data-ready]")
    yield made
    context.close()
    assert faults == []


def weight(folder, page, step):
    """The weight that the reading line shows, and the one that the snapshot has."""
    shown = page.inner_text(".reading .figure.weights b")
    state = dict(part.split("=") for part in page.evaluate("location.hash.slice(1)").split("&"))
    path = folder / "training" / "snapshots" / f"step-{step:08d}" / "0.safetensors"
    site = Trace.load(path)[state["site"]]
    table = site.weights(int(state["head"]))
    return shown, f"{table[int(state['query']), int(state['key'])].item():.3f}"


def until(page, known):
    """Wait until something is so; the page forbids strings that are run as code."""
    for _ in range(100):
        if known():
            break
        page.wait_for_timeout(100)
    page.wait_for_timeout(300)
    assert known()


def at(page, step):
    until(page, lambda: page.url.split("#")[0].endswith(f"step={step}"))


def test_the_slider_leads_through_the_checkpoints_and_the_head_stays_open(page, folder):
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
    assert page.evaluate("document.activeElement.className") == "scrub"


def test_keys_play_and_links_go_on_where_the_reader_was(page, folder):
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


def test_another_text_of_the_run_and_the_way_back_to_the_models(page):
    before = page.inner_text(".texts")
    page.select_option(".replay select >> nth=1", "1")
    until(page, lambda: "text=1" in page.url and page.inner_text(".texts") != before)
    assert page.locator(".score-curve circle").count() == 3
    assert page.locator(".replay .visually-hidden tr").count() == 4
    page.set_viewport_size({"width": 390, "height": 844})  # what is chosen can be read on a phone
    assert all(one.bounding_box()["width"] > 120 for one in page.locator(".replay select").all())
    page.click("nav a.link")
    page.wait_for_selector("#regard[data-ready] .input-bar .text")
    assert page.locator("nav a.link").get_attribute("href") == "?run="
