"""llama2.c's binaries: the real stories260K, and small ones made by hand."""

import struct

import pytest
import torch
from torch.testing import assert_close

from regard.errors import FileError, InputError
from regard.interop.huggingface import export_huggingface
from regard.interop.import_checkpoint import import_checkpoint
from regard.interop.llama2c import is_llama2c, pairs_to_halves, read_tokenizer

DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCAB, LENGTH = 8, 12, 2, 2, 1, 10, 16


def write_binary(file, *, tied=True, more=b""):
    d_k = DIM // HEADS
    numbers = VOCAB * DIM + LAYERS * (2 * DIM + 2 * DIM * DIM + 2 * KV_HEADS * d_k * DIM)
    numbers += LAYERS * 3 * HIDDEN * DIM + DIM + LENGTH * d_k + (0 if tied else VOCAB * DIM)
    header = struct.pack(
        "<7i", DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCAB if tied else -VOCAB, LENGTH
    )
    weights = torch.randn(numbers, generator=torch.Generator().manual_seed(0))
    file.write_bytes(header + weights.numpy().tobytes() + more)
    return weights


def write_tokenizer(file, pieces):
    data = struct.pack("<i", max(len(piece) for piece in pieces))
    for id, piece in enumerate(pieces):
        data += struct.pack("<fi", -float(id), len(piece.encode())) + piece.encode()
    file.write_bytes(data)


PIECES = ["<unk>", "\n<s>\n", "\n</s>\n", "<0x41>", " ", "a", "b", " a", "ab", "é"]


@pytest.mark.parametrize("tied", [True, False])
def test_tensors_follow_one_another_in_their_order(tmp_path, tied):
    weights = write_binary(tmp_path / "model.bin", tied=tied)
    ours = import_checkpoint(tmp_path / "model.bin")
    state = ours.module.state_dict()
    assert torch.equal(state["tokens.weight"].flatten(), weights[: VOCAB * DIM])
    at = VOCAB * DIM
    assert torch.equal(
        state["decoder.layers.1.self_attention.norm.weight"], weights[at + 8 : at + 16]
    )
    at += LAYERS * (DIM + DIM * DIM)  # the keys of the first layer: one head of four rows
    rows = weights[at : at + 4 * DIM].view(4, DIM)
    key = state["decoder.layers.0.self_attention.inner.to_key.weight"]
    assert torch.equal(key, rows[[0, 2, 1, 3]])
    assert ours.config.tie == tied
    if not tied:
        assert torch.equal(state["projection.weight"].flatten(), weights[-VOCAB * DIM :])
    assert ours.tokenizer is None


def test_rotary_pairs_that_are_neighbors_come_to_stand_half_a_head_apart_by_hand():
    # one head of four numbers: pairs (0, 1) and (2, 3) become (0, 2) and (1, 3)
    weight = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    assert pairs_to_halves(weight, 1).flatten().tolist() == [0, 2, 1, 3]
    assert pairs_to_halves(torch.arange(8.0)[:, None], 2).flatten().tolist() == [
        0,
        2,
        1,
        3,
        4,
        6,
        5,
        7,
    ]


def test_the_tokenizer_beside_a_model_is_found_or_named(tmp_path):
    write_binary(tmp_path / "model.bin")
    write_tokenizer(tmp_path / "mine.bin", PIECES)
    assert import_checkpoint(tmp_path / "model.bin").tokenizer is None
    named = import_checkpoint(tmp_path / "model.bin", tokenizer=tmp_path / "mine.bin").tokenizer
    (tmp_path / "mine.bin").rename(tmp_path / "tok10.bin")
    found = import_checkpoint(tmp_path / "model.bin").tokenizer
    assert found.fingerprint == named.fingerprint
    assert [found.token_of(id) for id in found.encode("ab A")] == ["<s>", "▁a", "b", "▁", "<0x41>"]
    assert found.decode(found.encode("ab A")) == "ab A"


def test_leading_spaces_are_kept_after_the_space_that_llama2c_adds(tmp_path):
    write_tokenizer(tmp_path / "tok.bin", PIECES)
    tokenizer = read_tokenizer(tmp_path / "tok.bin", len(PIECES))
    by_hand = {"a": ["▁a"], " a": ["▁", "▁a"], "  a": ["▁", "▁", "▁a"], "b a": ["▁", "b", "▁a"]}
    for text, tokens in by_hand.items():
        ids = tokenizer.encode(text)
        assert [tokenizer.token_of(id) for id in ids] == ["<s>", *tokens]
        assert tokenizer.decode(ids) == text


def test_a_binary_or_tokenizer_that_does_not_fit_is_refused(tmp_path):
    file = tmp_path / "model.bin"
    write_binary(file, more=b"1234")
    with pytest.raises(FileError, match=r"bytes instead of .*: it is truncated or not"):
        import_checkpoint(file)
    write_binary(file)
    data = file.read_bytes()
    file.write_bytes(data[:-4])
    with pytest.raises(FileError, match="truncated"):
        import_checkpoint(file)
    file.write_bytes(b"24ka" + data[4:])
    with pytest.raises(FileError, match=r"a newer llama2\.c file"):
        import_checkpoint(file)
    file.write_bytes(b"PK\3\4 a zip or pickle" * 9)
    with pytest.raises(InputError, match=r"is not a llama2.c binary: .* does not open pickled"):
        import_checkpoint(file)
    file.write_bytes(data)
    for wrong in (PIECES[:-1], [*PIECES, "more"]):
        write_tokenizer(tmp_path / "tok10.bin", wrong)
        with pytest.raises(FileError, match=r"tok10\.bin (is not a tokenizer of 10|has more than)"):
            import_checkpoint(file)
    assert not is_llama2c(tmp_path / "nowhere.bin")


@pytest.mark.data("stories260K")
def test_the_real_stories260k_writes_a_story(data):
    ours = import_checkpoint(data / "stories260K" / "stories260K.bin")
    ids = ours.tokenizer.encode("Once upon a time")
    cache, fresh = ours.module.new_cache(), torch.tensor([ids])
    with torch.no_grad():
        for _ in range(40):
            ids.append(int(ours.module(fresh, cache=cache)[0, -1].argmax()))
            fresh = torch.tensor([ids[-1:]])
    assert ours.tokenizer.decode(ids) == (
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
        "park. One day, she saw a big, red ball."
    )


@torch.no_grad()
@pytest.mark.data("stories260K")
def test_the_real_stories260k_has_the_same_logits_in_transformers(data, transformers, tmp_path):
    ours = import_checkpoint(data / "stories260K" / "stories260K.bin")
    export_huggingface(ours, tmp_path / "out")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    cutter = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "Lily and Ben saw a big dog."
    ids = torch.tensor([ours.tokenizer.encode(text)])
    assert cutter(text)["input_ids"] == ids[0].tolist()
    assert_close(ours.module(ids), theirs(ids).logits, rtol=0, atol=1e-4)
