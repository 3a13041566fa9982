"""Speed of writing, classifying, embedding, filling and starting, compared with other libraries.

Contenders take turns and compute the same; those that are not installed are named and left out.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import Any

import numpy as np
import torch

from regard.bench.timing import Clock, markdown_table, median_times, take_turns
from regard.errors import InputError
from regard.generation.graph_engines import WORTHWHILE, reader_of
from regard.hardware import idle_cpus, single_request_threads
from regard.model import Model
from regard.text.tokenizer import suppressed_ids

OURS = "regard"
Calls = dict[str, Callable[[], object]]
_BATCH = 32  # texts or images that peers read together
_PEERS = {
    "generate": {"CTranslate2": "ctranslate2", "llama.cpp": "llama_cpp"},
    "read": {"ONNX Runtime": "onnxruntime", "OpenVINO": "openvino"},
}
_PEERS = {task: {**peers, "transformers": "transformers"} for task, peers in _PEERS.items()}


@dataclass(frozen=True)
class Speed:
    """A contender's speed, and regard's divided by it."""

    task: str
    name: str
    per_second: float  # tokens, texts, images or starts
    ratio: float


def missing_peers(kind: str) -> list[str]:
    """Return the libraries that are compared for "generate" or "read" and are not installed."""
    return [name for name, module in _PEERS[kind].items() if find_spec(module) is None]


def measure_speed(
    task: str, calls: Calls, amount: int, *, rounds: int, clock: Clock = time.perf_counter
) -> list[Speed]:
    """Measure contenders in turns; each call produces `amount` tokens, texts or images."""
    times = median_times(calls, rounds=rounds, seconds=0.0, clock=clock)
    return [Speed(task, name, amount / t, t / times[OURS]) for name, t in times.items()]


def generation_calls(
    model: Model, prompt: str, n_tokens: int, *, alone: bool = False
) -> tuple[dict[str, Calls], str]:
    """Return the contenders that continue a prompt greedily, and a note about their texts.

    Args:
        alone: every contender has one thread, so that processor time can be compared.
    """
    threads = 1 if alone else single_request_threads()
    greedy: dict[str, Any] = {"temperature": 0.0, "max_tokens": n_tokens}

    def ours(**options: Any) -> Callable[[], str]:
        return lambda: model.generate(prompt, **greedy, **options).written

    float32: dict[str, Callable[[], Any]] = {
        OURS: ours(),
        "CTranslate2 in regard": ours(engine="ctranslate2"),
        "torch in regard": ours(engine="torch"),
    }
    int8: dict[str, Callable[[], Any]] = {OURS: ours(precision="int8")}
    tokenizer, folder = model.tokenizer, model.folder
    assert tokenizer is not None
    prompt_ids = tokenizer.encode_prompt(prompt)
    if folder is not None and find_spec("ctranslate2") is not None:
        for name, group in (("float32", float32), ("int8", int8)):
            group["CTranslate2"] = _ctranslate2_writer(model, name, prompt, n_tokens, threads)
    if find_spec("llama_cpp") is not None:
        for name, group in (("float32", float32), ("int8", int8)):
            with suppress(InputError):  # it lacks some of our architectures
                group["llama.cpp"] = _llama_writer(model, name, prompt, n_tokens, threads)
    if find_spec("transformers") is not None:
        float32["transformers"] = _transformers_writer(model, prompt_ids, n_tokens)
    texts = _able(float32)
    other = [name for name, text in texts.items() if text != texts[OURS]]
    groups: dict[str, Calls] = {"float32": dict(float32)}
    if OURS in _able(int8):
        groups["int8"] = dict(int8)
    return groups, f"other texts than regard in float32: {', '.join(other) or 'none'}"


def _able(calls: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Remove the contenders that cannot run the model; return what the others gave."""
    found = {}
    for name, call in list(calls.items()):
        try:
            found[name] = call()
        except InputError:
            del calls[name]
    return found


def _ctranslate2_writer(
    model: Model, precision: str, prompt: str, n_tokens: int, threads: int
) -> Callable[[], str]:
    import ctranslate2

    from regard.generation.ctranslate2_engine import converted

    tokenizer = model.tokenizer
    assert tokenizer is not None
    assert model.folder is not None
    path = str(converted(model.folder, int8=precision == "int8"))
    threads = 1 if precision == "int8" else threads  # its best setting
    generator = ctranslate2.Generator(path, compute_type=precision, intra_threads=threads)

    def write() -> str:
        ids = tokenizer.encode_prompt(prompt)
        names = [tokenizer.token_of(id) for id in ids]
        limits: Any = {"max_length": n_tokens, "include_prompt_in_result": False}
        (found,) = generator.generate_batch([names], sampling_topk=1, **limits)
        before = len(tokenizer.decode(ids))
        return tokenizer.decode([*ids, *found.sequences_ids[0]])[before:]

    return write


def _llama_writer(
    model: Model, precision: str, prompt: str, n_tokens: int, threads: int
) -> Callable[[], str]:
    import llama_cpp  # type: ignore[import-not-found]

    from regard.interop.export import export_gguf

    with tempfile.TemporaryDirectory() as folder:
        export_gguf(model, file := Path(folder) / "model.gguf")
        if precision == "int8":  # 8 bits for each weight of a block with its own scale
            settings = llama_cpp.llama_model_quantize_default_params()
            settings.ftype, settings.nthread = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, threads
            whole, file = file, file.with_name("q8_0.gguf")
            llama_cpp.llama_model_quantize(str(whole).encode(), str(file).encode(), settings)
        llama = llama_cpp.Llama(
            str(file), n_threads=threads, n_threads_batch=threads, verbose=False, use_mmap=False
        )
    options: dict[str, Any] = {"max_tokens": n_tokens, "temperature": 0.0}

    def write() -> str:
        llama.reset()  # keys of the same prompt are not kept from the round before
        return llama.create_completion(prompt, **options)["choices"][0]["text"]

    return write


def _transformers_writer(model: Model, ids: list[int], n_tokens: int) -> Callable[[], str]:
    theirs = _exported(model, "AutoModelForCausalLM")
    given, tokenizer = torch.tensor([ids]), model.tokenizer
    assert tokenizer is not None
    limits: dict[str, Any] = {"min_new_tokens": n_tokens, "max_new_tokens": n_tokens}
    limits |= {"do_sample": False}
    if unknown := suppressed_ids(tokenizer, model.config.n_vocab):
        limits["suppress_tokens"] = unknown

    def write() -> str:
        with torch.inference_mode():
            found = theirs.generate(given, attention_mask=torch.ones_like(given), **limits)
        return tokenizer.decode(found[0].tolist())[len(tokenizer.decode(ids)) :]

    return write


def _exported(model: Model, kind: str) -> Any:
    """Return the model as one of the library transformers."""
    import transformers

    from regard.interop.huggingface import export_huggingface

    with tempfile.TemporaryDirectory() as folder:
        export_huggingface(model, folder)
        return getattr(transformers, kind).from_pretrained(folder).eval()


def prediction_calls(
    model: Model, task: str, inputs: Sequence[Any], *, alone: bool = False
) -> Calls:
    """Return the contenders that embed, fill or classify all inputs in float32.

    regard's own engine is the one that it takes for many inputs.
    """
    reader_of(model, n_inputs=WORTHWHILE)
    ask = {"embed": model.embed, "fill": model.fill, "classify": model.classify}[task]
    few = list(inputs[:_BATCH])
    calls: Calls = {OURS: lambda: ask(list(inputs))}
    for name in ("torch", "onnx", "openvino"):
        call = partial(ask, engine=name)
        try:
            call(few)
        except InputError:
            continue
        calls[f"{name} in regard"] = lambda call=call: call(list(inputs))
    threads, feeds = 1 if alone else idle_cpus(), _batches(model, inputs)
    if find_spec("onnxscript") is not None:
        for name, open_graph in _GRAPHS.items():
            if find_spec(_PEERS["read"][name]) is not None:
                calls[name] = _graph_call(model, open_graph, threads, feeds)
    if find_spec("transformers") is not None:
        with suppress(InputError):  # it lacks some of our architectures
            calls["transformers"] = _transformers_reader(model, task, feeds)
    return calls


def _batches(model: Model, inputs: Sequence[Any]) -> Callable[[], list[dict[str, np.ndarray]]]:
    """Return a function that reads the inputs in batches; texts are tokenized and sorted."""
    if model.family == "vision":
        stacked = [
            {"images": np.stack(inputs[i : i + _BATCH])} for i in range(0, len(inputs), _BATCH)
        ]
        return lambda: stacked
    tokenizer = model.tokenizer
    assert tokenizer is not None

    def read() -> list[dict[str, np.ndarray]]:
        rows = sorted(tokenizer.encode_batch(list(inputs)), key=len)
        found = []
        for first in range(0, len(rows), _BATCH):
            batch = rows[first : first + _BATCH]
            ids = np.array([row + [0] * (len(batch[-1]) - len(row)) for row in batch])
            found.append({"ids": ids, "lengths": np.array([len(row) for row in batch])})
        return found

    return read


def _open_onnx(file: str, threads: int) -> Callable[[dict[str, np.ndarray]], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options)
    return lambda feed: session.run(None, feed)


def _open_openvino(file: str, threads: int) -> Callable[[dict[str, np.ndarray]], Any]:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(file, "CPU", settings).create_infer_request()
    return request.infer


_GRAPHS = {"ONNX Runtime": _open_onnx, "OpenVINO": _open_openvino}


def _graph_call(
    model: Model,
    open_graph: Callable[[str, int], Callable[[dict[str, np.ndarray]], Any]],
    threads: int,
    feeds: Callable[[], list[dict[str, np.ndarray]]],
) -> Callable[[], object]:
    from regard.interop.onnx import export_onnx

    with tempfile.TemporaryDirectory() as folder:
        export_onnx(model, folder)
        run = open_graph(str(Path(folder) / "model.onnx"), threads)
    return lambda: [run(feed) for feed in feeds()]


def _transformers_reader(
    model: Model, task: str, feeds: Callable[[], list[dict[str, np.ndarray]]]
) -> Callable[[], object]:
    kinds = {"embed": "AutoModel", "fill": "AutoModelForMaskedLM"}
    image = model.family == "vision"
    classifies = "AutoModelForImageClassification" if image else kinds.get(task)
    theirs = _exported(model, classifies or "AutoModelForSequenceClassification")

    def run() -> object:
        found = []
        with torch.inference_mode():
            for feed in feeds():
                if image:
                    found.append(theirs(pixel_values=torch.from_numpy(feed["images"])))
                    continue
                ids, lengths = torch.from_numpy(feed["ids"]), torch.from_numpy(feed["lengths"])
                allowed = (torch.arange(ids.size(1)) < lengths[:, None]).long()
                found.append(theirs(input_ids=ids, attention_mask=allowed))
        return found

    return run


def start_commands(model: str) -> dict[str, tuple[str, list[str]]]:
    """Return the Python code and the arguments of each start that is measured."""
    run = "from regard.cli.main import run; run()"
    greedy = ["--max-tokens", "1", "--temperature", "0"]
    return {
        OURS: (run, ["generate", model, "First", *greedy]),
        "regard translate": (run, ["translate", "en-de", "The dog is sleeping."]),
        "regard show": (run, ["show", "en-de", "The dog is sleeping."]),
        "regard --help": (run, ["--help"]),
        "import regard": ("import regard", []),
        "import ctranslate2": ("import ctranslate2", []),
        "import torch": ("import torch", []),
        "Python itself": ("pass", []),
    }


def measure_starts(
    commands: Mapping[str, tuple[str, list[str]]], *, rounds: int, cpu_time: bool = False
) -> list[Speed]:
    """Measure processes from start to end, next to bare imports; the first is regard.

    All use compiled modules, as an installed package does, whatever this environment says.
    """
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}

    def start(code: str, words: list[str]) -> float:
        began = _seconds(cpu_time)
        given = [sys.executable, "-c", code, *words]
        done = subprocess.run(given, capture_output=True, check=False, env=environment)
        if done.returncode:
            raise InputError(done.stderr.decode(errors="replace").strip().splitlines()[-1])
        return _seconds(cpu_time) - began

    for command in commands.values():
        start(*command)  # converted models and compiled modules are cached
    calls = {name: partial(start, *command) for name, command in commands.items()}
    times = {name: median(taken) for name, taken in take_turns(calls, rounds).items()}
    return [Speed("start", name, 1 / t, t / times[OURS]) for name, t in times.items()]


def _seconds(cpu_time: bool) -> float:
    if not cpu_time:
        return time.perf_counter()
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def report(speeds: Sequence[Speed]) -> str:
    """Return a table of speeds; a ratio above 1 means that regard is faster."""
    rows = [
        [one.task, one.name, *(f"{x:,.1f}" for x in (one.per_second, 1000 / one.per_second))]
        for one in speeds
    ]
    rows = [[*row, f"{one.ratio:.2f}"] for row, one in zip(rows, speeds, strict=True)]
    heads = ["task", "contender", "per second", "milliseconds for one", "regard's ratio"]
    return markdown_table(heads, rows)
