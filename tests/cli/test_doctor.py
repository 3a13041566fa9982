import json

import pytest
from typer.testing import CliRunner

from regard.cli.main import app
from regard.doctor import proofs as examination
from regard.doctor import reference as agreements
from regard.doctor.proofs import Proof

pytestmark = pytest.mark.long


def regard(*words):
    return CliRunner().invoke(app, ["doctor", *words])


def test_all_differences_are_printed_and_the_exit_code_is_0():
    done = regard()
    assert done.exit_code == 0, done.output
    for name in ("padding", "batch size", "caching", "accumulation", "resuming"):
        assert name in done.output
    assert "bound 0: identical bits" in done.output


def test_model_folders_and_json(make_bundle, tmp_path):
    make_bundle("decoder").save(tmp_path / "toy")
    done = regard(str(tmp_path / "toy"), "--json")
    result = json.loads(done.output)
    assert result["model"] == str(tmp_path / "toy")
    assert [proof["holds"] for proof in result["proofs"]] == [True] * 16
    assert result["environment"]["torch"]


def test_a_model_says_how_often_other_precisions_change_its_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    found = json.loads(regard("dates-transformer", "--json").output)["precisions"]
    assert {one["precision"]: one["engine"] for one in found}["bfloat16"] == "torch"
    assert all(0 <= one["changed"] <= one["of"] > 0 for one in found)
    assert "bfloat16 by torch changes" in regard("dates-transformer").output


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_failed_proof_is_named_and_the_exit_code_is_1(monkeypatch, words):
    wrong = Proof("padding", "claimed", "log-probabilities", 0.5, 1e-4)
    idle = Proof("caching", "claimed", "only models that write keep a cache")
    monkeypatch.setattr(examination, "PROOFS", (lambda model: wrong, lambda model: idle))
    monkeypatch.setattr(agreements, "AGREEMENTS", ())
    done = regard(*words)
    assert done.exit_code == 1
    assert "results depend on padding, but must not" in done.stderr
    if not words:
        assert "5.0e-01 of log-probabilities, bound 1e-04" in done.stdout
        assert "does not apply: only models that write" in done.stdout
