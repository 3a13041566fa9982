"""The environment that regard runs in: versions, threads, extras, fonts, folders."""

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

REQUIRED = ("torch", "numpy", "tokenizers", "safetensors", "ctranslate2", "matplotlib", "starlette")
EXTRAS = {
    "interop": ("transformers", "huggingface_hub"),
    "onnx": ("onnx", "onnxruntime"),
    "notebook": ("anywidget",),
    "ray": ("ray",),
    "tensorboard": ("tensorboard",),
    "video": ("av",),
}


@dataclass(frozen=True)
class Fact:
    """One property of the environment."""

    name: str
    value: str
    advice: str = ""  # how to fix a problem; empty if there is none


def describe_environment() -> list[Fact]:
    """Return all facts."""
    from regard.figures.captions import korean_font
    from regard.interop.model_names import bundled

    font, models = korean_font(), ", ".join(bundled())
    no_font = "Korean text in PNG and PDF needs a font such as fonts-noto-cjk"
    no_models = "this install has no bundled models"
    return [
        *_versions(),
        *_processor(),
        *_extras(),
        Fact("korean font", font or "none", "" if font else no_font),
        _cache(),
        Fact("models", models or "none", "" if models else no_models),
    ]


def _versions() -> list[Fact]:
    python = Fact("python", f"{platform.python_version()} on {platform.system()}")
    packages = [
        Fact(name, _version(name), "" if find_spec(name) else f"pip install {name}")
        for name in REQUIRED
    ]
    return [Fact("regard", _version("regard")), python, *packages]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> list[Fact]:
    import torch

    from regard.hardware import cpu_count

    count, threads = cpu_count(), torch.get_num_threads()
    advice = "fewer threads than cores: unset OMP_NUM_THREADS" if threads < count else ""
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none (not required)"
    return [
        Fact("cores", f"{count}, {torch.backends.cpu.get_cpu_capability()}"),
        Fact("threads", str(threads), advice),
        Fact("gpu", gpu),
    ]


def _extras() -> list[Fact]:
    facts = []
    for name, packages in EXTRAS.items():
        missing = any(find_spec(package) is None for package in packages)
        advice = f"pip install 'regard[{name}]'" if missing else ""
        facts.append(Fact(f"extra {name}", "no" if missing else "yes", advice))
    return facts


def _cache() -> Fact:
    from regard.files import cache_folder

    folder = cache_folder()
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    advice = "" if os.access(existing, os.W_OK) else "not writable: set REGARD_CACHE"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    home = Path.home()
    shown = f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else folder
    return Fact("cache", f"{shown}, {size / 1e6:,.1f} MB", advice)
