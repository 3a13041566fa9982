"""Initialization schemes for the weights of all models.

    xavier_uniform   U(±sqrt(6 / (n_in + n_out)))     Glorot and Bengio 2010
    xavier_normal    N(0, 2 / (n_in + n_out))         (variances, not their roots)
    lecun            N(0, 1 / n_in)                   LeCun et al. 1998
    normal           N(0, 0.02²)                      as in BERT and GPT-2

Biases start at 0 and norms at 1. Embeddings start with N(0, 1 / d_model), so that they have unit
variance after multiplication by sqrt(d_model), as do logits that share the matrix.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.errors import check_choice
from regard.layers.embedding import TokenEmbedding
from regard.layers.position import LearnedPositions

_MATRICES: dict[str, Callable[[Tensor], object]] = {
    "xavier_uniform": nn.init.xavier_uniform_,
    "xavier_normal": nn.init.xavier_normal_,
    "lecun": lambda weight: nn.init.normal_(weight, std=weight[0].numel() ** -0.5),
    "normal": lambda weight: nn.init.normal_(weight, std=0.02),
}
INITIALIZATIONS = tuple(_MATRICES)


@torch.no_grad()
def initialize(model: nn.Module, scheme: str = "xavier_uniform") -> None:
    """Initialize every matrix, bias, embedding and norm of the model."""
    check_choice("initialization", scheme, _MATRICES)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            _MATRICES[scheme](module.weight)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, TokenEmbedding | LearnedPositions | nn.Embedding):
            std = 0.02 if scheme == "normal" else module.weight.size(-1) ** -0.5
            nn.init.normal_(module.weight, std=std)
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
            module.weight.fill_(1.0)
            if isinstance(module, nn.LayerNorm):
                module.bias.zero_()
