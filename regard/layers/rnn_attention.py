"""Attention of a recurrent decoder to the source, one state at a time."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.attend import attend
from regard.attention.mask import Mask
from regard.attention.similarity import Additive, Similarity, make_similarity
from regard.tap import listening


class EncodedSource(NamedTuple):
    """Keys and values of the source, and the similarity of queries to these keys."""

    key: Tensor
    value: Tensor
    similarity: Similarity

    def keep(self, rows: Tensor) -> "EncodedSource":
        """Return the same for these rows of the batch, in this order."""
        return EncodedSource(self.key[rows], self.value[rows], self.similarity)


class RNNAttention(nn.Module):
    """Attention of a decoder's state to an encoder's states: one site, one head.

    `similarity` is "additive" (Bahdanau et al. 2015), with a hidden layer of width `d_hidden`,
    "dot" or "general" (Luong et al. 2015). The encoder's states are both keys and values.
    """

    def __init__(
        self, similarity: str, *, d_query: int, d_key: int, d_hidden: int, path: str = "cross"
    ) -> None:
        super().__init__()
        self.similarity = make_similarity(similarity, d_q=d_query, d_k=d_key, d_hidden=d_hidden)
        self.path = path

    def read(self, states: Float[Tensor, "batch source d_key"]) -> EncodedSource:
        """Prepare the encoder's states for all steps of the decoder.

        Without listeners, additive attention projects the keys here, once.
        """
        keys = states.unsqueeze(1)
        if isinstance(self.similarity, Additive) and not listening():
            return EncodedSource(self.similarity.to_key(keys), keys, ProjectedKeys(self.similarity))
        return EncodedSource(keys, keys, self.similarity)

    def forward(
        self,
        query: Float[Tensor, "batch d_query"],
        read: EncodedSource,
        *,
        allowed: Mask | None = None,
        step: int = 0,
    ) -> Float[Tensor, "batch d_key"]:
        """Return the context of this step."""
        context = attend(
            query[:, None, None],
            read.key,
            read.value,
            allowed=allowed,
            similarity=read.similarity,
            site=f"{self.path}@{step}",
        )
        return context[:, 0, 0]


class ProjectedKeys(Similarity):
    """Additive similarity to keys that are already projected: v · tanh(W_q q + k)."""

    name = "additive to projected keys"

    def __init__(self, additive: Additive) -> None:
        self.additive = additive

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return self.additive.compare_projected(query, key)

    def check(self, d_q: int, d_k: int) -> None:
        """Accept the widths, which RNNAttention has chosen."""
