"""`regard.load`: a name or a folder becomes a model that can be looked into."""

import pytest
import torch

import regard
from regard.errors import InputError, UnknownNameError
from regard.interop import model_names as zoo


def test_a_folder_becomes_a_model_that_traces_and_is_saved_again(make_bundle, tmp_path):
    model = make_bundle("transformer")
    model.save(tmp_path / "model")
    module = regard.load(tmp_path / "model")
    assert module.config == model.config
    assert module.card.license == "CC0"
    assert module.tokenizer is module.target_tokenizer
    trace = module.trace("A dog runs.", "Ein Hund läuft.")
    logits = model.module(
        torch.tensor([model.tokenizer.encode("A dog runs.")]),
        torch.tensor([model.tokenizer.encode("Ein Hund läuft.")]),
    )
    torch.testing.assert_close(trace.value("output.logits"), logits.detach())
    assert repr(module).startswith("Model(")
    module.save(tmp_path / "again", dtype="float16")
    assert regard.load(str(tmp_path / "again")).card.license == "CC0"


def test_a_bundled_model_is_loaded_by_its_name(make_bundle, tmp_path, monkeypatch):
    make_bundle("vision").save(tmp_path / "zoo" / "animals")
    monkeypatch.setattr(zoo, "ZOO", tmp_path / "zoo")
    assert regard.load("animals").labels == ("cat", "dog", "horse")
    with pytest.raises(UnknownNameError, match=r"'animal' .*the nearest is animals.*model folder"):
        regard.load("animal")


def test_edits_reach_the_model(make_bundle, tmp_path):
    make_bundle("decoder").save(tmp_path / "model")
    model = regard.load(tmp_path / "model")
    plain = model.trace("A dog runs.")
    hot = model.trace("A dog runs.", edits=[regard.temperature("decoder.layers.0.self", 0.0)])
    assert not torch.equal(plain.value("output.logits"), hot.value("output.logits"))
    weights = hot["decoder.layers.0.self"].weights()
    assert set(weights.unique().tolist()) == {0.0, 1.0}


def test_weights_that_were_changed_are_those_that_translate(make_bundle, tmp_path):
    make_bundle("transformer").save(tmp_path / "model")
    model = regard.load(tmp_path / "model")
    (before,) = model.translate(["A dog runs."], beam=1)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.manual_seed(3)))
    (after,) = model.translate(["A dog runs."], beam=1)
    assert after.tokens == model.translate(["A dog runs."], beam=1, engine="torch")[0].tokens
    assert after.score != before.score
    with pytest.raises(InputError, match="changed after loading: use engine torch"):
        model.translate(["A dog runs."], engine="ctranslate2")
