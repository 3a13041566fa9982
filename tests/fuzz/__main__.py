"""Damaged input of every kind: each case is accepted, or refused in one sentence.

Run `make fuzz COUNT=100000`. It prints a table and ends with 1 if anything else happened: another
error than regard's, a sentence of several lines, a case of many seconds, an answer of 5xx.
"""

import argparse
import io
import resource
import shutil
import sys
import tempfile
import tomllib
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import monotonic

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, settings
from PIL import Image

import regard
from regard.data.image_files import read_pixels
from regard.errors import RegardError
from regard.text.tokenizer import Tokenizer
from regard.trace.trace import Trace
from regard.training.recipe import load_recipe
from tests.fuzz.mutate import HOSTILE, Random, change_bytes, change_file, change_json, seeds

SLOWEST = 20.0
"""Seconds of a case on a busy machine."""
ROOT = Path(__file__).parents[2]


_TASKS = {"transformer": "translation", "seq2seq": "translation"}
_TASKS |= {"decoder": "language", "encoder": "masked"}


@cache
def small_model(kind):
    """A folder of a small model, with a tokenizer for texts."""
    folder, sizes = Path(tempfile.mkdtemp()) / kind, {"d_model": 8, "n_heads": 2, "d_ff": 8}
    torch.manual_seed(0)
    tokenizer = regard.load("dates").tokenizer
    if kind == "vision":
        more = {"n_layers": 1, "image_size": 8, "patch_size": 4, "n_classes": 3}
        module = regard.build({"family": "vision", **sizes, **more})
        regard.Model(module=module, task="classification", labels=("a", "b", "c")).save(folder)
        return folder
    layers = {"n_encoder_layers": 1, "n_decoder_layers": 1} if kind == "transformer" else {}
    more = {"n_vocab": len(tokenizer), "positions": "learned", "max_positions": 64}
    if kind == "seq2seq":
        sizes, more = {"d_model": 8}, {"n_vocab": len(tokenizer)}
    elif kind == "encoder":
        more["fill_head"] = True
    module = regard.build({"family": kind, **sizes, **more, **(layers or {"n_layers": 1})})
    task = _TASKS[kind]
    extras = {"longest_source": 40, "target_ratios": [0.5, 2.0], "sentences": 1, "examples": ["1"]}
    model = regard.Model(module=module, task=task, tokenizer=tokenizer, extras=extras)
    model.save(folder)
    return folder


def damaged_copy(folder, seed, into):
    shutil.copytree(folder, into)
    files = sorted(path for path in into.rglob("*") if path.is_file())
    change_file(Random(seed).choice(files), seed)
    return into


def model_folder(seed, folder):
    kind = ("transformer", "decoder", "vision", "encoder", "seq2seq")[seed % 5]
    model = regard.load(damaged_copy(small_model(kind), seed // 5, folder / "model"))
    if kind == "encoder":
        model.fill("12 [MASK] 2021")
    elif kind in ("transformer", "seq2seq"):
        model.translate("12 August 2021", beam=2, most=8)
        model.trace("12 August")
    elif kind == "decoder":
        model.generate("12", max_tokens=4)
    else:
        model.classify(Image.new("RGB", (9, 9)))


_SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
_CHECKPOINTS = {
    "BertForMaskedLM": {"vocab_size": 30, "intermediate_size": 8, **_SIZES},
    "GPT2LMHeadModel": {"vocab_size": 30, "n_embd": 8, "n_layer": 1, "n_head": 2},
    "LlamaForCausalLM": {"vocab_size": 30, "intermediate_size": 8, **_SIZES},
}


@cache
def checkpoint(kind):
    """A folder of transformers: exported from regard, or saved by the library."""
    folder = Path(tempfile.mkdtemp()) / kind
    if kind not in _CHECKPOINTS:
        regard.export(regard.load(small_model(kind)), folder, to="huggingface")
        return folder
    import transformers

    made = getattr(transformers, kind)
    made(made.config_class(**_CHECKPOINTS[kind])).save_pretrained(folder)
    words = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3, "[MASK]": 4, "<|endoftext|>": 5}
    if kind == "BertForMaskedLM":
        (folder / "vocab.txt").write_text("\n".join([*words, *"0123456789abcd"]) + "\n")
    return folder


def imported_checkpoint(seed, folder):
    kind = ("transformer", "vision", *_CHECKPOINTS)[seed % 5]
    regard.import_checkpoint(damaged_copy(checkpoint(kind), seed // 5, folder / "checkpoint"))


def tokenizer(seed, folder):
    (folder / "tokenizer.json").write_bytes(
        (small_model("decoder") / "tokenizer.json").read_bytes()
    )
    change_file(folder / "tokenizer.json", seed)
    found = Tokenizer.load(folder)
    found.decode(found.encode("12 August 2021"))


def recipe(seed, folder):
    files = sorted((ROOT / "recipes").glob("*.toml"))
    text = files[seed % len(files)].read_bytes()
    if seed % 3:
        load_recipe(change_json(tomllib.loads(text.decode()), seed))
    else:
        (folder / "recipe.toml").write_bytes(change_bytes(text, seed))
        load_recipe(folder / "recipe.toml")


@cache
def pictures():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (24, 31, 3), np.uint8))
    found = []
    for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "ICO"):
        stream = io.BytesIO()
        image.save(stream, kind)
        found.append(stream.getvalue())
    return found


def image(seed, folder):
    (folder / "image").write_bytes(change_bytes(pictures()[seed % 8], seed))
    read_pixels(folder / "image", normalization=None, n_channels=3, size=8)


@cache
def trace_file():
    path = Path(tempfile.mkdtemp()) / "trace.safetensors"
    regard.load("dates-transformer").trace("12 August").save(path)
    return path.read_bytes()


def trace(seed, folder):
    data, size = trace_file(), int.from_bytes(trace_file()[:8], "little")
    if seed % 2:  # the header, where everything is described
        head = change_bytes(data[8 : 8 + size], seed)
        data = len(head).to_bytes(8, "little") + head + data[8 + size :]
    else:
        data = change_bytes(data, seed)
    (folder / "trace.safetensors").write_bytes(data)
    found = Trace.load(folder / "trace.safetensors")
    for path in list(found)[:2]:
        found[path].weights()


_LINES = [
    *(
        b"A dog.\tEin Hund.\n",
        b"\xff\xfe\tx\n",
        b"\xef\xbb\xbfa\tb\r\n",
        b"a\0b\tc\n",
        b"one side\n",
    ),
    *(b"\n", b"a\tb\tc\n", b"\t\n", "\u2028a\t\ud55c\uad6d\n".encode(), b"x" * 5000 + b"\ty\n"),
]


def corpus(seed, folder):
    random = Random(seed)
    data = b"".join(random.choices(_LINES, k=random.randrange(12)))
    name = random.choice(("c.tsv", "c.tsv.gz", "c.tsv.zst", "c.jsonl", "c.txt"))
    (folder / name).write_bytes(change_bytes(data, seed) if seed % 2 else data)
    data = {"train": str(folder / name), "validation": str(folder / name)}
    from regard.training.data_sources import TextSources

    read = load_recipe({"task": "translation", "data": data, "model": {}, "training": {"steps": 1}})
    TextSources(read).examples("validation", 20)


@cache
def client():
    from fastapi.testclient import TestClient

    from regard.server.app import make_app
    from regard.server.catalog import Catalog
    from regard.server.service import Service

    app = make_app(Service(Catalog(["dates"])))
    return TestClient(app, base_url="http://127.0.0.1")


@cache
def operations():
    """Every method and path with the names of the fields of its body."""
    schema, found = client().get("/api/openapi.json").json(), []
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            content = about.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            fields = schema["components"]["schemas"].get(name, {}).get("properties", {})
            found.append((method, path, list(fields)))
    return found


_FIELDS = {
    "model": "dates",
    "text": "12 August",
    "texts": ["12 August"],
    "source": "12 August",
    "target": "2021-08-12",
    "beam": 2,
    "edits": [
        {"kind": "ablate", "site": "decoder.layers.0.cross", "head": 0},
        {"kind": "temperature", "site": "*", "value": 0.5},
        {"kind": "set_weights", "site": "*", "head": 0, "query": 1, "value": [1.0]},
    ],
    "image": "upload:x",
    "temperature": 0.7,
    "seed": 3,
    "top_k": 5,
    "count": 3,
    "max_tokens": 4,
    "ids": [3, 4],
    "prompt": "12",
}


def request(seed, folder):
    del folder
    random = Random(seed)
    method, path, fields = random.choice(operations())
    base = {name: _FIELDS[name] for name in fields if name in _FIELDS}
    while "{" in path:
        before, _, rest = path.partition("{")
        path = (
            before
            + random.choice(("dates", "9" * 30, "%00", "0", "-1", "x"))
            + rest.partition("}")[2]
        )
    body = change_json(base, seed) if random.random() < 0.9 else random.choice(HOSTILE)
    headers = random.choice(
        ({}, {}, {}, {"host": "["}, {"origin": "http://["}, {"host": "a" * 999})
    )
    import json

    query = random.choice(("", "?t=1e-320", "?head=" + "9" * 30, "?layer=-1", "?x[]=%ff"))
    text = json.dumps(body).encode("utf-8", "surrogatepass")
    content = text if random.random() < 0.9 else change_bytes(text, seed)
    answer = client().request(
        method,
        path + query,
        content=content,
        headers={"content-type": "application/json", **headers},
    )
    if answer.status_code >= 500:
        raise AssertionError(
            f"{method} {path}{query} {content[:200]!r} {headers}: {answer.text[:300]}"
        )
    if answer.status_code >= 400:
        raise RegardError(f"answered {answer.status_code}")


_WORDS = [
    *("translate", "trace", "show", "train", "import", "export", "generate", "fill", "classify"),
    *("embed", "evaluate", "models", "doctor", "--help", "-o", "--beam", "--to", "--json", "dates"),
    *("digits", "shakespeare", "x", "", "-", "--", "3", "-1", "1e400", "9" * 30, "\ud800", "a\0b"),
    *("/dev/null", "/nonexistent/x", "--seed", "--set", "a=b", "model.x=[", "--model", "onnx"),
]


def command(seed, folder):
    from typer.testing import CliRunner

    from regard.cli.main import app

    random = Random(seed)
    words = [random.choice(_WORDS[:16]), *random.choices(_WORDS, k=random.randrange(5))]
    if words[0] in ("train", "doctor") or "shakespeare" in words[1:]:
        words = ["models", *words[1:]]
    words = [str(folder / "out") if word == "x" else word for word in words]
    found = CliRunner().invoke(app, words, input="12 August\n")
    error = found.exception
    if error is not None and not isinstance(error, SystemExit | RegardError):
        raise AssertionError(f"{words}: {error!r}") from error
    if error is not None:
        raise RegardError(f"exit code {found.exit_code}")


CLASSES = {
    "recipes": recipe,
    "model folders": model_folder,
    "tokenizers": tokenizer,
    "corpora": corpus,
    "images": image,
    "traces": trace,
    "checkpoints": imported_checkpoint,
    "requests": request,
    "commands": command,
}


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Results:
    """Counts of one class, and one example of each kind of failure."""

    def __init__(self, name, run, until):
        self.name, self.run, self.until = name, run, until
        self.counts, self.failures, self.slowest, self.seconds = Counter(), {}, 0.0, 0.0

    def case(self, seed):
        start = monotonic()
        if start > self.until:
            return
        folder = Path(tempfile.mkdtemp())
        try:
            self.run(seed, folder)
            self.counts["accepted"] += 1
        except RegardError as error:
            self.counts["refused"] += 1
            if "\n" in str(error).strip():
                self.fail("several lines", seed, str(error))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            lines = traceback.format_exception(error)
            at = traceback.extract_tb(error.__traceback__)[-1]
            self.fail(
                f"{type(error).__name__} in {Path(at.filename).name}:{at.lineno}", seed, lines[-1]
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            took = monotonic() - start
            self.seconds += took
            self.slowest = max(self.slowest, took)
            if took > SLOWEST:
                self.fail("slow", seed, f"{took:.1f} s")

    def fail(self, kind, seed, text):
        self.counts["failed"] += 1
        self.failures.setdefault(kind, (seed, text.strip()[:300]))


def fuzz(count, minutes, names, *, derandomize):
    """Run `count` cases in all, within so many minutes; return the results of each class."""
    found, each = [], max(count // len(names), 1)
    for name in names:
        warm_up(CLASSES[name])
        results = Results(name, CLASSES[name], monotonic() + 60 * minutes / len(names))
        options = settings(
            max_examples=each,
            derandomize=derandomize,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        options(given(seeds)(results.case))()
        found.append(results)
        say(line_of(results))
        for kind, (seed, text) in results.failures.items():
            say(f"    {kind}, seed {seed}: {text}")
    return found


def warm_up(run):
    """Load models, start the server and import libraries before the time of a class begins."""
    for seed in range(5):  # as many as a class has kinds
        with suppress(Exception), tempfile.TemporaryDirectory() as folder:
            run(seed, Path(folder))


def line_of(results):
    counts = [results.counts[name] for name in ("accepted", "refused", "failed")]
    numbers = " | ".join(f"{count:8,}" for count in counts)
    return f"| {results.name:13} | {numbers} | {results.seconds:7.1f} | {results.slowest:7.1f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", choices=CLASSES, nargs="*", default=list(CLASSES))
    parser.add_argument("--fixed", action="store_true", help="the same cases in every run")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30,) * 2)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    say("| class         | accepted |  refused |   failed | seconds | slowest |")
    say("|---------------|---------:|---------:|---------:|--------:|--------:|")
    found = fuzz(options.count, options.minutes, options.only, derandomize=options.fixed)
    say(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB")
    sys.exit(any(one.failures for one in found))


if __name__ == "__main__":
    main()
