"""Loading, tracing and running large checkpoints, compared with transformers.

The checkpoints have random weights. Contenders take turns, and every measurement runs in a new
process, whose peak of memory is that of the measurement alone.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch

from regard.bench.timing import (
    markdown_table,
    new_process,
    process_memory,
    reset_peak_memory,
    select_clock,
    take_turns,
)
from regard.errors import MissingExtraError, check_choice

PEER = "transformers"
_WORDS = ["the", "dog", "is", "sleeping", "in", "a", "garden", "while", "two", "children", "play"]
_GREEDY = {"do_sample": False, "pad_token_id": 0}


@dataclass(frozen=True)
class BenchmarkModel:
    """An architecture of transformers, its sizes, and how much is read and written."""

    kind: str
    sizes: dict[str, Any]
    dtype: str = "float32"
    read: int = 256
    written: int = 32
    """Tokens to write; 0 for a model that does not write."""


_LLAMA = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22}
_LLAMA |= {"num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32_000}
_SMALL = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 300}
_SMALL |= {"bos_token_id": 1, "eos_token_id": 1}
CHECKPOINTS = {
    "gpt2": BenchmarkModel("GPT2LMHeadModel", {}),
    "bert": BenchmarkModel("BertForMaskedLM", {}, written=0),
    "llama": BenchmarkModel("LlamaForCausalLM", _LLAMA, "bfloat16"),
    "small": BenchmarkModel("GPT2LMHeadModel", _SMALL, read=32, written=4),
}
"""GPT-2 with 124 million weights, BERT base with 110, a Llama with 1.1 billion, a tiny GPT-2."""


@dataclass(frozen=True)
class Measurement:
    """The time and memory of a task with one contender: medians of all rounds."""

    checkpoint: str
    task: str
    name: str
    seconds: float
    megabytes: float
    """The peak of resident memory, less the memory in use after the imports."""


@dataclass(frozen=True)
class CheckpointPlan:
    """The checkpoints to measure, and the settings of the measurement."""

    names: Sequence[str]
    rounds: int = 3
    threads: int = 2
    cpu_time: bool = False
    """Count processor time, with one thread."""


def measure_checkpoints(plan: CheckpointPlan, log: Callable[[str], None]) -> list[Measurement]:
    """Measure regard and transformers on each checkpoint, in turns."""
    for name in plan.names:
        check_choice("checkpoint", name, CHECKPOINTS)
    if find_spec("transformers") is None:
        raise MissingExtraError("this needs transformers: pip install 'regard[interop]'.")
    return [one for name in plan.names for one in _measure(name, plan, log)]


def _measure(name: str, plan: CheckpointPlan, log: Callable[[str], None]) -> list[Measurement]:
    checkpoint, figures = CHECKPOINTS[name], []
    with tempfile.TemporaryDirectory() as folder:
        log(f"{name}: random weights are written")
        _in_process(_write, checkpoint, Path(folder))
        for task in ("load", "trace", *(["generate"] if checkpoint.written else [])):
            log(f"{name}: {task}")
            calls = {
                one: partial(_in_process, _run, (name, Path(folder)), task, one, plan)
                for one in ("regard", PEER)
            }
            for one, taken in take_turns(calls, plan.rounds).items():
                seconds, megabytes = (median(each) for each in zip(*taken, strict=True))
                figures.append(Measurement(name, task, one, seconds, megabytes))
    return figures


def _in_process(call: Callable[..., Any], *given: Any) -> Any:
    with new_process() as process:
        return process.submit(call, *given).result()


def _write(checkpoint: BenchmarkModel, folder: Path) -> None:
    from regard.text.tokenizer_training import train_tokenizer

    transformers = _quiet_transformers()

    torch.manual_seed(0)
    kind = getattr(transformers, checkpoint.kind)
    model = kind(kind.config_class(**checkpoint.sizes)).to(getattr(torch, checkpoint.dtype))
    model.save_pretrained(folder)
    train_tokenizer(_WORDS * 2, vocab_size=200, min_frequency=1).save(folder / "tokenizer.json")


def _quiet_transformers() -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _run(
    stored: tuple[str, Path], task: str, contender: str, plan: CheckpointPlan
) -> tuple[float, float]:
    """Return the seconds of a task and the peak memory of loading and doing it, in this process."""
    torch.set_num_threads(plan.threads)
    clock = select_clock(cpu_time=plan.cpu_time)
    checkpoint, folder = CHECKPOINTS[stored[0]], stored[1]
    open_model = _open_ours if contender == "regard" else _open_theirs
    text = " ".join(_WORDS[i % len(_WORDS)] for i in range(checkpoint.read))
    load, prepare = open_model(checkpoint, folder, task)
    reset_peak_memory()
    before, start = process_memory("VmRSS"), clock()
    model = load()
    seconds = clock() - start
    if task != "load":
        call = prepare(model, text if task == "trace" else text[: len(text) // 8])
        call()  # also opens the engine
        start = clock()
        call()
        seconds = clock() - start
    return seconds, process_memory() - before


_Prepare = Callable[[Any, str], Callable[[], object]]


def _open_ours(
    checkpoint: BenchmarkModel, folder: Path, task: str
) -> tuple[Callable[[], Any], _Prepare]:
    from regard.model import load

    _quiet_transformers()  # its import is not measured

    def prepare(model: Any, text: str) -> Callable[[], object]:
        if task == "trace":
            return lambda: model.trace(text)
        limits: dict[str, Any] = {"temperature": 0.0, "max_tokens": checkpoint.written}
        return lambda: model.generate(text, **limits)

    return partial(load, folder, dtype="stored"), prepare


def _open_theirs(
    checkpoint: BenchmarkModel, folder: Path, task: str
) -> tuple[Callable[[], Any], _Prepare]:
    from regard.text.tokenizer import Tokenizer

    kind, traced = getattr(_quiet_transformers(), checkpoint.kind), task == "trace"
    options: dict[str, Any] = {"dtype": "auto"}
    options |= {"attn_implementation": "eager"} if traced else {}

    def prepare(model: Any, text: str) -> Callable[[], object]:
        ids = torch.tensor([Tokenizer.load(folder / "tokenizer.json").encode(text)])
        n, everything = checkpoint.written, {"output_attentions": True}
        if traced:
            return torch.inference_mode()(
                lambda: model(ids, output_hidden_states=True, **everything)
            )
        options = {"min_new_tokens": n, "max_new_tokens": n, **_GREEDY}
        return lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **options)

    return lambda: kind.from_pretrained(folder, **options).eval(), prepare


def report(figures: Sequence[Measurement]) -> str:
    """Return a table of times and memory; ratios below 1 mean that regard needs less."""
    rows = []
    for ours, theirs in zip(figures[::2], figures[1::2], strict=True):
        ratios = (ours.seconds / theirs.seconds, ours.megabytes / theirs.megabytes)
        times = [f"{1000 * one.seconds:,.0f}" for one in (ours, theirs)]
        memory = [f"{one.megabytes:,.0f}" for one in (ours, theirs)]
        shown = [f"{ratio:.2f}" for ratio in ratios]
        rows.append([ours.checkpoint, ours.task, *times, shown[0], *memory, shown[1]])
    heads = ["checkpoint", "task", "regard ms", f"{PEER} ms", "ratio"]
    heads += ["regard MB", f"{PEER} MB", "ratio"]
    return markdown_table(heads, rows)
