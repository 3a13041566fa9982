"""What one token of a vocabulary adds to a text, as bytes: a token may hold half a character."""

from functools import cached_property

from tokenizers import Tokenizer as Backend


class Surface:
    """The bytes that tokens stand for, whichever way the vocabulary writes them."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self._added = backend.get_added_tokens_decoder()
        described = backend.decoder.__getstate__() if backend.decoder else b""
        self._byte_level = b'"ByteLevel"' in described
        self._byte_fallback = b'"ByteFallback"' in described
        self._later: dict[int, bytes] = {}

    def bytes_of(self, id: int, *, first: bool) -> bytes:
        """The token's bytes; the first of a text may lose the space in front of it."""
        token = self._backend.id_to_token(id) or ""
        if id in self._added:
            return self._added[id].content.encode() if self._byte_level else self._shown(id, first)
        if self._byte_level and all(character in _BYTE_OF for character in token):
            return bytes(_BYTE_OF[character] for character in token)
        if self._byte_fallback and _is_byte(token):
            return bytes([int(token[3:5], 16)])
        return self._shown(id, first)

    def _shown(self, id: int, first: bool) -> bytes:
        if first:
            return self._decoded(id)
        if id not in self._later:
            self._later[id] = self._decoded(self._anchor, id)[len(self._decoded(self._anchor)) :]
        return self._later[id]

    def _decoded(self, *ids: int) -> bytes:
        return self._backend.decode(list(ids), skip_special_tokens=False).encode()

    @cached_property
    def _anchor(self) -> int:
        """Some ordinary token, to see what another one looks like when it is not the first."""
        for id in range(self._backend.get_vocab_size()):
            token = self._backend.id_to_token(id) or ""
            if id not in self._added and any(character.isalpha() for character in token):
                return id
        return 0


def _is_byte(token: str) -> bool:
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


def _byte_alphabet() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for (GPT-2's table).

    Printable bytes stand for themselves; the others are numbered from U+0100 upwards.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + number): byte for number, byte in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()
