"""Connections that idle, dribble or do not read, a draining shutdown, full queues, and logs."""

import http.client
import io
import json
import logging
import socket
import threading
from contextlib import suppress
from threading import Event

import pytest
from fastapi.testclient import TestClient
from PIL import Image, ImageFile

from regard.server import connections, jobs
from regard.server import service as service_module
from regard.server.app import make_app
from regard.server.catalog import Catalog
from regard.server.connections import hide_messages
from regard.server.jobs import Job
from regard.server.service import Service
from regard.server.settings import LIMITS
from tests.server.conftest import running

pytestmark = pytest.mark.long


@pytest.fixture
def limit(monkeypatch):
    """Change limits in a module."""

    def change(module, **limits):
        monkeypatch.setattr(module, "LIMITS", LIMITS.model_copy(update=limits))

    return change


@pytest.fixture
def own(folders):
    """A separate service, which tests can stop."""
    service = Service(Catalog([folders["encoder"]]))
    yield service
    service.close()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def is_closed(client):
    """Wait until the server closes a connection."""
    with suppress(ConnectionResetError):
        while client.recv(65_536):
            pass
    return True


def get(port, path="/health"):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    client.request("GET", path)
    answer = client.getresponse()
    answer.read()
    client.close()
    return answer.status


def post(port, path, body, answers):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"content-type": "application/json"}
    client.request("POST", path, json.dumps(body), headers)
    answer = client.getresponse()
    answers.append((answer.status, answer.getheader("retry-after"), answer.read()))
    client.close()


def test_idle_connections_keep_nobody_out(own, limit):
    limit(connections, connections=8, idle_seconds=600)
    with running(make_app(own)) as (_, port):
        idle = [connect(port) for _ in range(40)]
        assert get(port) == 200
        assert is_closed(idle[0])  # the longest idle ones made room
        idle[-1].sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        assert idle[-1].recv(100).startswith(b"HTTP/1.1 200")
        for one in idle:
            one.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost:"])
def test_requests_that_do_not_come_are_not_waited_for(own, limit, sent):
    limit(connections, idle_seconds=0.2)
    with running(make_app(own)) as (_, port), connect(port) as client:
        client.sendall(sent)
        assert is_closed(client)


def test_a_body_that_does_not_come_is_refused(own, limit):
    limit(connections, idle_seconds=0.2)
    head = b"POST /api/trace HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    with running(make_app(own)) as (_, port), connect(port) as client:
        client.sendall(head + b"content-length: 100\r\n\r\n{")
        assert client.recv(100).startswith(b"HTTP/1.1 408")


def test_clients_that_do_not_read_are_cut_off(own, limit):
    limit(connections, read_seconds=0.2)

    async def large(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(200):
            await send({"type": "http.response.body", "body": bytes(2**20), "more_body": True})

    app = make_app(own)
    app.router.default = large
    with running(app) as (server, port), connect(port) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert client.recv(15).startswith(b"HTTP/1.1 200")
        wait = Event()
        while server.server_state.connections:  # ends because the connection is aborted
            wait.wait(0.05)


def test_requests_beyond_the_limit_are_answered_503(own, limit):
    from regard.server import app as app_module

    limit(app_module, connections=0)
    with TestClient(make_app(own), base_url="http://127.0.0.1") as client:
        refused = client.get("/api/models")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
    assert refused.headers["retry-after"]


def stop_while_answering(service, monkeypatch, release):
    """Stop a server that has one running and three waiting requests; return their answers."""
    started, free = Event(), Event()
    trace = Service.trace

    def slow(self, request, job):
        started.set()
        free.wait(30)
        return trace(self, request, job)

    monkeypatch.setattr(Service, "trace", slow)
    answers = []
    with running(make_app(service)) as (server, port):
        bodies = [{"model": "encoder", "text": "the dog " * i} for i in range(1, 5)]
        given = [(port, "/api/answer", body, answers) for body in bodies]
        clients = [threading.Thread(target=post, args=one) for one in given]
        for one in clients:
            one.start()
        assert started.wait(30)
        while sum(len(x) for x in service.catalog["encoder"].worker._waiting.values()) < 3:
            Event().wait(0.01)
        server.should_exit = True
        if release:
            free.set()
        for one in clients:
            one.join()
        free.set()
    return answers


def test_a_stopping_server_answers_the_requests_that_it_has(own, monkeypatch):
    answers = stop_while_answering(own, monkeypatch, release=True)
    assert [status for status, _, _ in answers] == [200] * 4
    assert all(json.loads(body)["answer"] for _, _, body in answers)


def test_requests_that_take_longer_get_an_error_instead_of_a_cut_answer(own, monkeypatch, limit):
    limit(connections, shutdown_seconds=0.3)
    answers = stop_while_answering(own, monkeypatch, release=False)
    assert [(status, bool(again)) for status, again, _ in answers] == [(503, True)] * 4
    assert {json.loads(body)["error"]["code"] for _, _, body in answers} == {"stopping"}


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_jobs_that_run_too_long_are_ended(own, limit, accept):
    limit(jobs, job_seconds=-1)
    with TestClient(make_app(own), base_url="http://127.0.0.1") as client:
        body = {"model": "encoder", "text": "the dog"}
        answer = client.post("/api/trace", json=body, headers={"accept": accept})
    assert '"too_slow"' in answer.text
    assert answer.status_code == (503 if accept == "application/json" else 200)


def test_a_full_queue_of_readers_is_answered_429(own, limit):
    free = Event()
    limit(service_module, waiting_reads=3)
    held = [own.read(Job(lambda job: free.wait(30))) for _ in range(3)]
    with TestClient(make_app(own), base_url="http://127.0.0.1") as client:
        id = client.get("/api/models").json()["example"]
        refused = client.get(f"/api/trace/{id}/measures")
        free.set()
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert all(one.future.result(30) for one in held)
        assert client.get(f"/api/trace/{id}/measures").status_code == 200


def test_a_full_queue_of_a_translator_is_answered_429_with_retry_after(folders, limit, tmp_path):
    (tmp_path / "en-de").symlink_to(folders["transformer"])
    limit(jobs, waiting_jobs=0)
    service = Service(Catalog([tmp_path / "en-de"]))
    entry = next(one for one in service.catalog.entries.values() if one.name != "en-de")
    with TestClient(make_app(service), base_url="http://127.0.0.1") as client:
        body = {"q": "the dog", "source": "en", "target": "de"}
        answers = [client.post("/translate", json=body)]
        answers.append(client.post("/api/translate", json={"model": entry.name, "texts": ["a"]}))
    for answer in answers:
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")


def test_a_small_file_of_many_pixels_is_not_decoded(client, monkeypatch):
    file, decoded = io.BytesIO(), []
    Image.new("L", (10_000, 6_000)).save(file, "PNG", optimize=True)
    assert len(file.getvalue()) < 100_000
    monkeypatch.setattr(ImageFile.ImageFile, "load", decoded.append)
    answer = client.post("/api/images", content=file.getvalue())
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (422, "image_too_large")
    assert decoded == []


def test_a_line_of_the_log_has_the_route_and_no_word_of_the_client(own):
    lines = []
    app = make_app(own, log=lines.append)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        client.post("/api/answer", json={"model": "encoder", "text": "the garden"})
        id = client.get("/api/models").json()["example"]
        client.get(f"/api/trace/{id}?secret=1")
        client.get("/secret")
        client.request("SECRET", "/")
        client.get("/js/source.js")
    first = lines[0]
    assert json.loads(first.as_line("json")) == vars(first)
    assert (first.method, first.route, first.status) == ("POST", "/api/answer", 200)
    assert first.received_bytes == len('{"model":"encoder","text":"the garden"}')
    assert first.sent_bytes > 0
    assert lines[2].route == "/api/trace/{id}"
    assert lines[-1].route == "file of the page"
    assert lines[-2].method == "other"
    text = "\n".join(one.as_line("json") + one.as_line("text") for one in lines)
    assert not any(word in text.lower() for word in ("garden", "secret", id))


def test_internal_errors_are_logged_by_their_places(capsys):
    names = ("uvicorn", "uvicorn.error", "regard.server")
    before = [(x, x.handlers, x.propagate) for x in map(logging.getLogger, names)]
    try:
        hide_messages()
        try:
            raise RuntimeError("a secret")
        except RuntimeError:
            logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
        line = json.loads(capsys.readouterr().err)
    finally:
        for logger, handlers, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate
    assert line["error"] == "RuntimeError"
    assert "test_connections.py:" in line["places"][0]
    assert "secret" not in str(line)
