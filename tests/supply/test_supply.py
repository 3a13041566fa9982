"""What is installed and written: hashes, reproducible wheels, and no surprises on the disk."""

import hashlib
import os
import re
import shutil
import subprocess
import sys

import pytest

from regard.cli.main import run
from regard.interop.model_names import bundled
from tests.supply.hashes import LEFT_OUT, ROOT, pinned


def test_every_pinned_version_has_hashes():
    text = (ROOT / "constraints.hashes.txt").read_text("utf-8")
    found = dict(
        re.findall(r"^([\w.-]+)==(\S+) \\\n {4}--hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    )
    expected = {name: one for name, one in pinned().items() if name not in LEFT_OUT}
    assert found.items() <= expected.items(), "run make constraints"
    assert len(found) > 100


def test_two_builds_of_a_wheel_have_the_same_bytes(tmp_path):
    program = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
    digests = set()
    for name in ("first", "second"):
        tree = tmp_path / name
        ignored = shutil.ignore_patterns("zoo", "__pycache__")
        shutil.copytree(ROOT / "regard", tree / "regard", ignore=ignored)
        for file in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copyfile(ROOT / file, tree / file)
        if name == "second":  # a later checkout
            for path in tree.rglob("*"):
                os.utime(path, (1_900_000_000, 1_900_000_000))
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tree,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1577836800"},
            capture_output=True,
            text=True,
            check=True,
        )
        wheel = tree / "dist" / done.stdout.splitlines()[-1]
        digests.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert len(digests) == 1


def called(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["regard", *map(str, words)])
    try:
        run()
    except SystemExit as ended:
        return ended.code or 0
    return 0


def test_folders_that_are_created_are_named(monkeypatch, tmp_path, capfd):
    file = tmp_path / "mistyped" / "deeper" / "trace.json"
    assert called(monkeypatch, "trace", "dates", "12 August", "-o", file) == 0
    assert f"{file.parent} did not exist and was created." in capfd.readouterr().err
    assert called(monkeypatch, "trace", "dates", "12 August", "-o", file) == 0
    assert "created" not in capfd.readouterr().err


def test_bundled_models_are_not_written_to(monkeypatch, tmp_path, capfd):
    folder = bundled()["en-de"]
    before = sorted(folder.rglob("*"))
    lines = tmp_path / "lines"
    lines.write_text("a\n")
    assert called(monkeypatch, "shortlist", "en-de", lines, lines) == 2
    assert "part of the package" in capfd.readouterr().err
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("name", ["load", "soak", "sbom", "constraints"])
def test_the_commands_of_the_documentation_exist(name):
    text = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(rf"^{name}:.*##", text, re.MULTILINE)
