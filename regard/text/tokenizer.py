"""Tokenizers from outside, made to put a start and an end token around every text."""

import hashlib
import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers import processors

from regard.errors import InputError, UnknownNameError, nearest
from regard.files import write_atomic
from regard.text.pieces import Piece, Span, Surface, pieces_of_spans, spans_of_bytes
from regard.text.tokenizer_files import (
    ROLES,
    ROLES_FILE,
    find_file,
    read_backend,
    roles_by_name,
    roles_stated,
    state_roles,
)


class Tokenizer:
    """A vocabulary and the rules that cut text into its pieces, on Hugging Face tokenizers.

    Args:
        roles: the special token for each of pad, start, end, unknown and mask, where its name
            does not tell.
    """

    def __init__(self, backend: Backend, *, roles: Mapping[str, str] | None = None):
        backend.no_truncation()  # a stored tokenizer may cut or pad without a word
        backend.no_padding()
        self.backend = backend
        self.roles = roles_by_name(backend) | dict(roles or {})
        for role, token in self.roles.items():
            if role not in ROLES:
                raise UnknownNameError(f"There is no role {role!r}; {nearest(role, ROLES)}.")
            if backend.token_to_id(token) is None:
                raise InputError(f"The vocabulary has no token {token!r} for the role {role}.")

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """The tokenizer in a file or folder: tokenizer.json, vocab.txt, vocab.json + merges.txt."""
        file = find_file(Path(path))
        backend = read_backend(file)
        return cls(backend, roles=roles_stated(file.parent, backend))

    def save(self, path: str | Path) -> None:
        """Write a tokenizer.json, either to a file of any name ending in .json or into a folder."""
        path = Path(path)
        file = path if path.suffix == ".json" else path / "tokenizer.json"
        if self.roles != roles_by_name(self.backend):
            write_atomic(file.with_name(ROLES_FILE), state_roles(self.roles))
        write_atomic(file, self.backend.to_str(pretty=True))

    def __len__(self) -> int:
        """One more than the largest id: how many rows an embedding needs."""
        return self._size

    @cached_property
    def _size(self) -> int:
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def id_of(self, token: str) -> int | None:
        """The id of a vocabulary entry, or None."""
        return self.backend.token_to_id(token)

    def token_of(self, id: int) -> str:
        """The vocabulary entry with this id, as the vocabulary writes it."""
        return self._known([id])[0]

    def _role_id(self, role: str) -> int | None:
        return self.backend.token_to_id(self.roles[role]) if role in self.roles else None

    @cached_property
    def pad_id(self) -> int | None:
        return self._role_id("pad")

    @cached_property
    def start_id(self) -> int | None:
        return self._role_id("start")

    @cached_property
    def end_id(self) -> int | None:
        return self._role_id("end")

    @cached_property
    def unknown_id(self) -> int | None:
        return self._role_id("unknown")

    @cached_property
    def mask_id(self) -> int | None:
        return self._role_id("mask")

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of all tokens that stand for no characters."""
        added = self.backend.get_added_tokens_decoder()
        ids = [id for id, token in added.items() if token.special]
        named = [self.backend.token_to_id(token) for token in self.roles.values()]
        return frozenset(ids + [id for id in named if id is not None])

    @cached_property
    def fingerprint(self) -> str:
        """A hash that changes when anything changes that decides how text is cut."""
        described = self.backend.to_str() + json.dumps(self.roles, sort_keys=True)
        return hashlib.sha256(described.encode()).hexdigest()

    def normalize(self, text: str) -> str:
        """The text as the rules see it: what `decode(encode(text))` gives back if nothing is lost.

        Rules that mark the beginning of words take one space at the very start for that mark.
        """
        normalizer = self.backend.normalizer
        seen = normalizer.normalize_str(_text(text)) if normalizer else text
        return seen.removeprefix(" ") if self._marks_words else seen

    @cached_property
    def _marks_words(self) -> bool:
        rules = self.backend.pre_tokenizer
        described = rules.__getstate__() if rules else b""
        return b'"Metaspace"' in described and b'"never"' not in described

    def encode(self, text: str, *, specials: bool = True, literal: bool = False) -> list[int]:
        """The ids of a text.

        Args:
            specials: add the start and end tokens that this tokenizer's models were trained with.
            literal: take names such as [MASK] in the text as mere characters.
        """
        backend = self._literal_backend if literal else self.backend
        return backend.encode(_text(text), add_special_tokens=specials).ids

    def encode_batch(
        self, texts: Sequence[str], *, specials: bool = True, literal: bool = False
    ) -> list[list[int]]:
        """The ids of each text; all cores work on it."""
        backend = self._literal_backend if literal else self.backend
        checked = [_text(text) for text in texts]
        found = backend.encode_batch_fast(checked, add_special_tokens=specials)
        return [encoding.ids for encoding in found]

    @cached_property
    def _literal_backend(self) -> Backend:
        backend = Backend.from_str(self.backend.to_str())
        backend.encode_special_tokens = True
        return backend

    def decode(self, ids: Iterable[int], *, specials: bool = False) -> str:
        """The text of ids; special tokens are left out unless asked for, unknown ones never."""
        return self.decode_batch([ids], specials=specials)[0]

    def decode_batch(self, batch: Iterable[Iterable[int]], *, specials: bool = False) -> list[str]:
        """The text of each list of ids."""
        hidden = frozenset() if specials else self.special_ids - {self.unknown_id}
        kept = [[id for id in self._checked(ids) if id not in hidden] for ids in batch]
        return self.backend.decode_batch(kept, skip_special_tokens=False)

    def _checked(self, ids: Iterable[int]) -> list[int]:
        checked = [operator.index(id) for id in ids]
        for id in checked:
            if not 0 <= id < self._size:
                raise InputError(
                    f"{id} is no id of this vocabulary; they go from 0 to {self._size - 1}."
                )
        return checked

    def _known(self, ids: Iterable[int]) -> list[str]:
        return [self.backend.id_to_token(id) or "" for id in self._checked(ids)]

    def pieces(self, text: str, *, specials: bool = True) -> list[Piece]:
        """The pieces of a text with the characters they cover, one for each id of `encode`."""
        found = self.backend.encode(_text(text), add_special_tokens=specials)
        spans = [
            Span(id, start, end, self._name_of(id, text[start:end]))
            for id, (start, end) in zip(found.ids, found.offsets, strict=True)
        ]
        return pieces_of_spans(text, spans)

    def _name_of(self, id: int, covered: str) -> str | None:
        """The name of a special token that was added to the text or is written in it."""
        if id not in self.special_ids:
            return None
        name = self.backend.id_to_token(id)
        return name if covered.strip() in ("", name) else None

    def pieces_of(self, ids: Iterable[int]) -> list[Piece]:
        """The same for ids that a model wrote; start and end count in the text they decode to."""
        ids = self._checked(ids)
        return pieces_of_spans(*spans_of_bytes(self._parts(ids)))

    @cached_property
    def _surface(self) -> Surface:
        return Surface(self.backend)

    def _parts(self, ids: list[int]) -> list[tuple[int, bytes | str]]:
        hidden = self.special_ids - {self.unknown_id}
        parts: list[tuple[int, bytes | str]] = []
        first = True
        for id, token in zip(ids, self._known(ids), strict=True):
            if id in hidden:
                parts.append((id, token))
                continue
            parts.append((id, self._surface.bytes_of(id, first=first)))
            first = False
        return parts


def _text(text: str) -> str:
    if not isinstance(text, str):
        raise InputError(f"Text must be a str; {type(text).__name__} was given.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"The text is not valid Unicode: half a surrogate pair at character {error.start}."
            ) from error
    return text


def with_start_and_end(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer itself if its texts begin with start and end with end, or one whose texts do.

    Byte-level BPE as GPT-2 has it adds neither token and Llama's only the first: whoever learned to
    write from such texts would never learn to end them.
    """
    start_id, end_id = (required_id(tokenizer, role) for role in ("start", "end"))
    front, back = _added(tokenizer)
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


def required_id(tokenizer: Tokenizer, role: str) -> int:
    """The id of the start or the end token; refused where a tokenizer has none."""
    found = tokenizer.start_id if role == "start" else tokenizer.end_id
    if found is None:
        raise InputError(
            f"the target's tokenizer has no {role} token, which translation needs: name one in a "
            "special_tokens_map.json beside it, or let a tokenizer be learned."
        )
    return found


def _added(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The ids that are put before and behind a text."""
    found = tokenizer.backend.encode("a")
    added = found.special_tokens_mask
    if 0 not in added:  # "a" is no part of this vocabulary
        cut = int(found.ids[:1] == [tokenizer.start_id])
        return found.ids[:cut], found.ids[cut:]
    return found.ids[: added.index(0)], found.ids[len(added) - added[::-1].index(0) :]
