"""Vocabularies as files hold them: tokenizer.json, vocab.txt, vocab.json with merges.txt."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from regard.errors import FileError, InputError

ROLES: Mapping[str, tuple[str, ...]] = {
    "pad": ("[PAD]", "<pad>", "<PAD>", "<|pad|>"),
    "start": ("[CLS]", "<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "end": ("[SEP]", "</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
    "unknown": ("[UNK]", "<unk>", "<UNK>"),
    "mask": ("[MASK]", "<mask>", "<MASK>"),
}
"""What a special token is for, and the names it goes by, the first that a vocabulary has."""

_STATED = {
    "pad": ("pad_token",),
    "start": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
    "unknown": ("unk_token",),
    "mask": ("mask_token",),
}
ROLES_FILE = "special_tokens_map.json"
_STATING_FILES = (ROLES_FILE, "tokenizer_config.json")


def roles_by_name(backend: Backend) -> dict[str, str]:
    """The token for each role, told by its name; a role that no token has is absent."""
    found = {}
    for role, names in ROLES.items():
        known = [name for name in names if backend.token_to_id(name) is not None]
        if known:
            found[role] = known[0]
    return found


def roles_stated(folder: Path, backend: Backend) -> dict[str, str]:
    """The token for each role as a file beside the vocabulary states it."""
    found: dict[str, str] = {}
    for name in _STATING_FILES:
        path = folder / name
        if not path.is_file():
            continue
        stated = read_json(path)
        for role, keys in _STATED.items():
            tokens = [_content(stated.get(key)) for key in keys]
            known = [one for one in tokens if one and backend.token_to_id(one) is not None]
            if known:
                found.setdefault(role, known[0])
    return found


def state_roles(roles: Mapping[str, str]) -> str:
    """The contents of a file that `roles_stated` reads."""
    return json.dumps({_STATED[role][0]: token for role, token in roles.items()}, indent=1) + "\n"


def _content(token: Any) -> str | None:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def read_backend(path: Path) -> Backend:
    """The tokenizer that a file, or the folder holding it, describes."""
    file = find_file(path)
    if file.name.endswith(".txt") and not file.name.endswith("merges.txt"):
        return wordpiece(read_vocabulary(file))
    if file.name.endswith("merges.txt"):
        return byte_bpe(_partner(file, "merges.txt", "vocab.json"), file)
    described = read_json(file)
    if "model" in described and isinstance(described["model"], dict):
        return _from_json(file)
    if all(isinstance(id, int) for id in described.values()) and described:
        return byte_bpe(file, _partner(file, "vocab.json", "merges.txt"))
    raise InputError(
        f"{file} is neither a tokenizer.json nor a vocab.json: it has no 'model' "
        "and is no table of pieces and ids."
    )


def find_file(path: Path) -> Path:
    """The file itself, or the first of the known names in a folder."""
    if path.is_file():
        return path
    if not path.exists():
        raise FileError(f"{path} does not exist: name a tokenizer file or a folder that holds one.")
    for name in ("tokenizer.json", "vocab.txt", "vocab.json"):
        if (path / name).is_file():
            return path / name
    raise FileError(
        f"{path} holds no tokenizer: one of tokenizer.json, vocab.txt or vocab.json "
        "with merges.txt is needed."
    )


def _partner(file: Path, end: str, other: str) -> Path:
    partner = file.with_name(file.name.removesuffix(end) + other)
    if not file.name.endswith(end) or not partner.is_file():
        raise FileError(f"{file} needs {partner.name} beside it, which is not there.")
    return partner


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    try:
        described = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}.") from error
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}.") from error
    if not isinstance(described, dict):
        raise InputError(f"{path} holds a JSON {type(described).__name__}, not an object.")
    return described


def _from_json(path: Path) -> Backend:
    try:
        return Backend.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise InputError(f"{path} is no tokenizer.json that can be used: {error}.") from error


def read_vocabulary(path: Path) -> dict[str, int]:
    """Pieces with their ids from a file with one piece to a line, counted from 0."""
    try:
        lines = path.read_bytes().decode().split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 at byte {error.start:,}.") from error
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}.") from error
    if lines[-1] == "":
        lines.pop()
    vocabulary: dict[str, int] = {}
    for number, line in enumerate(lines):
        piece = line.removesuffix("\r")
        if piece in vocabulary:
            raise InputError(
                f"{path} has the piece {piece!r} twice, on lines {vocabulary[piece] + 1} and "
                f"{number + 1}; every line must be another piece."
            )
        vocabulary[piece] = number
    if "[UNK]" not in vocabulary:
        raise InputError(f"{path} has no piece [UNK], so it is no WordPiece vocabulary.")
    return vocabulary


def wordpiece(vocabulary: dict[str, int]) -> Backend:
    """WordPiece as BERT uses it; a vocabulary without capital letters lowercases its text."""
    named = {name for names in ROLES.values() for name in names}
    cased = any(
        piece != piece.lower() for piece in vocabulary if piece not in named and piece[:1] != "["
    )
    backend = Backend(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    specials = [names[0] for names in ROLES.values() if names[0] in vocabulary]
    backend.add_special_tokens([AddedToken(name, special=True) for name in specials])
    if "[CLS]" in vocabulary and "[SEP]" in vocabulary:
        backend.post_processor = bracketed(vocabulary["[CLS]"], vocabulary["[SEP]"])
    return backend


def bracketed(start_id: int, end_id: int) -> processors.TemplateProcessing:
    """[CLS] in front of a text and [SEP] behind it."""
    return processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", start_id), ("[SEP]", end_id)],
    )


def byte_bpe(vocabulary: Path, merges: Path) -> Backend:
    """Byte-level BPE as GPT-2 uses it."""
    try:
        backend = Backend(models.BPE.from_file(str(vocabulary), str(merges)))
    except Exception as error:  # the library raises plain Exception
        raise InputError(f"{vocabulary} and {merges} do not fit together: {error}.") from error
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    specials = [name for name in roles_by_name(backend).values() if name.startswith("<")]
    backend.add_special_tokens([AddedToken(name, special=True) for name in sorted(set(specials))])
    return backend
