"""What a model learns from, ready to be cut into batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regard.data.batches import Batches
from regard.data.images import Normalisation
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer
from regard.training.batch import Batch
from regard.training.feed import Feed, one_pass


def too_little(part: str, share: float) -> InputError:
    """What to say where a share of the training data has nothing in it that could be told."""
    return InputError(
        f"data.{part} = {share:g} holds out too little of these data: give a larger share, such as "
        "0.1, or name files."
    )


@dataclass(frozen=True)
class Material:
    """What a model learns from and is tested with."""

    parts: dict[str, Any]
    """From example numbers to a batch, for "train", "validation" and perhaps "test"."""
    tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None
    classes: tuple[str, ...] | None = None
    pixels: Normalisation | None = None
    image_shape: tuple[int, int] | None = None
    """Side and channels of the images."""

    def feed(self, *, batch_tokens: int, accumulate: int, seed: int) -> Feed:
        """The batches of training, epoch after epoch."""
        make = self.parts["train"]
        numbers = Batches(make.lengths, tokens=batch_tokens, seed=seed)
        return Feed(numbers, make, accumulate=accumulate)

    def once(self, part: str, *, batch_tokens: int, rank: int, ranks: int) -> Iterator[Batch]:
        """Every example of a part once."""
        make = self.parts[part]
        longest = max(int(side.max()) for side in make.lengths)
        tokens = max(batch_tokens, longest)
        numbers = Batches(make.lengths, tokens=tokens, shuffle=False)
        return one_pass(numbers, make, rank=rank, ranks=ranks)
