"""Speed of writing, classifying, embedding, filling and starting, compared with other libraries.

Contenders take turns and compute the same in float32; those that are not installed are left out.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from regard.bench.timing import markdown_table, median_times, take_turns
from regard.errors import InputError
from regard.model import Model

OURS = "regard"
Calls = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class Speed:
    """A contender's speed, and regard's divided by it."""

    task: str
    name: str
    per_second: float  # tokens, texts, images or starts
    ratio: float


def measure_speed(task: str, calls: Calls, amount: int, *, rounds: int) -> list[Speed]:
    """Measure contenders in turns; each call produces `amount` tokens, texts or images."""
    times = median_times(calls, rounds=rounds, seconds=0.0)
    return [Speed(task, name, amount / t, t / times[OURS]) for name, t in times.items()]


def generation_calls(model: Model, prompt: str, n_tokens: int) -> tuple[Calls, str]:
    """Return the contenders that continue a prompt greedily, and a note about their texts."""
    greedy: dict[str, Any] = {"temperature": 0.0, "max_tokens": n_tokens}
    calls: Calls = {OURS: partial(model.generate, prompt, **greedy)}
    texts = {}
    for name, options in {
        "regard, int8": {"precision": "int8"},
        "CTranslate2 in regard": {"engine": "ctranslate2"},
        "torch in regard": {"engine": "torch"},
    }.items():
        call = partial(model.generate, prompt, **greedy, **options)
        try:
            texts[name] = call().written
        except InputError:
            continue
        calls[name] = call
    if find_spec("transformers") is not None:
        calls["transformers"] = _transformers_generate(model, prompt, n_tokens)
    wanted = model.generate(prompt, **greedy).written
    other = [name for name, text in texts.items() if text != wanted]
    return calls, f"other texts than regard: {', '.join(other) or 'none'}"


def _transformers_generate(model: Model, prompt: str, n_tokens: int) -> Callable[[], object]:
    from transformers import AutoModelForCausalLM

    from regard.interop.huggingface import export_huggingface

    with tempfile.TemporaryDirectory() as folder:
        export_huggingface(model, folder)
        theirs: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert model.tokenizer is not None
    ids = torch.tensor([model.tokenizer.encode_prompt(prompt)])
    limits = {"min_new_tokens": n_tokens, "max_new_tokens": n_tokens, "do_sample": False}

    def generate() -> object:
        with torch.inference_mode():
            return theirs.generate(ids, attention_mask=torch.ones_like(ids), **limits)

    return generate


def prediction_calls(model: Model, task: str, inputs: Sequence[Any]) -> Calls:
    """Return the contenders that embed, fill or classify all inputs."""
    ask = {"embed": model.embed, "fill": model.fill, "classify": model.classify}[task]
    calls: Calls = {
        OURS: lambda: ask(list(inputs)),
        "one by one": lambda: [ask(one) for one in inputs],
    }
    if find_spec("onnxruntime") is not None and find_spec("onnxscript") is not None:
        calls["ONNX Runtime"] = _onnx_calls(model, inputs)
    return calls


def _onnx_calls(model: Model, inputs: Sequence[Any]) -> Callable[[], object]:
    """Return a call of the exported graph, in batches of 32 sorted by length."""
    import onnxruntime

    from regard.interop.onnx import export_onnx

    with tempfile.TemporaryDirectory() as folder:
        export_onnx(model, folder)
        session = onnxruntime.InferenceSession(str(Path(folder) / "model.onnx"))
    if model.family == "vision":
        feeds = [{"images": np.stack(inputs[i : i + 32])} for i in range(0, len(inputs), 32)]
        return lambda: [session.run(None, feed) for feed in feeds]
    assert model.tokenizer is not None
    tokenizer = model.tokenizer

    def run() -> object:
        rows = sorted(tokenizer.encode_batch(list(inputs)), key=len)
        found = []
        for first in range(0, len(rows), 32):
            batch = rows[first : first + 32]
            longest = len(batch[-1])
            ids = np.array([row + [0] * (longest - len(row)) for row in batch])
            lengths = np.array([len(row) for row in batch])
            found.append(session.run(None, {"ids": ids, "lengths": lengths}))
        return found

    return run


_STARTS = {
    OURS: "from regard.cli.main import run; run()",
    "import regard": "import regard",
    "import ctranslate2": "import ctranslate2",
    "import torch": "import torch",
}


def measure_starts(model: str, prompt: str, *, rounds: int) -> list[Speed]:
    """Measure the time from a process's start to its first token, next to bare imports."""
    words = ["generate", model, prompt, "--max-tokens", "1", "--temperature", "0"]

    def start(code: str) -> float:
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, check=False
        )
        if done.returncode:
            raise InputError(done.stderr.decode(errors="replace").strip().splitlines()[-1])
        return time.perf_counter() - began

    turns = take_turns({name: partial(start, code) for name, code in _STARTS.items()}, rounds)
    times = {name: median(taken) for name, taken in turns.items()}
    return [Speed("start", name, 1 / t, t / times[OURS]) for name, t in times.items()]


def report(speeds: Sequence[Speed]) -> str:
    """Return a table of speeds; a ratio above 1 means that regard is faster."""
    rows = [[one.task, one.name, f"{one.per_second:,.1f}", f"{one.ratio:.2f}"] for one in speeds]
    return markdown_table(["task", "contender", "per second", "regard's ratio"], rows)
