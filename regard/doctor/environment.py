"""The environment that regard runs in: versions, speed, extras, folders, and all dependencies."""

import os
import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

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
        *_speed(),
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


_INSTRUCTIONS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8")
_INSTRUCTIONS += ("asimd", "asimddp", "i8mm", "bf16")
_INT8 = {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"}


def _speed() -> list[Fact]:
    """Measure what products and memory can do at best, and say what makes them slow."""
    import torch

    from regard.hardware import cpu_count

    found = _instructions()
    factors, copied = torch.randn(2, 768, 768), torch.zeros(16_000_000)
    source = torch.ones_like(copied)
    flops = 2 * 768**3 / _shortest(lambda: factors[0] @ factors[1])
    bandwidth = 2 * copied.nbytes / _shortest(lambda: copied.copy_(source))
    load, count = os.getloadavg()[0], cpu_count()
    busy = f"other programs use the processor (load {load:.1f}), so everything takes longer"
    wide = {"avx2", "avx512f", "asimd"} & set(found)
    advice = "" if wide else "products are slow without AVX2 or NEON: use a newer processor"
    if wide and not _INT8 & set(found):
        advice = "int8 is hardly faster than float32 without VNNI or dot-product instructions"
    return [
        Fact("instructions", " ".join(found) or "not known", advice if found else ""),
        Fact("product peak", f"{flops / 1e9:,.0f} GFLOP/s in float32, 768 × 768"),
        Fact("memory bandwidth", f"{bandwidth / 1e9:,.1f} GB/s, which bounds decoding"),
        Fact("load", f"{load:.1f} on {count} cores", busy if load > count else ""),
    ]


def _instructions() -> list[str]:
    """Return the instruction sets of the processor that speed up products, as Linux lists them."""
    path = Path("/proc/cpuinfo")
    text = path.read_text("utf-8", "replace") if path.is_file() else ""
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return [one for one in _INSTRUCTIONS if flags and one in flags[1].split()]


def _shortest(work: Callable[[], Any], repeats: int = 5) -> float:
    """Return the seconds of the fastest of several runs."""
    found = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        found.append(perf_counter() - start)
    return min(found)


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


def software_bill() -> dict[str, Any]:
    """Return all installed dependencies with versions and licenses, as CycloneDX 1.6."""
    found = {_normalized(one.name): one for one in _dependencies("regard")}
    regard = found.pop("regard")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**_component(regard), "type": "application"}},
        "components": [_component(found[name]) for name in sorted(found)],
        "dependencies": [
            {
                "ref": _address(one),
                "dependsOn": sorted(_address(found[n]) for n in _required(one) if n in found),
            }
            for one in (regard, *(found[name] for name in sorted(found)))
        ],
    }


def _dependencies(name: str) -> Iterator[metadata.Distribution]:
    """Yield a package and, once each, everything installed that it requires."""
    seen, waiting = set(), [name]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            one = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # an extra, or for another platform
            continue
        yield one
        waiting += _required(one)


def _required(one: metadata.Distribution) -> list[str]:
    """Return the names of required packages; only the extras of regard itself count."""
    own = _normalized(one.name) == "regard"
    names = [
        re.split(r"[^\w.-]", line, maxsplit=1)[0]
        for line in one.requires or ()
        if own or "extra ==" not in line
    ]
    return sorted({_normalized(name) for name in names} - {_normalized(one.name)})


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _address(one: metadata.Distribution) -> str:
    return f"pkg:pypi/{_normalized(one.name)}@{one.version}"


def _component(one: metadata.Distribution) -> dict[str, Any]:
    address = _address(one)
    about = {"type": "library", "bom-ref": address, "name": one.name, "version": one.version}
    return {**about, "purl": address, "licenses": _licenses(one)}


def _licenses(one: metadata.Distribution) -> list[dict[str, Any]]:
    """Return the license as the package states it: an expression, a name, or classifiers."""
    stated = one.metadata.get_all  # a key that is missing is deprecated in Python 3.12
    if expression := stated("License-Expression"):
        return [{"expression": expression[0]}]
    classifiers, text = stated("Classifier") or [], (stated("License") or [""])[0]
    names = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License ::")]
    if not names and text.strip():
        names = [text.strip().splitlines()[0][:100]]  # some packages have the whole text here
    return [{"license": {"name": name}} for name in names or ["not stated"]]
