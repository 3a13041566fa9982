"""Laws that every form of attention obeys, alone and in multi-head attention."""

from contextlib import nullcontext
from math import nan
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.attention.efficient import Efficient
from regard.attention.form import ExactForm
from regard.attention.linformer import Linformer
from regard.attention.longformer import Longformer
from regard.attention.multi_head import MultiHeadAttention
from regard.attention.performer import Performer
from regard.attention.reformer import Reformer
from regard.errors import InputError, MaskError
from regard.tap import listen
from tests.attention.forms import drawn
from tests.listeners import Everybody

LONG = 4096
# Each for two heads of width 4; forms with random directions draw them when built.
MAKE = {
    "exact": ExactForm,
    "efficient": Efficient,
    "efficient, scaling": lambda: Efficient("scaling"),
    "linformer": lambda: Linformer(LONG, 5),
    "linformer, separate heads": lambda: Linformer(LONG, 5, sharing="none", n_heads=2),
    "longformer": lambda: Longformer(2, dilation=2),
    "longformer, global": lambda: Longformer(1, global_tokens=[0, 3], n_heads=2, d_k=4),
    "performer": lambda: Performer(4, 16),
    "reformer": lambda: Reformer(4, n_buckets=2, n_rounds=2, chunk=4),
}
# The values that a form taps in addition to those that all forms tap.
OWN_TAPS = {
    "exact": {"similarity", "scale", "temperature", "compared", "scores", "masked", "weights"},
    "linformer": {"projected_key", "projected_value"},
    "longformer, global": {"global_query", "global_key", "global_value"},
}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "taps.md"
FORMS = pytest.mark.parametrize("form", MAKE)
CAUSAL = [form for form in MAKE if "linformer" not in form]
CASES = pytest.mark.parametrize(
    ("form", "causal"),
    [(form, causal) for form in MAKE for causal in (False, True) if not causal or form in CAUSAL],
)


def shaken(form):
    """The form with random numbers in all its weights: some start as identities."""
    for parameter in form.parameters():
        torch.nn.init.normal_(parameter)
    return form


def mask(causal, *lengths):
    return regard.padding(lengths) & regard.causal() if causal else regard.padding(lengths)


@FORMS
def test_it_serves_multi_head_attention_and_is_recorded_and_saved_with_it(form):
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


@CASES
def test_padding_changes_nothing_whatever_it_contains(form, causal):
    garbage = 1e4 if form == "exact" else nan  # exact attention multiplies padded values by 0
    inputs, attention = drawn(1, 2, 50, 4), shaken(MAKE[form]()).double()
    padded = [torch.full((1, 2, 130, 4), garbage, dtype=torch.float64) for _ in range(3)]
    for old, new in zip(inputs, padded, strict=True):
        new[..., :50, :] = old
    padded[0][..., 50:, :] = 1.0  # queries of NaN have no result
    found = attention(*padded, allowed=mask(causal, 50))
    assert_close(found[..., :50, :], attention(*inputs, allowed=mask(causal, 50)))
    assert found.isfinite().all()


@pytest.mark.parametrize("form", CAUSAL)
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_later_positions_never_change_earlier_ones(form, size):
    inputs, attention = drawn(2, 2, 200, 4), MAKE[form]().double()
    before = attention(*inputs, allowed=regard.causal())[..., :90, :]
    for x in inputs:
        x[..., 90:, :] *= -size
    after = attention(*inputs, allowed=regard.causal())
    assert_close(after[..., :90, :], before)
    assert after.isfinite().all()


@CASES
def test_gradients_are_those_of_finite_differences_and_0_without_keys(form, causal):
    attention = shaken(MAKE[form]()).double()
    inputs = [x.requires_grad_() for x in drawn(3, 2, 9, 4)]
    allowed = mask(causal, 9, 5, 0)

    def call(*inputs):
        return attention(*inputs, allowed=allowed)

    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)
    call(*inputs).sum().backward()
    gradients = [x.grad for x in inputs if x.grad is not None]  # a Reformer ignores the keys
    assert not any(gradient[2].any() for gradient in gradients)


@FORMS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_loses_only_its_own_digits(form, dtype):
    inputs, attention = [x.to(dtype) for x in drawn(1, 2, 40, 4)], MAKE[form]().to(dtype)
    if form == "reformer":  # near the border between buckets, rounding may choose the other one
        attention = Reformer(4, n_buckets=1)
    allowed = mask(form in CAUSAL, 30)
    found = attention(*inputs, allowed=allowed)
    exact = attention.double()(*(x.double() for x in inputs), allowed=allowed)
    assert found.dtype == dtype
    assert_close(found.double(), exact, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("form", [form for form in MAKE if form != "exact"])
def test_long_inputs_never_make_an_n_by_n_matrix(form, largest):
    inputs = [x.requires_grad_() for x in drawn(1, 2, LONG, 4, dtype=torch.float32)]
    attention = MAKE[form]()
    with largest:
        attention(*inputs, allowed=mask(form in CAUSAL, LONG - 5)).sum().backward()
    assert 4 * LONG <= largest.numbers <= 400 * LONG


@pytest.mark.long
@FORMS
def test_it_compiles_into_one_graph_with_a_causal_mask_if_it_supports_one(form, no_shape_checks):
    torch.compiler.reset()
    inputs, attention = drawn(2, 2, 20, 4), MAKE[form]().double()
    allowed = mask(form in CAUSAL, 20, 7)
    compiled = torch.compile(
        lambda *x: attention(*x, allowed=allowed), fullgraph=True, backend="eager"
    )
    assert_close(compiled(*inputs), attention(*inputs, allowed=allowed))


@FORMS
def test_it_taps_the_values_that_the_documentation_lists(form):
    with listen(everybody := Everybody()):
        MAKE[form]()(*torch.randn(3, 1, 2, 6, 4), site="it")
    names = {path.removeprefix("it.") for path in everybody.seen}
    own = OWN_TAPS.get(form.removesuffix(", separate heads"), set())
    assert names == {"query", "key", "value", "allowed", "pattern", "context"} | own
    page = PAGE.read_text("utf-8")
    assert all(f"`{name}`" in page or f"`SITE.{name}`" in page for name in names)


@FORMS
def test_a_trace_of_it_can_be_saved_and_loaded(form, tmp_path):
    with regard.watch() as trace:
        shaken(MAKE[form]())(
            *torch.randn(3, 1, 2, 30, 4), allowed=mask(form in CAUSAL, 20), site="it"
        )
    trace.save(tmp_path / "trace.safetensors")
    loaded = regard.Trace.load(tmp_path / "trace.safetensors")
    assert loaded["it"].weights().shape == (2, 30, 30)
    assert_close(loaded["it"].weights(), trace["it"].weights())


@FORMS
def test_a_mask_of_single_pairs_is_followed_or_refused(form):
    inputs, itself = torch.randn(3, 1, 2, 6, 4), torch.eye(6, dtype=torch.bool)
    pairs = form.startswith(("exact", "longformer"))
    refused = nullcontext() if pairs else pytest.raises(MaskError, match="compares single pairs")
    with refused, regard.watch(edits=[regard.set_value("it.allowed", itself)]):
        assert_close(MAKE[form]()(*inputs, site="it"), inputs[2])


@FORMS
def test_a_dropout_of_1_is_refused(form):
    with pytest.raises(InputError, match=r"dropout is 1.0; it must be at least 0"):
        MAKE[form]()(*torch.randn(3, 1, 2, 30, 4), dropout=1.0)
