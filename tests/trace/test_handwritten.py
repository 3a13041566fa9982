"""Attention as people write it: softmaxes by hand, shared values, sinks, caches."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import regard
from regard.errors import InputError
from regard.trace.edits import ablate, forbid, set_scores, set_value, set_weights, temperature

D, N, ROOT = 8, 5, 8**0.5
QUERY, KEY, VALUE = torch.randn(3, 2, 2, N, D, generator=torch.Generator().manual_seed(0)).unbind()
HIDDEN = torch.ones(N, N, dtype=torch.bool).triu(1)


class Call(nn.Module):
    """Any function of (query, key, value)."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def watched(function, *edits, inputs=(QUERY, KEY, VALUE)):
    """Return what a function gives when it is watched, after checking that it is unchanged."""
    model = Call(function)
    with torch.no_grad():
        expected = model(*(x.clone() for x in inputs))
        with regard.watch(model, edits=edits) as trace:
            found = model(*(x.clone() for x in inputs))
    assert edits or torch.equal(found, expected)
    return found, trace


def scores_of(q, k):
    return (q @ k.mT / ROOT).masked_fill(HIDDEN, -math.inf)


def by_exp(q, k, v):
    e = torch.exp(scores_of(q, k) - scores_of(q, k).amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True) @ v


def by_exp_in_place(q, k, v):
    a = q @ k.mT
    a.div_(ROOT).masked_fill_(HIDDEN, -math.inf).sub_(a.max(-1, keepdim=True).values).exp_()
    a /= a.sum(-1, keepdim=True)
    return a @ v


def by_masked_exp(q, k, v):
    e = (q @ k.mT / ROOT).exp() * ~HIDDEN
    return F.normalize(e, p=1.0, dim=-1) @ v


def by_out(q, k, v):
    a, found = torch.empty(2, 2, N, N), torch.empty(2, 2, N, D)
    torch.matmul(q, k.mT, out=a)
    weights = torch.where(HIDDEN, -1e9, a / ROOT).softmax(-1)
    return torch.matmul(weights, v, out=found).clone()


def by_item(q, k, v):
    a = q @ k.mT / ROOT
    a[..., HIDDEN] = -math.inf
    return torch.softmax(a, dim=-1) @ v


SAME = {
    "exp / sum": by_exp,
    "exp / sum in place": by_exp_in_place,
    "exp · mask, normalized": by_masked_exp,
    "log-softmax": lambda q, k, v: F.log_softmax(scores_of(q, k), -1).exp() @ v,
    "exp(score - logsumexp)": lambda q, k, v: (
        (scores_of(q, k) - scores_of(q, k).logsumexp(-1, keepdim=True)).exp() @ v
    ),
    "out=": by_out,
    "set by index": by_item,
}


def change_by_hand(kind, q, k, v):
    scores = q @ k.mT / ROOT
    if kind == "set_scores":
        scores[:, 0, 3, 1] = 2.0
    scores = scores.masked_fill(HIDDEN, -math.inf)
    if kind == "forbid":
        scores[:, 0, 3, 1] = -math.inf
    weights = (scores / (0.5 if kind == "temperature" else 1.0)).softmax(-1)
    if kind == "set_weights":
        weights[:, 0, 2] = 0.3
    context = weights @ v
    if kind == "ablate":
        context[:, 1] = 0.0
    return context, weights


EDITS = {
    "forbid": forbid("*", head=0, query=3, key=1),
    "ablate": ablate("*", head=1),
    "temperature": temperature("*", 0.5),
    "set_weights": set_weights("*", 0.3, head=0, query=2),
    "set_scores": set_scores("*", 2.0, head=0, query=3, key=1),
}


@pytest.mark.parametrize("name", SAME)
def test_softmaxes_and_products_of_every_form_are_found_and_edited(name):
    context, weights = change_by_hand("", QUERY, KEY, VALUE)
    found, trace = watched(SAME[name])
    assert_close(found, context, atol=1e-6, rtol=1e-5)
    site = trace["attention"]
    assert site.kind == "causal self" or site.kind == "cross"
    assert_close(site.all_batches("weights"), weights, atol=1e-6, rtol=1e-5)
    assert_close(site.all_batches("scores"), QUERY @ KEY.mT / ROOT, atol=1e-5, rtol=1e-5)
    assert trace.unwatched == []
    for kind, edit in EDITS.items():
        changed, _ = watched(SAME[name], edit)
        expected, _ = change_by_hand(kind, QUERY, KEY, VALUE)
        assert_close(changed, expected, atol=1e-5, rtol=1e-5)


def test_heads_that_share_keys_and_values_are_found_in_an_einsum():
    def shared(q, k, v):
        weights = (torch.einsum("bhid,bjd->bhij", q, k) / ROOT).softmax(-1)
        return torch.einsum("bhij,bjd->bhid", weights, v)

    key, value = KEY[:, 0], VALUE[:, 0]
    _, trace = watched(shared, inputs=(QUERY, key, value))
    expected = (QUERY @ key[:, None].mT / ROOT).softmax(-1)
    assert_close(trace["attention"].all_batches("weights"), expected, atol=1e-6, rtol=1e-5)
    found, _ = watched(shared, EDITS["set_weights"], inputs=(QUERY, key, value))
    expected[:, 0, 2] = 0.3
    assert_close(found, expected @ value[:, None], atol=1e-5, rtol=1e-5)


SINK, MIX = torch.tensor([0.5, -1.0]).view(1, 2, 1, 1).expand(2, 2, N, 1), torch.randn(2, 2)


def with_sink(q, k):
    return torch.cat([q @ k.mT / ROOT, SINK], -1).softmax(-1)[..., :-1]


def one_more(q, k):
    e = (q @ k.mT / ROOT).exp()
    return e / (1 + e.sum(-1, keepdim=True))


def softmax_of_gumbel(q, k):
    torch.manual_seed(0)
    return F.gumbel_softmax(q @ k.mT / ROOT)


def overwritten(q, k):
    a = q @ k.mT / ROOT
    a[:] = a.softmax(-1)
    return a


CHANGED = {
    "sink": with_sink,
    "softmax of one more": one_more,
    "heads mixed": lambda q, k: torch.einsum("bhij,hg->bgij", (q @ k.mT).softmax(-1), MIX),
    "heads mixed by a layer": lambda q, k: F.conv2d((q @ k.mT).softmax(-1), MIX[..., None, None]),
    "difference": lambda q, k: (q @ k.mT).softmax(-1) - 0.5 * (k @ q.mT).softmax(-1),
    "gumbel": softmax_of_gumbel,
    "overwritten": overwritten,
    "in place": lambda q, k: (q @ k.mT).softmax(-1).mul_(~HIDDEN),
}


@pytest.mark.parametrize("name", CHANGED)
def test_weights_that_were_changed_are_shown_as_they_were_used(name):
    def attend(q, k, v):
        return CHANGED[name](q, k) @ v

    weights = CHANGED[name](QUERY, KEY)
    _, trace = watched(attend)
    assert_close(trace["attention"].all_batches("weights"), weights)
    assert trace.unwatched == []
    found, _ = watched(attend, EDITS["set_weights"])
    weights = weights.index_put((torch.arange(2)[:, None], *torch.tensor([[0], [2]])), 0.3 * _ONE)
    assert_close(found, weights @ VALUE, atol=1e-5, rtol=1e-5)
    found, _ = watched(attend, set_value("attention.value", lambda value: 2 * value))
    assert_close(found, 2 * CHANGED[name](QUERY, KEY) @ VALUE, atol=1e-5, rtol=1e-5)
    with pytest.raises(InputError, match=r"forbid.*not the softmax.*use set_weights or ablate"):
        watched(attend, EDITS["forbid"])


_ONE = torch.ones(())
LISTED = {
    "divided after the product": lambda q, k, v: (
        (q @ k.mT).exp() @ v / (q @ k.mT).exp().sum(-1, keepdim=True)
    ),
    "multiplied and summed": lambda q, k, v: (
        (q[:, :, :, None] * k[:, :, None]).sum(-1).softmax(-1)[..., None] * v[:, :, None]
    ).sum(3),
    "torch.func": lambda q, k, v: torch.func.vmap(
        lambda a: (a / a.exp().sum(-1, keepdim=True)) @ v[0, 0]
    )((q @ k.mT).exp()),
}


@pytest.mark.parametrize("name", LISTED)
def test_a_softmax_by_hand_that_was_not_understood_is_listed(name):
    _, trace = watched(LISTED[name])
    assert trace.unwatched
    assert not list(trace)


def test_attention_inside_torch_func_is_refused():
    with pytest.raises(InputError, match=r"inside torch\.func .* cannot be watched"):
        watched(torch.func.vmap(lambda q, k, v: (q @ k.mT).softmax(-1) @ v))


@pytest.mark.filterwarnings("ignore:.*nested tensor")
def test_nested_tensors_are_refused_in_attention_by_hand_and_of_torch():
    nested = torch.nested.nested_tensor([torch.randn(2, 3, 4), torch.randn(2, 5, 4)])
    with pytest.raises(InputError, match=r"nested tensors cannot be watched.*pad them"):
        watched(lambda x: (x @ x.transpose(-1, -2)).softmax(-1) @ x, inputs=(nested,))
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    with (
        pytest.raises(InputError, match="nested tensors cannot"),
        torch.no_grad(),
        regard.watch(layer),
    ):
        layer(torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(5, 4)]))


class Cached(nn.Module):
    """Attention of a decoder with a cache, by joining or by writing into a buffer."""

    def __init__(self, *, written: bool, change=None):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (nn.Linear(D, D) for _ in range(3))
        self.keys, self.values = torch.zeros(1, 9, D), torch.zeros(1, 9, D)
        self.written, self.change = written, change

    def forward(self, x, first):
        q, k, v, end = self.q(x), self.k(x), self.v(x), first + x.size(1)
        if self.written:
            self.keys[:, first:end], self.values[:, first:end] = k, v
        elif first:
            k, v = torch.cat([self.kept[0], k], 1), torch.cat([self.kept[1], v], 1)
        if self.written:
            k, v = self.keys[:, :end], self.values[:, :end]
        self.kept = k, v
        scores = q @ k.mT / ROOT
        if x.size(1) > 1:
            scores = scores + torch.full((x.size(1), end), -math.inf).triu(1 + first)
        weights = scores.softmax(-1)
        return (weights if self.change is None else self.change(weights)) @ v


@pytest.mark.parametrize("n_first", [1, 3])
@pytest.mark.parametrize("change", [None, lambda w: w * (w > 0.2)], ids=["plain", "threshold"])
@pytest.mark.parametrize("written", [False, True], ids=["joined", "written"])
def test_steps_with_a_cache_are_one_causal_site(written, change, n_first):
    model, x = Cached(written=written, change=change), QUERY[:1, 0]
    with torch.no_grad():
        with regard.watch(model) as whole:
            model(x, 0)
        expected = whole["attention"].weights()
        with regard.watch(model) as trace:
            model(x[:, :n_first], 0)
            for step in range(n_first, N):
                model(x[:, step : step + 1], step)
    assert list(trace) == ["attention"]
    assert change is not None or trace["attention"].kind == "causal self"
    assert_close(trace["attention"].weights(), expected, atol=1e-6, rtol=1e-5)
    assert_close(whole["attention"].weights(), expected, atol=0.0, rtol=0.0)  # kept, not a view


def test_values_that_are_changed_in_place_after_recording_stay_as_they_were():
    def attend(q, k, v):
        context = (q @ k.mT / ROOT).softmax(-1) @ v
        for x in (q, k, v):
            x.mul_(0.0)
        return F.relu(context, inplace=True)

    _, trace = watched(attend)
    site = trace["attention"]
    weights = (QUERY @ KEY.mT / ROOT).softmax(-1)
    assert_close(site.all_batches("weights"), weights, atol=1e-6, rtol=1e-5)
    assert_close(trace.value("attention.context"), weights @ VALUE, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_attention_gives_the_same_gradients(reentrant):
    def attend(q, k, v):
        return F.dropout(scores_of(q, k).softmax(-1), 0.0) @ v

    inputs = [x.clone().requires_grad_() for x in (QUERY, KEY, VALUE)]
    expected = torch.autograd.grad(attend(*inputs).square().sum(), inputs)
    model = Call(lambda *given: checkpoint(attend, *given, use_reentrant=reentrant))
    with regard.watch(model) as trace:
        model(*inputs).square().sum().backward()
    assert_close([x.grad for x in inputs], list(expected))
    assert_close(trace["attention"].all_batches("weights"), scores_of(QUERY, KEY).softmax(-1))
