from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from regard.errors import InputError
from regard.model import Model
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.encoder import Encoder, EncoderConfig
from regard.models.vision import Vision, VisionConfig
from regard.text.tokenizer_training import train_tokenizer
from tests.generation.conftest import lively

TEXTS = ["the dog is sleeping", "나는 개를 본다", "a cat and a dog"]
SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1}


@pytest.fixture(scope="module")
def decoder():
    tokenizer = train_tokenizer(TEXTS, kind="byte-bpe", vocab_size=300)
    module = Decoder(DecoderConfig(n_vocab=len(tokenizer), max_positions=64, **SIZES))
    return Model(module=lively(module), task="language", tokenizer=tokenizer)


@pytest.fixture(scope="module")
def encoder():
    tokenizer = train_tokenizer(TEXTS, kind="wordpiece", vocab_size=200)
    module = Encoder(EncoderConfig(n_vocab=len(tokenizer), fill_head=True, **SIZES))
    return Model(module=lively(module), task="masked", tokenizer=tokenizer)


@pytest.fixture(scope="module")
def vision():
    config = VisionConfig(n_classes=3, image_size=8, patch_size=4, n_channels=1, **SIZES)
    module = lively(Vision(config))
    return Model(module=module, task="classification", labels=("a", "b", "c"))


def test_a_seed_determines_the_text(decoder):
    one, two, other = (decoder.generate("the dog", max_tokens=20, seed=s) for s in (1, 1, 2))
    assert one == two
    assert one.text == "the dog" + one.written
    assert one.written != other.written
    assert one.log_prob < 0
    assert decoder.generate("", max_tokens=3, temperature=0.0).text is not None


def test_streamed_parts_hold_complete_characters(decoder):
    parts = []
    done = decoder.generate("나는", max_tokens=40, on_text=parts.append, temperature=3.0)
    assert done.written.startswith("".join(parts))
    assert not any(part.endswith("\ufffd") for part in parts)


def test_gaps_are_filled_with_the_models_probabilities(encoder):
    tokenizer, text = encoder.tokenizer, "the [MASK] is [MASK]"
    gaps = encoder.fill(text, count=4)
    assert [len(gap) for gap in gaps] == [4, 4]
    ids = torch.tensor([tokenizer.encode(text)])
    with torch.no_grad():
        probabilities = encoder.module.fill_logits(encoder.module(ids)).softmax(-1)
    first = probabilities[0, ids[0].tolist().index(tokenizer.mask_id)]
    assert gaps[0][0].probability == pytest.approx(float(first.max()))
    assert gaps[0][0].text == tokenizer.decode([int(first.argmax())])
    for again in encoder.fill([text, text], count=4):  # a batch rounds in another order
        assert [[one.text for one in gap] for gap in again] == [[x.text for x in g] for g in gaps]
        assert again[0][0].probability == pytest.approx(gaps[0][0].probability)


def test_one_image_or_several_are_classified(vision, tmp_path):
    path = tmp_path / "x.png"
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 3).save(path)
    found = vision.classify(path, count=9)
    assert sorted(candidate.text for candidate in found) == ["a", "b", "c"]
    assert sum(candidate.probability for candidate in found) == pytest.approx(1)
    for again in vision.classify([path, path], count=9):
        assert [one.text for one in again] == [one.text for one in found]
        assert again[0].probability == pytest.approx(found[0].probability)


def test_requests_that_do_not_fit_the_model_are_refused(decoder, encoder, vision):
    for request, message in (
        (lambda: encoder.generate("x"), "family encoder; only one of the family decoder"),
        (lambda: decoder.fill("x [MASK]"), "family decoder; only one of the family encoder"),
        (lambda: encoder.fill("no gap"), r"the text has no gap: write \[MASK\]"),
        (lambda: vision.classify(torch.zeros(1, 8, 8), count=0), "count is 0"),
        (lambda: decoder.classify("x"), "has no classes"),
        (lambda: decoder.generate("the", max_tokens=100), r"has positions for 6\d more"),
    ):
        with pytest.raises(InputError, match=message):
            request()


@pytest.mark.parametrize("pool", ["first", "mean", "max", "sqrt_length", "last"])
@torch.no_grad()
def test_texts_are_embedded_in_batches_as_by_themselves(encoder, pool):
    config = replace(encoder.config, pool=pool)
    module = Encoder(config)
    module.load_state_dict(encoder.module.state_dict())
    model = Model(module=module.eval(), task="embedding", tokenizer=encoder.tokenizer)
    texts = ["a cat", "the dog is sleeping and a cat", "a"]
    found = model.embed(texts)
    for text, vector in zip(texts, found, strict=True):
        states = module(torch.tensor([model.tokenizer.encode(text)]))[0]
        by_hand = {
            "first": states[0],
            "mean": states.mean(0),
            "max": states.max(0).values,
            "sqrt_length": states.sum(0) / len(states) ** 0.5,
            "last": states[-1],
        }[pool]
        assert vector == pytest.approx(by_hand.numpy(), abs=1e-5)
        assert model.embed(text) == pytest.approx(vector, abs=1e-5)
    assert np.linalg.norm(model.embed(texts, normalize=True), axis=1) == pytest.approx(np.ones(3))
    assert model.embed([]).shape == (0, 16)


def test_a_text_longer_than_the_model_is_refused(encoder):
    short = replace(encoder, extras={"longest_text": 5})
    with pytest.raises(InputError, match=r"starts with 'a cat.* the model reads at most 5"):
        short.embed(["a cat", "a cat and a dog and a cat"])


def test_gaps_and_images_are_answered_in_batches_as_by_themselves(encoder, vision):
    texts = ["the [MASK]", "a [MASK] is [MASK] and the dog", "[MASK]"]
    together, alone = encoder.fill(texts), [encoder.fill(text) for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert [[c.text for c in gap] for gap in one] == [[c.text for c in gap] for gap in other]
    torch.manual_seed(0)
    images = [torch.randn(1, 8, 8) for _ in range(40)]  # more than one batch
    found = vision.classify(images)
    assert [one[0].text for one in found] == [vision.classify(x)[0].text for x in images]
