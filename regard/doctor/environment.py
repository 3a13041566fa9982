"""What this machine has that regard uses: versions, threads, engines, fonts, folders."""

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

NEEDED = ("torch", "numpy", "tokenizers", "safetensors", "ctranslate2", "matplotlib", "starlette")
EXTRAS = {
    "interop": ("transformers", "huggingface_hub"),
    "onnx": ("onnx", "onnxruntime"),
    "notebook": ("anywidget",),
    "ray": ("ray",),
    "tensorboard": ("tensorboard",),
}


@dataclass(frozen=True)
class Fact:
    """One thing about the machine."""

    name: str
    value: str
    advice: str = ""
    """What to do where something is missing; nothing if all is well."""


def look_around() -> list[Fact]:
    """Every fact, in the order in which a reader asks for them."""
    return [*_versions(), *_processor(), *_extras(), _font(), _cache(), _models()]


def _versions() -> list[Fact]:
    regard = Fact("regard", _version("regard"))
    python = Fact("python", f"{platform.python_version()} on {platform.system()}")
    found = [Fact(name, _version(name), _missing(name)) for name in NEEDED]
    return [regard, python, *found]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _missing(name: str) -> str:
    return "" if find_spec(name) else f"pip install {name}"


def _processor() -> list[Fact]:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = torch.get_num_threads()
    advice = "fewer threads than cores: unset OMP_NUM_THREADS" if threads < (cores or 1) else ""
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none, and none is needed"
    return [
        Fact("cores", f"{cores}, {torch.backends.cpu.get_cpu_capability()}"),
        Fact("threads", str(threads), advice),
        Fact("gpu", gpu),
    ]


def _extras() -> list[Fact]:
    facts = []
    for name, packages in EXTRAS.items():
        absent = [package for package in packages if find_spec(package) is None]
        advice = f"for {name}: pip install 'regard[{name}]'" if absent else ""
        facts.append(Fact(f"extra {name}", "no" if absent else "yes", advice))
    return facts


def _font() -> Fact:
    from regard.figures.formats import korean_font

    name = korean_font()
    advice = "" if name else "Korean words in PNG and PDF need one, such as fonts-noto-cjk"
    return Fact("korean font", name or "none", advice)


def _cache() -> Fact:
    from regard.files import cache_folder

    folder = cache_folder()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    advice = "" if os.access(there, os.W_OK) else "cannot be written: set REGARD_CACHE"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Fact("cache", f"{_home(folder)}, {size / 1e6:,.1f} MB", advice)


def _home(folder: Path) -> str:
    """The folder as its owner writes it."""
    try:
        return f"~/{folder.relative_to(Path.home())}"
    except ValueError:
        return str(folder)


def _models() -> Fact:
    from regard.interop.model_names import bundled

    names = ", ".join(bundled())
    return Fact("models", names or "none", "" if names else "none is bundled with this install")
