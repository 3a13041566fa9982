"""What every test shares: one thread per process, patient hypothesis, the shared data."""

import os
import sys
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[1]

# Machines that share their cores make time limits a matter of luck.
hypothesis.settings.register_profile("regard", deadline=None)
hypothesis.settings.load_profile("regard")


def pytest_configure():
    torch.set_num_threads(1)  # pytest-xdist already keeps every core busy


def data_folder() -> Path:
    return Path(os.environ.get("REGARD_DATA") or REPOSITORY.parent / "shared" / "data")


def pytest_runtest_setup(item: pytest.Item):
    for marker in item.iter_markers("data"):
        for name in marker.args:
            if not (data_folder() / name).exists():
                pytest.skip(f"not run: {name} is absent from the shared data (see REGARD_DATA)")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of shared data: $REGARD_DATA, or ../shared/data beside the repository."""
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
