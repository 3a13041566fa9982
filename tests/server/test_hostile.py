"""Hostile requests: each gets an answer below 500 and, if it is an error, a code."""

import json

import pytest

from regard.trace.edits import edit_schema

pytestmark = pytest.mark.long

HUGE = "9" * 30
NUMBERS = ["1e11", "-1e11", "1e308", "1" + "0" * 400, "1e-320", HUGE, f"-{HUGE}", "NaN", "Infinity"]
TEXTS = [r'"\ud800"', r'"a\udfff b"', r'"\u0000"', '""', '" "', r'"\u2028"', '"\\ud83d"']
JSON = {"content-type": "application/json"}


def refused_or_answered(response):
    assert response.status_code < 500, f"{response.request.url}: {response.text[:300]}"
    if response.status_code >= 400:
        error = response.json()["error"]
        assert (error if isinstance(error, str) else error["message"]).strip()
    return response.status_code


def post(client, path, text):
    return refused_or_answered(client.post(path, content=text.encode(), headers=JSON))


@pytest.mark.parametrize("model", ["transformer", "seq2seq", "encoder", "decoder"])
def test_texts_of_every_kind(client, model):
    for text in TEXTS:
        for path in ("trace", "answer", "sweep"):
            post(client, f"/api/{path}", f'{{"model": "{model}", "text": {text}}}')
        post(client, "/api/trace", f'{{"model": "{model}", "text": "the dog", "target": {text}}}')
        post(client, "/api/trace", f'{{"model": {text}, "text": "the dog"}}')
        post(client, "/api/translate", f'{{"model": "{model}", "texts": [{text}, "the dog"]}}')
        post(client, "/api/generate", f'{{"model": "{model}", "text": {text}, "max_tokens": 2}}')
        post(client, "/translate", f'{{"q": {text}, "source": {text}, "target": {text}}}')


def test_numbers_of_every_kind_in_bodies(client):
    for number in NUMBERS:
        trace = '{"model": "transformer", "text": "the dog", '
        for field in ("beam", "part", "text", "model", "image"):
            assert post(client, "/api/trace", f'{trace}"{field}": {number}}}') >= 400
        assert post(client, "/api/trace", f'{trace}"target": [1, {number}]}}') >= 400
        generate = '{"model": "decoder", "text": "the dog", "max_tokens": 2, '
        for field in ("temperature", "top_k", "top_p", "seed"):
            post(client, "/api/generate", f'{generate}"{field}": {number}}}')


def test_a_target_of_many_ids_is_refused_at_once(client):
    body = {"model": "transformer", "text": "the dog", "target": [5] * 40_000}
    answer = client.post("/api/trace", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "too_many_tokens")


@pytest.mark.parametrize("model", ["transformer", "decoder"])
def test_edits_of_every_kind_with_values_of_every_kind(client, model):
    site = "decoder.layers.0.self"
    values = [*NUMBERS, *TEXTS, "[]", "[[]]", "{}", "null", "true", f"[{HUGE}]", '["ablate"]']
    for one in edit_schema()["oneOf"]:
        names = {name: "0" for name in one["properties"] if name not in ("kind", "site")}
        given = {"kind": json.dumps(one["title"]), "site": json.dumps(site), **names}
        for name in given:
            for value in values:
                fields = ", ".join(f'"{n}": {v}' for n, v in {**given, name: value}.items())
                text = f'{{"model": "{model}", "text": "the dog", "edits": [{{{fields}}}]}}'
                post(client, "/api/answer", text)


def test_numbers_of_every_kind_in_addresses(client, trace):
    schema, described = client.get("/api/openapi.json").json(), trace("transformer")
    known = {"site": described["sites"][0]["path"], "path": "decoder.layers.0.self.residual"}
    known |= {"row_start": 0, "row_stop": 1, "column_start": 0, "column_stop": 1, "stop": 1}
    known |= {"query": 0, "key": 0, "position": 0, "side": "decoder", "kind": "pattern"}
    places = {"id": described["id"], "model": "transformer", "run": "x", "number": 0, "step": 0}
    for path, methods in schema["paths"].items():
        if "get" not in methods or path == "/languages":
            continue
        names = [one["name"] for one in methods["get"].get("parameters", ())]
        query = {name: known[name] for name in names if name in known}
        for name in names:
            for value in (HUGE, "1e-320", "Infinity", "\u2028", "-1"):
                asked = {**query, name: value} if name not in places else query
                filled = {**places, name: value} if name in places else places
                address = path.format(**{n: str(v).replace("/", "") for n, v in filled.items()})
                refused_or_answered(client.get(address, params=asked))


@pytest.mark.parametrize("host", ["[", "[::1", "]", "[]", "127.0.0.1.evil.test", "127.0.0.1@evil"])
def test_hosts_that_are_not_this_machine(client, host):
    assert refused_or_answered(client.get("/api/models", headers={"host": host})) == 403


@pytest.mark.parametrize("origin", ["[", "http://[", "null", "http://127.0.0.1:9", "file://"])
def test_origins_that_are_not_this_server(client, origin):
    headers = {**JSON, "origin": origin}
    body = b'{"model": "encoder", "text": "the dog"}'
    answer = client.post("/api/trace", content=body, headers=headers)
    assert refused_or_answered(answer) == 403


def test_pages_of_other_servers_can_link_here_and_request_nothing(client):
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert refused_or_answered(client.get("/api/models", headers=foreign)) == 403
    link = {**foreign, "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200


def test_methods_that_no_address_has_are_refused_with_those_it_has(client):
    schema = client.get("/api/openapi.json").json()
    for path, methods in schema["paths"].items():
        for method in {"get", "post", "put", "delete", "patch", "options", "trace"} - set(methods):
            answer = client.request(method.upper(), path.replace("{", "").replace("}", ""))
            allowed = {one.upper() for one in methods}
            assert answer.status_code == 405, (method, path)
            assert set(answer.headers["allow"].split(", ")) == allowed, (method, path)
