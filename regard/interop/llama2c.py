"""llama2.c's binaries: seven whole numbers, then the weights of a Llama one after another."""

import struct
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.errors import FileError
from regard.interop.sentencepiece import SPACE, Piece, llama_tokenizer
from regard.model import Model
from regard.models.decoder import DecoderConfig, llama_config
from regard.models.weights import build_from_weights
from regard.text.tokenizer import Tokenizer

_HEADER = struct.Struct("<7i")
_LATER_MAGIC = b"24ka"
_UNKNOWN, _CONTROL, _BYTE, _NORMAL = 2, 3, 6, 1


def read_llama2c(file: Path, *, tokenizer: Path | None = None) -> Model:
    """The model in a llama2.c binary, with the tokenizer beside it.

    Args:
        tokenizer: its tokenizer file (tok512.bin, tokenizer.bin); looked for beside if absent.
    """
    data = np.fromfile(file, dtype=np.uint8)
    config, sizes = _read_header(file, data)
    numbers = np.frombuffer(data, dtype="<f4", offset=_HEADER.size)
    tensors: dict[str, Tensor] = {}
    at = 0
    for name, shape in sizes.items():
        part = numbers[at : at + prod(shape)].reshape(shape)
        tensors[name] = torch.from_numpy(part.astype(np.float32))
        at += prod(shape)
    model = build_from_weights(config, _named(tensors, config), source=file)
    found = tokenizer or _find_tokenizer(file, config.n_vocab)
    read = None if found is None else read_tokenizer(found, config.n_vocab)
    return Model(module=model, task="language", tokenizer=read)


def is_llama2c(file: Path) -> bool:
    """Whether a file begins as such a binary does."""
    try:
        with file.open("rb") as stream:
            head = stream.read(_HEADER.size)
    except OSError:
        return False
    if len(head) < _HEADER.size or head.startswith(_LATER_MAGIC):
        return head.startswith(_LATER_MAGIC)
    dim, hidden, layers, heads, kv_heads, vocab, length = _HEADER.unpack(head)
    sane = all(0 < n < 2**20 for n in (dim, hidden, layers, heads, kv_heads, length))
    return sane and vocab != 0 and dim % heads == 0 and heads % kv_heads == 0


def _read_header(file: Path, data: np.ndarray) -> tuple[DecoderConfig, dict[str, tuple[int, ...]]]:
    """What the model is made of, and the tensors that follow, in order."""
    if data[: len(_LATER_MAGIC)].tobytes() == _LATER_MAGIC:
        raise FileError(
            f"{file} is a llama2.c file of a later version; regard reads the first one: export it "
            "again with --version 0."
        )
    if len(data) < _HEADER.size:
        raise FileError(f"{file} is cut off before the end of its header: fetch it again.")
    d, d_ff, layers, heads, kv, vocab, length = _HEADER.unpack(data[: _HEADER.size].tobytes())
    n_vocab, tied, d_k = abs(vocab), vocab > 0, d // heads
    sizes: dict[str, tuple[int, ...]] = {
        "tokens": (n_vocab, d),
        "attention_norm": (layers, d),
        "query": (layers, d, d),
        "key": (layers, kv * d_k, d),
        "value": (layers, kv * d_k, d),
        "output": (layers, d, d),
        "feed_forward_norm": (layers, d),
        "gate": (layers, d_ff, d),
        "down": (layers, d, d_ff),
        "up": (layers, d_ff, d),
        "norm": (d,),
        "cosines and sines": (2, length, d_k // 2),  # a table that can be computed
    }
    if not tied:
        sizes["projection"] = (n_vocab, d)
    wanted = _HEADER.size + 4 * sum(prod(shape) for shape in sizes.values())
    if len(data) != wanted:
        raise FileError(
            f"{file} has {len(data):,} bytes, and its header speaks of {wanted:,}: it is cut off "
            "or of another kind, fetch it again."
        )
    config = llama_config(
        n_vocab=n_vocab,
        n_layers=layers,
        d_model=d,
        n_heads=heads,
        n_kv_heads=kv,
        d_ff=d_ff,
        norm_eps=1e-5,
        max_positions=length,
        tie=tied,
    )
    return config, sizes


def _named(tensors: dict[str, Tensor], config: DecoderConfig) -> dict[str, Tensor]:
    """The tensors by the names of our model."""
    own = {"tokens.weight": tensors["tokens"], "decoder.norm.weight": tensors["norm"]}
    if "projection" in tensors:
        own["projection.weight"] = tensors["projection"]
    n_kv_heads = config.n_kv_heads or config.n_heads
    for i in range(config.n_layers):
        layer = {name: tensor[i] for name, tensor in tensors.items() if name in _PARTS}
        layer["query"] = in_halves(layer["query"], config.n_heads)
        layer["key"] = in_halves(layer["key"], n_kv_heads)
        own |= {f"decoder.layers.{i}.{_PARTS[name]}.weight": x for name, x in layer.items()}
    return own


_PARTS = {
    "attention_norm": "self_attention.norm",
    "query": "self_attention.inner.to_query",
    "key": "self_attention.inner.to_key",
    "value": "self_attention.inner.to_value",
    "output": "self_attention.inner.to_output",
    "feed_forward_norm": "feed_forward.norm",
    "gate": "feed_forward.inner.to_gate",
    "up": "feed_forward.inner.to_hidden",
    "down": "feed_forward.inner.to_output",
}


def in_halves(weight: Tensor, n_heads: int) -> Tensor:
    """A projection whose rotary pairs are neighbors, for one whose pairs are d_k/2 apart."""
    d_k = len(weight) // n_heads
    pairs = weight.view(n_heads, d_k // 2, 2, -1)
    return pairs.transpose(1, 2).reshape(weight.shape)


def _find_tokenizer(file: Path, n_vocab: int) -> Path | None:
    """The tokenizer that lies beside a model, by the name for its size or by the usual one."""
    names = (f"tok{n_vocab}.bin", "tokenizer.bin")
    return next((file.with_name(n) for n in names if file.with_name(n).is_file()), None)


def read_tokenizer(file: Path, n_vocab: int) -> Tokenizer:
    """The tokenizer in a llama2.c file: for each piece its score, its length and its bytes."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise FileError(f"{file} cannot be read: {error.strerror}.") from error
    pieces, at = [], 4  # the first number is the length of the longest piece
    try:
        for id in range(n_vocab):
            score, length = struct.unpack_from("<fi", data, at)
            raw = data[at + 8 : at + 8 + length]
            at += 8 + length
            pieces.append(_piece(id, raw.decode(), score))
    except (struct.error, UnicodeDecodeError) as error:
        raise FileError(f"{file} is no tokenizer of {n_vocab} pieces: name another.") from error
    if at != len(data):
        raise FileError(
            f"{file} has more than the {n_vocab} pieces of the model, so it is not its tokenizer: "
            "name another."
        )
    return llama_tokenizer(pieces)


def _piece(id: int, text: str, score: float) -> Piece:
    """A piece; the file writes spaces plainly, and start and end between line breaks."""
    if id < 3:
        return Piece(text.strip(), score, _UNKNOWN if id == 0 else _CONTROL)
    byte = len(text) == 6 and text.startswith("<0x") and text.endswith(">")
    return Piece(text.replace(" ", SPACE), score, _BYTE if byte else _NORMAL)
