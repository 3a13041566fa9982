"""A vocabulary learned from the user's own text."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from regard.errors import InputError, UnknownNameError, nearest
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_files import bracketed

Kind = Literal["bpe", "byte-bpe", "wordpiece", "characters"]
Normalization = Literal["nfc", "nfkc"]
KINDS = ("bpe", "byte-bpe", "wordpiece", "characters")
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Their ids are 0 to 4, in this order; [CLS] is the start and [SEP] the end of a text."""

SPACE = "▁"
_PREFIX = "##"
# A word carries the space in front of it; punctuation marks stand alone. Longer runs of letters
# than any word are cut, because the time WordPiece takes grows with the square of the length.
_WORD = Regex(rf"{SPACE}?\p{{P}}|{SPACE}?[^{SPACE}\p{{P}}\s]{{1,99}}|{SPACE}|\s")


def train_tokenizer(
    texts: Iterable[str],
    *,
    kind: Kind = "bpe",
    vocab_size: int = 16_000,
    normalization: Normalization | None = "nfc",
    lowercase: bool = False,
    min_frequency: int = 2,
    progress: bool = False,
) -> Tokenizer:
    """The tokenizer learned from `texts`; the same texts always give the same one.

    Args:
        kind: "bpe" (Sennrich et al. 2016) on characters or "byte-bpe" on bytes, "wordpiece"
            (Schuster & Nakajima 2012), or single "characters". Bytes cover any text; the others
            know the characters of `texts` and read all others as [UNK].
        vocab_size: how many entries at most, special tokens included.
        min_frequency: how often a longer piece must occur to be learned.
        progress: draw the library's own progress bars on a terminal.
    """
    _check(texts, kind, vocab_size, normalization)
    backend = _untrained(kind)
    backend.normalizer = _normalizer(normalization, lowercase)
    options = {"vocab_size": vocab_size, "min_frequency": min_frequency, "show_progress": progress}
    if kind == "characters":
        _learn_characters(backend, _counted(texts), vocab_size)
    elif kind == "wordpiece":
        _learn_wordpieces(backend, _counted(texts), options)
    else:
        alphabet = pre_tokenizers.ByteLevel.alphabet() if kind == "byte-bpe" else []
        trainer = trainers.BpeTrainer(
            special_tokens=_special_tokens(), initial_alphabet=alphabet, **options
        )
        backend.train_from_iterator(_counted(texts), trainer)
    _check_size(backend, vocab_size)
    backend.post_processor = bracketed(SPECIALS.index("[CLS]"), SPECIALS.index("[SEP]"))
    return Tokenizer(backend)


def _check(texts: object, kind: str, vocab_size: int, normalization: str | None) -> None:
    if isinstance(texts, str | bytes):
        raise InputError(
            "Texts must be many strings, one for each sentence or line, not one string."
        )
    if kind not in KINDS:
        raise UnknownNameError(
            f"There is no tokenizer of the kind {kind!r}; {nearest(kind, KINDS)}."
        )
    if normalization not in ("nfc", "nfkc", None):
        raise UnknownNameError(
            f"There is no normalization {normalization!r}; there are nfc, nfkc and none."
        )
    least = len(SPECIALS) + (256 if kind == "byte-bpe" else 1)
    if vocab_size < least:
        raise InputError(
            f"A {kind} vocabulary of {vocab_size} entries is too small; it needs {least} or more."
        )


def _check_size(backend: Backend, vocab_size: int) -> None:
    if (size := backend.get_vocab_size()) > vocab_size:
        raise InputError(
            f"The text has so many different characters that {size:,} entries are needed, and "
            f"vocab_size is {vocab_size:,}: allow more, or take byte-bpe, which needs only 261."
        )


def _counted(texts: Iterable[str]) -> Iterator[str]:
    """The texts, or an error when there is nothing in them."""
    empty = True
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"Texts must be strings; one is {type(text).__name__}.")
        empty = empty and not text.strip()
        yield text
    if empty:
        raise InputError("There is no text to learn a vocabulary from.")


def _special_tokens() -> list[AddedToken]:
    # [MASK] takes the place of a word with the space in front of it, as it does in training
    return [AddedToken(name, special=True, lstrip=name == "[MASK]") for name in SPECIALS]


def _untrained(kind: Kind) -> Backend:
    if kind == "byte-bpe":
        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        return backend
    if kind == "characters":
        backend = Backend(models.BPE(unk_token="[UNK]"))
        backend.decoder = decoders.Fuse()
        return backend
    marked = decoders.Metaspace(SPACE, prepend_scheme="first", split=False)
    if kind == "wordpiece":
        backend = Backend(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
        # only an inner piece begins with ##, since a mark follows nothing but the space before it
        unmarked = decoders.Replace(Regex(f"^{_PREFIX}"), "")
        backend.decoder = decoders.Sequence([unmarked, marked])
    else:
        backend = Backend(models.BPE(unk_token="[UNK]"))
        backend.decoder = marked
    spaces = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [spaces, pre_tokenizers.Split(_WORD, "isolated")]
    )
    return backend


def _normalizer(
    normalization: Normalization | None, lowercase: bool
) -> normalizers.Normalizer | None:
    steps: list[normalizers.Normalizer] = []
    if normalization == "nfc":
        steps.append(normalizers.NFC())
    elif normalization == "nfkc":
        steps += _nfkc_for_korean()
    if lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence(steps) if steps else None


def _nfkc_for_korean() -> list[normalizers.Normalizer]:
    """NFKC that leaves single Hangul letters alone.

    By itself it turns ㅋㅋ into letters that wait for a vowel, and ㅋㅏ into the syllable 카, which
    nobody wrote. So these letters step aside into a private area while it works.
    """
    letters = [chr(code) for code in range(0x3131, 0x3164)]
    aside = [chr(0x10F131 + number) for number in range(len(letters))]
    away = [normalizers.Replace(a, b) for a, b in zip(letters, aside, strict=True)]
    back = [normalizers.Replace(b, a) for a, b in zip(letters, aside, strict=True)]
    return [*away, normalizers.NFKC(), *back]


def _seen(backend: Backend, text: str) -> str:
    return backend.normalizer.normalize_str(text) if backend.normalizer else text


def _learn_characters(backend: Backend, texts: Iterable[str], vocab_size: int) -> None:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(_seen(backend, text))
    order = sorted(counts, key=lambda character: (-counts[character], character))
    entries = [*SPECIALS, *order[: vocab_size - len(SPECIALS)]]
    vocabulary = {entry: id for id, entry in enumerate(entries)}
    backend.model = models.BPE(vocabulary, [], unk_token="[UNK]")
    backend.add_special_tokens(_special_tokens())


def _learn_wordpieces(
    backend: Backend, texts: Iterable[str], trainer_options: dict[str, Any]
) -> None:
    """Learn in two passes, for the library numbers the inner forms of characters as it meets them.

    That order is a matter of chance, and it decides between pieces that occur equally often. So
    every character gets its inner form beforehand; then any mixture of known ones can be written.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as twice:
        characters: set[str] = set()
        for text in texts:
            twice.write(json.dumps(text) + "\n")
            characters.update(_seen(backend, text))
        inner = [_PREFIX + character for character in sorted(characters) if _is_inner(character)]
        trainer = trainers.WordPieceTrainer(special_tokens=[*SPECIALS, *inner], **trainer_options)
        scratch = _untrained("wordpiece")
        scratch.normalizer = backend.normalizer
        twice.seek(0)
        scratch.train_from_iterator((json.loads(line) for line in twice), trainer)
    backend.model = models.WordPiece(scratch.get_vocab(), unk_token="[UNK]")
    backend.add_special_tokens(_special_tokens())


def _is_inner(character: str) -> bool:
    """Whether the character may stand inside a word, as _WORD cuts words."""
    return not character.isspace() and character != SPACE
