"""Comparisons of images: their numbers are those of Python, and so are those after a patch."""

import re

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image

from regard.model import Model
from regard.models.config import build, config_from_dict
from regard.server.app import make_app
from regard.server.catalog import Catalog
from regard.server.service import Service
from regard.trace.edits import ablate, patch
from tests.server.conftest import serving, window
from tests.server.test_compare_page import EDITS, READY, SECOND_IS, changes, number, shown
from tests.server.test_own_images import DROP

SITE = "encoder.layers.1.self"
SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_layers": 2, "n_classes": 3, "n_channels": 1}
NAMES = ("bright", "corner", "noise")
DROP_ON = (
    DROP.replace("([name, type, text])", "([name, bytes, place])")
    .replace("[text]", "[Uint8Array.from(bytes)]")
    .replace("{ type }", '{ type: "image/png" }')
    .replace('".board"', "place")
)


def vision_model(folder, **sizes):
    """Save a model of random weights with three example images."""
    torch.manual_seed(3)
    module = build(config_from_dict({"family": "vision", "patch_size": 4, **SIZES, **sizes})).eval()
    for weight in (one for one in module.parameters() if one.dim() > 1):
        torch.nn.init.normal_(weight, std=0.4)
    Model(module=module, task="classification", labels=("cat", "dog", "horse")).save(folder)
    side = module.config.image_size
    pixels = np.zeros((3, side, side), np.uint8)
    pixels[0] = 230
    pixels[1, : side // 2, : side // 2] = 200
    pixels[2] = np.random.default_rng(0).integers(0, 255, (side, side))
    (folder / "examples").mkdir()
    for name, one in zip(NAMES, pixels, strict=True):
        Image.fromarray(one).save(folder / "examples" / f"{name}.png")
    return Model.load(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model, the same after more training, and one with smaller patches."""
    root = tmp_path_factory.mktemp("vision")
    first = vision_model(root / "shapes", image_size=8)
    vision_model(root / "coarse", image_size=12)
    other = Model.load(first.folder)
    torch.manual_seed(1)
    for weight in other.module.encoder.layers[0].parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    other.save(root / "finetuned")
    return {name: Model.load(root / name) for name in ("shapes", "finetuned", "coarse")}


@pytest.fixture(scope="module")
def traced(models):
    """A function that traces an example of `shapes` with one of the models."""

    def trace(number, model="shapes", **more):
        path = models["shapes"].folder / "examples" / f"{NAMES[number]}.png"
        return models[model].trace(path, **more)

    return trace


@pytest.fixture(scope="module")
def app(models):
    service = Service(Catalog([one.folder for one in models.values()]))
    yield make_app(service)
    service.close()


@pytest.fixture(scope="module")
def address(app):
    with serving(app) as address:
        yield address


@pytest.fixture
def opened(browser, address):
    """Open a comparison with the first example; the page must log no errors."""
    with window(browser, address) as page:

        def visit(compare="", *, model="shapes", more="", width=1366, language="en", query=1):
            page.goto("about:blank")
            page.set_viewport_size({"width": width, "height": 768})
            place = f"page=explore&language={language}&site={SITE}&head=1&query={query}&key=2"
            written = compare.replace("=", "%3D").replace("&", "%26")
            asked = f"model={model}&image=example:0"
            page.goto(f"{address}/?{asked}#{place}&compare={written}{more}")
            page.wait_for_selector("#regard[data-ready]")
            if compare:
                page.wait_for_selector(READY)
            return page

        yield visit


def answers(page):
    """Return the classes and probabilities of both sides, as they are shown."""
    lines = page.locator(".compare-answer").all_inner_texts()
    parts = [[part.rsplit(maxsplit=1) for part in line.split(" · ")] for line in lines]
    return [{name: round(float(x), 3) for name, x in side} for side in parts]


def classes(trace):
    return {one.name: round(one.probability, 3) for one in trace.output.candidates}


def patch_center(page, side, row, column):
    """Return where a patch of the keys of one side is on the screen; the grid is 2 × 2."""
    box = page.locator(f"[data-side={side}] canvas >> nth=1").bounding_box()
    return box["x"] + (column + 0.5) * box["width"] / 2, box["y"] + (row + 0.5) * box["height"] / 2


def test_an_example_of_another_model_can_be_requested(app, models):
    client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)

    def ask(**request):
        return client.post("/api/trace", json=request).json()

    found = ask(model="finetuned", image="example:shapes/2")["answer"]["candidates"]
    path = models["shapes"].folder / "examples" / "noise.png"
    expected = models["finetuned"].trace(path).output.candidates
    assert [one["id"] for one in found] == [one.id for one in expected]
    assert [one["probability"] for one in found] == pytest.approx(
        [one.probability for one in expected], abs=1e-6
    )
    own = ask(model="shapes", image="example:shapes/1"), ask(model="shapes", image="example:1")
    assert own[0]["answer"] == own[1]["answer"]
    for image, code in (
        ("example:shape/0", "unknown_model"),
        ("example:shapes/7", "unknown_example"),
        ("example:shapes/../0", "unknown_model"),
    ):
        assert ask(model="finetuned", image=image)["error"]["code"] == code


def test_the_difference_of_two_images_is_that_of_their_weights(opened, traced):
    sides = [traced(number) for number in (0, 2)]
    first, second = (one[SITE].weights(1) for one in sides)
    page = opened("kind=image&image=example:2")
    x, y = first[1, 2].item(), second[1, 2].item()
    found = [shown(page, kind) for kind in ("first", "second", "difference")]
    assert found == pytest.approx([x, y, y - x], abs=1e-6)
    assert answers(page) == [classes(one) for one in sides]
    names = page.locator(".compare-head h3").all_inner_texts()
    assert [name.split() for name in names] == [["1", "bright"], ["2", "noise"]]
    assert page.locator(".compare-figures .pictures canvas").count() == 4
    # both sides have the same full color: the larger of the largest weights
    most = max(first[1, 1:].max(), second[1, 1:].max(), torch.tensor(0.75)).item()
    notes = page.locator(".pictures p.note:not(.specials)").all_inner_texts()
    assert all(f"full color is {most:.3f}" in note for note in notes)
    page.click(".compare-mode [data-choice=difference]")
    page.wait_for_selector("figure.difference")
    low, high = page.get_attribute("figure.difference .range", "title").split(" … ")
    difference = second - first
    assert [number(low), number(high)] == pytest.approx(
        [difference.min().item(), difference.max().item()], abs=1e-6
    )
    outside = page.inner_text("figure.difference p.note:not(.specials)")
    assert number(outside.split()[-1]) == pytest.approx(difference[1, 0].item(), abs=6e-4)
    page.click(".compare-place [data-choice=grid]")
    page.wait_for_selector("figure.difference svg.grid")
    path = page.get_attribute("figure.difference svg.grid path.positive", "d")
    assert path.count("M") >= (difference > 0.05 * difference.abs().max()).sum().item()
    assert page.locator(".compare-head canvas.thumbnail").count() == 2


def test_hovering_a_patch_reads_the_same_place_of_the_other_image(opened, traced):
    first, second = (traced(number)[SITE].weights(1) for number in (0, 2))
    page = opened("kind=image&image=example:2")
    for side, row, column in (("second", 1, 0), ("first", 0, 1)):
        page.mouse.move(*patch_center(page, side, row, column))
        key = 1 + 2 * row + column
        page.wait_for_function(SECOND_IS, arg=second[1, key].item())
        assert shown(page, "first") == pytest.approx(first[1, key].item(), abs=1e-6)
    page.locator("[data-side=second] .specials button").click()  # the class token asks
    page.wait_for_function("() => location.hash.includes('query=0')")
    page.mouse.move(1, 1)
    page.wait_for_function(
        "() => document.querySelector('.reading .who b').textContent === '[class]'"
    )


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("head", {"path": f"{SITE}.context", "head": 1}),
        ("residual", {"path": f"{SITE}.residual", "position": 0}),
        ("row", {"path": f"{SITE}.weights", "head": 1, "query": 0}),
    ],
)
def test_a_patch_of_another_image_gives_the_probabilities_of_python(opened, traced, name, place):
    rest = {key: x for key, x in place.items() if key != "path"}
    edit = patch(place["path"], traced(2), **rest)
    before, after = (traced(0, edits=edits).output.candidates for edits in ([], [edit]))
    page = opened("kind=image&image=example:2", query=0)
    page.select_option(".patch-what", name)
    page.click(".patch-go[aria-label*='into the first']")
    page.wait_for_function("() => location.hash.includes('patch')")
    assert page.evaluate(EDITS) == [{"kind": "patch", "source": {"image": "example:2"}, **place}]
    assert "the other image" in page.inner_text(".edit-list .chip")
    check_changes(page, before, after)
    page.click(".edit-list .undo")
    page.wait_for_selector(".edit-list", state="hidden")


def check_changes(page, before, after):
    """Compare the probabilities before and after edits with those of Python."""
    old, new = ({one.name: one.probability for one in side} for side in (before, after))
    assert max(abs(old[name] - new[name]) for name in old) > 1e-3
    texts = changes(page)
    assert len(texts) == len(old)
    for text in texts:
        name, x, y = re.match(r"(\w+)\s+(\S+) → (\S+)", text).groups()
        assert [float(x), float(y)] == pytest.approx([old[name], new[name]], abs=6e-4)


def test_two_models_with_the_same_patches_are_compared_and_patched(opened, traced):
    sides = traced(0), traced(0, "finetuned")
    page = opened("kind=model&model=finetuned", query=0)
    weights = [one[SITE].weights(1)[0, 2].item() for one in sides]
    assert [shown(page, "first"), shown(page, "second")] == pytest.approx(weights, abs=1e-6)
    assert answers(page) == [classes(one) for one in sides]
    edit = patch(f"{SITE}.context", sides[1], head=1)
    page.click(".patch-go[aria-label*='into the first']")
    page.wait_for_function("() => location.hash.includes('patch')")
    source = {"model": "finetuned", "image": "example:shapes/0"}
    place = {"path": f"{SITE}.context", "head": 1}
    assert page.evaluate(EDITS) == [{"kind": "patch", "source": source, **place}]
    check_changes(page, sides[0].output.candidates, traced(0, edits=[edit]).output.candidates)


def test_the_sides_change_places_for_a_patch_into_the_second(opened, traced):
    page = opened("kind=image&image=example:2", query=0)
    edit = patch(f"{SITE}.context", traced(0), head=1)
    page.click(".patch-go[aria-label*='into the second']")
    page.wait_for_selector(".edit-list .chip")
    page.wait_for_function("() => location.search.includes('example%3A2')")
    page.wait_for_selector(READY)
    assert page.evaluate(EDITS)[0]["source"] == {"image": "example:0"}
    assert page.input_value("select[aria-label='second image']") == "example:0"
    check_changes(page, traced(2).output.candidates, traced(2, edits=[edit]).output.candidates)


def test_models_with_other_patches_are_refused_in_one_sentence(opened):
    page = opened("kind=model&model=coarse")
    text = page.inner_text(".custom-view")
    assert "shapes cuts the image into 2 × 2 patches and coarse into 3 × 3" in text
    page = opened("kind=model&model=coarse", language="ko")
    assert "2 × 2, coarse 모델은 3 × 3 패치로 나누므로" in page.inner_text(".custom-view")
    page.select_option(".compare-kind", "image")  # and goes on from there
    page.wait_for_selector(".compare-figures .pictures")


def test_the_edited_run_of_an_image_is_compared(opened, traced):
    site = "encoder.layers.0.self"
    page = opened("kind=edited", more=f"&edits=ablate:{site}:0")
    before, after = traced(0), traced(0, edits=[ablate(site, head=0)])
    page.wait_for_function(SECOND_IS, arg=after[SITE].weights(1)[1, 2].item())
    assert shown(page, "first") == pytest.approx(before[SITE].weights(1)[1, 2].item(), abs=1e-6)
    page.wait_for_selector(".comparison .moved li")
    assert answers(page) == [classes(before), classes(after)]


def test_compare_starts_with_the_next_example_and_takes_images_of_the_reader(opened, models):
    page = opened()
    page.click(".compare-button")
    page.wait_for_selector(READY)
    assert page.input_value("select[aria-label='second image']") == "example:1"
    page.select_option("select[aria-label='second image']", "example:0")
    page.wait_for_function(
        "() => document.querySelector('.linked')?.textContent.includes('Both images are the same')"
    )
    # a file for the second side, chosen and then dropped on it
    files = [models["coarse"].folder / "examples" / f"{name}.png" for name in NAMES]
    page.set_input_files(".compare-bar input[type=file]", files[2])
    page.wait_for_function("() => location.hash.includes('upload')")
    for _ in range(2):
        page.wait_for_selector(READY)
        expected = classes(models["shapes"].trace(files[2]))
        assert answers(page)[1] == expected
        assert "own image" in page.inner_text(".compare-head h3 >> nth=1")
        page.reload()  # the link holds the name of the upload
    page.wait_for_selector(READY)
    dropped = [*files[1].read_bytes()]
    page.evaluate(DROP_ON, ["a.png", dropped, "[data-side=second] canvas"])
    until = "(x) => document.querySelectorAll('.compare-answer')[1]?.innerText.includes(x)"
    expected = classes(models["shapes"].trace(files[1]))
    page.wait_for_function(until, arg=next(iter(expected.values())))
    assert answers(page)[1] == expected
    assert "image=example" in page.url.replace("%3A", ":")  # the first side stays
    page.evaluate(DROP_ON, ["a.png", dropped, "[data-side=first] canvas"])
    page.wait_for_url(lambda url: "image=upload" in url.replace("%3A", ":").split("#")[0])


def test_the_second_image_is_drawn(opened):
    page = opened("kind=image&image=example:1")
    page.click(".draw-second")
    box = page.locator(".drawing-pad canvas").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 160, steps=4)
    page.mouse.up()
    page.wait_for_function("() => location.hash.includes('upload')")
    page.wait_for_selector(READY)
    assert "own image" in page.inner_text(".compare-head h3 >> nth=1")
    assert page.inner_text(".drawing-pad h2") == "Draw the second image"
    page.click(".input-bar button.draw")  # the pad of the first replaces it
    assert page.inner_text(".drawing-pad h2") == "Draw here"


@pytest.mark.parametrize(
    "compare", ["kind=image&image=example:2", "kind=image&image=example:2&difference=1"]
)
def test_comparisons_of_images_fit_a_phone(opened, compare):
    page = opened(compare, width=390, language="ko")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    boxes = [one.bounding_box() for one in page.locator(".compare-figures canvas").all()]
    assert all(box["x"] + box["width"] <= 390 for box in boxes)
    assert "둘째" in page.inner_text(".sentence")
