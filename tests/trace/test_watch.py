"""Watching models as they are: torch's attention functions, hand-written styles, and edits."""

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Thread

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

import regard
from regard.attention.softmax import softmax_over_keys
from regard.errors import InputError, NotFiniteError, UnknownNameError
from regard.tap import listeners
from regard.trace.edits import ablate, allow, forbid, set_scores, set_weights, temperature
from regard.trace.trace import Trace
from regard.trace.watched_model import WATCHES
from tests.trace.attention_styles import D_MODEL, STYLES, Blocks, Fused, Matmul

X = torch.randn(2, 5, D_MODEL, generator=torch.Generator().manual_seed(3))


class Call(nn.Module):
    """Calls F.scaled_dot_product_attention with any arguments."""

    def forward(self, *args, **kwargs):
        return F.scaled_dot_product_attention(*args, **kwargs)


def random(*shape):
    return torch.randn(*shape)


def some(*shape):
    """Return a mask that hides a few pairs, and never all keys of a query."""
    allowed = torch.rand(*shape, generator=torch.Generator().manual_seed(1)) < 0.8
    return allowed.index_fill(-1, torch.tensor(0), True)


CALLS = {
    "plain": ((2, 3, 5, 4), (2, 3, 6, 4), {}),
    "causal": ((2, 3, 5, 4), (2, 3, 5, 4), {"is_causal": True}),
    "scale": ((2, 3, 5, 4), (2, 3, 6, 4), {"scale": 0.3}),
    "three axes": ((2, 5, 4), (2, 6, 4), {}),
    "two axes": ((5, 4), (6, 4), {"attn_mask": torch.ones(5, 6, dtype=torch.bool).tril(1)}),
    "five axes": ((2, 2, 3, 5, 4), (2, 2, 3, 6, 4), {}),
    "boolean mask": ((2, 3, 5, 4), (2, 3, 6, 4), {"attn_mask": some(2, 1, 5, 6)}),
    "mask of keys": ((2, 5, 4), (2, 6, 4), {"attn_mask": some(2, 1, 6)}),
    "bias": ((2, 3, 5, 4), (2, 3, 6, 4), {"attn_mask": torch.randn(1, 3, 5, 6)}),
    "bias of three axes": ((2, 3, 5, 4), (2, 3, 6, 4), {"attn_mask": torch.randn(3, 5, 6)}),
    "grouped": ((2, 4, 5, 4), (2, 2, 6, 4), {"enable_gqa": True}),
}


@pytest.mark.parametrize("name", CALLS)
def test_weights_of_torchs_attention_times_values_are_its_result(name):
    q_shape, k_shape, options = CALLS[name]
    query, key, value = random(*q_shape), random(*k_shape), random(*k_shape)
    expected = F.scaled_dot_product_attention(query, key, value, **options)
    model = Call()
    with regard.watch(model) as trace:
        found = model(query, key, value, **options)
    assert torch.equal(found, expected)
    site = trace["attention"]
    tables = [site.weights(batch=b) for b in range(site.n_batch)]
    values = [site.value[b] if site.value.dim() > 3 else site.value for b in range(site.n_batch)]
    context = torch.stack([w @ v for w, v in zip(tables, values, strict=True)])
    assert_close(context.reshape(expected.shape), expected, atol=1e-6, rtol=1e-5)


def test_a_float_mask_is_a_bias_in_the_scores_and_its_infinities_are_the_mask():
    query, key, value = random(1, 1, 2, 4), random(1, 1, 3, 4), random(1, 1, 3, 4)
    mask = torch.tensor([[0.5, -math.inf, -1.0], [0.0, 2.0, torch.finfo(torch.float32).min]])
    model = Call()
    with regard.watch(model) as trace:
        model(query, key, value, attn_mask=mask)
    site = trace["attention"]
    scores = (query @ key.mT)[0, 0] / 2 + torch.tensor([[0.5, 0.0, -1.0], [0.0, 2.0, 0.0]])
    assert_close(site.scores(head=0), scores)
    assert site.masked(head=0).isinf().tolist() == [[False, True, False], [False, False, True]]


def test_dropout_of_torchs_attention_is_the_same_for_the_same_seed():
    inputs = random(1, 2, 5, 4), random(1, 2, 5, 4), random(1, 2, 5, 4)
    model = Call()
    torch.manual_seed(1)
    expected = model(*inputs, dropout_p=0.5)
    torch.manual_seed(1)
    with regard.watch(model):
        assert torch.equal(model(*inputs, dropout_p=0.5), expected)


@pytest.mark.parametrize("style", STYLES)
def test_handwritten_attention_is_found_in_ten_styles(style):
    model, reference = Blocks(style).eval(), Blocks(Fused).eval()
    expected = model(X)
    with regard.watch(model) as trace:
        found = model(X)
    with regard.watch(reference) as fused:
        assert_close(reference(X), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(found, expected)
    suffix = ".mix" if style.__name__ == "WithPlainClass" else ""
    assert list(trace) == [f"layers.0{suffix}", f"layers.1{suffix}"]
    assert trace.unwatched == []
    assert trace.check() == []
    for path, other in zip(trace, fused, strict=True):
        site = trace[path]
        assert site.kind == "causal self"
        weights = site.all_batches("weights").reshape(2, 2, 5, 5)
        assert_close(weights, fused[other].all_batches("weights"), atol=1e-6, rtol=1e-6)
        assert site.key.size(-1) == D_MODEL // 2


def edit_by_hand(kind):
    """Return a function of (masked scores, values) that does in plain torch what an edit does."""

    def change(scores, v):
        if kind == "forbid":
            scores[:, 1, 3, 2] = -math.inf
        if kind == "set_scores":
            scores[:, 0, 4, 1] = 3.0
        weights = softmax_over_keys(scores / (0.5 if kind == "temperature" else 1.0))
        if kind == "set_weights":
            weights[:, :, 2] = 0.25
        context = weights @ v
        if kind == "ablate":
            context[:, 1] = 0.0
        return context

    return change


EDITS = {
    "forbid": forbid("layers.0*", head=1, query=3, key=2),
    "ablate": ablate("layers.0*", head=1),
    "temperature": temperature("layers.0*", 0.5),
    "set_weights": set_weights("layers.0*", 0.25, query=2),
    "set_scores": set_scores("layers.0*", 3.0, head=0, query=4, key=1),
}


# Batched and AddedMask have their heads in the batch, so edits of one head do not fit them.
EDITED = [(style, kind) for style in [Fused, *STYLES] for kind in EDITS]
EDITED = [(style, kind) for style, kind in EDITED if style.__name__ not in ("Batched", "AddedMask")]


@pytest.mark.parametrize(("style", "kind"), EDITED)
def test_edits_equal_the_same_change_made_by_hand(style, kind):
    model, reference = Blocks(style).eval(), Blocks(Matmul).eval()
    reference.layers[0].change = edit_by_hand(kind)
    with torch.no_grad():
        expected = reference(X)
        with regard.watch(model, edits=[EDITS[kind]]) as trace:
            found = model(X)
    assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(found, Blocks(Matmul).eval()(X), atol=1e-3)
    site = trace[next(iter(trace))]
    assert_close(
        site.context(batch=0), trace.value(f"{site.path}.context")[0], atol=1e-5, rtol=1e-5
    )


def test_the_caller_of_an_edited_softmax_gets_the_edited_weights():
    class Returns(nn.Module):
        def forward(self, x):
            weights = (x @ x.mT).softmax(-1)
            return weights @ x, weights

    model = Returns()
    with torch.no_grad(), regard.watch(model, edits=[set_weights("*", 0.5)]):
        output, weights = model(X)
    assert_close(output, weights @ X)
    assert (weights == 0.5).all()


HIDDEN = ~some(5, 6)
LAST_KEY = torch.zeros(2, 6).index_fill(1, torch.tensor(5), -math.inf)
MULTI_HEAD = {
    "plain": ({}, {}),
    "with weights": ({}, {"need_weights": True}),
    "weights of each head": ({}, {"need_weights": True, "average_attn_weights": False}),
    "padding": ({}, {"key_padding_mask": torch.tensor([[False] * 6, [False] * 4 + [True] * 2])}),
    "boolean mask": ({}, {"attn_mask": HIDDEN}),
    "float mask of each head": ({}, {"attn_mask": torch.randn(4, 5, 6)}),
    "both masks": ({}, {"attn_mask": torch.randn(5, 6), "key_padding_mask": LAST_KEY}),
    "extra keys": ({"add_bias_kv": True, "add_zero_attn": True}, {"attn_mask": HIDDEN}),
    "other widths": ({"kdim": 6, "vdim": 6}, {}),
    "no bias": ({"bias": False}, {}),
}  # fmt: skip


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("name", MULTI_HEAD)
def test_multihead_attention_gives_what_its_caller_asks_for(name, batch_first):
    settings, options = MULTI_HEAD[name]
    options = {"need_weights": False, **options}
    module = nn.MultiheadAttention(8, 2, batch_first=batch_first, **settings).eval()
    query, key = random(2, 5, 8), random(2, 6, settings.get("kdim", 8))
    if not batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    with torch.no_grad():
        expected, weights = module(query, key, key, **options)
        _, each = module(
            query, key, key, **{**options, "need_weights": True, "average_attn_weights": False}
        )
        with regard.watch(module) as trace:
            found = module(query, key, key, **options)
    assert_close(found[0], expected, atol=1e-6, rtol=1e-6)
    assert (found[1] is None) == (weights is None)
    if weights is not None:
        assert_close(found[1], weights, atol=1e-6, rtol=1e-6)
    assert_close(trace["attention"].all_batches("weights"), each, atol=1e-6, rtol=1e-6)
    assert trace["attention"].kind == "cross"


def test_an_unbatched_multihead_attention():
    module, x = nn.MultiheadAttention(8, 2).eval(), random(5, 8)
    expected = module(x, x, x)
    with regard.watch(module) as trace:
        found = module(x, x, x)
    assert_close(found, expected, atol=1e-6, rtol=1e-6)
    assert trace["attention"].kind == "self"


@pytest.mark.filterwarnings("ignore:.*nested.tensor")
@pytest.mark.parametrize("norm_first", [True, False])
def test_a_transformer_of_torch_is_watched_beyond_its_fast_path(norm_first):
    sizes = {"dim_feedforward": 16, "batch_first": True, "norm_first": norm_first}
    model = nn.Transformer(D_MODEL, 2, 2, 2, **sizes).eval()
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    masks = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
    masks["tgt_mask"] = nn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad():
        expected = model(X, X.flip(1), **masks)
        with regard.watch(model) as trace:
            found = model(X, X.flip(1), **masks)
    assert_close(found, expected, atol=2e-6, rtol=2e-6)
    kinds = {path: trace[path].kind for path in trace}
    assert len(kinds) == 6
    assert kinds["encoder.layers.1.self_attn"] == "self"
    assert kinds["decoder.layers.0.self_attn"] == "causal self"
    assert kinds["decoder.layers.1.multihead_attn"] == "cross"


def test_calls_of_one_module_are_numbered_and_a_second_run_replaces_the_first():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Call()

        def forward(self, x):
            x = self.inner(x, x, x)
            return self.inner(x, 2 * x, x)

    model = Twice()
    with regard.watch(model) as trace:
        model(X)
        last = model(3 * X)
    assert list(trace) == ["inner", "inner#1"]
    assert torch.equal(trace["inner"].query[:, 0], 3 * X)
    assert_close(trace["inner#1"].context(batch=0), last[:1])


def test_steps_with_a_cache_become_one_site():
    class Cached(Matmul):
        def forward(self, x, past=None):
            q, k, v = (self.heads(f(x)) for f in (self.q, self.k, self.v))
            if past is not None:
                k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
            self.past = (k, v)
            hidden = torch.ones(x.size(1), k.size(2), dtype=torch.bool)
            return self.mix(q, k, v, hidden.triu(1 + k.size(2) - x.size(1)))

    model = Cached().eval()
    edits = [forbid("attention", query=4, key=1)]
    with torch.no_grad():
        with regard.watch(model, edits=edits) as whole:
            model(X)
        with regard.watch(model, edits=edits) as stepped:
            model(X[:, :3])
            model(X[:, 3:4], model.past)
            model(X[:, 4:], model.past)
    assert list(stepped) == ["attention"]
    assert stepped["attention"].kind == "causal self"
    assert_close(
        stepped["attention"].all_batches("weights"), whole["attention"].all_batches("weights")
    )


def test_additive_attention_of_a_recurrent_decoder_is_one_site_with_recorded_scores():
    class Bahdanau(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.score = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)
            self.kept = []

        def forward(self, states, n_steps):
            state, keys = states[:, 0], self.key(states)
            for _ in range(n_steps):
                scores = self.score(torch.tanh(self.query(state)[:, None] + keys)).squeeze(-1)
                weights = F.softmax(scores, dim=1)
                self.kept.append(weights)
                state = torch.bmm(weights.unsqueeze(1), states).squeeze(1)
            return state

    model = Bahdanau()
    with torch.no_grad(), regard.watch(model) as trace:
        model(random(2, 6, 8), 1)
    site = trace["attention"]
    assert_close(site.all_batches("weights")[:, 0, 0], model.kept[0])
    assert site.kind == "cross"


def test_blocks_nest_and_each_has_the_names_of_its_own_model():
    inner, outer = Blocks(Matmul).eval(), nn.Sequential(Blocks(Fused).eval())
    with torch.no_grad(), regard.watch(outer) as first:
        with regard.watch(inner, edits=[ablate("layers.0")]) as second:
            inner(X)
        with regard.watch(outer[0], edits=[ablate("layers.1")]) as third:
            outer(X)
    assert list(first) == ["0.layers.0", "0.layers.1"]
    assert list(second) == list(third) == ["layers.0", "layers.1"]
    assert not first["0.layers.1"].context(batch=0).any()
    assert first["0.layers.0"].context(batch=0).any()


def test_another_thread_and_another_task_are_not_watched():
    model, seen = Blocks(Fused).eval(), []

    async def tasks():
        async def other():
            seen.append(model(2 * X))

        waiting = asyncio.ensure_future(other())
        with regard.watch(model) as trace:
            await asyncio.sleep(0)
            await waiting
            model(X)
        return trace

    expected = model(2 * X)
    with ThreadPoolExecutor(1) as pool:  # this thread may have a loop of the browser tests
        trace = pool.submit(lambda: asyncio.run(tasks())).result()
    assert torch.equal(
        trace["layers.0"].query, model.layers[0].heads(model.layers[0].q(X)).detach()
    )
    with regard.watch(model) as trace:
        thread = Thread(target=lambda: seen.append(model(2 * X)))
        thread.start()
        thread.join()
        model(X)
    assert torch.equal(seen[0], expected)
    assert torch.equal(seen[1], expected)
    assert len(trace["layers.0"].query) == 2


def test_everything_is_as_before_after_an_exception():
    model = Blocks(Fused).eval()
    with pytest.raises(RuntimeError, match="shape"), regard.watch(model):
        model(X[..., :3])
    assert not torch._C._is_torch_function_mode_enabled()
    assert torch.equal(model(X), Blocks(Fused).eval()(X))


def test_gradients_pass_through_a_watched_model():
    for style in (Fused, Matmul):
        plain, watched = Blocks(style), Blocks(style)
        for model in (plain, watched):
            model.eval()
        plain(X).sum().backward()
        with regard.watch(watched):
            watched(X).sum().backward()
        for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
            assert_close(one.grad, other.grad)


def test_what_cannot_be_watched_is_refused_with_what_to_do():
    compiled = torch.compile(Blocks(Fused), backend="eager")
    with (
        pytest.raises(InputError, match=r"compiled.*watch the plain module"),
        regard.watch(compiled),
    ):
        pass
    linear = nn.Linear(2, 2)
    with pytest.raises(InputError, match="no attention of this Linear"), regard.watch(linear):
        linear(torch.zeros(1, 2))
    nested = torch.nested.nested_tensor([torch.randn(1, 3, 4), torch.randn(1, 2, 4)])
    model = Call()
    with pytest.raises(InputError, match="nested tensors cannot be watched"), regard.watch(model):
        model(nested, nested, nested)
    edits = [ablate("nothing")]
    with pytest.raises(UnknownNameError, match="matched"), regard.watch(model, edits=edits):
        model(X, X, X)


def test_a_model_that_was_not_called_leaves_an_empty_trace_that_says_so():
    watched, other = Call(), Call()
    with regard.watch(watched) as trace:
        other(X, X, X)
    assert list(trace) == []
    assert "the watched Call was not called inside the block" in repr(trace)
    with pytest.raises(UnknownNameError, match="'attention'; the watched Call was not called"):
        trace["attention"]
    with regard.watch(watched) as outer, regard.watch(other) as inner:
        other(X, X, X)
    assert (len(outer), len(inner)) == (0, 1)


def test_a_softmax_of_scores_that_meets_no_values_is_listed():
    class Router(nn.Module):
        def forward(self, x):
            return (x @ x.mT).softmax(-1).argmax(-1)

    model = Router()
    with regard.watch(model) as trace:
        model(X)
    (sentence,) = trace.unwatched
    assert sentence.startswith("the model: a softmax of scores of shape (2, 5, 5)")
    assert len(trace) == 0


class Homework:
    """Attention of a course, not an nn.Module, with its classic mistakes on request."""

    def __init__(self, *, axis=-1, scaled=True, dropout=0.0):
        self.matrices = [torch.randn(D_MODEL, D_MODEL) for _ in range(3)]
        self.axis, self.scaled, self.dropout = axis, scaled, dropout

    def __call__(self, x):
        q, k, v = (x @ matrix for matrix in self.matrices)
        scores = q @ k.transpose(-2, -1)
        if self.scaled:
            scores = scores / math.sqrt(D_MODEL)
        self.weights = torch.softmax(scores, dim=self.axis)
        return F.dropout(self.weights, self.dropout) @ v


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ({}, None),
        ({"axis": -2}, "the softmax is over the queries"),
        ({"scaled": False}, "not divided by √d_k = √16"),
        ({"dropout": 0.2}, "0.2 of the weights are dropped"),
    ],
)
def test_classic_mistakes_are_named(mistake, said):
    homework = Homework(**mistake)
    with regard.watch(homework) as trace:
        homework(X)
    assert [said in sentence for sentence in trace.check()] == [True] * bool(said)
    assert_close(
        trace["attention"].all_batches("weights")[:, 0], homework.weights, atol=1e-6, rtol=1e-5
    )
    assert trace["attention"].kind == "self"


def test_dropout_left_on_in_eval_mode_is_named_for_modules():
    model = Call().eval()
    with regard.watch(model) as trace:
        model(X, X, X, dropout_p=0.1)
    assert "0.1 of the weights are dropped although the model is in eval mode" in trace.check()[0]
    model.train()
    with regard.watch(model) as trace:
        model(X, X, X, dropout_p=0.1)
    assert trace.check() == []


def test_an_error_that_is_caught_inside_the_block_leaves_the_other_sites():
    with regard.watch() as trace:
        regard.attend(X, X, X, site="good")
        with pytest.raises(NotFiniteError):
            regard.attend(X, X * math.nan, X, site="bad")
    assert list(trace) == ["good"]


def test_a_value_that_is_not_finite_is_caught_inside_a_block_with_a_model():
    model = Call()
    with regard.watch(model) as trace:
        with pytest.raises(NotFiniteError, match=r"attention\.key is nan"):
            model(X, X * math.nan, X)
        good = model(X, X, X)
    assert list(trace) == ["attention"]
    assert_close(trace["attention"].context(batch=0), good[:1])
    with regard.watch(model) as trace, suppress(NotFiniteError):
        model(X, X * math.nan, X)
    assert list(trace) == []


def test_a_later_key_can_be_allowed_in_a_watched_model():
    model = Call()
    with regard.watch(model, edits=[allow("attention", query=0, key=2)]) as trace:
        found = model(X, X, X, is_causal=True)
    hidden = torch.ones(X.size(1), X.size(1), dtype=torch.bool).triu(1)
    hidden[0, 2] = False
    assert_close(found, F.scaled_dot_product_attention(X, X, X, attn_mask=~hidden))
    assert (trace["attention"].weights(batch=0)[0, 0] > 0).tolist() == [
        True,
        False,
        True,
        *[False] * (X.size(1) - 3),
    ]


def test_the_stream_of_a_bare_layer_is_found_from_its_input():
    layer = nn.TransformerEncoderLayer(D_MODEL, 2, 8, batch_first=True).eval()
    with torch.no_grad():
        with regard.watch(layer) as trace:
            output = layer(X)
        written = layer.self_attn(X, X, X)[0]
    assert_close(trace.values["encoder.layers.0.self.output"], written)
    assert_close(trace.values["encoder.layers.0.feed_forward.residual"], output)
    assert trace.values["encoder.layers.0.feed_forward.activation"].shape == (2, 5, 8)


@torch.no_grad()
def test_a_transformer_without_a_head_has_streams_and_no_logits_to_read():
    model = nn.Transformer(D_MODEL, 2, 1, 1, 8, batch_first=True).eval()
    with regard.watch(model) as trace:
        trace.output = model(X, X[:, :3])
    names = [path.removesuffix(".residual") for path in trace.values if path.endswith("residual")]
    sides = {"encoder": ("self", "feed_forward"), "decoder": ("self", "cross", "feed_forward")}
    assert names == [f"{side}.layers.0.{one}" for side, kinds in sides.items() for one in kinds]
    with pytest.raises(InputError, match="predicts neither tokens nor classes"):
        trace.lens()


def test_two_multi_head_attentions_with_one_path_are_numbered():
    one, other = regard.MultiHeadAttention(D_MODEL, 2), regard.MultiHeadAttention(D_MODEL, 4)
    with regard.watch() as trace:
        one(other(X))
        one(other(X))
    assert {path: trace[path].n_heads for path in trace} == {"attention": 4, "attention#1": 2}


def test_attention_of_regard_inside_a_watched_model_keeps_its_name():
    model = nn.Sequential(regard.MultiHeadAttention(D_MODEL, 2, path="mine"))
    with regard.watch(model) as trace:
        model(X)
    assert list(trace) == ["mine"]


def test_a_trace_with_a_bias_is_saved(tmp_path):
    query, bias = random(1, 2, 3, 4), torch.randn(1, 2, 3, 3)
    model = Call()
    with regard.watch(model) as trace:
        model(query, query, query, attn_mask=bias)
    trace.save(tmp_path / "bias.safetensors")
    again = Trace.load(tmp_path / "bias.safetensors")["attention"]
    assert_close(again.weights(), trace["attention"].weights())
    assert_close(again.scores() - again.compared() / 2, bias[0])
    assert again.kind == "self"


def test_generators_leave_their_blocks_in_any_order():
    def suspended(model):
        with regard.watch(model) as trace:
            model(X)
            yield trace

    one, other = suspended(Blocks(Matmul).eval()), suspended(Blocks(Fused).eval())
    next(one), next(other)
    one.close()
    other.close()
    assert not listeners()
    assert not WATCHES.get()
