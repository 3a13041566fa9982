"""`regard export`: from a model folder to other systems."""

import subprocess
import sys

import pytest

from regard.errors import InputError, UnknownNameError
from regard.interop.import_checkpoint import import_checkpoint
from tests.cli.called import call


def run(*words):
    """What the command prints; errors come out as they are raised."""
    result = call("export", *words)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def folder(make_bundle, tmp_path):
    make_bundle("decoder").save(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_for_transformers(folder, make_bundle, tmp_path):
    assert "GPT2LMHeadModel" in run(folder, "--to", "huggingface", "-o", tmp_path / "out")
    assert import_checkpoint(tmp_path / "out").config.n_layers == 1


@pytest.mark.usefixtures("no_shape_checks")
def test_a_graph_for_onnx(make_bundle, tmp_path):
    make_bundle("vision").save(tmp_path / "model")
    assert "model.onnx" in run(tmp_path / "model", "--to", "onnx", "-o", tmp_path / "out")
    assert (tmp_path / "out" / "model.onnx").stat().st_size > 1000


def test_a_folder_for_ctranslate2_small_if_asked(folder, tmp_path):
    run(folder, "--to", "ctranslate2", "-o", tmp_path / "whole")
    options = ("--quantization", "int8")
    run(folder, "--to", "ctranslate2", "-o", tmp_path / "small", *options)
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("whole", "small")]
    assert sizes[0] > sizes[1]


def test_mistakes_get_one_sentence(folder, make_bundle, tmp_path):
    with pytest.raises(UnknownNameError, match=r"to is 'onx'; .*the nearest is onnx"):
        run(folder, "--to", "onx", "-o", tmp_path / "out")
    with pytest.raises(InputError, match="quantization is for ctranslate2"):
        run(folder, "--to", "onnx", "--quantization", "int8", "-o", tmp_path / "out")
    with pytest.raises(UnknownNameError, match="'absent' is neither a bundled model"):
        run("absent", "--to", "onnx", "-o", tmp_path / "out")
    make_bundle("seq2seq").save(tmp_path / "rnn")
    with pytest.raises(InputError, match="transformers has no family like seq2seq"):
        run(tmp_path / "rnn", "--to", "huggingface", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_importing_the_command_line_loads_no_torch():
    program = "import regard.cli.main, sys; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
