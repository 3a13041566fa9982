"""`regard serve`: errors, messages and requests."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from typer.testing import CliRunner

from regard.cli.main import app, run

PROGRAM = [sys.executable, "-m", "regard", "serve"]


@pytest.fixture
def served(monkeypatch):
    """Run the command without serving."""

    def invoke(*words):
        monkeypatch.setattr("regard.server.connections.run", lambda app, bound, _: bound.close())
        result = CliRunner().invoke(app, ["serve", *map(str, words)])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--port", "99999"], "port is 99999; it must be 0"),
        (["no-such-model"], "no-such-model"),
        (["--run", "nowhere"], "nowhere is not a training run"),
        (["--host", "203.0.113.9"], "the server cannot listen on 203.0.113.9"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["regard", "serve", *words])
    with pytest.raises(SystemExit) as ended:
        run()
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert sentence in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert printed.out == ""


def test_the_next_free_port_is_used(served):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = served("--port", port)
    assert f"port {port} is in use; using port" in result.stderr
    assert f"regard is at http://127.0.0.1:{port} " not in result.stdout


def test_the_address_opens_the_run(served, tmp_path):
    folder = tmp_path / "my run"
    (folder / "training").mkdir(parents=True)
    recipe = {"evaluate": {"snapshots": ["a"]}}
    (folder / "training" / "recipe.json").write_text(json.dumps(recipe))
    assert "/?run=my%20run (press Ctrl-C to stop)" in served("--run", folder, "--port", 0).stdout


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        (["--host", "0.0.0.0"], None),
        (["--host", "0.0.0.0", "--token", "", "--allow-host", "class.test"], "class.test"),
        (["--allow-host", "class.test"], "class.test"),
    ],
)
def test_names_of_the_server_are_chosen(words, hosts, served, monkeypatch):
    given = []
    monkeypatch.setattr("regard.server.app.make_app", lambda *_, **options: given.append(options))
    assert served("dates", "--port", "0", *words).exit_code == 0
    assert given[0]["hosts"] is None if hosts is None else hosts in given[0]["hosts"]


def test_it_serves_until_it_is_stopped(tmp_path):
    program = subprocess.Popen(
        [*PROGRAM, "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        address = program.stdout.readline().split()[3]
        with urllib.request.urlopen(f"{address}/api/models") as answer:
            assert json.load(answer)["runs"] == ["dates-replay"]
    finally:
        program.send_signal(signal.SIGINT)
        assert program.wait(20) == 0
        program.stdout.close()
