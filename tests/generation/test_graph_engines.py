"""OpenVINO and ONNX Runtime answer as torch does, and the fastest engine is chosen."""

import jaxtyping
import numpy as np
import pytest
import torch
from PIL import Image

from regard.errors import InputError
from regard.generation import fastest_engine, graph_engines
from regard.generation.fastest_engine import measured_fastest
from regard.generation.graph_engines import reader_of
from regard.model import Model, load
from regard.models.encoder import Encoder, EncoderConfig
from regard.text.tokenizer_training import train_tokenizer
from tests.generation.conftest import lively

pytestmark = pytest.mark.long

TEXTS = ["the dog is sleeping [MASK]", "a [MASK]", "a cat and a dog [MASK] the [MASK]"]
GRAPHS = ("openvino", "onnx")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "graphs-cache"))


@pytest.fixture(autouse=True)
def unchecked():
    """Shapes are tensors while torch's older exporter traces, which type checks refuse."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    tokenizer = train_tokenizer(TEXTS, kind="wordpiece", vocab_size=200)
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 2}
    config = EncoderConfig(n_vocab=len(tokenizer), fill_head=True, n_classes=3, **sizes)
    folder = tmp_path_factory.mktemp("encoder") / "model"
    Model(module=lively(Encoder(config)), task="masked", tokenizer=tokenizer).save(folder)
    return load(folder)


@pytest.mark.parametrize("engine", GRAPHS)
def test_texts_get_the_answers_of_torch(encoder, engine):
    ours, theirs = (encoder.embed(TEXTS, engine=one) for one in (engine, "torch"))
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
    filled, same = (encoder.fill(TEXTS, count=2, engine=one) for one in (engine, "torch"))
    assert [[c.text for c in gap] for text in filled for gap in text] == [
        [c.text for c in gap] for text in same for gap in text
    ]
    named, known = (encoder.classify(TEXTS, engine=one) for one in (engine, "torch"))
    for one, other in zip(named, known, strict=True):
        assert [c.probability for c in one] == pytest.approx(
            [c.probability for c in other], abs=1e-5
        )


def test_a_folder_of_transformers_has_a_graph_too(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    small = transformers.ViTConfig(image_size=8, patch_size=4, num_hidden_layers=1, **sizes)
    transformers.ViTForImageClassification(small).save_pretrained(tmp_path)
    opened = load(tmp_path)
    image = torch.rand(3, 8, 8)
    ours, theirs = (opened.classify(image, engine=one) for one in ("onnx", "torch"))
    assert (ours.engine, theirs.engine) == ("onnx", "torch")
    assert ours[0].probability == pytest.approx(theirs[0].probability, abs=1e-5)
    with torch.no_grad():
        next(opened.module.parameters()).add_(1.0)
    with pytest.raises(InputError, match="weights were changed"):
        opened.classify(image, engine="onnx")


@pytest.mark.parametrize("engine", GRAPHS)
def test_images_get_the_answers_of_torch(engine):
    model = load("digits")
    config = model.config
    shape = (3, config.n_channels, config.image_size, config.image_size)
    images = list(torch.rand(shape, generator=torch.Generator().manual_seed(0)))
    ours, theirs = (model.classify(images, engine=one) for one in (engine, "torch"))
    assert [one[0].text for one in ours] == [one[0].text for one in theirs]
    assert ours[0][0].probability == pytest.approx(theirs[0][0].probability, abs=1e-5)


def test_bfloat16_is_close_and_only_where_it_exists(encoder):
    exact = encoder.embed(TEXTS)
    for engine in ("torch", "openvino"):
        rough = encoder.embed(TEXTS, engine=engine, precision="bfloat16")
        np.testing.assert_allclose(rough, exact, atol=0.1)
    with pytest.raises(InputError, match="ONNX Runtime cannot be used here because it computes in"):
        encoder.embed(TEXTS, engine="onnx", precision="bfloat16")
    with pytest.raises(InputError, match="precision"):
        encoder.embed(TEXTS, precision="int4")


def test_int8_is_read_by_onnx_runtime_and_named(encoder):
    exact, rough = (encoder.embed(TEXTS, precision=one) for one in ("float32", "int8"))
    np.testing.assert_allclose(rough, exact, atol=0.3)
    assert not np.array_equal(rough, exact)
    named = encoder.classify(TEXTS[:1], precision="auto")[0]
    assert (named.engine, named.precision) == ("onnx", "int8")
    with pytest.raises(InputError, match="OpenVINO cannot be used here because it computes in"):
        encoder.embed(TEXTS, engine="openvino", precision="int8")
    alone = Model(module=encoder.module, task="masked", tokenizer=encoder.tokenizer)
    with pytest.raises(InputError, match="int8 needs ONNX Runtime, which cannot be used here"):
        alone.embed(TEXTS, precision="int8")


def double_in_place(weight):
    with torch.no_grad():
        weight.mul_(2.0)


CHANGES = {
    "in place": double_in_place,
    "through data": lambda weight: weight.data.mul_(2.0),
    "replaced": lambda weight: setattr(weight, "data", 2 * weight.data),
    "through NumPy": lambda weight: np.negative(weight.detach().numpy(), weight.data.numpy()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_engines_that_cannot_run_say_why(encoder, monkeypatch, change):
    changed = load(encoder.folder)
    change(changed.module.tokens.weight)
    with pytest.raises(
        InputError, match="OpenVINO cannot be used here because weights were change"
    ):
        changed.embed(TEXTS, engine="openvino")
    assert reader_of(changed).name == "torch"
    monkeypatch.setattr(graph_engines, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"it is not installed \(pip install 'regard\[onnx\]'"):
        encoder.embed(TEXTS, engine="onnx")
    assert reader_of(encoder, n_inputs=10**6).name == "torch"


def test_auto_measures_once_when_there_is_enough_to_do(encoder, monkeypatch):
    asked = []

    def measure(calls):
        asked.append(sorted(calls))
        return "onnx"

    monkeypatch.setattr(graph_engines, "measured_fastest", measure)
    monkeypatch.setattr(fastest_engine, "idle_cpus", lambda: 2)
    assert reader_of(encoder, n_inputs=1).name == "torch"
    assert not asked
    assert [reader_of(encoder, n_inputs=n).name for n in (300, 300, 1)] == ["onnx"] * 3
    assert asked == [["onnx", "openvino", "torch"]]
    monkeypatch.setattr(fastest_engine, "idle_cpus", lambda: 1)  # a busy machine: another question
    assert reader_of(encoder, n_inputs=1).name == "torch"


def test_the_fastest_is_the_one_with_the_shortest_call():
    now = [0.0]

    def lasting(seconds):
        return lambda: now.__setitem__(0, now[0] + seconds)

    calls = {"slow": lasting(0.3), "fast": lasting(0.1), "middle": lasting(0.2)}
    assert measured_fastest(calls, clock=lambda: now[0]) == "fast"
    assert now[0] < 2.0


def test_an_image_model_in_int8_with_onnx_runtime_finds_the_same_class(
    caplog, tmp_path, monkeypatch
):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))  # int8 makes the graph of float32 first
    model = load("fashion")
    image = np.zeros((28, 28), np.uint8) + 90
    found = [
        model.classify(Image.fromarray(image), engine="onnx", precision=precision)[0]
        for precision in ("int8", "float32")
    ]
    assert found[0].text == found[1].text
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
