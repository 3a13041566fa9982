import platform

import torch

import regard
from regard.doctor import environment
from regard.doctor.environment import describe_environment, software_bill


def test_the_facts_are_those_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "x").write_bytes(b"1" * 2_000_000)
    facts = {fact.name: fact for fact in describe_environment()}
    assert facts["regard"].value == regard.__version__
    assert facts["python"].value.startswith(platform.python_version())
    assert facts["torch"].value == torch.__version__
    assert facts["threads"].value == str(torch.get_num_threads())
    assert facts["cache"].value == f"{tmp_path / 'cache'}, 2.0 MB"


def test_missing_parts_have_advice(monkeypatch):
    monkeypatch.setattr(environment, "find_spec", lambda name: None)
    monkeypatch.setattr("regard.figures.captions.korean_font", lambda: None)
    facts = {fact.name: fact for fact in describe_environment()}
    assert facts["ctranslate2"].advice == "pip install ctranslate2"
    assert facts["extra onnx"].value == "no"
    assert "pip install 'regard[onnx]'" in facts["extra onnx"].advice
    assert "fonts-noto-cjk" in facts["korean font"].advice


def test_speed_is_measured_and_what_is_slow_is_said(monkeypatch):
    monkeypatch.setattr(environment.os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    monkeypatch.setattr(environment, "_instructions", lambda: ["avx2"])
    facts = {fact.name: fact for fact in describe_environment()}
    assert float(facts["product peak"].value.split()[0].replace(",", "")) >= 0
    assert float(facts["memory bandwidth"].value.split()[0].replace(",", "")) > 0
    assert "load 99.0" in facts["load"].advice
    assert "without VNNI" in facts["instructions"].advice


def test_the_bill_lists_every_dependency_with_its_license():
    bill = software_bill()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    found = {one["name"].lower(): one for one in bill["components"]}
    assert {"torch", "numpy", "fastapi", "starlette", "tokenizers"} <= set(found)
    assert found["torch"]["version"] == torch.__version__
    assert found["starlette"]["purl"].startswith("pkg:pypi/starlette@")  # of fastapi
    assert all(one["licenses"] for one in found.values())
    assert bill["metadata"]["component"]["licenses"] == [{"expression": "Apache-2.0"}]
    edges = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert found["starlette"]["purl"] in edges[found["fastapi"]["purl"]]
