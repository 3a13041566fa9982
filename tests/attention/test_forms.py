"""What every form of attention does alike: in multi-head attention, watched, saved, refused."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.attention.efficient import efficient_attention
from regard.attention.form import ExactForm
from regard.attention.linformer import Linformer
from regard.attention.longformer import Longformer
from regard.attention.multi_head import MultiHeadAttention
from regard.attention.performer import Performer
from regard.attention.reformer import Reformer
from regard.errors import InputError, MaskError
from regard.tap import listen
from tests.listeners import Everybody

# Each for two heads of width 4; those with random numbers of their own draw them when made.
MAKE = {
    "exact": ExactForm,
    "efficient": lambda: efficient_attention,
    "efficient, scaling": lambda: partial(efficient_attention, normalization="scaling"),
    "linformer": lambda: Linformer(40, 5),
    "linformer, a head each": lambda: Linformer(40, 5, sharing="none", n_heads=2),
    "longformer": lambda: Longformer(2),
    "longformer, global": lambda: Longformer(1, global_tokens=[0], n_heads=2, d_k=4),
    "performer": lambda: Performer(4, 16),
    "reformer": lambda: Reformer(4, n_buckets=2, n_rounds=2, chunk=4),
}
# What a form taps beside what all do.
OWN = {
    "exact": {"similarity", "scale", "temperature", "compared", "scores", "masked", "weights"},
    "linformer": {"projected_key", "projected_value"},
    "longformer, global": {"global_query", "global_key", "global_value"},
}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "taps.md"
FORMS = pytest.mark.parametrize("form", MAKE)


def shaken(form):
    """The form with random numbers in all its weights: some start as identities."""
    for parameter in getattr(form, "parameters", list)():
        torch.nn.init.normal_(parameter)
    return form


@FORMS
def test_it_serves_multi_head_attention_is_watched_without_a_change_and_saved_with_it(form):
    x, allowed = torch.randn(2, 6, 8), regard.padding([6, 3])
    one, other = (
        MultiHeadAttention(8, 2, form=shaken(MAKE[form]()), path="encoder.layers.0.self")
        for _ in range(2)
    )
    with regard.watch() as trace:
        output = one(x, allowed=allowed)
    assert_close(one(x, allowed=allowed), output)
    weights = trace["encoder.layers.0.self"].weights(batch=1)
    assert torch.equal(weights[..., 3:], torch.zeros(2, 6, 3))
    assert weights[..., :3].abs().sum() > 0.1
    output.sum().backward()
    assert all(parameter.grad is not None for parameter in one.parameters())
    assert not torch.allclose(other(x, allowed=allowed), output)
    other.load_state_dict(one.state_dict())
    assert_close(other(x, allowed=allowed), output)


@FORMS
def test_it_taps_what_the_page_of_names_says(form):
    with listen(everybody := Everybody()):
        MAKE[form]()(*torch.randn(3, 1, 2, 6, 4), site="it")
    names = {path.removeprefix("it.") for path in everybody.seen}
    own = OWN.get(form.removesuffix(", a head each"), set())
    assert names == {"query", "key", "value", "allowed", "pattern", "context"} | own
    page = PAGE.read_text("utf-8")
    assert all(f"`{name}`" in page or f"`SITE.{name}`" in page for name in names)


@FORMS
def test_a_trace_of_it_can_be_saved_and_loaded(form, tmp_path):
    allowed = regard.padding([20])
    if "linformer" not in form:  # which cannot be causal
        allowed = allowed & regard.causal()
    with regard.watch() as trace:
        shaken(MAKE[form]())(*torch.randn(3, 1, 2, 30, 4), allowed=allowed, site="it")
    trace.save(tmp_path / "trace.safetensors")
    loaded = regard.Trace.load(tmp_path / "trace.safetensors")
    assert loaded["it"].weights().shape == (2, 30, 30)
    assert_close(loaded["it"].weights(), trace["it"].weights())


@FORMS
def test_a_table_put_in_for_the_mask_is_followed_or_refused_where_no_pairs_are_known(form):
    inputs, itself = torch.randn(3, 1, 2, 6, 4), torch.eye(6, dtype=torch.bool)
    pairs = form.startswith(("exact", "longformer"))
    refused = nullcontext() if pairs else pytest.raises(MaskError, match="pairs")
    with refused, regard.watch(edits=[regard.set_value("it.allowed", itself)]):
        assert_close(MAKE[form]()(*inputs, site="it"), inputs[2])


@FORMS
@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_a_dropout_that_is_no_probability_is_refused(form, dropout):
    with pytest.raises(InputError, match=f"dropout is {dropout}; it must be at least 0"):
        MAKE[form]()(*torch.randn(3, 1, 2, 30, 4), dropout=dropout)
