"""Vocabulary files: the same ids as the reference implementations."""

import json

import pytest

from regard.errors import FileError, InputError, RegardError
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_files import read_backend, wordpiece

SENTENCES = [
    "Hello, how are you doing?",
    "Crème brûlée costs 3.50 €; naïve façades!",
    "저는 학생입니다. 日本語 too",
    "don't   panic\tor\nworry…  ",
    "",
]
SMALL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog", "##s", "run", "."]


@pytest.fixture(scope="session")
def bert(data):
    return data / "vocabularies" / "bert-base-uncased.vocab.txt"


@pytest.fixture(scope="session")
def gpt2(data):
    return data / "vocabularies" / "gpt2.vocab.json"


def small_vocabulary(folder, pieces=SMALL):
    path = folder / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return path


@pytest.mark.data("vocabularies")
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Hello, how are you doing?", "101 7592 1010 2129 2024 2017 2725 1029 102"),
        (
            "The Frenchman spoke in the [MASK] language and ate 🍜",
            "101 1996 26529 3764 1999 1996 103 2653 1998 8823 100 102",
        ),
        ("[CLS] [SEP] [MASK] [UNK]", "101 101 102 103 100 102"),
    ],
)
def test_wordpiece_ids_are_the_published_ones(bert, text, ids):
    assert Tokenizer.load(bert).encode(text) == [int(id) for id in ids.split()]


@pytest.mark.data("vocabularies")
def test_wordpiece_equals_transformers(bert):
    from transformers import BertTokenizerFast

    reference = BertTokenizerFast(vocab=str(bert))
    ours = Tokenizer.load(bert)
    for sentence in SENTENCES:
        assert ours.encode(sentence) == reference(sentence)["input_ids"]


@pytest.mark.data("vocabularies")
def test_byte_bpe_ids_are_the_published_ones(gpt2):
    assert Tokenizer.load(gpt2).encode("Hello world") == [15496, 995]
    assert Tokenizer.load(gpt2).encode("<|endoftext|>") == [50256]


@pytest.mark.data("vocabularies")
def test_byte_bpe_equals_transformers(gpt2):
    from transformers import GPT2TokenizerFast

    merges = gpt2.with_name("gpt2.merges.txt")
    reference = GPT2TokenizerFast(vocab=str(gpt2), merges=str(merges))
    ours = Tokenizer.load(gpt2)
    assert Tokenizer.load(merges).fingerprint == ours.fingerprint
    for sentence in SENTENCES:
        assert ours.encode(sentence) == reference(sentence)["input_ids"]
        assert ours.decode(ours.encode(sentence)) == sentence


@pytest.mark.data("vocabularies")
def test_roles_are_found_by_name(bert, gpt2):
    tokenizer = Tokenizer.load(bert)
    assert (tokenizer.pad_id, tokenizer.unknown_id, tokenizer.start_id) == (0, 100, 101)
    assert (tokenizer.end_id, tokenizer.mask_id, len(tokenizer)) == (102, 103, 30522)
    tokenizer = Tokenizer.load(gpt2)
    assert tokenizer.start_id == tokenizer.end_id == 50256
    assert tokenizer.pad_id is tokenizer.mask_id is tokenizer.unknown_id is None


def test_a_folder_is_searched_for_vocabulary_files(tmp_path):
    small_vocabulary(tmp_path)
    from_text = Tokenizer.load(tmp_path)
    assert from_text.encode("dogs run.", specials=False) == [5, 6, 7, 8]
    from_text.save(tmp_path)
    assert Tokenizer.load(tmp_path).encode("dogs run.", specials=False) == [5, 6, 7, 8]
    assert Tokenizer.load(str(tmp_path / "tokenizer.json")).fingerprint == from_text.fingerprint


def test_a_vocabulary_with_capital_letters_keeps_them(tmp_path):
    assert Tokenizer.load(small_vocabulary(tmp_path)).encode("Dog", specials=False) == [5]
    cased = Tokenizer.load(small_vocabulary(tmp_path, [*SMALL, "Hund"]))
    assert cased.encode("Hund Dog", specials=False) == [9, 1]


@pytest.mark.parametrize(
    ("stated", "text", "tokens"),
    [
        ({"do_lower_case": True}, "Hé", ["he"]),
        ({"do_lower_case": False}, "hé He", ["hé", "[UNK]"]),
        ({"do_lower_case": True, "strip_accents": False}, "Hé", ["hé"]),
        ({"do_lower_case": True, "tokenize_chinese_chars": False}, "he一", ["[UNK]"]),
    ],
)
def test_capitals_and_accents_are_treated_as_the_folder_says(tmp_path, stated, text, tokens):
    (tmp_path / "vocab.txt").write_text("[UNK]\nhe\nhé\nHE\n一\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(stated))
    backend = read_backend(tmp_path)
    assert backend.encode(text).tokens == tokens
    # a tokenizer.json as it is, unless a class is named that lets the settings prevail
    backend.normalizer.lowercase = not stated["do_lower_case"]
    backend.normalizer.handle_chinese_chars = "tokenize_chinese_chars" in stated
    backend.save(str(tmp_path / "tokenizer.json"))
    assert read_backend(tmp_path).encode(text).tokens == backend.encode(text).tokens != tokens
    named = stated | {"tokenizer_class": "BertTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    assert read_backend(tmp_path).encode(text).tokens == tokens
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": "yes"}')
    with pytest.raises(FileError, match="do_lower_case = 'yes'; it must be true or false"):
        read_backend(tmp_path)


def test_roles_stated_in_a_file_override_names(tmp_path):
    small_vocabulary(tmp_path)
    stated = {
        "bos_token": {"content": "run"},
        "eos_token": ".",
        "pad_token": None,
        "mask_token": "no",
    }
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(stated))
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.start_id, tokenizer.end_id, tokenizer.pad_id, tokenizer.mask_id) == (
        7,
        8,
        0,
        4,
    )
    tokenizer.save(tmp_path / "copy")
    assert Tokenizer.load(tmp_path / "copy").roles == tokenizer.roles


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("tokenizer.json", b"{", "is not valid JSON"),
        ("tokenizer.json", b"\xff\xfe", "is not valid JSON"),
        ("tokenizer.json", b'{"\\ud800": 1}', "is not valid JSON: .* surrogates not allowed"),
        ("tokenizer.json", b"[]", "contains a JSON list, not an object"),
        (
            "tokenizer.json",
            b'{"model": {"type": "Abacus"}}',
            "is not a valid tokenizer.json",
        ),
        ("tokenizer.json", b'{"name": "x"}', "neither a tokenizer.json nor a vocab.json"),
        ("tokenizer.json", b"{}", "neither a tokenizer.json nor a vocab.json"),
        ("vocab.txt", b"a\nb\n", r"has no token \[UNK\]"),
        ("vocab.txt", b"", r"has no token \[UNK\]"),
        ("vocab.txt", b"[UNK]\na\nb\na\n", "the token 'a' twice, on lines 2 and 4"),
        ("vocab.txt", b"[UNK]\n\xff\n", "is not UTF-8 at byte 6"),
    ],
)
def test_a_broken_file_is_named_with_the_reason(tmp_path, name, contents, message):
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(RegardError, match=message):
        Tokenizer.load(tmp_path)


def test_a_template_with_an_unknown_token_is_refused_in_one_sentence(tmp_path, capfd):
    backend = wordpiece({name: id for id, name in enumerate(("[UNK]", "[CLS]", "[SEP]", "a"))})
    stored = json.loads(backend.to_str())
    del stored["post_processor"]["special_tokens"]["[SEP]"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(stored))
    with pytest.raises(InputError, match=r"valid .*: its template has .* special token '\[SEP\]'"):
        Tokenizer.load(tmp_path)
    assert capfd.readouterr().err == ""  # the library would panic, and print that


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileError, match="does not exist"):
        Tokenizer.load(tmp_path / "nowhere")
    with pytest.raises(FileError, match=r"has no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    with pytest.raises(FileError, match=r"needs merges\.txt in the same folder"):
        Tokenizer.load(tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\nx y\n")
    with pytest.raises(InputError, match="merges 'x y' to a token"):
        Tokenizer.load(tmp_path)


def test_gpt2s_settings_prevail_over_its_tokenizer_json(tmp_path, gpt2):
    Tokenizer.load(gpt2).save(tmp_path)
    read = lambda: read_backend(tmp_path).encode("dog").tokens  # noqa: E731
    assert read() == ["dog"]
    stated = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(stated))
    assert read() == ["Ġdog"]


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ({"a": 0, "b": 1, "ab": {}}, r"vocab.json has 'ab' = \{\}, which is not an id"),
        ({"a": 0, "b": 1}, "merges 'a b' to a token that the vocabulary lacks"),
    ],
)
def test_merges_without_their_results_are_refused_in_one_sentence(tmp_path, ids, sentence, capfd):
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    with pytest.raises(RegardError, match=sentence):
        read_backend(tmp_path / "merges.txt")
    assert not capfd.readouterr().err
