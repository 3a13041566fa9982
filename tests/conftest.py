"""Shared by all tests: one thread per process, no deadlines for hypothesis, the shared data."""

import gc
import os
import sys
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[1]
os.environ["REGARD_LANGUAGE"] = "en"  # messages are compared, whatever the language of the user is

# On machines with shared cores, time limits fail at random.
hypothesis.settings.register_profile("regard", deadline=None)
hypothesis.settings.register_profile("fast", deadline=None, max_examples=20)
hypothesis.settings.load_profile("regard")


def pytest_configure():
    torch.set_num_threads(1)  # pytest-xdist already uses every core


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the garbage collector off the objects of all imports, which stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]):
    """Mark tests that start Chromium or other processes, which `make test-fast` leaves out.

    Files with such tests come first, so that short ones remain when a process has nothing to do.
    """
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
        names = vars(getattr(item, "module", None) or object)
        if "subprocess" in names or "ray" in names:
            item.add_marker(pytest.mark.processes)
    marks = ("browser", "processes", "long")
    longer = {item.path for item in items if any(map(item.get_closest_marker, marks))}
    items.sort(key=lambda item: item.path not in longer)


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests of this process."""
    from playwright.sync_api import sync_playwright

    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=options)
        yield chromium
        chromium.close()


def data_folder() -> Path:
    return Path(os.environ.get("REGARD_DATA") or REPOSITORY.parent / "shared" / "data")


def pytest_runtest_setup(item: pytest.Item):
    for marker in item.iter_markers("data"):
        for name in marker.args:
            if not (data_folder() / name).exists():
                pytest.skip(f"not run: {name} is absent from the shared data (see REGARD_DATA)")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of shared data: $REGARD_DATA, or ../shared/data next to the repository."""
    folder = data_folder()
    if not folder.is_dir():
        pytest.skip("not run: the shared data is absent (see REGARD_DATA)")
    return folder


@pytest.fixture
def no_shape_checks(monkeypatch: pytest.MonkeyPatch):
    """Shape checks off for one test: torch.compile and torch.export cannot look through them."""
    for kind in classes_of_the_package():  # their methods are in the way even with checks disabled
        for name, method in list(vars(kind).items()):
            code = getattr(method, "__code__", None)
            if code is not None and Path(code.co_filename).parent.name == "jaxtyping":
                monkeypatch.setattr(kind, name, method.__wrapped__)
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def classes_of_the_package() -> set[type]:
    modules = [module for name, module in sys.modules.items() if name.startswith("regard.")]
    return {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}


SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 12}
FAMILIES = {
    "transformer": ("translation", {**SIZES, "n_encoder_layers": 1, "n_decoder_layers": 1}),
    "seq2seq": ("translation", {"d_model": 8}),
    "encoder": ("masked", {**SIZES, "n_layers": 1, "n_token_types": 2}),
    "decoder": ("language", {**SIZES, "n_layers": 1}),
    "vision": ("classification", {**SIZES, "n_layers": 1, "image_size": 8, "patch_size": 4}),
}


@pytest.fixture(scope="session")
def small_tokenizer():
    """A tokenizer that knows two sentences."""
    from regard.text.tokenizer_training import train_tokenizer

    texts = ["A dog runs along the beach.", "Ein Hund läuft am Strand entlang."] * 2
    return train_tokenizer(texts, vocab_size=60, min_frequency=1)


@pytest.fixture(scope="session")
def make_bundle(small_tokenizer):
    """Makes a small bundle of any family; `seed` decides its weights."""
    from regard.data.images import Normalization
    from regard.model import Model
    from regard.model_folder import Card
    from regard.models.config import build, config_from_dict

    def make(family, *, seed=0, settings=None, **more):
        task, sizes = FAMILIES[family]
        sizes = {**sizes, **(settings or {})}
        if family == "vision":
            sizes.setdefault("n_classes", 3)
            more.setdefault("labels", ("cat", "dog", "horse"))
            more.setdefault("pixels", Normalization((0.4, 0.5, 0.6), (0.2, 0.3, 0.4)))
        else:
            sizes.setdefault("n_vocab", len(small_tokenizer))
            more.setdefault("tokenizer", small_tokenizer)
        torch.manual_seed(seed)
        model = build(config_from_dict({"family": family, **sizes})).eval()
        card = Card(data="two sentences", license="CC0", score="none")
        return Model(module=model, task=more.pop("task", task), card=card, **more)

    return make
