"""The application: addresses, the page's files, refused requests and errors."""

import json
import re
import socket
from threading import Event
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from safetensors.numpy import load

from regard.server import app as app_module
from regard.server import connections, model_inputs
from regard.server.app import make_app, names_of_server
from regard.server.catalog import Catalog
from regard.server.error_codes import JobCanceledError
from regard.server.html_export import PAGE
from regard.server.service import Service
from regard.server.settings import LIMITS
from tests.server.conftest import serving

ADDRESSES = """
GET /api/models, GET /api/errors, GET /api/edits/schema, GET /api/examples,
GET /api/examples/{model}/{number}, POST /api/images, POST /api/translate, POST /api/generate,
GET /api/runs, GET /api/runs/{run}/{step}, POST /api/trace, POST /api/answer, GET /api/trace/{id},
GET /api/trace/{id}/alternatives, GET /api/trace/{id}/next, GET /api/trace/{id}/measures,
GET /api/trace/{id}/thumbnails, GET /api/trace/{id}/vectors, GET /api/trace/{id}/tile,
GET /api/trace/{id}/steps, GET /api/trace/{id}/projections, GET /api/trace/{id}/space,
GET /api/trace/{id}/rollout, GET /api/trace/{id}/exact, GET /api/trace/{id}/pixels,
GET /api/trace/{id}/flow, GET /api/trace/{id}/flow/arrays, GET /api/trace/{id}/stream,
GET /api/trace/{id}/figure, GET /api/trace/{id}/figures, GET /api/trace/{id}/html,
GET /api/trace/{id}/units, GET /api/trace/{id}/lens, GET /api/trace/{id}/attribution,
GET /api/trace/{id}/decoding, POST /api/sweep, GET /languages, POST /translate
"""


@pytest.fixture
def limit(monkeypatch):
    """Change limits in a module."""

    def change(module, **limits):
        monkeypatch.setattr(module, "LIMITS", LIMITS.model_copy(update=limits))

    return change


def test_openapi_describes_all_addresses(client):
    document = client.get("/api/openapi.json").json()
    assert document["info"]["version"] == "1.2.3"
    described = {
        f"{way.upper()} {path}" for path, ways in document["paths"].items() for way in ways
    }
    assert described == set(re.split(r",\s+", ADDRESSES.strip()))
    body = document["components"]["schemas"]["TraceRequest"]["properties"]
    assert body["beam"]["maximum"] == LIMITS.beam
    kinds = [one["title"] for one in body["edits"]["items"]["oneOf"]]
    assert {"forbid", "temperature", "token"} <= set(kinds)
    tile = document["paths"]["/api/trace/{id}/tile"]["get"]
    assert {"site", "head", "row_start", "dtype"} <= {one["name"] for one in tile["parameters"]}
    assert "application/octet-stream" in tile["responses"]["200"]["content"]
    trace = document["paths"]["/api/trace"]["post"]["responses"]["200"]["content"]
    assert set(trace) == {"application/json", "text/event-stream"}


def test_error_codes_are_listed_with_their_messages(client):
    codes = client.get("/api/errors").json()
    assert codes["queue_full"]["status"] == 429
    error = client.get("/api/examples?model=no").json()["error"]
    assert codes[error["code"]]["message"].format(**error["params"]) == error["message"]


def test_the_page_is_served_and_revalidated(client):
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
        "/js/%2e%2e%2f%2e%2e%2fapp.py",
        "/..%5capp.py",
        "//etc/passwd",
        "/%00",
        "/api/examples/vision/../../config.json",
        "/api/examples/..%2f..%2fetc/0",
    ],
)
def test_no_path_leads_out_of_the_page(client, path):
    response = client.get(path)
    assert response.status_code in (404, 422)
    assert "def make_app" not in response.text
    assert response.json()["error"]["code"]


def test_all_modules_of_the_page_come_as_one_script(client):
    script = client.get("/js/live.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "import {" not in script.text
    assert "class HttpSource" in script.text
    again = client.get("/js/live.js", headers={"if-none-match": script.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = client.get("/js/live.js", headers={"accept-encoding": "identity"})
    assert plain.text == (PAGE / "js/live.js").read_text("utf-8")


def test_arrays_are_cached_and_answers_are_not(client, trace):
    described = trace("encoder")
    tile = {"row_start": 0, "row_stop": 1, "column_start": 0, "column_stop": 1}
    query = {"site": described["sites"][0]["path"], "head": 0, **tile}
    response = client.get(f"/api/trace/{described['id']}/tile", params=query)
    assert response.headers["cache-control"] == "private, max-age=31536000, immutable"
    response = client.post("/api/answer", json={"model": "encoder", "text": "the dog"})
    assert response.headers["cache-control"] == "no-store"


def test_every_response_has_security_headers(client):
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


@pytest.mark.parametrize("host", ["evil.test", "127.0.0.1.evil.test", ""])
def test_other_host_names_are_refused(client, host):
    response = client.get("/api/models", headers={"host": host})
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "wrong_host"


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost", "[::1]:80"])
def test_host_names_of_this_machine_are_accepted(client, host):
    assert client.get("/api/models", headers={"host": host}).status_code == 200


def test_a_public_server_answers_under_any_name(folders):
    app = make_app(Service(Catalog([folders["encoder"]])), hosts=None)
    with TestClient(app, base_url="http://my-machine.test") as public:
        assert public.get("/api/models").status_code == 200


@pytest.mark.parametrize(
    ("listens_on", "options", "name", "status"),
    [
        ("0.0.0.0", {"token": ""}, "evil.test", 403),
        ("0.0.0.0", {"token": ""}, "192.168.1.5:8765", 200),
        ("::", {"token": ""}, "[fd00::1]:8765", 200),
        ("", {"token": ""}, "10.0.0.9", 200),
        ("192.168.1.5", {"token": ""}, "192.168.1.5", 200),
        ("192.168.1.5", {"token": ""}, "evil.test", 403),
        ("0.0.0.0", {"token": ""}, f"{socket.gethostname()}:8765", 200),
        ("0.0.0.0", {"token": "secret"}, "evil.test", 401),  # the token is what it lacks
        ("0.0.0.0", {"token": "secret", "more": ["Class.test"]}, "evil.test", 403),
        ("0.0.0.0", {"token": "", "more": ["Class.test"]}, "class.test", 200),
        ("127.0.0.1", {"token": "", "more": ["class.test"]}, "class.test", 200),
        ("127.0.0.1", {"token": "", "more": ["class.test"]}, "192.168.1.5", 403),
    ],
)
def test_names_that_others_may_use(listens_on, options, name, status):
    hosts = names_of_server(listens_on, **options)
    app = make_app(Service(Catalog([])), hosts=hosts, token=options["token"])
    with TestClient(app) as asked:
        answer = asked.get("/api/models", headers={"host": name})
    assert answer.status_code == status
    assert status != 403 or "127.0.0.1" in answer.json()["error"]["message"]
    assert "0.0.0.0" not in answer.text


def test_pages_of_other_servers_are_refused(client):
    body = {"model": "encoder", "text": "the dog"}
    other = client.post("/api/trace", json=body, headers={"origin": "http://elsewhere.test"})
    assert (other.status_code, other.json()["error"]["code"]) == (403, "wrong_origin")
    own = client.post("/api/trace", json=body, headers={"origin": "http://127.0.0.1"})
    assert own.status_code == 200


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            {"model": "transformr", "text": "a"},
            "unknown_model",
            "transformr; the nearest are transformer",
        ),
        ({"text": "a"}, "missing_field", "needs the field model"),
        ({"model": "encoder"}, "text_or_image", "either a text or an image"),
        ({"model": "encoder", "text": "a", "image": "b"}, "text_or_image", ""),
        ({"model": "encoder", "text": 7}, "invalid_field", "text is 7; it must be a valid string"),
        ({"model": "encoder", "text": "a", "txt": "b"}, "unknown_field", "no field txt"),
        ({"model": "encoder", "text": "a", "beam": True}, "invalid_field", "beam is true"),
        ({"model": "encoder", "text": "a", "beam": 99}, "invalid_field", "or equal to 16"),
        ({"model": "encoder", "text": "a", "edits": {}}, "invalid_field", "a valid list"),
        (
            {"model": "encoder", "text": "a", "edits": [{"kind": "x"}]},
            "unknown_name",
            "unknown edit",
        ),
        ({"model": "encoder", "text": "a", "edits": [{}] * 201}, "too_long", "longer than 200"),
        ({"model": "encoder", "text": "a" * 200_001}, "too_long", "longer than 200000"),
        ({"model": "encoder", "image": "example:0"}, "needs_text", "reads a text"),
        ({"model": "vision", "text": "a"}, "needs_image", "reads an image"),
        ({"model": "vision", "image": "!"}, "invalid_base64", "not valid base64"),
        ({"model": "vision", "image": "aGVsbG8="}, "invalid_image", "cannot be read"),
        ({"model": "vision", "image": "example:9"}, "unknown_example", "no example 9"),
        ({"model": "vision", "image": "example:../x"}, "unknown_model", "no model .."),
        ({"model": "vision", "image": "upload:00"}, "upload_gone", "upload it again"),
        ({"model": "transformer", "text": "a", "target": [1, "b"]}, "invalid_field", "target"),
        ([], "not_an_object", "must be a JSON object"),
    ],
)
def test_invalid_requests_have_a_code_and_a_message(client, body, code, message):
    response = client.post("/api/trace", json=body)
    known = {"upload_gone": 410, "unknown_model": 404, "unknown_example": 404}
    assert response.status_code == known.get(code, 422)
    error = response.json()["error"]
    assert error["code"] == code
    assert message in error["message"]
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("headers", "code"),
    [({"content-type": "application/json"}, "invalid_json"), ({}, "not_an_object")],
)
def test_a_body_that_is_not_json_is_refused(client, headers, code):
    response = client.post("/api/trace", content=b"{", headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (422, code)


@pytest.mark.parametrize("path", ["/api/trace", "/api/images"])
@pytest.mark.parametrize("has_length", [True, False])
def test_a_body_that_is_too_large_is_not_read(client, limit, has_length, path):
    limit(app_module, body_bytes=1000)
    limit(connections, body_bytes=1000)
    body = b"x" * 2000 if has_length else iter([b"x" * 900, b"x" * 900, b"x" * 900])
    response = client.post(path, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 413
    assert response.json()["error"]["params"]["limit"] == 1000


def test_a_text_with_too_many_tokens_is_refused(client, limit):
    limit(model_inputs, traced_tokens=3)
    response = client.post("/api/trace", json={"model": "encoder", "text": "is the dog"})
    assert response.json()["error"]["code"] == "too_many_tokens"


def test_a_text_that_would_take_too_much_memory_is_refused(client, limit):
    limit(model_inputs, memory_share=1e-9)
    response = client.post("/api/trace", json={"model": "encoder", "text": "the garden is"})
    assert "GB of memory" in response.json()["error"]["message"]


SITE = "site=encoder.layers.0.self"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/trace/0123", 404, "unknown_trace"),
        (f"/api/trace/0123/vectors?{SITE}", 404, "unknown_trace"),
        ("/api/nothing", 404, "not_found"),
        ("/api/trace", 405, "method_not_allowed"),
        ("/api/examples?model=no", 404, "unknown_model"),
        ("/api/examples/vision/9", 404, "unknown_example"),
        ("/api/trace/ID/vectors?site=encoder", 422, "not_in_trace"),
        (f"/api/trace/ID/vectors?{SITE}&head=7", 422, "unknown_head"),
        (f"/api/trace/ID/vectors?{SITE}&head=x", 422, "invalid_field"),
        (f"/api/trace/ID/steps?{SITE}&query=99&key=0", 422, "no_such_position"),
        (f"/api/trace/ID/tile?{SITE}&head=0", 422, "missing_field"),
        (f"/api/trace/ID/tile?{SITE}&row_start=0&row_stop=99&column_start=0&column_stop=1", 422,
         "invalid_range"),
        (f"/api/trace/ID/space?{SITE}&axes=4", 422, "invalid_field"),
        ("/api/trace/ID/thumbnails?size=9999", 422, "invalid_field"),
        ("/api/trace/ID/pixels", 422, "no_image"),
        ("/api/trace/ID/alternatives?position=0", 422, "not_a_translation"),
        ("/api/trace/ID/next", 422, "not_a_language_model"),
        ("/api/trace/ID/next?count=99", 422, "invalid_field"),
    ],
)  # fmt: skip
def test_invalid_addresses_have_a_status_and_a_code(client, trace, path, status, code):
    response = client.get(path.replace("ID", trace("encoder")["id"]))
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


def test_an_internal_error_reveals_nothing(client, monkeypatch):
    def broken(*args, **options):
        raise RuntimeError("a secret")

    monkeypatch.setattr(Service, "trace", broken)
    response = client.post("/api/trace", json={"model": "encoder", "text": "the dog"})
    assert response.status_code == 500
    assert "secret" not in response.text
    assert response.json()["error"]["code"] == "internal"


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_a_client_that_disconnects_cancels_its_job(service, monkeypatch, accept):
    started, canceled = Event(), Event()

    def slow(self, request, job):
        started.set()
        try:
            while not canceled.wait(0.01):
                job.check()
        except JobCanceledError:
            canceled.set()
            raise

    monkeypatch.setattr(Service, "trace", slow)
    body = json.dumps({"model": "encoder", "text": "the dog"})
    headers = f"accept: {accept}\r\ncontent-type: application/json\r\nhost: 127.0.0.1"
    request = f"POST /api/trace HTTP/1.1\r\n{headers}\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    with serving(make_app(service)) as address:
        with socket.create_connection(("127.0.0.1", urlsplit(address).port)) as client:
            client.sendall(request.encode())
            assert started.wait(10)
        assert canceled.wait(10)


def test_a_server_without_models_has_the_worked_example(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.interop.model_names.ZOO", tmp_path)
    with TestClient(make_app(Service(Catalog())), base_url="http://127.0.0.1") as empty:
        listed = empty.get("/api/models").json()
        assert listed["models"] == []
        shown = empty.get(f"/api/trace/{listed['example']}").json()
        assert shown["tokens"]["source"] == listed["worked"]["words"] == ["dogs", "chase", "cats"]
        # by hand: q of "one" is (2, 0, 1, 1); the keys are (0, 1, 1, 2), (2, 0, 2, 0) and
        # (1, 1, 2, 2), so q · k is 3, 6 and 6, divided by √4
        query = {"site": shown["sites"][0]["path"], "head": 0, "stage": "scores"}
        query |= {"row_start": 0, "row_stop": 1, "column_start": 0, "column_stop": 3}
        tile = empty.get(f"/api/trace/{listed['example']}/tile", params=query)
        assert load(tile.content)["tile"].tolist() == [[1.5, 3.0, 3.0]]
        refused = empty.post("/api/trace", json={"model": "en-de", "text": "a"})
        assert refused.json()["error"]["code"] == "no_models"


def test_folders_with_the_same_name_get_different_names(folders, tmp_path):
    (tmp_path / "encoder").symlink_to(folders["decoder"])
    catalog = Catalog([folders["encoder"], tmp_path / "encoder", folders["encoder"]])
    assert list(catalog.entries)[:3] == ["encoder", "decoder", "encoder-2"]
    catalog.close()


def test_a_token_is_needed_once_in_the_address_or_in_every_request():
    app = make_app(Service(Catalog([])), hosts=None, token="secret")
    with TestClient(app, base_url="http://192.0.2.1") as stranger:
        assert stranger.get("/health").json() == {"status": "ok"}
        for address in ("/", "/api/models", "/api/models?token=wrong"):
            refused = stranger.get(address)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "wrong_token")
        bearer = {"authorization": "Bearer secret"}
        assert stranger.get("/api/errors", headers=bearer).status_code == 200
        assert stranger.get("/api/errors").status_code == 401
        opened = stranger.get("/?token=secret")
        assert "HttpOnly; SameSite=Strict" in opened.headers["set-cookie"]
        assert stranger.get("/api/errors").status_code == 200  # by the cookie


@pytest.mark.parametrize(
    ("headers", "content", "status"),
    [
        ({"host": "["}, b"{}", 403),
        ({"origin": "http://["}, b"{}", 403),
        ({}, b'{"model": "\\ud800"}', 422),
        ({}, b'{"model": "\x84"}', 422),
        ({}, b'{"model": ' + b"9" * 400 + b"}", 422),
    ],
)
def test_malformed_requests_are_refused_not_internal_errors(client, headers, content, status):
    headers = {"content-type": "application/json", **headers}
    assert client.post("/api/trace", content=content, headers=headers).status_code == status


def test_other_methods_are_refused_with_those_that_exist(client):
    refused = client.delete("/api/models")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
