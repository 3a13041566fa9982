"""Attention as people write it, in ten styles with the same weights and results."""

import math

import torch
import torch.nn.functional as F
from torch import nn

N_HEADS, D_MODEL = 2, 16


class Style(nn.Module):
    """Projections that all styles share; `mix` is what a style writes by hand."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D_MODEL, D_MODEL) for _ in range(4))
        self.drop, self.soft = nn.Dropout(0.1), nn.Softmax(dim=-1)
        self.change = None
        """A function of (masked scores) that returns weights, for tests that edit by hand."""

    def heads(self, x):
        return x.view(x.size(0), x.size(1), N_HEADS, -1).transpose(1, 2)

    def forward(self, x):
        q, k, v = (self.heads(f(x)) for f in (self.q, self.k, self.v))
        hidden = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
        context = self.mix(q, k, v, hidden)
        return self.out(context.transpose(1, 2).reshape(x.shape))


class Fused(Style):
    def mix(self, q, k, v, hidden):
        return F.scaled_dot_product_attention(q, k, v, ~hidden)


class Matmul(Style):
    def mix(self, q, k, v, hidden):
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        scores = scores.masked_fill(hidden, -math.inf)
        if self.change is not None:
            return self.change(scores, v)
        return torch.matmul(F.dropout(F.softmax(scores, dim=-1), 0.1, self.training), v)


class Operators(Style):
    def mix(self, q, k, v, hidden):
        scores = (q @ k.mT) * k.size(-1) ** -0.5
        scores = scores + torch.zeros_like(scores).masked_fill(hidden, -1e9)
        return self.drop(self.soft(scores)) @ v


class InPlace(Style):
    def mix(self, q, k, v, hidden):
        scores = q @ k.transpose(2, 3)
        scores /= math.sqrt(q.shape[-1])
        scores.masked_fill_(hidden, torch.finfo(scores.dtype).min)
        return scores.softmax(-1).matmul(v)


class Batched(Style):
    def mix(self, q, k, v, hidden):
        flat = [x.reshape(-1, x.size(2), x.size(3)) for x in (q, k, v)]
        scores = torch.bmm(flat[0] * q.size(-1) ** -0.5, flat[1].transpose(1, 2))
        weights = torch.softmax(scores.masked_fill(hidden, -math.inf), dim=2)
        return torch.bmm(weights, flat[2]).view_as(q)


class AddedMask(Style):
    def mix(self, q, k, v, hidden):
        flat = [x.reshape(-1, x.size(2), x.size(3)) for x in (q, k, v)]
        mask = torch.zeros(hidden.shape).masked_fill(hidden, -math.inf)
        scale = 1 / math.sqrt(q.size(-1))
        scores = torch.baddbmm(mask[None], flat[0], flat[1].mT, alpha=scale)
        return (scores.softmax(dim=-1) @ flat[2]).view_as(q)


class Einsum(Style):
    def mix(self, q, k, v, hidden):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (batch, token, head, width)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(k.size(-1))
        low = torch.tensor(-math.inf)
        weights = torch.softmax(torch.where(condition=hidden, input=low, other=scores), dim=-1)
        return torch.einsum("bhqk,bkhd->bqhd", weights, v).transpose(1, 2)


class Ellipsis(Style):
    def mix(self, q, k, v, hidden):
        scores = torch.einsum("...id,...jd->...ij", q * q.size(-1) ** -0.5, k)
        weights = F.softmax(scores.masked_fill(hidden, -1e9), dim=-1, dtype=torch.float32)
        return torch.einsum("...ij,...jd->...id", weights.to(v.dtype), v)


class KeysFirst(Style):
    """Scores with keys as rows, softmax over the rows, values from the left, as in a GAN."""

    def mix(self, q, k, v, hidden):
        scores = k @ q.mT / math.sqrt(k.size(-1))
        weights = scores.masked_fill(hidden.T, -math.inf).softmax(dim=-2)
        return (v.mT @ weights).mT


class SplitHeads(Style):
    """Scores in four axes, the product in three."""

    def mix(self, q, k, v, hidden):
        scores = (q @ k.transpose(-1, -2)).mul(q.size(-1) ** -0.5)
        weights = self.drop(scores.masked_fill(hidden, -1e4).softmax(-1))
        flat = weights.view(-1, *weights.shape[2:])
        return torch.bmm(flat, v.reshape(-1, *v.shape[2:])).view_as(q)


class PlainClass:
    """Not an nn.Module."""

    def __call__(self, q, k, v, hidden):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        return torch.softmax(scores.masked_fill(hidden, -math.inf), -1) @ v


class WithPlainClass(Style):
    def __init__(self):
        super().__init__()
        self.mix = PlainClass()


STYLES = [
    *(Matmul, Operators, InPlace, Batched, AddedMask, Einsum, Ellipsis, KeysFirst, SplitHeads),
    WithPlainClass,
]


class Blocks(nn.Module):
    """Two layers of one style, with residuals."""

    def __init__(self, style):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([style(), style()])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x
