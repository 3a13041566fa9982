import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
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


def test_a_loaded_trace_is_bit_equal(tmp_path):
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
def test_every_mask_is_loaded(allowed, tmp_path):
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
def test_every_similarity_is_loaded(similarity, tmp_path):
    with regard.watch() as trace:
        regard.attend(*inputs(3, 2), similarity=similarity, temperature=0.7)
    again = saved_and_loaded(trace, tmp_path)
    for batch in range(3):
        assert_close(
            again["attention"].weights(batch=batch), trace["attention"].weights(batch=batch)
        )


def test_the_scores_of_a_custom_similarity_are_loaded(tmp_path):
    with regard.watch() as trace:
        regard.attend(*inputs(2), similarity=lambda q, k: -torch.cdist(q, k))
    again = saved_and_loaded(trace, tmp_path)
    assert_close(again["attention"].scores(), trace["attention"].scores())
    with pytest.raises(InputError, match="a trace file cannot hold"):
        again["attention"].compared(head=0)


def test_edited_weights_and_infinite_temperature_are_loaded(tmp_path):
    edits = [regard.set_weights("attention", 0.25, head=1, query=2), regard.temperature("*", 1e400)]
    with regard.watch(edits=edits) as trace:
        regard.attend(*inputs(1, 2))
    again = saved_and_loaded(trace, tmp_path)
    assert_close(again["attention"].weights(), trace["attention"].weights())
    assert_close(again["attention"].weights(head=0), torch.full((7, 7), 1 / 7))


def test_names_of_version_0_1_are_loaded(tmp_path):
    with regard.watch() as trace:
        regard.attend(*inputs(1, 2), allowed=torch.ones(7, 7, dtype=torch.bool).tril())
    trace.save(tmp_path / "new.safetensors")
    with safe_open(tmp_path / "new.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = file.metadata()
    for new, old in (("exact", "Exact"), ("table", "Table")):
        assert f'"kind": "{new}"' in header["about"]
        header["about"] = header["about"].replace(f'"kind": "{new}"', f'"kind": "{old}"')
    save_file(tensors, tmp_path / "old.safetensors", metadata=header)
    loaded = Trace.load(tmp_path / "old.safetensors")
    assert torch.equal(loaded["attention"].weights(), trace["attention"].weights())


def test_reading_a_loaded_trace_does_not_change_the_file(tmp_path):
    with regard.watch() as trace:
        regard.attend(*inputs(1, 2))
    again = saved_and_loaded(trace, tmp_path)
    before = (tmp_path / "trace.safetensors").read_bytes()
    again["attention"].weights()
    assert (tmp_path / "trace.safetensors").read_bytes() == before


def test_missing_damaged_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(FileError, match=r"none\.safetensors does not exist"):
        Trace.load(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("no tensors at all, only words")
    with pytest.raises(FileError, match=r"text\.safetensors is damaged or not a safetensors file"):
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


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"output": {"text": 3, "ids": "x"}}, "validation error"),
        ({"sites": {"attention": {"pattern": {"kind": "exact"}, "changed": []}}}, "missing"),
        ({"sites": {"other": {"pattern": None, "changed": []}}}, "other.query"),
        ({"sites": 3}, "has no attribute 'items'"),
        ({"tokens": {"source": 3}}, "tokens and words must be lists"),
        ({"tokens": {"source": [3]}}, "tokens must be texts"),
    ],
)
def test_a_trace_file_that_describes_something_else_is_refused(tmp_path, change, why):
    with regard.watch() as trace:
        regard.attend(*inputs(1, 2))
    trace.save(tmp_path / "whole.safetensors")
    with safe_open(tmp_path / "whole.safetensors", framework="pt") as file:
        header = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header["about"] = json.dumps(json.loads(header["about"]) | change)
    save_file(tensors, tmp_path / "changed.safetensors", metadata=header)
    with pytest.raises(FileError, match=rf"damaged trace \(.*{why}.*\): trace again\.$"):
        Trace.load(tmp_path / "changed.safetensors")


def test_a_failed_save_keeps_the_old_file(tmp_path):
    path = tmp_path / "trace.safetensors"
    with regard.watch() as trace:
        regard.attend(*inputs(1, 2))
    trace.save(path)
    before = path.read_bytes()
    trace["attention"].pattern = object()  # nothing that a file can describe
    with pytest.raises(InputError, match="pattern is a object, which a trace file cannot hold"):
        trace.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["trace.safetensors"]
