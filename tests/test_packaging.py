"""What is installed is all that is needed: the wheel, built from this tree, and what is in it."""

import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from typer.testing import CliRunner

import regard
from regard.cli.main import app

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "regard"
LEFT_BEHIND = shutil.ignore_patterns("__pycache__", "*.egg-info")


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of what the wheel is built from: nothing is left behind in the tree itself.

    Weights are empty files, because packing 45 MB takes seconds.
    """
    tree = tmp_path_factory.mktemp("tree")

    def copy(source: str, target: str) -> None:
        if source.endswith(".safetensors"):
            Path(target).touch()
        else:
            shutil.copy2(source, target)

    shutil.copytree(PACKAGE, tree / "regard", ignore=LEFT_BEHIND, copy_function=copy)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, tree)
    return tree


@pytest.fixture(scope="module")
def wheel(tree) -> Path:
    program = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tree, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return tree / "dist" / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def names(wheel) -> set[str]:
    with zipfile.ZipFile(wheel) as packed:
        return set(packed.namelist())


def test_the_wheel_holds_every_file_of_the_package(tree, names):
    there = {
        path.relative_to(tree).as_posix()
        for path in (tree / "regard").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"regard/py.typed", "regard/recipes/dates.toml", "regard/__main__.py"} <= there
    assert any(name.endswith("page/index.html") for name in there)
    assert any(name.startswith("regard/zoo/") for name in there)
    assert there - names == set()


def test_the_wheel_holds_nothing_else(names):
    others = {name for name in names if not name.startswith(("regard/", "regard-"))}
    assert others == set()
    assert not [name for name in names if "/tests/" in name or name.endswith(".pyc")]


def test_every_bundled_model_is_whole(names):
    paths = [name.split("/") for name in names if name.startswith("regard/zoo/")]
    models = {path[2] for path in paths if path[3:] == ["config.json"]}
    assert "dates" in models
    assert {path[2] for path in paths} - models <= {"examples.json", "dates-replay"}
    for model in models:
        files = {name.split("/")[3] for name in names if name.startswith(f"regard/zoo/{model}/")}
        assert {"config.json", "card.md"} <= files
        assert any(name.endswith(".safetensors") for name in files)


def test_the_wheel_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as packed:
        (place,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        about = Parser().parsestr(packed.read(place).decode())
        scripts = packed.read(place.replace("METADATA", "entry_points.txt")).decode()
    assert about["Name"] == "regard"
    assert about["Version"] == regard.__version__
    assert about["Requires-Python"] == ">=3.11"
    said = about.get_all("Classifier")
    for version in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {version}" in said
    assert "Typing :: Typed" in said
    assert "regard = regard.cli.main:run" in scripts


def test_the_wheel_runs_by_itself(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path)
    program = (
        "import regard, sys; from regard.interop.model_names import bundled;"
        "from regard.cli.main import run; print(regard.__file__); print(*bundled());"
        "sys.argv = ['regard', '--version']; run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    place, models, version = done.stdout.splitlines()
    assert Path(place).parent == tmp_path / "regard"
    assert "dates" in models.split()
    assert version == f"regard {regard.__version__}"


def test_a_shell_can_complete_commands():
    def completed(line: str) -> list[str]:
        given = {"_REGARD_COMPLETE": "complete_bash", "COMP_WORDS": line}
        words = {**given, "COMP_CWORD": str(len(line.split()) - 1)}
        return CliRunner().invoke(app, prog_name="regard", env=words).output.split()

    assert {"train", "translate", "trace"} == set(completed("regard tra"))
    assert "--language" in completed("regard figure --lang")


def test_the_script_for_the_shell_is_printed_for_every_shell():
    for shell in ("bash", "zsh", "fish"):
        done = CliRunner().invoke(
            app, prog_name="regard", env={"_REGARD_COMPLETE": f"source_{shell}"}
        )
        assert "_REGARD_COMPLETE" in done.output
