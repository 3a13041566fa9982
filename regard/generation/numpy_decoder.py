"""A decoder-only model in NumPy: no torch, no taps, weights laid out for one row at a time.

A step for one text reads every weight once, so memory decides how long it takes. One row times a
matrix stored by columns reads twice as fast as any other way of computing it, and NumPy adds a
microsecond to a product where torch adds five. Tests compare it with the model.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import log, pi, sqrt
from typing import Any

import numpy as np

from regard.hardware import choose_blas_threads

Array = np.ndarray
Weights = dict[str, Array]

_MIN_POSITIONS = 64  # initial capacity for keys and values, which doubles when full


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


def _silu(x: Array) -> Array:
    return x * (0.5 + 0.5 * np.tanh(0.5 * x))  # the sigmoid, which cannot overflow this way


def _gelu_new(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))


_ACTIVATIONS = {"relu": _relu, "silu": _silu, "swiglu": _silu, "gelu_new": _gelu_new}
ACTIVATIONS = tuple(_ACTIVATIONS)


class _ModuleWeights(dict[str, Array]):
    """The weights of a torch module; what is laid out in another way replaces the module's."""

    def __init__(self, module: Any) -> None:
        self.parameters = dict(module.state_dict(keep_vars=True))
        super().__init__({name: one.detach().numpy() for name, one in self.parameters.items()})

    def replace(self, name: str, array: Array) -> None:
        """Make the module use these numbers, which equal its own, so that they exist once."""
        import torch

        self.parameters[name].data = torch.from_numpy(array)


class _Linear:
    """Linear layers side by side as one product; their weights are taken out of `weights`."""

    def __init__(self, weights: Weights, *names: str) -> None:
        self.matrix = self._join(weights, [f"{name}.weight" for name in names])
        biases = [f"{name}.bias" for name in names if f"{name}.bias" in weights]
        self.bias = self._join(weights, biases) if biases else None

    @staticmethod
    def _join(weights: Weights, names: Sequence[str]) -> Array:
        """Return matrices (by columns) or biases side by side; each is taken before the next."""
        width = sum(len(weights[name]) for name in names)
        shape = weights[names[0]].shape[1:]
        if len(names) == 1 and weights[names[0]].flags.f_contiguous:
            return weights.pop(names[0]).T
        joined, stop = np.empty((*shape, width), np.float32), 0
        for name in names:
            part = weights.pop(name)
            start, stop = stop, stop + len(part)
            joined[..., start:stop] = part.T
            if isinstance(weights, _ModuleWeights):
                weights.replace(name, joined[..., start:stop].T)
        return joined

    def __call__(self, x: Array) -> Array:
        product = x @ self.matrix
        if self.bias is not None:
            product += self.bias
        return product


def _make_norm(
    weights: Weights, name: str, settings: Mapping[str, Any]
) -> Callable[[Array], Array]:
    weight, bias = weights.pop(f"{name}.weight"), weights.pop(f"{name}.bias", None)
    eps = np.float32(settings["norm_eps"])
    if settings["norm_kind"] == "rms":
        return partial(_rms_norm, weight=weight, eps=eps)
    return partial(_layer_norm, weight=weight, bias=bias, eps=eps)


def _rms_norm(x: Array, *, weight: Array, eps: np.float32) -> Array:
    squares = np.einsum("...i,...i->...", x, x) / np.float32(x.shape[-1])
    return x * (1 / np.sqrt(squares + eps))[..., None] * weight


def _layer_norm(x: Array, *, weight: Array, bias: Array | None, eps: np.float32) -> Array:
    centered = x - x.mean(axis=-1, keepdims=True)
    normed = _rms_norm(centered, weight=weight, eps=eps)
    return normed if bias is None else normed + bias


class _Layer:
    def __init__(self, weights: Weights, path: str, settings: Mapping[str, Any]) -> None:
        own, inner = f"{path}.self_attention", f"{path}.feed_forward.inner"
        self.to_inputs = _Linear(
            weights, *(f"{own}.inner.to_{name}" for name in ("query", "key", "value"))
        )
        self.to_output = _Linear(weights, f"{own}.inner.to_output")
        self.attention_norm = _make_norm(weights, f"{own}.norm", settings)
        self.gated = f"{inner}.to_gate.weight" in weights
        names = ["to_gate", "to_hidden"] if self.gated else ["to_hidden"]
        self.to_hidden = _Linear(weights, *(f"{inner}.{name}" for name in names))
        self.to_result = _Linear(weights, f"{inner}.to_output")
        self.norm = _make_norm(weights, f"{path}.feed_forward.norm", settings)
        self.activate = _ACTIVATIONS[settings["activation"]]

    def feed_forward(self, x: Array) -> Array:
        hidden = self.to_hidden(x)
        if not self.gated:
            return self.to_result(self.activate(hidden))
        gate, hidden = np.split(hidden, 2, axis=-1)
        return self.to_result(self.activate(gate) * hidden)


class NumpyDecoder:
    """The weights of a decoder-only model.

    Args:
        settings: the fields of its configuration.
        weights: float32 arrays by name; the dictionary is emptied, so that nothing is held twice.
            They can be mapped files.
    """

    def __init__(self, settings: Mapping[str, Any], weights: Weights) -> None:
        self.settings = settings
        self.n_heads, d_model = settings["n_heads"], settings["d_model"]
        self.n_kv_heads = settings.get("n_kv_heads") or self.n_heads
        self.d_k = settings.get("d_k") or d_model // self.n_heads
        self.pre_norm = settings["norm"] == "pre"
        n_layers = settings["n_layers"]
        self.layers = [_Layer(weights, f"decoder.layers.{i}", settings) for i in range(n_layers)]
        self.norm = None
        if self.pre_norm:
            self.norm = _make_norm(weights, "decoder.norm", settings)
        self.learned = weights.pop("embedding.positions.weight", None)
        if "projection.weight" in weights:
            self.project = _Linear(weights, "projection")
            self.embed = weights.pop("tokens.weight").__getitem__
        else:  # the embedding is the projection: its columns are the vectors of tokens
            self.project = _Linear(weights, "tokens")
            columns = self.project.matrix
            self.embed = lambda ids: np.moveaxis(columns[:, ids], 0, -1)
        probe = np.ones((1, d_model), np.float32)
        choose_blas_threads(lambda: probe @ self.project.matrix)

    @classmethod
    def of_module(cls, module: Any) -> "NumpyDecoder":
        """Use the weights of a torch module, which gets the same layout: they are held once.

        Later changes in place are seen by both.
        """
        return cls(module.config.to_dict(), _ModuleWeights(module))

    def residual(
        self, x: Array, norm: Callable[[Array], Array], part: Callable[..., Array]
    ) -> Array:
        return x + part(norm(x)) if self.pre_norm else norm(x + part(x))

    def position_vectors(self, where: Array) -> Array | None:
        """Return the vectors that are added to the tokens at these positions, if any."""
        kind = self.settings["positions"]
        if kind == "learned":
            assert self.learned is not None
            return self.learned[where]
        if kind != "sinusoidal":
            return None
        d_model = self.settings["d_model"]
        steps = np.arange(0, d_model, 2) / d_model
        angles = where[..., None] * np.exp(-log(10000.0) * steps)
        sines, cosines = np.sin(angles), np.cos(angles)[..., : d_model // 2]
        if self.settings["position_layout"] == "halves":
            return np.concatenate([sines, cosines], axis=-1).astype(np.float32)
        table = np.empty((*where.shape, d_model), np.float32)
        table[..., 0::2], table[..., 1::2] = sines, cosines
        return table

    def rotation(self, where: Array) -> tuple[Array, Array] | None:
        """Return cosines and sines of the angles at these positions, if they are rotary."""
        if self.settings["positions"] != "rotary":
            return None
        width = self.settings.get("d_rotary") or self.d_k
        speed = np.exp(-log(self.settings["rotary_theta"]) * np.arange(0, width, 2) / width)
        if self.settings.get("rotary_scaling") is not None:
            factor, low, high, original = self.settings["rotary_scaling"]
            turns = original * speed / (2 * pi)
            keep = np.clip((turns - low) / (high - low), 0, 1)
            speed = speed * (keep + (1 - keep) / factor)
        angles = where[:, :, None, None].astype(np.float32) * speed.astype(np.float32)
        return np.cos(angles), np.sin(angles)

    def slopes(self) -> Array | None:
        """Return ALiBi's slope of each head, if the model has them."""
        if self.settings["positions"] != "alibi":
            return None
        from regard.attention.similarity import alibi_slopes

        return np.array(alibi_slopes(self.n_heads), np.float32)


class NumpyStepper:
    """Rows of unfinished texts with their keys and values.

    Args:
        lengths: of the prompts, which are padded on the left if they differ.
    """

    def __init__(self, model: NumpyDecoder, lengths: Sequence[int]) -> None:
        self.model, self.n_rows = model, len(lengths)
        self.missing = max(lengths) - np.array(lengths)  # padding in front of each row
        self.length = 0
        shape = (2, len(model.layers), self.n_rows, model.n_kv_heads, _MIN_POSITIONS, model.d_k)
        self._cache = np.empty(shape, np.float32)
        self._slopes = model.slopes()

    def step(self, ids: Array) -> Array:
        """Append `ids` to each row; return the log-probabilities of the next token."""
        model, (n_rows, n_new) = self.model, ids.shape
        self._reserve(self.length + n_new)
        where = np.maximum(self.length + np.arange(n_new) - self.missing[:, None], 0)
        x = model.embed(ids)
        vectors = model.position_vectors(where)
        x = x if vectors is None else x + vectors
        rotation, bias = model.rotation(where), self._bias(n_new)
        x = np.ascontiguousarray(x).reshape(n_rows * n_new, -1)
        for i, layer in enumerate(model.layers):
            attend = partial(self._attend, i, layer, rotation, bias, n_new)
            x = model.residual(x, layer.attention_norm, attend)
            x = model.residual(x, layer.norm, layer.feed_forward)
        self.length += n_new
        last = x.reshape(n_rows, n_new, -1)[:, -1]
        logits = model.project(last if model.norm is None else model.norm(last))
        logits -= logits.max(axis=-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return logits

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        chosen = np.asarray(rows)
        self._cache, self.missing = self._cache[:, :, chosen], self.missing[chosen]
        self.n_rows = len(chosen)

    def _attend(
        self, index: int, layer: _Layer, rotation: Any, bias: Array | None, n_new: int, x: Array
    ) -> Array:
        model, stop = self.model, self.length + n_new
        inputs = layer.to_inputs(x).reshape(self.n_rows, n_new, -1, model.d_k)
        n_heads, n_kv = model.n_heads, model.n_kv_heads
        query, key, value = np.split(inputs, [n_heads, n_heads + n_kv], axis=2)
        if rotation is not None:
            query, key = _rotate(query, *rotation), _rotate(key, *rotation)
        keys, values = self._cache[:, index]
        keys[:, :, self.length : stop] = key.swapaxes(1, 2)
        values[:, :, self.length : stop] = value.swapaxes(1, 2)
        # Query heads that share keys are further rows of one product.
        grouped = query.swapaxes(1, 2).reshape(self.n_rows, n_kv, -1, model.d_k)
        scores = grouped @ keys[:, :, :stop].swapaxes(-1, -2)
        scores *= np.float32(model.d_k**-0.5)
        if bias is not None:
            shaped = scores.reshape(self.n_rows, n_heads, n_new, stop)
            shaped += bias
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        context = (scores @ values[:, :, :stop]).reshape(self.n_rows, n_heads, n_new, -1)
        return layer.to_output(context.swapaxes(1, 2).reshape(len(x), -1))

    def _bias(self, n_new: int) -> Array | None:
        """Return what is added to the scores: -inf for later tokens and padding, ALiBi's slopes."""
        stop, padded = self.length + n_new, bool(self.missing.any())
        if n_new == 1 and not padded and self._slopes is None:
            return None
        rows, columns = np.arange(self.length, stop)[:, None], np.arange(stop)
        hidden = np.where(columns > rows, np.float32(-np.inf), np.float32(0))[None, None]
        if padded:
            # A row of padding sees itself, so that its scores are finite; nothing reads it.
            empty = (columns < self.missing[:, None, None]) & (columns != rows)
            hidden = hidden + np.where(empty, np.float32(-np.inf), np.float32(0))[:, None]
        if self._slopes is not None:
            hidden = hidden - self._slopes[:, None, None] * np.abs(rows - columns).astype(
                np.float32
            )
        return hidden

    def _reserve(self, length: int) -> None:
        capacity = self._cache.shape[4]
        if length > capacity:
            while capacity < length:
                capacity *= 2
            before = self._cache
            self._cache = np.empty((*before.shape[:4], capacity, before.shape[5]), np.float32)
            self._cache[..., : self.length, :] = before[..., : self.length, :]


def _rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Rotate the first numbers of each vector in pairs i and i + n, as `RotaryPositions` does."""
    n_pairs = cos.shape[-1]
    left, right = x[..., :n_pairs], x[..., n_pairs : 2 * n_pairs]
    rest = x[..., 2 * n_pairs :]
    return np.concatenate([left * cos - right * sin, right * cos + left * sin, rest], axis=-1)
