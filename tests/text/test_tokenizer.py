"""Tokenizers: encoding, decoding, special tokens and their roles."""

import json
import pickle

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import InputError, UnknownNameError
from regard.text.tokenizer import Tokenizer, suppressed_ids, token_names, with_start_and_end

KINDS = ["bpe", "byte-bpe", "wordpiece", "characters"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_the_same_tokenizer(trained, sentences, tmp_path, kind):
    trained[kind].save(tmp_path / "t.json")
    trained[kind].save(tmp_path / "folder")
    for path in ("t.json", "folder"):
        loaded = Tokenizer.load(tmp_path / path)
        assert loaded.fingerprint == trained[kind].fingerprint
        assert loaded.encode_batch(sentences) == trained[kind].encode_batch(sentences)
    assert sorted(file.name for file in tmp_path.rglob("*.*")) == ["t.json", "tokenizer.json"]


def test_roles_of_trained_tokenizers_are_the_first_five_ids(trained):
    for tokenizer in trained.values():
        ids = (tokenizer.pad_id, tokenizer.unknown_id, tokenizer.start_id)
        assert (*ids, tokenizer.end_id, tokenizer.mask_id) == (0, 1, 2, 3, 4)
        assert tokenizer.special_ids == {0, 1, 2, 3, 4}
        assert tokenizer.token_of(2) == "[CLS]"
        assert tokenizer.id_of("[SEP]") == 3
        assert tokenizer.id_of("no such piece") is None


def test_start_and_end_are_added_or_not(trained):
    tokenizer = trained["bpe"]
    plain = tokenizer.encode("A dog", specials=False)
    assert tokenizer.encode("A dog") == [2, *plain, 3]
    assert tokenizer.encode_batch(["A dog", ""], specials=False) == [plain, []]
    assert tokenizer.encode_batch([]) == tokenizer.decode_batch([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_gives_what_each_text_gives_alone(trained, sentences, kind):
    tokenizer = trained[kind]
    batch = tokenizer.encode_batch(sentences)
    assert batch == [tokenizer.encode(sentence) for sentence in sentences]
    assert tokenizer.decode_batch(batch) == [tokenizer.decode(ids) for ids in batch] == sentences


def test_names_of_special_tokens_are_tokens_unless_taken_literally(trained):
    tokenizer = trained["byte-bpe"]
    assert tokenizer.mask_id in tokenizer.encode("A [MASK] runs")
    literal = tokenizer.encode("A [MASK] runs", specials=False, literal=True)
    assert not tokenizer.special_ids & set(literal)
    assert tokenizer.decode(literal) == "A [MASK] runs"
    assert tokenizer.encode_batch(["A [MASK] runs"], specials=False, literal=True) == [literal]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_mask_replaces_a_word_and_its_space(trained, kind):
    tokenizer = trained[kind]
    ids = tokenizer.encode("the dog runs", specials=False)
    dog = tokenizer.encode(" dog", specials=False)
    first = next(n for n in range(len(ids)) if ids[n : n + len(dog)] == dog)
    masked = [*ids[:first], tokenizer.mask_id, *ids[first + len(dog) :]]
    assert tokenizer.encode("the [MASK] runs", specials=False) == masked


def test_decoding_hides_specials_but_not_unknown(trained):
    tokenizer = trained["bpe"]
    ids = tokenizer.encode("dog 🍜 dog")
    assert tokenizer.decode(ids) == "dog [UNK] dog"
    assert tokenizer.decode(ids, specials=True).replace(" ", "") == "[CLS]dog[UNK]dog[SEP]"
    assert tokenizer.pieces("dog 🍜 dog")[-3].text == "🍜"


def test_ids_may_come_from_arrays(trained):
    tokenizer = trained["bpe"]
    ids = np.array(tokenizer.encode("A dog runs"), dtype=np.uint16)
    assert tokenizer.decode(ids) == "A dog runs"
    assert tokenizer.pieces_of(ids)[0].text == "[CLS]"


@pytest.mark.parametrize("id", [-1, 192, 2**40])
def test_ids_outside_the_vocabulary_are_refused(trained, id):
    for read in (trained["bpe"].decode, trained["bpe"].pieces_of):
        with pytest.raises(
            InputError, match=f"{id} is not an id of this vocabulary; ids are 0 to 191"
        ):
            read([2, id])


@pytest.mark.parametrize(
    ("text", "message"),
    [(b"bytes", "bytes was given"), (None, "NoneType was given"), ("a\ud800", "at character 1")],
)
def test_values_that_are_not_text_are_refused(trained, text, message):
    tokenizer = trained["bpe"]
    for read in (tokenizer.encode, tokenizer.pieces, tokenizer.normalize):
        with pytest.raises(InputError, match=message):
            read(text)
    with pytest.raises(InputError, match=message):
        tokenizer.encode_batch(["fine", text])


def test_stored_truncation_and_padding_are_ignored(trained, tmp_path):
    described = json.loads(trained["bpe"].backend.to_str())
    backend = Backend.from_str(json.dumps(described))
    backend.enable_truncation(4)
    backend.enable_padding(length=50)
    backend.save(str(tmp_path / "tokenizer.json"))
    text = "A dog runs along the beach"
    assert Tokenizer.load(tmp_path).encode(text) == trained["bpe"].encode(text)


def test_roles_may_be_given_and_must_exist(trained):
    backend = trained["bpe"].backend
    assert Tokenizer(backend, roles={"end": "[PAD]"}).end_id == 0
    with pytest.raises(InputError, match="has no token '<eos>' for the role end"):
        Tokenizer(backend, roles={"end": "<eos>"})
    with pytest.raises(UnknownNameError, match=r"role is 'ends'; .*the nearest"):
        Tokenizer(backend, roles={"ends": "[SEP]"})


def test_the_fingerprint_depends_on_rules_and_roles(trained):
    backend = Backend.from_str(trained["bpe"].backend.to_str())
    same = Tokenizer(Backend.from_str(backend.to_str()))
    assert same.fingerprint == trained["bpe"].fingerprint
    assert Tokenizer(backend, roles={"end": "[PAD]"}).fingerprint != same.fingerprint
    backend.normalizer = normalizers.Lowercase()
    assert Tokenizer(backend).fingerprint != same.fingerprint


def test_length_counts_up_to_the_largest_id():
    assert len(Tokenizer(Backend(models.WordLevel({"a": 0, "b": 7}, unk_token="a")))) == 8


def test_ids_that_no_embedding_has_are_refused_before_memory_is_full(tmp_path):
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 4000000000}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(InputError, match=r"has the id 4,000,000,000, and ids must be below"):
        len(Tokenizer.load(tmp_path))


def test_byte_tokens_are_joined_into_characters():
    # Llama's way: unknown characters fall back to <0xNN>, a mark encodes the space
    entries = ["<unk>", *[f"<0x{byte:02X}>" for byte in range(256)], "▁", "▁a", "a"]
    model = models.BPE({entry: id for id, entry in enumerate(entries)}, [], byte_fallback=True)
    backend = Backend(model)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    tokenizer = Tokenizer(backend)
    ids = [258, *[byte + 1 for byte in "안".encode()], 258, 259]
    pieces = tokenizer.pieces_of(ids)
    assert tokenizer.decode(ids) == "a안 aa"
    assert [piece.text for piece in pieces] == ["a", "안", "⋯", "⋯", " a", "a"]
    assert [piece.word for piece in pieces] == [0, 0, 0, 0, 1, 1]


def test_a_tokenizer_can_be_pickled(trained):
    copy = pickle.loads(pickle.dumps(trained["bpe"]))
    assert copy.encode("A dog") == trained["bpe"].encode("A dog")


WORDS = {"<s>": 0, "</s>": 1, "<unk>": 2, "a": 3, "dog": 4, "<en>": 5}


def words(*single, vocabulary=WORDS):
    """A tokenizer of whole words that puts these tokens around a text, $A."""
    backend = Backend(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if single:
        special = [(name, vocabulary[name]) for name in single if name != "$A"]
        backend.post_processor = processors.TemplateProcessing(
            single=list(single), special_tokens=special
        )
    return Tokenizer(backend)


@pytest.mark.parametrize(
    ("single", "ids"),
    [
        ((), [0, 3, 4, 1]),
        (("<s>", "$A"), [0, 3, 4, 1]),
        (("$A", "</s>"), [0, 3, 4, 1]),
        (("<en>", "$A", "</s>"), [0, 5, 3, 4, 1]),
    ],
)
def test_missing_start_and_end_tokens_are_added(single, ids):
    before = words(*single)
    found = with_start_and_end(before)
    assert found.encode("a dog") == ids
    assert found.encode_batch(["a dog"], literal=True) == [ids]
    assert found.encode("a dog", specials=False) == [3, 4] == before.encode("a dog", specials=False)
    assert found.encode("") == [*ids[: ids.index(3)], 1]
    assert with_start_and_end(found) is found


def test_a_tokenizer_that_adds_both_is_returned_unchanged(trained):
    assert all(with_start_and_end(one) is one for one in trained.values())
    both = words("<s>", "$A", "</s>")
    assert with_start_and_end(both) is both


def test_added_tokens_are_found_in_a_vocabulary_without_letters():
    vocabulary = {name: id for name, id in WORDS.items() if name not in ("a", "<unk>")}
    backend = Backend(models.BPE(vocabulary, []))
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    assert with_start_and_end(Tokenizer(backend)).encode("") == [0, 1]


def test_a_vocabulary_without_an_end_token_is_refused():
    vocabulary = {name: id for name, id in WORDS.items() if name != "</s>"}
    with pytest.raises(InputError, match="has no end token, which this model needs: name one"):
        with_start_and_end(words(vocabulary=vocabulary))


def test_token_names_are_unique_and_map_back_to_the_ids(trained):
    for tokenizer in trained.values():
        names = token_names(tokenizer, len(tokenizer) + 2)
        assert len(set(names)) == len(names) == len(tokenizer) + 2
        assert [tokenizer.id_of(name) for name in names[:-2]] == list(range(len(tokenizer)))
        assert names[-1] == f"[unused {len(tokenizer) + 1}]"
        assert token_names(tokenizer) == names[:-2]
    gaps = Tokenizer(Backend(models.WordLevel({"a": 0, "b": 3}, unk_token="a")))
    assert token_names(gaps) == ["a", "[unused 1]", "[unused 2]", "b"]


def test_special_tokens_except_the_end_and_unused_ids_are_suppressed(trained):
    tokenizer = trained["bpe"]
    n = len(tokenizer)
    assert suppressed_ids(tokenizer, n + 1) == [0, 1, 2, 4, n]


def test_a_prompt_has_no_end_and_is_never_empty(trained):
    tokenizer = trained["bpe"]
    assert tokenizer.encode_prompt("A dog") == [2, *tokenizer.encode("A dog", specials=False)]
    assert tokenizer.encode_prompt("") == [2]
    with pytest.raises(InputError, match="prompt is empty and the tokenizer has no start"):
        Tokenizer(Backend(models.BPE({"a": 0}, []))).encode_prompt("")


def test_start_and_end_are_added_once(trained):
    tokenizer = trained["bpe"]
    for ids in ([7, 8], [2, 7, 8], [7, 8, 3], [2, 7, 8, 3]):
        assert tokenizer.add_start_and_end(ids) == [2, 7, 8, 3]
    assert tokenizer.add_start_and_end([]) == [2, 3]
