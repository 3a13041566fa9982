"""How text is drawn by chance; the same for every engine, so nothing here imports torch."""

from dataclasses import dataclass

from regard.errors import InputError


@dataclass(frozen=True)
class SampleOptions:
    """How to draw.

    Args:
        end_id: the token that ends a text; None where the model has none.
        max_tokens: the most tokens to write.
        temperature: softmax(logits / temperature); 0 always takes the most probable token.
        top_k: draw only among the k most probable tokens.
        top_p: draw only among the fewest tokens whose probabilities sum to at least p.
        repetition_penalty: what log-probabilities of tokens written before are multiplied by.
        no_repeat: no run of this many tokens is written twice; 0 allows all.
        seed: the same seed writes the same text, whatever is written beside it.
        never: tokens that are never written.
    """

    end_id: int | None
    max_tokens: int = 200
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    no_repeat: int = 0
    seed: int = 0
    never: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, fits, allowed in (
            ("max_tokens", self.max_tokens >= 1, "1 or more"),
            ("temperature", self.temperature >= 0, "0 (no chance at all) or more"),
            ("top_k", self.top_k is None or self.top_k >= 1, "1 or more"),
            ("top_p", self.top_p is None or 0 < self.top_p <= 1, "above 0, up to 1"),
            ("repetition_penalty", self.repetition_penalty > 0, "above 0; 1 has no effect"),
            ("no_repeat", self.no_repeat >= 0, "0 (allow all) or more"),
        ):
            if not fits:
                raise InputError(f"{name} is {getattr(self, name)}; it must be {allowed}.")
