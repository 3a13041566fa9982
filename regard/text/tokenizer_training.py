"""Train a tokenizer on text (BPE, byte-level BPE, WordPiece, characters); show how it splits."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from regard.errors import InputError, check_choice
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_files import cls_sep_processor

TokenizerKind = Literal["bpe", "byte-bpe", "wordpiece", "characters"]
UnicodeForm = Literal["nfc", "nfkc"]
KINDS = get_args(TokenizerKind)
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""The special tokens, with ids 0 to 4; [CLS] starts and [SEP] ends a text."""
# [MASK] replaces a word with the space before it, as it does in training
_SPECIAL_TOKENS = [AddedToken(name, special=True, lstrip=name == "[MASK]") for name in SPECIALS]
SPACE = "▁"
_PREFIX = "##"
# A word includes the space before it; punctuation marks are separate. Runs of more than 99 letters
# are split, because WordPiece takes quadratic time in the length of a word.
_WORD = Regex(rf"{SPACE}?\p{{P}}|{SPACE}?[^{SPACE}\p{{P}}\s]{{1,99}}|{SPACE}|\s")


def train_tokenizer(  # noqa: PLR0913  options of a recipe's [tokenizer]
    texts: Iterable[str],
    *,
    kind: TokenizerKind = "bpe",
    vocab_size: int = 16_000,
    normalization: UnicodeForm | None = "nfc",
    lowercase: bool = False,
    min_frequency: int = 2,
    byte_fallback: bool = False,
    tags: Sequence[str] = (),
    progress: bool = False,
) -> Tokenizer:
    """Train a tokenizer on `texts`; the result is deterministic.

    Args:
        kind: "bpe" (Sennrich et al. 2016) on characters or "byte-bpe" on bytes, "wordpiece"
            (Schuster & Nakajima 2012), or single "characters". Bytes cover any text; the others
            encode characters that do not occur in `texts` as [UNK].
        vocab_size: maximum number of tokens, including special ones.
        min_frequency: how often a token of several characters must occur.
        byte_fallback: for "bpe", encode characters that are not in the vocabulary as bytes instead
            of [UNK]; at most an eighth of the vocabulary are single characters then.
        tags: names such as "<formal>" that are always one token.
    """
    _check_options(texts, kind, vocab_size, normalization)
    backend = _untrained(kind)
    backend.normalizer = _normalizer(normalization, lowercase)
    n_added = 256 * byte_fallback + len(tags)
    size = vocab_size - n_added
    options = {"vocab_size": size, "min_frequency": min_frequency, "show_progress": progress}
    if kind == "characters":
        _train_characters(backend, _checked(texts), size)
    elif kind == "wordpiece":
        _train_wordpiece(backend, _checked(texts), options)
    else:
        known = pre_tokenizers.ByteLevel.alphabet() if kind == "byte-bpe" else []
        limit = {"limit_alphabet": vocab_size // 8} if byte_fallback else {}
        trainer = trainers.BpeTrainer(
            special_tokens=_SPECIAL_TOKENS, initial_alphabet=known, **limit, **options
        )
        backend.train_from_iterator(_checked(texts), trainer)
    if (needed := backend.get_vocab_size() + n_added) > vocab_size:
        raise InputError(
            f"The text has so many different characters that {needed:,} tokens are needed, but "
            f"vocab_size is {vocab_size:,}: raise it, or use byte-bpe, which needs only 261."
        )
    if byte_fallback:
        backend = _with_byte_fallback(backend)
    backend.add_tokens([AddedToken(tag, rstrip=True, normalized=False) for tag in tags])
    backend.post_processor = cls_sep_processor(SPECIALS.index("[CLS]"), SPECIALS.index("[SEP]"))
    return Tokenizer(backend)


def _with_byte_fallback(backend: Backend) -> Backend:
    """Add a token for every byte, which the tokenizer uses for characters it does not know."""
    described = json.loads(backend.to_str())
    vocabulary, decoder = described["model"]["vocab"], described["decoder"]
    vocabulary |= {f"<0x{byte:02X}>": len(vocabulary) + byte for byte in range(256)}
    described["model"]["byte_fallback"] = True
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    described["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, *steps]}
    return Backend.from_str(json.dumps(described))


def _check_options(texts: object, kind: str, vocab_size: int, normalization: str | None) -> None:
    if isinstance(texts, str | bytes):
        raise InputError("texts must be several strings, one for each sentence or line, not one.")
    check_choice("kind", kind, KINDS)
    check_choice("normalization", normalization or "none", (*get_args(UnicodeForm), "none"))
    least = len(SPECIALS) + (256 if kind == "byte-bpe" else 1)
    if vocab_size < least:
        raise InputError(f"vocab_size is {vocab_size}; a {kind} tokenizer needs {least} or more.")


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts; raise an error at the end if all of them are empty."""
    empty = True
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"texts must be strings; one is {type(text).__name__}.")
        empty = empty and not text.strip()
        yield text
    if empty:
        raise InputError("There is no text to train a tokenizer on.")


def _untrained(kind: TokenizerKind) -> Backend:
    if kind == "wordpiece":
        backend = Backend(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    else:
        backend = Backend(models.BPE(unk_token=None if kind == "byte-bpe" else "[UNK]"))
    if kind == "byte-bpe":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        return backend
    if kind == "characters":
        backend.decoder = decoders.Fuse()
        return backend
    backend.decoder = decoders.Metaspace(SPACE, prepend_scheme="first", split=False)
    if kind == "wordpiece":
        # only an inner token starts with ##, since punctuation follows at most a space
        unprefixed = decoders.Replace(Regex(f"^{_PREFIX}"), "")
        backend.decoder = decoders.Sequence([unprefixed, backend.decoder])
    spaces = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False)
    words = pre_tokenizers.Split(_WORD, "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([spaces, words])
    return backend


def _normalizer(form: UnicodeForm | None, lowercase: bool) -> normalizers.Normalizer | None:
    steps: list[normalizers.Normalizer] = []
    if form == "nfc":
        steps.append(normalizers.NFC())
    elif form == "nfkc":
        steps += _nfkc_for_korean()
    if lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence(steps) if steps else None


def _nfkc_for_korean() -> list[normalizers.Normalizer]:
    """NFKC that keeps single Hangul letters.

    Plain NFKC turns ㅋㅋ into conjoining letters and ㅋㅏ into the syllable 카. These are
    mapped to a private-use area before it and back after it.
    """
    letters = [chr(code) for code in range(0x3131, 0x3164)]
    private = [chr(0x10F131 + number) for number in range(len(letters))]
    away = [normalizers.Replace(a, b) for a, b in zip(letters, private, strict=True)]
    back = [normalizers.Replace(b, a) for a, b in zip(letters, private, strict=True)]
    return [*away, normalizers.NFKC(), *back]


def _normalized(backend: Backend, text: str) -> str:
    return backend.normalizer.normalize_str(text) if backend.normalizer else text


def _train_characters(backend: Backend, texts: Iterable[str], vocab_size: int) -> None:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(_normalized(backend, text))
    order = sorted(counts, key=lambda character: (-counts[character], character))
    tokens = [*SPECIALS, *order[: vocab_size - len(SPECIALS)]]
    vocabulary = {token: id for id, token in enumerate(tokens)}
    backend.model = models.BPE(vocabulary, [], unk_token="[UNK]")
    backend.add_special_tokens(_SPECIAL_TOKENS)


def _train_wordpiece(backend: Backend, texts: Iterable[str], options: dict[str, Any]) -> None:
    """Train in two passes, because the library's result depends on a hash map's order.

    It numbers the inner forms of characters (##a) as it meets them, and the numbers break ties
    between equally frequent tokens. So every inner form is added first, in sorted order.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as copy:
        characters: set[str] = set()
        for text in texts:
            copy.write(json.dumps(text) + "\n")
            characters.update(_normalized(backend, text))
        inner = [_PREFIX + c for c in sorted(characters) if not c.isspace() and c != SPACE]
        trainer = trainers.WordPieceTrainer(special_tokens=[*SPECIALS, *inner], **options)
        scratch = _untrained("wordpiece")
        scratch.normalizer = backend.normalizer
        copy.seek(0)
        scratch.train_from_iterator((json.loads(line) for line in copy), trainer)
    backend.model = models.WordPiece(scratch.get_vocab(), unk_token="[UNK]")
    backend.add_special_tokens(_SPECIAL_TOKENS)


@dataclass(frozen=True)
class SplitStep:
    """The pieces of a word after a step, and what the step did."""

    pieces: tuple[str, ...]
    joined: str = ""  # the piece that this step made or found
    rank: int | None = None  # number of a BPE merge, in the order of training


@dataclass(frozen=True)
class WordSplit:
    """All steps from characters to tokens."""

    word: str
    kind: str  # "BPE" or "WordPiece"
    steps: tuple[SplitStep, ...]


def split_words(tokenizer: Tokenizer, text: str) -> list[WordSplit]:
    """Return the steps for every word of a text, as the tokenizer normalizes and cuts it."""
    backend = tokenizer.backend
    model = json.loads(backend.to_str())["model"]
    if model["type"] not in ("BPE", "WordPiece"):
        raise InputError(
            f"this tokenizer is a {model['type']} model, which has no merges: BPE and WordPiece do."
        )
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    words = [text]
    if backend.pre_tokenizer is not None:
        words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    split = _merge if model["type"] == "BPE" else _longest_first
    return [WordSplit(word, model["type"], tuple(split(word, model))) for word in words]


def _merge(word: str, model: dict) -> list[SplitStep]:
    """Join the pair that training joined first, again and again."""
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    ranks = {tuple(pair): rank for rank, pair in enumerate(pairs)}
    suffix = model.get("end_of_word_suffix") or ""
    pieces = (*word[:-1], word[-1:] + suffix)
    steps = [SplitStep(pieces)]
    while len(pieces) > 1:
        found = [ranks.get(pair, len(ranks)) for pair in pairwise(pieces)]
        rank = min(found)
        if rank == len(ranks):
            break
        joined, merged, i = "".join(pieces[found.index(rank) :][:2]), [], 0
        while i < len(pieces):
            if i < len(found) and found[i] == rank:
                merged.append(joined)
                i += 2
            else:
                merged.append(pieces[i])
                i += 1
        pieces = tuple(merged)
        steps.append(SplitStep(pieces, joined, rank + 1))
    return steps


def _longest_first(word: str, model: dict) -> list[SplitStep]:
    """Cut off the longest piece that the vocabulary has, again and again."""
    vocabulary, prefix = model["vocab"], model.get("continuing_subword_prefix", "##")
    steps, found, rest = [SplitStep((word,))], [], word
    while rest:
        start = prefix if found else ""
        ends = range(len(rest), 0, -1)
        end = next((end for end in ends if start + rest[:end] in vocabulary), 0)
        if not end:
            unknown = model.get("unk_token", "[UNK]")
            return [*steps, SplitStep((unknown,), unknown)]
        found.append(start + rest[:end])
        rest = rest[end:]
        steps.append(SplitStep((*found, *([rest] if rest else [])), found[-1]))
    return steps
