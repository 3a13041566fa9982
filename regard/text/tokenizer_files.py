"""Vocabulary files: tokenizer.json, vocab.txt, vocab.json with merges.txt."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from regard.errors import FileError, InputError
from regard.files import file_errors

ROLES: Mapping[str, tuple[str, ...]] = {
    "pad": ("[PAD]", "<pad>", "<PAD>", "<|pad|>"),
    "start": ("[CLS]", "<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "end": ("[SEP]", "</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
    "unknown": ("[UNK]", "<unk>", "<UNK>"),
    "mask": ("[MASK]", "<mask>", "<MASK>"),
}
"""The names of special tokens by role; the first that a vocabulary has is used."""
ROLE_KEYS = {
    "pad": ("pad_token",),
    "start": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
    "unknown": ("unk_token",),
    "mask": ("mask_token",),
}
"""The keys of Hugging Face's JSON files for each role."""
ROLES_FILE = "special_tokens_map.json"
_BERT_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""Settings of tokenizer_config.json, and their names in BertNormalizer."""
_WORDPIECE_CLASSES = ("Bert", "DistilBert", "Electra", "MPNet", "MobileBert", "SqueezeBert")
_BYTE_CLASSES = ("GPT2", "Roberta", "Bart")
"""Tokenizers of transformers for which the settings next to a tokenizer.json prevail."""


def roles_by_name(backend: Backend) -> dict[str, str]:
    """Return the token of each role that a name in ROLES identifies."""
    found: dict[str, str] = {}
    for role, name in ((role, name) for role, names in ROLES.items() for name in names):
        if backend.token_to_id(name) is not None:
            found.setdefault(role, name)
    return found


def read_roles(folder: Path, backend: Backend) -> dict[str, str]:
    """Return the token of each role that a JSON file next to the vocabulary states."""
    found: dict[str, str] = {}
    for name in (ROLES_FILE, "tokenizer_config.json"):
        path = folder / name
        if not path.is_file():
            continue
        stated = read_json(path)
        for role, keys in ROLE_KEYS.items():
            for token in (stated.get(key) for key in keys):
                text = token.get("content") if isinstance(token, dict) else token
                if isinstance(text, str) and backend.token_to_id(text) is not None:
                    found.setdefault(role, text)
    return found


def format_roles(roles: Mapping[str, str]) -> str:
    """Return the contents of a file that `read_roles` reads."""
    return json.dumps({ROLE_KEYS[role][0]: token for role, token in roles.items()}, indent=1) + "\n"


def find_file(path: Path) -> Path:
    """Return the file itself, or the first vocabulary file in a folder."""
    if path.is_file():
        return path
    if not path.exists():
        raise FileError(f"{path} does not exist: give a tokenizer file or a folder with one.")
    for name in ("tokenizer.json", "vocab.txt", "vocab.json"):
        if (path / name).is_file():
            return path / name
    raise FileError(f"{path} has no tokenizer.json, vocab.txt, or vocab.json with merges.txt.")


def read_backend(path: Path) -> Backend:
    """Read the tokenizer in a file or folder."""
    file = find_file(path)
    if file.name.endswith("merges.txt"):
        return byte_bpe(_companion(file, "merges.txt", "vocab.json"), file)
    if file.name.endswith(".txt"):
        return wordpiece(read_wordpiece_vocabulary(file), **_bert_settings(file.parent))
    failure: BaseException | None = None
    try:
        backend = Backend.from_file(str(file))
        _check_templates(backend)
        backend.encode("a")
    except BaseException as error:  # plain Exception, or a panic of the library
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        failure = error
    else:
        _follow_settings(backend, file.parent)
        return backend
    contents = read_json(file)
    if isinstance(contents.get("model"), dict):
        raise InputError(f"{file} is not a valid tokenizer.json: {failure}.") from failure
    if contents and all(isinstance(id, int) for id in contents.values()):
        return byte_bpe(file, _companion(file, "vocab.json", "merges.txt"))
    raise InputError(
        f"{file} is neither a tokenizer.json nor a vocab.json: it has no 'model' "
        "and is not a table of tokens and ids."
    )


def _follow_settings(backend: Backend, folder: Path) -> None:
    """Change a tokenizer.json as transformers does where tokenizer_config.json contradicts it."""
    file = folder / "tokenizer_config.json"
    stated = read_json(file) if file.is_file() else {}
    kind = re.sub(r"Tokenizer(Fast)?$", "", str(stated.get("tokenizer_class")))
    if kind in _WORDPIECE_CLASSES and isinstance(backend.normalizer, normalizers.BertNormalizer):
        for name, ours in _BERT_SETTINGS.items():
            if (value := _flag(file, {"do_lower_case": True} | stated, name)) is not None:
                setattr(backend.normalizer, ours, value)
    if kind in _BYTE_CLASSES and isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
        value = _flag(file, stated, "add_prefix_space")
        backend.pre_tokenizer.add_prefix_space = bool(value)  # as there, off by default


def _flag(file: Path, stated: Mapping[str, Any], name: str) -> bool | None:
    value = stated.get(name)
    if value is not None and not isinstance(value, bool):
        raise FileError(f"{file} has {name} = {value!r}; it must be true or false.")
    return value


def _check_templates(backend: Backend) -> None:
    """Refuse a template with unknown special tokens, on which the library panics and prints."""
    rules = backend.post_processor
    state = {} if rules is None else json.loads(rules.__getstate__())
    for one in state.get("processors", [state]):
        if one.get("type") == "TemplateProcessing":
            pieces = [*one["single"], *one["pair"]]
            used = {piece["SpecialToken"]["id"] for piece in pieces if "SpecialToken" in piece}
            if unknown := sorted(used - one["special_tokens"].keys()):
                raise InputError(f"its template has the unknown special token {unknown[0]!r}")


def _companion(file: Path, end: str, other: str) -> Path:
    companion = file.with_name(file.name.removesuffix(end) + other)
    if not file.name.endswith(end) or not companion.is_file():
        raise FileError(f"{file} needs {companion.name} in the same folder, which does not exist.")
    return companion


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object."""
    try:
        with file_errors(path):
            data = path.read_bytes()
        contents = json.loads(data)
        if b"\\ud" in data.lower():  # maybe half a surrogate pair, which no library takes as text
            json.dumps(contents, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(contents, dict):
        raise FileError(f"{path} contains a JSON {type(contents).__name__}, not an object.")
    return contents


def read_wordpiece_vocabulary(path: Path) -> dict[str, int]:
    """Read a vocab.txt: one token per line, with ids counted from 0."""
    try:
        with file_errors(path):
            lines = path.read_bytes().decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 at byte {error.start:,}.") from error
    vocabulary: dict[str, int] = {}
    for number, line in enumerate(lines):
        token = line.removesuffix("\r")
        if token in vocabulary:
            raise InputError(
                f"{path} has the token {token!r} twice, on lines {vocabulary[token] + 1} and "
                f"{number + 1}; tokens must be unique."
            )
        vocabulary[token] = number
    if "[UNK]" not in vocabulary:
        raise InputError(f"{path} has no token [UNK], so it is not a WordPiece vocabulary.")
    return vocabulary


def _bert_settings(folder: Path) -> dict[str, bool | None]:
    """Return what a tokenizer_config.json next to a vocab.txt says about capitals and accents."""
    file = folder / "tokenizer_config.json"
    stated = read_json(file) if file.is_file() else {}
    found = {ours: _flag(file, stated, name) for name, ours in _BERT_SETTINGS.items()}
    if stated.get("do_basic_tokenize") is False:
        raise InputError(f"{file} has do_basic_tokenize = false, which regard does not support.")
    return found


def wordpiece(
    vocabulary: dict[str, int],
    *,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    handle_chinese_chars: bool | None = None,
) -> Backend:
    """Build BERT's WordPiece.

    Args:
        lowercase: by default, of a vocabulary without capital letters.
        strip_accents: by default, if the text is lowercased.
        handle_chinese_chars: put spaces around each, which is the default.
    """
    named = {name for names in ROLES.values() for name in names}
    cased = any(
        token != token.lower() for token in vocabulary if token not in named and token[:1] != "["
    )
    backend = Backend(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=not cased if lowercase is None else lowercase,
        strip_accents=strip_accents,
        handle_chinese_chars=handle_chinese_chars is not False,
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    specials = [names[0] for names in ROLES.values() if names[0] in vocabulary]
    backend.add_special_tokens([AddedToken(name, special=True) for name in specials])
    if "[CLS]" in vocabulary and "[SEP]" in vocabulary:
        backend.post_processor = cls_sep_processor(vocabulary["[CLS]"], vocabulary["[SEP]"])
    return backend


def cls_sep_processor(start_id: int, end_id: int) -> processors.TemplateProcessing:
    """Put [CLS] before a text and [SEP] after it."""
    return processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", start_id), ("[SEP]", end_id)],
    )


def read_ids(file: Path) -> dict[str, int]:
    """Read a table of tokens and their ids."""
    ids = read_json(file)
    for token, id in ids.items():
        if type(id) is not int:
            raise FileError(f"{file} has {token!r:.40} = {id!r:.40}, which is not an id.")
    return ids


def _check_merges(ids: Mapping[str, int], file: Path) -> None:
    """Refuse merges whose results are not in the vocabulary, on which the library panics."""
    with file_errors(file):
        lines = file.read_bytes().decode(errors="replace").splitlines()
    for line in lines:
        parts = line.split(" ")
        if len(parts) == 2 and not line.startswith("#version") and "".join(parts) not in ids:
            raise InputError(f"{file} merges {line!r:.60} to a token that the vocabulary lacks.")


def byte_bpe(vocabulary: Path, merges: Path) -> Backend:
    """Build GPT-2's byte-level BPE."""
    _check_merges(read_ids(vocabulary), merges)
    try:
        backend = Backend(models.BPE.from_file(str(vocabulary), str(merges)))
    except Exception as error:  # the library raises plain Exception
        raise InputError(f"{vocabulary} and {merges} do not match: {error}.") from error
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    specials = [name for name in roles_by_name(backend).values() if name.startswith("<")]
    backend.add_special_tokens([AddedToken(name, special=True) for name in sorted(set(specials))])
    return backend
