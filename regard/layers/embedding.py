"""Token embeddings, and the projection of states back onto the vocabulary."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import InputError


class TokenEmbedding(nn.Module):
    """One learned vector for each token, multiplied by sqrt(d_model) if `scaled` (section 3.4).

    The matrix can also be the projection onto the vocabulary (`project`).
    """

    def __init__(self, n_vocab: int, d_model: int, *, scaled: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_vocab, d_model))
        self.scale = d_model**0.5 if scaled else 1.0
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, ids: Int[Tensor, "batch token"]) -> Float[Tensor, "batch token d_model"]:
        if torch.compiler.is_compiling():
            return self._embed(ids)
        try:
            return self._embed(ids)
        except IndexError:
            n_vocab = len(self.weight)
            raise InputError(
                f"the token ids run from {int(ids.min())} to {int(ids.max())}, but the vocabulary "
                f"has {n_vocab} tokens, 0 to {n_vocab - 1}: encode the text with the model's "
                "tokenizer."
            ) from None

    def _embed(self, ids: Tensor) -> Tensor:
        vectors = F.embedding(ids, self.weight)
        return vectors if self.scale == 1.0 else vectors * self.scale

    def project(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Return the logits of each token of the vocabulary."""
        return F.linear(states, self.weight)

    def extra_repr(self) -> str:
        return f"{self.weight.size(0)}, {self.weight.size(1)}, scale={self.scale:g}"
