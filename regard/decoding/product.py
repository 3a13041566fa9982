"""Products with a fixed matrix, x Wᵀ + b: with the matrix itself, or with a copy that is faster.

Kinds of products: "own" reads the model's matrix, so that its changes are seen; "turned" has a
copy of it, laid out as rows of inputs where that is read faster; "int8" has one of int8 numbers.
"""

import warnings
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

_PAYS = 2**17
"""Numbers of a matrix from which on int8 is faster: below, preparing the rows takes longer."""
_multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
_STEPS = 127
"""Rows in 7 bits: processors without VNNI add pairs of products in 16."""


class Product(ABC):
    """Something that multiplies rows with a matrix."""

    @abstractmethod
    def __call__(self, x: Float[Tensor, "*rows inner"]) -> Float[Tensor, "*rows outer"]:
        """The products of these rows."""


class Dense(Product):
    """The product itself."""

    def __init__(
        self, matrix: Float[Tensor, "outer inner"], bias: Float[Tensor, "outer"] | None
    ) -> None:
        self.matrix, self.bias = matrix, bias

    def __call__(self, x: Float[Tensor, "*rows inner"]) -> Float[Tensor, "*rows outer"]:
        return F.linear(x, self.matrix, self.bias)


class Int8(Product):
    """The product of int8 numbers: a scale for each row of the matrix and of the inputs.

    So no row's result depends on what stands beside it.

    Args:
        positive: whether inputs are never below 0, so that all steps are above it.
    """

    def __init__(
        self,
        matrix: Float[Tensor, "outer inner"],
        bias: Float[Tensor, "outer"] | None,
        *,
        positive: bool = False,
    ) -> None:
        self.bias, self.positive = bias, positive
        self.scale, self.zero = (1 / _STEPS, 0) if positive else (2 / (_STEPS - 1), _STEPS // 2 + 1)
        scales = matrix.abs().amax(dim=1).clamp(min=1e-12).double() / 127
        zeros = torch.zeros(len(matrix), dtype=torch.long)
        with warnings.catch_warnings():
            # This kind of tensor shall go some day; fbgemm's products have no other door yet.
            warnings.filterwarnings("ignore", message=".*quantize_per_channel")
            packed = torch.quantize_per_channel(matrix, scales, zeros, 0, torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(packed, None)

    def __call__(self, x: Float[Tensor, "*rows inner"]) -> Float[Tensor, "*rows outer"]:
        largest = (x if self.positive else x.abs()).amax(dim=-1, keepdim=True).clamp_(min=1e-12)
        product = _multiply(x / largest, self.scale, self.zero, self.packed).mul_(largest)
        return product if self.bias is None else product.add_(self.bias)


def make_product(
    matrix: Float[Tensor, "outer inner"],
    bias: Float[Tensor, "outer"] | None,
    kind: str = "own",
    *,
    positive: bool = False,
) -> Product:
    """The product with a matrix; of a kind that has a copy only where that pays.

    Args:
        positive: whether its inputs are never below 0.
    """
    matrix, bias = matrix.detach(), None if bias is None else bias.detach()
    if kind == "int8" and matrix.numel() >= _PAYS:
        return Int8(matrix, bias, positive=positive)
    # One row times 8,000 × 256 numbers takes a third of the time when neighbours in memory belong
    # to different results; with more inputs than results it takes longer.
    if kind != "own" and matrix.size(0) > matrix.size(1):
        matrix = matrix.t().contiguous().t()
    return Dense(matrix, bias)
