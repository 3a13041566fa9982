import pytest
import torch
from torch.testing import assert_close

import regard
from regard.attention.mask import Connection
from regard.attention.multi_head import MultiHeadAttention
from regard.errors import FileError, InputError
from regard.trace.trace import Trace


def inputs(*lead, n=7, d=8):
    torch.manual_seed(0)
    return tuple(torch.randn(*lead, n, d) for _ in range(3))


def saved_and_loaded(trace, folder):
    trace.save(folder / "trace.safetensors")
    return Trace.load(folder / "trace.safetensors")


def test_a_trace_comes_back_bit_equal_with_tokens_values_and_output(tmp_path):
    module, x = MultiHeadAttention(16, 4, path="encoder.layers.0.self"), torch.randn(2, 7, 16)
    with regard.watch() as trace:
        trace.output = module(x, allowed=regard.causal() & regard.padding([7, 3]))
    trace.tokens = {"source": ["나는", "본다", "."]}
    again = saved_and_loaded(trace, tmp_path)
    assert list(again) == list(trace)
    assert again.tokens == trace.tokens
    assert torch.equal(again.output, trace.output)
    assert again.values.keys() == trace.values.keys()
    for name in ("query", "key", "value"):
        site = "encoder.layers.0.self"
        assert torch.equal(getattr(again[site], name), getattr(trace[site], name))
    assert_close(again[site].weights(batch=1), trace[site].weights(batch=1))
    assert repr(again[site].allowed) == "causal() & padding([7, 3])"


@pytest.mark.parametrize(
    "allowed",
    [
        regard.window(2),
        regard.edges([(0, 1), (3, 3)]) | regard.causal(),
        ~Connection(query=1, key=0),
        torch.ones(7, 7, dtype=torch.bool).tril(1),
        regard.padding([4], side="left") & regard.window(3),
    ],
    ids=repr,
)
def test_every_kind_of_mask_comes_back(allowed, tmp_path):
    with regard.watch() as trace:
        regard.attend(*inputs(1, 2), allowed=allowed)
    again = saved_and_loaded(trace, tmp_path)
    assert_close(
        again["attention"].masked(), trace["attention"].masked()
    )  # -inf at the same places


@pytest.mark.parametrize(
    "similarity",
    [
        *("dot", "scaled_dot", "cosine"),
        regard.General(8, 8),
        regard.Additive(8, 8, 5),
        regard.Alibi(2),
        lambda q, k: -torch.cdist(q, k),
    ],
    ids=lambda s: s if isinstance(s, str) else type(s).__name__,
)
def test_every_similarity_comes_back_with_the_same_weights(similarity, tmp_path):
    with regard.watch() as trace:
        regard.attend(*inputs(3, 2), similarity=similarity, temperature=0.7)
    again = saved_and_loaded(trace, tmp_path)
    for batch in range(3):
        assert_close(
            again["attention"].weights(batch=batch), trace["attention"].weights(batch=batch)
        )


def test_an_own_similarity_leaves_its_scores_but_says_that_it_stayed_behind(tmp_path):
    with regard.watch() as trace:
        regard.attend(*inputs(2), similarity=lambda q, k: -torch.cdist(q, k))
    again = saved_and_loaded(trace, tmp_path)
    assert_close(again["attention"].scores(), trace["attention"].scores())
    with pytest.raises(InputError, match="a trace file cannot hold"):
        again["attention"].compared(head=0)


def test_edited_weights_and_infinite_temperature_come_back(tmp_path):
    edits = [regard.set_weights("attention", 0.25, head=1, query=2), regard.temperature("*", 1e400)]
    with regard.watch(edits=edits) as trace:
        regard.attend(*inputs(1, 2))
    again = saved_and_loaded(trace, tmp_path)
    assert_close(again["attention"].weights(), trace["attention"].weights())
    assert_close(again["attention"].weights(head=0), torch.full((7, 7), 1 / 7))


def test_an_efficient_site_comes_back(tmp_path):
    with regard.watch() as trace:
        regard.efficient_attention(*inputs(1, 2), allowed=regard.causal())
    again = saved_and_loaded(trace, tmp_path)
    assert_close(again["attention"].weights(), trace["attention"].weights())


def test_looking_at_a_loaded_trace_leaves_the_file_as_it_was(tmp_path):
    with regard.watch() as trace:
        regard.attend(*inputs(1, 2))
    again = saved_and_loaded(trace, tmp_path)
    before = (tmp_path / "trace.safetensors").read_bytes()
    again["attention"].weights()
    assert (tmp_path / "trace.safetensors").read_bytes() == before


def test_absent_damaged_and_foreign_files_are_named_in_a_sentence(tmp_path):
    from safetensors.torch import save_file

    with pytest.raises(FileError, match=r"there is no trace .*none\.safetensors"):
        Trace.load(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("no tensors at all, only words")
    with pytest.raises(FileError, match=r"text\.safetensors is damaged or no safetensors file"):
        Trace.load(tmp_path / "text.safetensors")
    save_file({"x": torch.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(FileError, match="not a trace that this version reads"):
        Trace.load(tmp_path / "other.safetensors")
    with regard.watch() as trace:
        regard.attend(*inputs(1, 2))
    trace.save(tmp_path / "cut.safetensors")
    whole = (tmp_path / "cut.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileError, match=r"cut\.safetensors is damaged"):
        Trace.load(tmp_path / "cut.safetensors")


def test_a_trace_that_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "trace.safetensors"
    with regard.watch() as trace:
        regard.attend(*inputs(1, 2))
    trace.save(path)
    before = path.read_bytes()
    trace["attention"].pattern = object()  # nothing that a file can describe
    with pytest.raises(InputError, match="a trace file cannot hold a object"):
        trace.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["trace.safetensors"]
