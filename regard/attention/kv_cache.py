"""Caches of keys and values for decoding step by step."""

from jaxtyping import Float, Int
from torch import Tensor


class KeyValueCache:
    """The keys and values that one attention site has seen so far.

    `grows=False` is for cross-attention: keys and values are computed in the first step and only
    read afterwards.
    """

    def __init__(self, *, grows: bool = True) -> None:
        self.grows = grows
        self.length = 0
        self._key: Tensor | None = None
        self._value: Tensor | None = None

    @property
    def filled(self) -> bool:
        """True if cross-attention can be read without computing keys and values again."""
        return not self.grows and self._key is not None

    def read(self) -> tuple[Tensor, Tensor]:
        if self._key is None or self._value is None:
            raise LookupError("nothing was written to this cache")
        return self._key[..., : self.length, :], self._value[..., : self.length, :]

    def extend(
        self, key: Float[Tensor, "*batch key d_k"], value: Float[Tensor, "*batch key d_v"]
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values and return all of them."""
        if not self.grows or self._key is None or self._value is None:
            self._key, self._value, self.length = key, value, key.size(-2)
            return key, value
        end = self.length + key.size(-2)
        self._key = _with_capacity(self._key, self.length, end)
        self._value = _with_capacity(self._value, self.length, end)
        self._key[..., self.length : end, :] = key
        self._value[..., self.length : end, :] = value
        self.length = end
        return self.read()

    def keep(self, rows: Int[Tensor, "rows"]) -> None:
        """Keep these rows of the batch, in this order, as beams move and finish."""
        if self._key is not None and self._value is not None:
            self._key, self._value = self._key[rows], self._value[rows]


def _with_capacity(old: Tensor, length: int, wanted: int) -> Tensor:
    """Return a buffer for at least `wanted` positions; it doubles, so that growing is cheap."""
    if old.size(-2) >= wanted and old.size(-2) > length:
        return old
    new = old.new_empty(*old.shape[:-2], max(2 * old.size(-2), wanted, 32), old.size(-1))
    new[..., :length, :] = old[..., :length, :]
    return new
