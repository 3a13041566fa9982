import platform

import torch

import regard
from regard.doctor import environment
from regard.doctor.environment import describe_environment


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
