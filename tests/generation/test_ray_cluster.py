"""Bulk work on a real Ray cluster of this machine, one worker of which is killed on the way."""

import os
import re
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

from regard.errors import InputError
from regard.generation import bulk
from regard.generation.bulk import ClusterTranslator, TranslationActor
from regard.generation.search import SearchOptions
from regard.generation.translator import open_translator
from tests.generation.toy import pairs

LINES = [source for source, _ in pairs(12_000, seed=-30)]


def killed_one(driver):
    """The id of a worker of this driver's cluster that was busy and is no more."""
    for child in psutil.Process(driver).children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            if "TranslationActor" in " ".join([*child.cmdline(), child.name()]):
                child.kill()
                return child.pid
    return None


@pytest.mark.slow
def test_killing_a_worker_loses_and_repeats_nothing(toy_folder, tmp_path):
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(line + "\n" for line in LINES))
    words = [str(toy_folder), str(source), "-o", str(output), "--cluster"]
    driver = subprocess.Popen([sys.executable, "-m", "regard", "translate", *words])
    killed = None
    while driver.poll() is None:
        if killed is None and output.exists() and output.stat().st_size:
            killed = killed_one(driver.pid)
        time.sleep(0.02)
    assert driver.returncode == 0
    assert killed is not None
    alone = open_translator(toy_folder).translate(LINES, SearchOptions())
    assert output.read_text().splitlines() == [one.text for one in alone]


@pytest.mark.slow
def test_a_running_cluster_is_joined(toy_folder, tmp_path):
    quiet = {"env": os.environ | {"HOME": str(tmp_path)}, "stdout": subprocess.PIPE, "text": True}
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    begin = ["start", "--head", "--port=0", "--num-cpus=2", "--include-dashboard=false"]
    subprocess.run([*ray, "get-auth-token", "--generate"], check=True, **quiet)
    try:
        started = subprocess.run([*ray, *begin], check=True, **quiet)
        (address,) = set(re.findall(r"--address='([^']+)'", started.stdout))
        translate = [sys.executable, "-m", "regard", "translate", toy_folder, "--address", address]
        found = subprocess.run(translate, input="one two\nsix\n", check=True, **quiet)
    finally:
        subprocess.run([*ray, "stop", "--force"], check=True, **quiet)
    alone = open_translator(toy_folder).translate(["one two", "six"], SearchOptions())
    assert found.stdout.splitlines() == [one.text for one in alone]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("chosen", [None, "disabled"])
def test_the_users_token_is_enabled(known, chosen, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")})
    if chosen:
        os.environ["RAY_AUTH_MODE"] = chosen
    if known:
        (tmp_path / "token").write_text("secret")
    bulk._enable_token()
    assert os.environ.get("RAY_AUTH_MODE") == (chosen or ("token" if known else None))


def test_a_worker_equals_a_single_process(toy_folder, monkeypatch):
    monkeypatch.setenv("REGARD_WORKERS", "2")
    worker = TranslationActor(str(toy_folder), {"engine": "ctranslate2"}, SearchOptions())
    row = worker({"number": 3, "lines": ["one two", "", "six"]})
    assert row["number"] == 3
    done = bulk.pickle.loads(row["done"])
    alone = open_translator(toy_folder).translate(["one two", "", "six"], SearchOptions())
    assert [one.text for one in done] == [one.text for one in alone]
    assert done[0].text == "zwei eins"


def test_windows_are_sent_in_batches(monkeypatch):
    monkeypatch.setattr(bulk, "_AT_ONCE", 2)
    windows = [["a"], ["b"], ["c"], [], [], ["d"]]
    assert list(bulk._batches(windows)) == [[["a"], ["b"]], [["c"]], [["d"]]]


def test_missing_ray_is_explained(toy_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"needs Ray: pip install 'regard\[ray\]'"):
        ClusterTranslator(toy_folder, opening={"engine": "auto"})
