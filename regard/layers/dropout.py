"""Dropout, in one place, so that a faster one serves every model."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class Dropout(nn.Module):
    """Numbers set to 0 with probability `p` while training, the others made larger to match."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return F.dropout(x, self.p) if self.training and self.p else x

    def extra_repr(self) -> str:
        return f"p={self.p}"
