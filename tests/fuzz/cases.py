"""One function for each class of damaged input: a seed is a case."""

import gzip
import io
import json
import shutil
import tempfile
import tomllib
from functools import cache
from pathlib import Path
from urllib.parse import quote

import numpy as np
import torch
from PIL import Image

import regard
from regard.data.image_files import read_pixels
from regard.errors import RegardError
from regard.files import zstd
from regard.text.tokenizer import Tokenizer
from regard.trace.trace import Trace
from regard.training.recipe import load_recipe
from tests.fuzz.mutate import (
    HOSTILE,
    Random,
    change_bytes,
    change_file,
    change_json,
    change_safetensors,
)
from tests.interop.test_llama2c import PIECES, write_binary, write_tokenizer
from tests.interop.test_marian import write_vocabulary

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
_SIDES = {
    f"{side}_{name}": n
    for side in ("encoder", "decoder")
    for name, n in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 8))
}
_ENDS = {"pad_token_id": 5, "eos_token_id": 0, "decoder_start_token_id": 5}
_TEXT = {"vocab_size": 30, "intermediate_size": 8, "max_position_embeddings": 16, **_SIZES}
_CHECKPOINTS = {
    "BertForMaskedLM": _TEXT,
    "BertModel": _TEXT,
    "DistilBertForMaskedLM": {"vocab_size": 30, "dim": 8, "n_layers": 1, "n_heads": 2},
    "GPT2LMHeadModel": {"vocab_size": 30, "n_embd": 8, "n_layer": 1, "n_head": 2},
    "LlamaForCausalLM": _TEXT,
    "MistralForCausalLM": _TEXT | {"num_key_value_heads": 1},
    "ViTForImageClassification": _SIZES | {"image_size": 8, "patch_size": 4},
    "MarianMTModel": {"vocab_size": 6, "d_model": 8, **_SIDES, **_ENDS},
}
_FILES = ("transformer", "vision", *_CHECKPOINTS, "llama2.c", "shards")
_PIECES = {"\u2581": -1.0, "a": -2.0, "\u2581a": -1.5}


def _add_tokenizer(kind, folder):
    words = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3, "[MASK]": 4, "<|endoftext|>": 5}
    if "Bert" in kind:
        (folder / "vocab.txt").write_text("\n".join([*words, *"0123456789abcd"]) + "\n")
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    if kind == "BertModel":  # of sentence-transformers
        for name, content in {
            "modules.json": [
                {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
                {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            ],
            "sentence_bert_config.json": {"max_seq_length": 8},
            "1_Pooling/config.json": {
                "word_embedding_dimension": 8,
                "pooling_mode_mean_tokens": True,
                "pooling_mode_cls_token": False,
            },
        }.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(json.dumps(content))
    if kind == "GPT2LMHeadModel":
        ids = {word: i for i, word in enumerate(["a", "b", "ab", "<|endoftext|>"])}
        (folder / "vocab.json").write_text(json.dumps(ids))
        (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    if kind == "LlamaForCausalLM":
        write_vocabulary(folder / "tokenizer.model", _PIECES)
    if kind == "MarianMTModel":
        ids = {"</s>": 0, "<unk>": 1, "\u2581": 2, "a": 3, "\u2581a": 4, "<pad>": 5}
        (folder / "vocab.json").write_text(json.dumps(ids))
        for side in ("source", "target"):
            write_vocabulary(folder / f"{side}.spm", _PIECES)
    if kind.startswith("ViT"):
        about = {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}}
        about |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2}
        (folder / "preprocessor_config.json").write_text(json.dumps(about))


@cache
def checkpoint(kind):
    """A folder of transformers: exported from regard, or saved by the library."""
    folder = Path(tempfile.mkdtemp()) / kind
    if kind == "llama2.c":
        folder.mkdir()
        write_binary(folder / "model.bin")
        write_tokenizer(folder / "tokenizer.bin", PIECES)
        return folder
    if kind in ("transformer", "vision"):
        regard.export(regard.load(small_model(kind)), folder, to="huggingface")
        return folder
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    if kind == "shards":
        made = transformers.BertForMaskedLM(transformers.BertConfig(**_TEXT))
        made.save_pretrained(folder, max_shard_size="2KB")
        return folder
    made = getattr(transformers, kind)
    made(made.config_class(**_CHECKPOINTS[kind])).save_pretrained(folder)
    _add_tokenizer(kind, folder)
    return folder


def imported_checkpoint(seed, folder):
    kind = _FILES[seed % len(_FILES)]
    found = damaged_copy(checkpoint(kind), seed // len(_FILES), folder / "checkpoint")
    model = regard.import_checkpoint(found / "model.bin" if kind == "llama2.c" else found)
    model.save(folder / "model")


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
    data = trace_file()
    damaged = change_safetensors(data, seed) if seed % 2 else change_bytes(data, seed)
    (folder / "trace.safetensors").write_bytes(damaged)
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


_RECIPE = {"model": {}, "training": {"steps": 1}}
_PACKED = {".gz": gzip.compress, ".zst": zstd.compress}


def _corpus_file(folder, name, random, seed):
    """Write hostile lines under a name; names of compressed files are compressed half the time."""
    data = b"".join(random.choices(_LINES, k=random.randrange(12)))
    if name.startswith("c.jsonl"):
        rows = [{"source": "a", "target": "b", "label": "x", "text": "c"}] * random.randrange(4)
        changed = (change_json(row, seed + n) for n, row in enumerate(rows))
        data += b"".join(json.dumps(row).encode() + b"\n" for row in changed)
    if random.random() < 0.02:
        data += b"x" * (17 * 2**20)  # a line that is longer than any text
    if seed % 3 == 1:
        data = change_bytes(data, seed)
    pack = _PACKED.get(Path(name).suffix)
    if pack is not None and random.random() < 0.8:
        data = pack(data)
        if random.random() < 0.02:
            data = pack(bytes(2**22)) * 80  # unpacks to 320 MB
        if random.random() < 0.3:
            data = change_bytes(data, seed)
    (folder / name).write_bytes(data)
    return str(folder / name)


def corpus(seed, folder):
    from regard.training.data_sources import TextSources

    random = Random(seed)
    task = random.choice(("translation", "language", "classification", "masked"))
    ends = ("", ".gz", ".zst")
    names = [f"c.{kind}{end}" for kind in ("tsv", "jsonl", "txt") for end in ends]
    given = _corpus_file(folder, random.choice(names), random, seed)
    if task == "translation" and random.random() < 0.3:  # two files, often of another length
        given = {"source": given, "target": _corpus_file(folder, "d.txt", random, seed + 1)}
    checks = {
        name: random.choice(("keep", "drop", "stop"))
        for name in ("unequal", "encoding", "empty", "duplicate")
    }
    checks |= {name: random.choice(("drop", "stop")) for name in ("malformed", "label")}
    data = {"train": given, "validation": random.choice((given, 0.5)), "checks": checks}
    read = load_recipe({"task": task, "data": data, **_RECIPE})
    sources = TextSources(read)
    sources.examples("validation", 20)
    for _ in sources.texts():
        pass


@cache
def client():
    from fastapi.testclient import TestClient

    from regard.server.app import make_app
    from regard.server.catalog import Catalog
    from regard.server.service import Service

    app = make_app(Service(Catalog(["dates", "digits"])))
    return TestClient(app, base_url="http://127.0.0.1")


@cache
def operations():
    """Every method and path with the names of the fields of its body and of its query."""
    schema, found = client().get("/api/openapi.json").json(), []
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            content = about.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            fields = schema["components"]["schemas"].get(name, {}).get("properties", {})
            names = [one["name"] for one in about.get("parameters", []) if one["in"] == "query"]
            found.append((method, path, list(fields), names))
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


@cache
def trace_id():
    """A trace that exists, so that what is asked about it is read."""
    return client().post("/api/trace", json={"model": "dates", "text": "12 August"}).json()["id"]


_QUERIES = {
    "site": ("decoder.layers.0.cross", "decoder.cross", "*", "x"),
    "path": ("decoder.layers.0.cross", "x"),
    "kind": ("pattern", "lens", "x"),
    "format": ("svg", "png", "x"),
    "name": ("pattern", "x"),
}


def _query(random, names):
    """Parameters that the operation has, and hostile values for some of them."""
    if random.random() < 0.1:
        return random.choice(("t=1e-320", "head=" + "9" * 30, "layer=-1", "x[]=%ff", "%00=%00"))
    given = []
    for name in names:
        if random.random() < 0.6:
            usual = _QUERIES.get(name, ("0", "1", "2", "0.5"))
            value = random.choice(usual if random.random() < 0.7 else (*HOSTILE, "1:3", "-1"))
            text = str(value).encode("utf-8", "surrogatepass")[:2000]
            given.append(f"{name}={quote(text)}")
    return "&".join(given)


def request(seed, folder):
    del folder
    random = Random(seed)
    method, path, fields, names = random.choice(operations())
    base = {name: _FIELDS[name] for name in fields if name in _FIELDS}
    while "{" in path:
        before, _, rest = path.partition("{")
        known = trace_id() if "/trace/" in path else "dates"
        others = (known, known, known, known, "9" * 30, "%00", "0", "-1", "x")
        path = before + random.choice(others) + rest.partition("}")[2]
    body = change_json(base, seed) if random.random() < 0.9 else random.choice(HOSTILE)
    headers = random.choice(
        ({}, {}, {}, {}, {}, {}, {"host": "["}, {"origin": "http://["}, {"host": "a" * 999})
    )
    if isinstance(body, dict) and body.get("model") == "dates" and random.random() < 0.2:
        body["model"] = "digits"
    text = json.dumps(body).encode("utf-8", "surrogatepass")
    content = text if random.random() < 0.9 else change_bytes(text, seed)
    if path == "/api/images":
        content = change_bytes(random.choice(pictures()), seed)
    query = _query(random, names)
    answer = client().request(
        method,
        f"{path}?{query}",
        content=content,
        headers={"content-type": "application/json", **headers},
    )
    if answer.status_code >= 500:
        raise AssertionError(
            f"{method} {path}?{query} {content[:200]!r} {headers}: {answer.text[:300]}"
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
