"""Tokenizer: text to ids and back, with the roles of special tokens."""

import hashlib
import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers import processors

from regard.errors import InputError, check_choice
from regard.files import write_atomic
from regard.text.pieces import Piece, Span, TokenBytes, pieces_of_spans, spans_of_bytes
from regard.text.tokenizer_files import (
    ROLES,
    ROLES_FILE,
    find_file,
    format_roles,
    read_backend,
    read_roles,
    roles_by_name,
)

_MOST_IDS = 10_000_000
"""Ten times the largest vocabularies; a list of the names of damaged ones would fill memory."""


def _role_property(role: str) -> "cached_property[int | None]":
    return cached_property(lambda tokenizer: tokenizer._role_id(role))


class Tokenizer:
    """A vocabulary and the rules that split text into tokens, on Hugging Face tokenizers.

    Args:
        roles: the special token for each of pad, start, end, unknown and mask, where it cannot be
            derived from its name.
    """

    def __init__(self, backend: Backend, *, roles: Mapping[str, str] | None = None):
        backend.no_truncation()  # stored tokenizers may truncate or pad silently
        backend.no_padding()
        self.backend = backend
        self.roles = roles_by_name(backend) | dict(roles or {})
        for role, token in self.roles.items():
            check_choice("role", role, ROLES)
            if backend.token_to_id(token) is None:
                raise InputError(f"The vocabulary has no token {token!r} for the role {role}.")

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Load a tokenizer.json, vocab.txt or vocab.json + merges.txt, or a folder with one."""
        file = find_file(Path(path))
        backend = read_backend(file)
        return cls(backend, roles=read_roles(file.parent, backend))

    def save(self, path: str | Path) -> None:
        """Write a tokenizer.json into a folder, or to a file whose name ends in .json."""
        path = Path(path)
        file = path if path.suffix == ".json" else path / "tokenizer.json"
        if self.roles != roles_by_name(self.backend):
            write_atomic(file.with_name(ROLES_FILE), format_roles(self.roles))
        write_atomic(file, self.backend.to_str(pretty=True))

    def __len__(self) -> int:
        """Return the largest id plus 1, which is the number of rows of an embedding."""
        return self._size

    @cached_property
    def _size(self) -> int:
        return len(self.names)

    @cached_property
    def names(self) -> list[str]:
        """One unique name for each id: the vocabulary entry, or "[unused ID]" if it has none."""
        entries = {id: name for name, id in self.backend.get_vocab().items()}
        largest = max(entries, default=-1)
        if largest >= _MOST_IDS:
            raise InputError(
                f"the vocabulary has the id {largest:,}, and ids must be below {_MOST_IDS:,}: the "
                "file is damaged, or its ids are not those of an embedding."
            )
        return [entries.get(id) or f"[unused {id}]" for id in range(largest + 1)]

    def id_of(self, token: str) -> int | None:
        """Return the id of a vocabulary entry, or None."""
        return self.backend.token_to_id(token)

    def token_of(self, id: int) -> str:
        """Return the vocabulary entry of an id."""
        return self.backend.id_to_token(self._checked([id])[0]) or ""

    def label_of(self, id: int) -> str:
        """Return a token as people read it; byte-level vocabularies show ␣ for a space.

        Models may have more outputs than the vocabulary has tokens; such an id is its own label.
        """
        return str(id) if id >= self._size else self._bytes.label(self._checked([id])[0])

    def text_of(self, id: int) -> str:
        """Return the text of a token; that of one that starts a word starts with a space."""
        return str(id) if id >= self._size else self._bytes.text(id)

    def _role_id(self, role: str) -> int | None:
        return self.backend.token_to_id(self.roles[role]) if role in self.roles else None

    pad_id = _role_property("pad")
    start_id = _role_property("start")
    end_id = _role_property("end")
    unknown_id = _role_property("unknown")
    mask_id = _role_property("mask")

    def required_id(self, role: str) -> int:
        """Return the id of a role's token, or raise an InputError if the tokenizer has none."""
        id = self._role_id(role)
        if id is None:
            raise InputError(
                f"The tokenizer has no {role} token, which this model needs: name one in a "
                f"{ROLES_FILE} next to it, or train a tokenizer."
            )
        return id

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of all special tokens, which are not part of a text."""
        added = self.backend.get_added_tokens_decoder()
        ids = [id for id, token in added.items() if token.special]
        named = [self.backend.token_to_id(token) for token in self.roles.values()]
        return frozenset(ids + [id for id in named if id is not None])

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """Tokens such as "<formal>" that a model was trained to read in front of a text."""
        added = self.backend.get_added_tokens_decoder().values()
        names = (token.content for token in added if not token.special)
        return tuple(name for name in names if re.fullmatch(r"<[^\W\d]\w*>", name))

    def split_tag(self, line: str) -> tuple[str, str]:
        """Return the tag in front of a line, with a space, and the rest."""
        for tag in self.tags:
            if line.startswith(tag) and (rest := line.removeprefix(tag).lstrip()):
                return f"{tag} ", rest
        return "", line

    @cached_property
    def fingerprint(self) -> str:
        """A hash that changes with everything that affects tokenization."""
        described = self.backend.to_str() + json.dumps(self.roles, sort_keys=True)
        return hashlib.sha256(described.encode()).hexdigest()

    def normalize(self, text: str) -> str:
        """Return the normalized text, which `decode(encode(text))` gives if nothing is lost.

        Tokenizers that mark the start of words drop one leading space.
        """
        normalizer = self.backend.normalizer
        seen = normalizer.normalize_str(_checked_text(text)) if normalizer else text
        rules = self.backend.pre_tokenizer
        described = rules.__getstate__() if rules else b""
        marks_words = b'"Metaspace"' in described and b'"never"' not in described
        return seen.removeprefix(" ") if marks_words else seen

    def encode(self, text: str, *, specials: bool = True, literal: bool = False) -> list[int]:
        """Return the ids of a text.

        Args:
            specials: add the start and end tokens that this tokenizer's models were trained with.
            literal: treat names such as [MASK] in the text as ordinary characters.
        """
        backend = self._backend([_checked_text(text)], literal=literal)
        return backend.encode(text, add_special_tokens=specials).ids

    def encode_batch(
        self, texts: Sequence[str], *, specials: bool = True, literal: bool = False
    ) -> list[list[int]]:
        """Return the ids of each text, computed on all cores."""
        checked = [_checked_text(text) for text in texts]
        backend = self._backend(checked, literal=literal)
        encodings = backend.encode_batch_fast(checked, add_special_tokens=specials)
        return [encoding.ids for encoding in encodings]

    def _backend(self, texts: Iterable[str], *, literal: bool) -> Backend:
        """Return the backend to encode with: texts without special tokens are literal anyway."""
        if literal and any(name in text for text in texts for name in self._special_names):
            return self._literal_backend
        return self.backend

    @cached_property
    def _special_names(self) -> list[str]:
        added = self.backend.get_added_tokens_decoder().values()
        # One that is looked for in the normalized text can be in any text.
        return ["" if token.normalized else token.content for token in added if token.special]

    @cached_property
    def _literal_backend(self) -> Backend:
        backend = Backend.from_str(self.backend.to_str())
        backend.encode_special_tokens = True
        return backend

    def encode_prompt(self, text: str) -> list[int]:
        """Return the ids of a text to be continued: without an end token, and never empty."""
        ids = self.encode(text, literal=True)
        if len(ids) > 1 and ids[-1] == self.end_id:
            ids = ids[:-1]
        if ids:
            return ids
        first = self.start_id if self.start_id is not None else self.end_id  # GPT-2 has only an end
        if first is None:
            raise InputError("The prompt is empty and the tokenizer has no start token: give text.")
        return [first]

    def add_start_and_end(self, ids: Sequence[int]) -> list[int]:
        """Return ids with the start and end tokens around them, if they are missing."""
        front = [] if self.start_id is None or list(ids[:1]) == [self.start_id] else [self.start_id]
        back = [] if self.end_id is None or list(ids[-1:]) == [self.end_id] else [self.end_id]
        return [*front, *ids, *back]

    def decode(self, ids: Iterable[int], *, specials: bool = False) -> str:
        """Return the text of ids, without special tokens (except unknown) unless `specials`."""
        return self.decode_batch([ids], specials=specials)[0]

    def decode_batch(self, batch: Iterable[Iterable[int]], *, specials: bool = False) -> list[str]:
        hidden = frozenset() if specials else self.special_ids - {self.unknown_id}
        kept = [[id for id in self._checked(ids) if id not in hidden] for ids in batch]
        return self.backend.decode_batch(kept, skip_special_tokens=False)

    def _checked(self, ids: Iterable[int]) -> list[int]:
        checked = [operator.index(id) for id in ids]
        if wrong := [id for id in checked if not 0 <= id < self._size]:
            last = self._size - 1
            raise InputError(f"{wrong[0]} is not an id of this vocabulary; ids are 0 to {last}.")
        return checked

    def pieces(self, text: str, *, specials: bool = True) -> list[Piece]:
        """Return one piece for each id of `encode`, with the characters it covers."""
        encoding = self.backend.encode(_checked_text(text), add_special_tokens=specials)
        spans = []
        for id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            name = self.backend.id_to_token(id) if id in self.special_ids else None
            added_or_written = text[start:end].strip() in ("", name)
            spans.append(Span(id, start, end, name if added_or_written else None))
        return pieces_of_spans(text, spans)

    def pieces_of(self, ids: Iterable[int]) -> list[Piece]:
        """Return one piece for each id; start and end refer to the decoded text."""
        hidden = self.special_ids - {self.unknown_id}
        parts: list[tuple[int, bytes | str]] = []
        first = True
        for id in self._checked(ids):
            if id in hidden:
                parts.append((id, self.token_of(id)))
            else:
                parts.append((id, self._bytes.get(id, first=first)))
                first = False
        return pieces_of_spans(*spans_of_bytes(parts))

    @cached_property
    def _bytes(self) -> TokenBytes:
        return TokenBytes(self.backend)


def _checked_text(text: str) -> str:
    if not isinstance(text, str):
        raise InputError(f"Text must be a str; {type(text).__name__} was given.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            where = f"half a surrogate pair at character {error.start}"
            raise InputError(f"The text is not valid Unicode: {where}.") from error
    return text


def with_start_and_end(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer whose `encode` adds the start and end tokens, if this one does not.

    GPT-2's adds neither and Llama's only the start; a model trained on such texts would never learn
    to end them.
    """
    start_id, end_id = tokenizer.required_id("start"), tokenizer.required_id("end")
    front, back = added_ids(tokenizer)
    if front[:1] == [start_id] and back[-1:] == [end_id]:
        return tokenizer
    front = front if front[:1] == [start_id] else [start_id, *front]
    back = back if back[-1:] == [end_id] else [*back, end_id]
    backend = Backend.from_str(tokenizer.backend.to_str())
    backend.post_processor = processors.TemplateProcessing(
        single="front $A back",
        pair="front $A back $B:1 back:1",
        special_tokens=[
            {"id": name, "ids": ids, "tokens": [tokenizer.token_of(id) for id in ids]}
            for name, ids in (("front", front), ("back", back))
        ],
    )
    return Tokenizer(backend, roles=tokenizer.roles)


def added_ids(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the ids that `encode` adds before and after a text."""
    encoding = tokenizer.backend.encode("a")
    added = encoding.special_tokens_mask
    if 0 not in added:  # "a" is not in this vocabulary
        cut = int(encoding.ids[:1] == [tokenizer.start_id])
        return encoding.ids[:cut], encoding.ids[cut:]
    return encoding.ids[: added.index(0)], encoding.ids[len(added) - added[::-1].index(0) :]


def token_names(tokenizer: Tokenizer, n_vocab: int | None = None) -> list[str]:
    """Return one unique name for each id; CTranslate2 is given these names in place of ids.

    `n_vocab` may exceed the tokenizer's size.
    """
    more = range(len(tokenizer), n_vocab or 0)
    return [*tokenizer.names, *(f"[unused {id}]" for id in more)][:n_vocab]


class TokenTexts(dict[int, str]):
    """The text of each token by its id, computed when it is first asked for."""

    def __init__(self, tokenizer: Tokenizer):
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, id: int) -> str:
        self[id] = self._tokenizer.text_of(id)
        return self[id]


def suppressed_ids(target: Tokenizer, n_vocab: int) -> list[int]:
    """Return the ids that no output contains: special tokens except the end, and unused ids."""
    special = (target.pad_id, target.mask_id, target.start_id, target.unknown_id)
    ids = {id for id in special if id is not None} - {target.end_id}
    return [*sorted(ids), *range(len(target), n_vocab)]
