"""The application: its routes are those it describes, and what it must never do it does not."""

import json
import re

import pytest
from safetensors.numpy import load
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from regard.server import model_inputs as inputs
from regard.server import requests as asking
from regard.server.app import make_app
from regard.server.catalog import Catalog
from regard.server.html_export import PAGE
from regard.server.service import Service


def test_the_document_describes_every_route_and_no_other(client):
    told = client.get("/api/openapi.json").json()
    assert told["info"]["version"] == "1.2.3"
    described = {(method.upper(), path) for path, ways in told["paths"].items() for method in ways}
    served = {
        (method, "/api" + re.sub(r":\w+}", "}", route.path))
        for route in client.app.routes[0].routes
        if isinstance(route, Route)
        for method in route.methods - {"HEAD"}
    }
    assert described == served - {("GET", "/api/openapi.json")}
    mounts = [route.path for route in client.app.routes if isinstance(route, Mount)]
    assert mounts == ["/api", ""] == [route.path for route in client.app.routes]


def test_every_reference_of_the_document_leads_somewhere(client):
    text = client.get("/api/openapi.json").text
    names = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert {"TraceAbout", "AskTrace", "Edit", "HeadMeasures", "Fault"} <= names
    assert names == set(json.loads(text)["components"]["schemas"])


def test_the_page_is_served_and_asked_for_anew_each_time(client):
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["cache-control"] == "no-cache"
    script = client.get("/js/source.js")
    assert "javascript" in script.headers["content-type"]
    again = client.get("/js/source.js", headers={"if-none-match": script.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize(
    "path",
    [
        "/../app.py",
        "/%2e%2e/app.py",
        "/js/../../app.py",
        "/js/%2e%2e%2f%2e%2e%2fapp.py",
        "/..%5capp.py",
        "//etc/passwd",
        "/%00",
        "/api/examples/vision/../../config.json",
        "/api/examples/..%2f..%2fetc/0",
    ],
)
def test_no_path_leads_out_of_the_page(client, path):
    answer = client.get(path)
    assert answer.status_code in (404, 422)
    assert "def make_app" not in answer.text
    assert "error" in answer.json()


def test_what_an_id_names_may_be_kept_and_what_is_asked_may_not(client, ask):
    told = ask()
    tile = {"row_start": 0, "row_stop": 1, "column_start": 0, "column_stop": 1}
    place = {"site": told["sites"][0]["path"], "head": 0}
    binary = client.get(f"/api/trace/{told['id']}/tile", params={**place, **tile})
    assert "immutable" in binary.headers["cache-control"]
    assert "private" in binary.headers["cache-control"]
    again = client.post("/api/answer", json={"model": "encoder", "text": "the dog"})
    assert again.headers["cache-control"] == "no-store"


def test_every_answer_says_what_pages_may_do_and_lets_no_other_page_in(client):
    for path in ("/", "/api/models", "/nowhere"):
        headers = client.get(path, headers={"origin": "http://elsewhere.test"}).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_the_page_needs_nothing_that_its_policy_forbids():
    text = (PAGE / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", text) == []
    assert re.findall(r"\bon\w+=", text) == []
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.parametrize("host", ["evil.test", "127.0.0.1.evil.test", "localhost.evil.test", ""])
def test_other_host_names_are_refused(client, host):
    answer = client.get("/api/models", headers={"host": host})
    assert answer.status_code == 403
    assert "answers only as" in answer.json()["error"]


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost", "[::1]:80"])
def test_this_machine_is_let_in(client, host):
    assert client.get("/api/models", headers={"host": host}).status_code == 200


def test_a_server_for_others_answers_under_any_name(folders):
    service = Service(Catalog([folders["encoder"]]))
    with TestClient(
        make_app(service, hosts=None), base_url="http://my-machine.test"
    ) as open_to_all:
        assert open_to_all.get("/api/models").status_code == 200


def test_pages_from_elsewhere_cannot_ask(client):
    asked = {"model": "encoder", "text": "the dog"}
    other = client.post("/api/trace", json=asked, headers={"origin": "http://elsewhere.test"})
    assert other.status_code == 403
    own = client.post("/api/trace", json=asked, headers={"origin": "http://127.0.0.1"})
    assert own.status_code == 200


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"model": "transformr", "text": "a"}, "no model 'transformr'"),
        ({"text": "a"}, "needs the field 'model'"),
        ({"model": "encoder"}, "give a text or an image"),
        ({"model": "encoder", "text": "a", "image": "b"}, "one of the two"),
        ({"model": "encoder", "text": 7}, "must be a text"),
        ({"model": "encoder", "text": "a", "txt": "b"}, "no field 'txt'"),
        ({"model": "encoder", "text": "a", "beam": True}, "must be a whole number"),
        ({"model": "encoder", "text": "a", "beam": 99}, "1 to 16"),
        ({"model": "encoder", "text": "a", "edits": {}}, "must be a list"),
        ({"model": "encoder", "text": "a", "edits": [{"kind": "x"}]}, "no kind of edit"),
        ({"model": "encoder", "text": "a", "edits": [{}] * 201}, "at most 200"),
        ({"model": "encoder", "image": "example:0"}, "reads a text"),
        ({"model": "vision", "text": "a"}, "reads an image"),
        ({"model": "vision", "image": "!"}, "not in base64"),
        ({"model": "vision", "image": "aGVsbG8="}, "no picture that can be read"),
        ({"model": "vision", "image": "example:0"}, "no example 0"),
        ({"model": "vision", "image": "example:../x"}, "no number of an example"),
        ({"model": "vision", "image": "upload:00"}, "send it again"),
        ({"model": "transformer", "text": "a", "target": [1, "b"]}, "list of token ids"),
        ({"model": "transformer", "text": "a", "target": [10**6]}, "no id of this vocabulary"),
        ([], "must be a JSON object"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(client, asked, said):
    answer = client.post("/api/trace", json=asked)
    assert answer.status_code == 422
    assert said in answer.json()["error"]
    assert answer.headers["cache-control"] == "no-store"


def test_a_body_that_is_no_json_is_refused(client):
    answer = client.post("/api/trace", content=b"{")
    assert answer.status_code == 422
    assert "no JSON" in answer.json()["error"]


@pytest.mark.parametrize("length_told", [True, False])
def test_a_body_that_is_too_large_is_not_read(client, monkeypatch, length_told):
    monkeypatch.setattr("regard.server.routes.MOST_BYTES", 1000)
    body = b"x" * 2000 if length_told else iter([b"x" * 900, b"x" * 900, b"x" * 900])
    answer = client.post("/api/trace", content=body)
    assert answer.status_code == 413
    assert "send a shorter text" in answer.json()["error"]


def test_a_text_that_is_too_long_is_refused(client, monkeypatch):
    monkeypatch.setattr(asking, "LONGEST_TEXT", 20)
    answer = client.post("/api/trace", json={"model": "encoder", "text": "x" * 21})
    assert (answer.status_code, "21 characters" in answer.text) == (422, True)
    monkeypatch.setattr(inputs, "MOST_TOKENS", 3)
    answer = client.post("/api/trace", json={"model": "encoder", "text": "is the dog"})
    assert answer.status_code == 422
    assert "at most 3 are traced" in answer.json()["error"]


def test_a_text_that_would_take_all_memory_is_refused(client, monkeypatch):
    monkeypatch.setattr(inputs, "_SHARE", 1e-9)
    answer = client.post("/api/trace", json={"model": "encoder", "text": "the garden is"})
    assert answer.status_code == 422
    assert "GB of memory" in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/trace/0123", 404, "ask for it again"),
        ("/api/trace/0123/tile", 404, "ask for it again"),
        ("/api/nothing", 404, "nothing at /api/nothing"),
        ("/api/trace", 405, "cannot be asked with GET"),
        ("/api/examples?model=no", 422, "there is no model 'no'"),
        ("/api/examples/vision/9", 422, "no example 9"),
        ("/api/trace/ID/vectors?site=encoder", 422, "no attention site"),
        ("/api/trace/ID/vectors?site=encoder.layers.0.self&head=7", 422, "no head 7"),
        ("/api/trace/ID/vectors?site=encoder.layers.0.self&head=x", 422, "whole number"),
        ("/api/trace/ID/steps?site=encoder.layers.0.self&query=99&key=0", 422, "no query 99"),
        ("/api/trace/ID/tile?site=encoder.layers.0.self&head=0", 422, "row_start is None"),
        ("/api/trace/ID/space?site=encoder.layers.0.self&axes=4", 422, "2 or 3 axes"),
        ("/api/trace/ID/thumbnails?size=9999", 422, "1 to 256"),
        ("/api/trace/ID/pixels", 422, "no picture"),
        ("/api/trace/ID/alternatives?position=0", 422, "only a translation"),
        ("/api/trace/ID/next", 422, "only a language model"),
        ("/api/trace/ID/next?temperature=warm", 422, "must be a number"),
        ("/api/trace/ID/next?count=99", 422, "1 to 50"),
    ],
)
def test_addresses_that_lead_nowhere_are_refused_in_a_sentence(client, ask, path, status, said):
    answer = client.get(path.replace("ID", ask("encoder")["id"]))
    assert answer.status_code == status
    assert said in answer.json()["error"]


def test_a_fault_of_the_server_says_so_and_no_more(client, monkeypatch):
    def broken(*args, **options):
        raise RuntimeError("a secret")

    monkeypatch.setattr(Service, "trace", broken)
    answer = client.post("/api/trace", json={"model": "encoder", "text": "the dog"})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "something went wrong" in answer.json()["error"]


def test_a_server_without_models_still_has_the_worked_example(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.interop.model_names.ZOO", tmp_path)
    with TestClient(make_app(Service(Catalog())), base_url="http://127.0.0.1") as empty:
        told = empty.get("/api/models").json()
        assert told["models"] == []
        shown = empty.get(f"/api/trace/{told['example']}").json()
        assert shown["tokens"]["source"] == told["worked"]["words"] == ["one", "two", "three"]
        # by hand: q of "one" is (2, 0, 1, 1); the keys are (0, 1, 1, 2), (2, 0, 2, 0) and
        # (1, 1, 2, 2), so q · k is 3, 6 and 6, and half of that after √4
        place = {"site": shown["sites"][0]["path"], "head": 0, "stage": "scores"}
        place |= {"row_start": 0, "row_stop": 1, "column_start": 0, "column_stop": 3}
        tile = empty.get(f"/api/trace/{told['example']}/tile", params=place)
        assert load(tile.content)["tile"].tolist() == [[1.5, 3.0, 3.0]]
        refused = empty.post("/api/trace", json={"model": "en-de", "text": "a"})
        assert "this server has none" in refused.json()["error"]
        assert empty.get("/").status_code == 200


def test_two_folders_of_one_name_have_two_names(folders, tmp_path):
    other = tmp_path / "encoder"
    other.symlink_to(folders["decoder"])
    catalog = Catalog([folders["encoder"], tmp_path / "encoder"])
    names = list(catalog.entries)
    catalog.close()
    assert names[:2] == ["encoder", "decoder"]
    twice = Catalog([folders["encoder"], folders["encoder"]])
    assert list(twice.entries)[:2] == ["encoder", "encoder-2"]
    twice.close()
