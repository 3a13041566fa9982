"""llama2.c binaries: a header of seven integers, then the weights of a Llama in fixed order."""

import struct
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.errors import FileError
from regard.files import file_errors
from regard.interop import sentencepiece as sp
from regard.model import Model
from regard.models.config import build_from_weights
from regard.models.decoder import DecoderConfig, llama_config
from regard.text.pieces import is_byte_token
from regard.text.tokenizer import Tokenizer

_HEADER = struct.Struct("<7i")
_LATER_MAGIC = b"24ka"


def read_llama2c(file: Path, *, tokenizer: Path | None = None) -> Model:
    """Read a llama2.c binary and its tokenizer.

    Args:
        tokenizer: the tokenizer file; by default tok512.bin (for 512 tokens) or tokenizer.bin in
            the same folder.
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
    nearby = (file.with_name(name) for name in (f"tok{config.n_vocab}.bin", "tokenizer.bin"))
    found = tokenizer or next((path for path in nearby if path.is_file()), None)
    read = None if found is None else read_tokenizer(found, config.n_vocab)
    return Model(module=model, task="language", tokenizer=read)


def is_llama2c(file: Path) -> bool:
    """Return True if the header of a file is plausible."""
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
    """Return the config and the shapes of the tensors that follow, in order."""
    if data[: len(_LATER_MAGIC)].tobytes() == _LATER_MAGIC:
        raise FileError(
            f"{file} is a newer llama2.c file, and regard reads version 0: export it again with "
            "--version 0."
        )
    if len(data) < _HEADER.size:
        raise FileError(f"{file} is truncated in its header: download it again.")
    d, d_ff, layers, heads, kv, vocab, length = _HEADER.unpack(data[: _HEADER.size].tobytes())
    n_vocab, tied, d_k = abs(vocab), vocab > 0, d // heads
    sizes: dict[str, tuple[int, ...]] = {
        "tokens": (n_vocab, d),
        "self_attention.norm": (layers, d),
        "self_attention.inner.to_query": (layers, d, d),
        "self_attention.inner.to_key": (layers, kv * d_k, d),
        "self_attention.inner.to_value": (layers, kv * d_k, d),
        "self_attention.inner.to_output": (layers, d, d),
        "feed_forward.norm": (layers, d),
        "feed_forward.inner.to_gate": (layers, d_ff, d),
        "feed_forward.inner.to_output": (layers, d, d_ff),
        "feed_forward.inner.to_hidden": (layers, d_ff, d),
        "decoder.norm": (d,),
        "cosines and sines": (2, length, d_k // 2),  # not needed
    }
    if not tied:
        sizes["projection"] = (n_vocab, d)
    wanted = _HEADER.size + 4 * sum(prod(shape) for shape in sizes.values())
    if len(data) != wanted:
        raise FileError(
            f"{file} has {len(data):,} bytes instead of {wanted:,}: it is truncated "
            "or not a llama2.c file, download it again."
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
    whole = [name for name in ("tokens", "decoder.norm", "projection") if name in tensors]
    ours = {f"{name}.weight": tensors[name] for name in whole}
    rotated = {"to_query": config.n_heads, "to_key": config.n_kv_heads or config.n_heads}
    for name, tensor in tensors.items():
        if name.startswith(("self_attention.", "feed_forward.")):
            n_heads = rotated.get(name.rpartition(".")[2])
            for i, part in enumerate(tensor):
                part = part if n_heads is None else pairs_to_halves(part, n_heads)
                ours[f"decoder.layers.{i}.{name}.weight"] = part
    return ours


def pairs_to_halves(weight: Tensor, n_heads: int) -> Tensor:
    """Permute a projection so that rotary pairs, which are adjacent, are d_k/2 apart."""
    d_k = len(weight) // n_heads
    pairs = weight.view(n_heads, d_k // 2, 2, -1)
    return pairs.transpose(1, 2).reshape(weight.shape)


def read_tokenizer(file: Path, n_vocab: int) -> Tokenizer:
    """Read a llama2.c tokenizer: for each piece its score, its length and its bytes."""
    with file_errors(file):
        data = file.read_bytes()
    pieces, at = [], 4  # the first number is the length of the longest piece
    try:
        for id in range(n_vocab):
            score, length = struct.unpack_from("<fi", data, at)
            raw = data[at + 8 : at + 8 + length]
            at += 8 + length
            text, kind = raw.decode(), sp.NORMAL
            if id < 3:  # unknown, and start and end, which have line breaks around them
                text, kind = text.strip(), sp.CONTROL if id else sp.UNKNOWN
            elif is_byte_token(text):
                kind = sp.BYTE
            pieces.append(sp.SentencePieceEntry(text.replace(" ", sp.SPACE), score, kind))
    except (struct.error, UnicodeDecodeError) as error:
        raise FileError(f"{file} is not a tokenizer of {n_vocab} pieces.") from error
    if at != len(data):
        raise FileError(f"{file} has more than the {n_vocab} pieces of the model: give another.")
    return sp.llama_tokenizer(pieces)
