import numpy as np
import pytest
import torch
from PIL import Image

from regard.errors import InputError
from regard.generation.predictions import classify, fill, generate
from regard.model import Model
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.encoder import Encoder, EncoderConfig
from regard.models.vision import Vision, VisionConfig
from regard.text.tokenizer_training import train_tokenizer

TEXTS = ["the dog is sleeping", "나는 개를 본다", "a cat and a dog"]


def lively(model):
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.fixture(scope="module")
def writer():
    tokenizer = train_tokenizer(TEXTS, kind="byte-bpe", vocab_size=300)
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "max_positions": 64}
    model = lively(Decoder(DecoderConfig(n_vocab=len(tokenizer), **sizes)))
    return Model(module=model, task="language", tokenizer=tokenizer)


@pytest.fixture(scope="module")
def filler():
    tokenizer = train_tokenizer(TEXTS, kind="wordpiece", vocab_size=200)
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "max_positions": 64}
    config = EncoderConfig(n_vocab=len(tokenizer), fill_head=True, **sizes)
    return Model(module=lively(Encoder(config)), task="masked", tokenizer=tokenizer)


@pytest.fixture(scope="module")
def seer():
    config = VisionConfig(
        n_classes=3,
        image_size=8,
        patch_size=4,
        n_channels=1,
        d_model=16,
        n_heads=2,
        n_layers=1,
        d_ff=32,
    )
    return Model(module=lively(Vision(config)), task="classification", labels=("a", "b", "c"))


def test_a_text_begins_with_its_prompt_and_the_same_seed_writes_the_same(writer):
    one, two, other = (generate(writer, "the dog", max_tokens=20, seed=s) for s in (1, 1, 2))
    assert one == two
    assert one.text == "the dog" + one.written
    assert one.written != other.written
    assert one.log_prob < 0


def test_parts_that_are_told_make_the_whole_text_and_hold_no_half_characters(writer):
    told = []
    done = generate(writer, "나는", max_tokens=40, on_text=told.append, temperature=3.0)
    assert done.written.startswith("".join(told))
    assert not any(part.endswith("\ufffd") for part in told)


def test_an_empty_prompt_starts_from_the_start_token(writer):
    assert generate(writer, "", max_tokens=3, temperature=0.0).text is not None


def test_more_tokens_than_the_model_has_room_for_are_refused(writer):
    with pytest.raises(InputError, match=r"has room for 6\d more"):
        generate(writer, "the", max_tokens=100)


def test_gaps_are_filled_by_the_probabilities_of_the_model(filler):
    tokenizer = filler.tokenizer
    gaps = fill(filler, "the [MASK] is [MASK]", count=4)
    assert [len(gap) for gap in gaps] == [4, 4]
    ids = torch.tensor([tokenizer.encode("the [MASK] is [MASK]")])
    with torch.no_grad():
        chances = filler.module.fill_logits(filler.module(ids)).softmax(-1)
    place = ids[0].tolist().index(tokenizer.mask_id)
    best = chances[0, place].max()
    assert gaps[0][0].probability == pytest.approx(float(best))
    assert gaps[0][0].text == tokenizer.decode([int(chances[0, place].argmax())])
    assert [c.probability for c in gaps[1]] == sorted(
        (c.probability for c in gaps[1]), reverse=True
    )


def test_images_are_named(seer, tmp_path):
    path = tmp_path / "x.png"
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 3).save(path)
    (found,) = classify(seer, [path], count=9)
    assert sorted(candidate.text for candidate in found) == ["a", "b", "c"]
    assert sum(candidate.probability for candidate in found) == pytest.approx(1)


def test_a_model_of_another_kind_says_what_it_is(writer, filler, seer):
    with pytest.raises(InputError, match="family encoder; only one of the family decoder"):
        generate(filler, "x")
    with pytest.raises(InputError, match="family decoder; only one of the family encoder"):
        fill(writer, "x [MASK]")
    with pytest.raises(InputError, match=r"the text has no gap: write \[MASK\]"):
        fill(filler, "no gap at all")
    with pytest.raises(InputError, match="ask for at least 1"):
        classify(seer, [torch.zeros(1, 8, 8)], count=0)
    with pytest.raises(InputError, match="names no classes"):
        classify(writer, ["x"])
