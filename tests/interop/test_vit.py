"""ViT and DeiT: the same numbers as `transformers` on the same weights, in both directions."""

import json

import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from regard.data.images import Normalization, Resize
from regard.errors import InputError
from regard.interop.huggingface import export_huggingface
from regard.interop.import_checkpoint import import_checkpoint
from regard.model import Model
from regard.models.vision import Vision, VisionConfig
from regard.trace.capture import trace_model

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "image_size": 12,
    "patch_size": 4,
}
CLASSES = {"id2label": {0: "cat", 1: "dog", 2: "horse"}}
VARIED = [
    ("ViTForImageClassification", CLASSES),
    ("ViTForImageClassification", {"num_channels": 1, "patch_size": 2, "hidden_act": "relu"}),
    ("ViTForImageClassification", {"qkv_bias": False, "layer_norm_eps": 1e-4}),
    ("ViTModel", {"pooler_output_size": 10}),
    ("ViTModel", {"pooler_act": "relu", "num_attention_heads": 1}),
    ("DeiTForImageClassification", CLASSES),
    ("DeiTForImageClassificationWithTeacher", CLASSES),
    ("DeiTModel", {}),
]


def image(changes):
    channels = changes.get("num_channels", 3)
    return torch.randn(1, channels, 12, 12, generator=torch.Generator().manual_seed(0))


def result(output):
    return output.logits if hasattr(output, "logits") else output.pooler_output


@torch.no_grad()
@pytest.mark.parametrize(("kind", "changes"), VARIED)
def test_results_and_attention_are_those_of_transformers(saved, same_patterns, kind, changes):
    both = saved(kind, settings=SMALL | changes)
    theirs = both.theirs(image(changes), output_attentions=True)
    trace = trace_model(both.ours, image(changes)[0])
    assert_close(both.ours.module(image(changes)), result(theirs), rtol=0, atol=1e-4)
    same_patterns(trace, "encoder.layers.N.self", theirs.attentions)
    if changes is CLASSES:
        best = ("cat", "dog", "horse")[int(theirs.logits.argmax())]
        assert trace.output["classes"][0]["name"] == best


@torch.no_grad()
def test_a_model_saved_without_its_pooler_returns_the_class_token(transformers, saved, tmp_path):
    theirs = transformers.ViTModel(transformers.ViTConfig(**SMALL), add_pooling_layer=False).eval()
    theirs.save_pretrained(tmp_path / "bare")
    ours = import_checkpoint(tmp_path / "bare")
    states = theirs(image({})).last_hidden_state
    assert_close(ours.module(image({})), states[:, 0], rtol=0, atol=1e-4)


@torch.no_grad()
def test_images_of_another_size_are_read_by_the_same_interpolation(saved):
    both = saved("ViTForImageClassification", settings=SMALL)
    wide = torch.randn(1, 3, 20, 28, generator=torch.Generator().manual_seed(1))
    theirs = both.theirs(wide, interpolate_pos_encoding=True).logits
    assert_close(both.ours.module(wide), theirs, rtol=0, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(("kind", "changes"), VARIED)
def test_what_is_exported_is_loaded_by_transformers_with_the_same_results(
    saved, exported, kind, changes
):
    both = saved(kind, settings=SMALL | changes)
    again = exported(both.ours, kind)
    old, new = (result(one(image(changes))) for one in (both.theirs, again))
    assert_close(new, old, rtol=0, atol=1e-6)
    if changes is CLASSES:
        assert again.config.id2label == {0: "cat", 1: "dog", 2: "horse"}


def test_pixels_are_scaled_as_the_checkpoint_says_and_that_is_handed_on(saved, tmp_path):
    folder = saved("ViTForImageClassification", settings=SMALL).folder
    scale = {"do_normalize": True, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}
    (folder / "preprocessor_config.json").write_text(json.dumps(scale))
    ours = import_checkpoint(folder)
    expected = Normalization((0.4, 0.5, 0.6), (0.2, 0.3, 0.4), Resize((12, 12), "bilinear"))
    assert ours.pixels == expected
    export_huggingface(ours, tmp_path / "out")
    assert import_checkpoint(tmp_path / "out").pixels == ours.pixels
    red = trace_model(ours, Image.new("RGB", (9, 9), (255, 0, 0)))
    patches = red.value("encoder.embedding.patches")
    assert_close(patches[0, 0, :1], torch.tensor([(1 - 0.4) / 0.2]))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"image_size": [12, 8]}, "ViT reads squares"),
        ({"pooler_act": "gelu"}, "pooler_act = 'gelu'"),
        ({"architectures": ["ViTForMaskedImageModeling"]}, "which regard does not import"),
    ],
)
def test_a_checkpoint_that_computes_something_else_is_refused(refused, changes, sentence):
    refused("ViTModel", settings=SMALL, changes=changes, sentence=sentence)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pool": "mean"}, "ViT has pool = 'class', not 'mean'"),
        ({"attention": "efficient"}, "attention = 'exact', not 'efficient'"),
        ({"stem": "convolution"}, "ViT has stem = 'linear', not 'convolution'"),
        ({"pooler": "tanh"}, "a pooler only if it has no classes"),
        ({"activation": "geglu"}, "ViT has no activation geglu"),
    ],
)
def test_a_model_unlike_vit_is_refused_with_the_reason(tmp_path, changes, sentence):
    sizes = {"d_model": 8, "n_heads": 2, "d_ff": 8, "n_layers": 1, "n_classes": 2}
    config = VisionConfig(**(sizes | {"image_size": 8, "patch_size": 4} | changes))
    model = Model(module=Vision(config), task="classification")
    with pytest.raises(InputError, match=f"cannot be exported: .*{sentence}"):
        export_huggingface(model, tmp_path / "out")
