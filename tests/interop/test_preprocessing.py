"""Images reach imported vision models as transformers' processor, the one with Pillow, makes them.

The processor of transformers that uses torchvision differs from its own sibling by up to 1e-2.
"""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch.testing import assert_close

from regard.errors import RegardError
from regard.interop.huggingface import export_huggingface
from regard.interop.import_checkpoint import import_checkpoint
from regard.model import Model
from regard.trace.capture import read_image
from tests.interop.test_vit import SMALL

SIDE = SMALL["image_size"]
SQUARE, CROP = {"height": SIDE, "width": SIDE}, {"do_center_crop": True, "crop_size": SIDE}
PROCESSORS = [
    ("ViT", {"size": SQUARE}),  # bilinear, the default
    *(("ViT", {"size": SQUARE, "resample": number}) for number in range(6)),
    ("ViT", {"size": [16, 20], **CROP, "resample": 3}),
    ("ViT", {"size": {"shortest_edge": 14}, **CROP}),
    ("ViT", {"size": {"shortest_edge": 9}, **CROP}),  # a crop larger than the image
    ("ViT", {"size": SIDE, "do_normalize": False}),
    ("ViT", {"size": SIDE, "do_rescale": False}),
    ("ViT", {"size": SIDE, "rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1]}),
    ("ViT", {"size": SIDE, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}),
    ("DeiT", {"size": {"height": 16, "width": 16}, "crop_size": SQUARE}),
    ("CLIP", {"size": 14, "crop_size": SIDE}),
    ("CLIP", {"size": SQUARE, "do_center_crop": None, "do_normalize": None}),  # null is not default
    ("Bit", {"size": {"shortest_edge": 13}, "crop_size": SQUARE, "do_convert_rgb": False}),
]


def photograph(height, width, seed=0):
    """A picture with smooth areas, edges and noise."""
    rng, (y, x) = np.random.default_rng(seed), np.mgrid[:height, :width]
    smooth = [np.sin(x / 5 + c) * np.cos(y / 7) * 90 + 128 for c in range(3)]
    pixels = np.stack(smooth, -1) + rng.normal(0, 20, (height, width, 3))
    pixels[height // 3 : height // 2, width // 4 :] = (250, 10, 60)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def files(folder):
    """Photographs of several shapes and modes as files."""
    photo, paths = photograph(37, 53), []
    alpha = photo.copy()
    alpha.putalpha(photograph(37, 53, seed=1).convert("L"))
    rotated = Image.Exif()
    rotated[0x0112] = 6
    cases = {
        "wide.png": (photo, {}),
        "tall.png": (photograph(61, 20), {}),
        "small.png": (photograph(7, 7), {}),
        "gray.png": (photo.convert("L"), {}),
        "alpha.png": (alpha, {}),
        "palette.png": (photo.convert("P", palette=Image.Palette.ADAPTIVE), {}),
        "print.jpg": (photo.convert("CMYK"), {}),
        "rotated.jpg": (photo, {"exif": rotated}),
    }
    for name, (image, options) in cases.items():
        image.save(folder / name, **options)
        paths.append(folder / name)
    return paths


def theirs(processor, path):
    """What transformers makes of a file that is read as its documentation says."""
    with Image.open(path) as opened:
        image = ImageOps.exif_transpose(opened)
        if not (processor.do_convert_rgb and image.mode == "RGBA"):
            image = image.convert("RGB")
    return processor(images=image, return_tensors="pt")["pixel_values"]


@pytest.mark.long
@torch.no_grad()
@pytest.mark.parametrize(("kind", "settings"), PROCESSORS)
def test_pixels_and_logits_are_those_of_transformers(transformers, saved, tmp_path, kind, settings):
    both = saved("ViTForImageClassification", settings=SMALL)
    processor = getattr(transformers, f"{kind}ImageProcessorPil")(**settings)
    processor.save_pretrained(both.folder)
    ours = import_checkpoint(both.folder)
    ours.save(tmp_path / "own")
    export_huggingface(ours, tmp_path / "out")
    again = transformers.ViTImageProcessorPil.from_pretrained(tmp_path / "out")
    for path in files(tmp_path):
        expected = theirs(processor, path)
        pixels = read_image(Model.load(tmp_path / "own"), path)
        assert_close(pixels, expected, rtol=0, atol=1e-3)
        assert_close(ours.module(pixels), both.theirs(expected).logits, rtol=0, atol=1e-4)
        assert_close(theirs(again, path), expected, rtol=0, atol=1e-3)
        with Image.open(path) as opened:  # an image in memory is the same as its file
            assert torch.equal(read_image(ours, opened), pixels)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"image_processor_type": "SamImageProcessor"}, "image processor SamImageProcessor"),
        ({"size": {"longest_edge": 12}}, "size = .*longest_edge.*reads height and width or"),
        ({"size": {"height": 10, "width": 10}}, "makes images of 10 × 10 .* reads 12 × 12"),
        ({"size": {"height": 10**9, "width": 10**9}}, "each from 1 to 16,384"),
        ({"do_pad": True}, "do_pad = True"),
        ({"resample": 9}, "resample = 9"),
        ({"rescale_factor": 0}, "rescale_factor = 0"),
        ({"image_mean": [0.5]}, "'mean' and a list 'deviation'"),
        ({"do_flip_channel_order": True}, "do_flip_channel_order = True"),
    ],
)
def test_a_processor_that_does_something_else_is_refused_by_name(saved, changes, sentence):
    folder = saved("ViTForImageClassification", settings=SMALL).folder
    written = {"image_processor_type": "ViTImageProcessor", "size": SQUARE, **changes}
    (folder / "preprocessor_config.json").write_text(json.dumps(written))
    with pytest.raises(RegardError, match=sentence):
        import_checkpoint(folder)


def test_images_that_cannot_be_read_as_bytes_are_refused(saved, tmp_path):
    folder = saved("ViTForImageClassification", settings=SMALL).folder
    (folder / "preprocessor_config.json").write_text(json.dumps({"do_resize": False}))
    ours = import_checkpoint(folder)
    deep = Image.fromarray(np.full((12, 12), 40_000, np.uint16))
    with pytest.raises(RegardError, match="I;16, which Pillow would cut off"):
        read_image(ours, deep)
    with pytest.raises(RegardError, match=r"13 × 12 pixels after .* reads 12 × 12"):
        read_image(ours, Image.new("RGB", (12, 13)))
    (tmp_path / "cut.png").write_bytes(io.BytesIO(b"\x89PNG\r\n\x1a\n").getvalue())
    with pytest.raises(RegardError, match=r"cut\.png is not an image"):
        read_image(ours, tmp_path / "cut.png")
