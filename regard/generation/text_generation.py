"""Text generation: what both engines share, and generation with CTranslate2 without torch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regard.capabilities import unsupported_reason
from regard.errors import InputError
from regard.generation.ctranslate2_engine import converted
from regard.generation.search import SamplingOptions
from regard.generation.translator import max_positions
from regard.hardware import single_request_threads
from regard.model_folder import Description, read_description, read_tokenizers
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Generation:
    """A text that a model generated."""

    text: str  # the prompt and its continuation
    written: str  # the continuation alone
    log_prob: float
    finished: bool  # True if the model ended the text itself


def check_capacity(options: SamplingOptions, n_prompt: int, n_positions: int) -> None:
    """Refuse to generate more tokens than the model has positions left after the prompt."""
    left = max(0, n_positions - n_prompt)
    if options.max_tokens > left:
        raise InputError(
            f"max_tokens is {options.max_tokens}, but after a prompt of {n_prompt} tokens the "
            f"model has positions for {left} more: generate fewer, or shorten the prompt."
        )


def ctranslate2_refusal(description: Description) -> str | None:
    """Return why CTranslate2 cannot generate with a model, or None if it can."""
    if description.family != "decoder":
        return "it is not a decoder-only model"
    if not (description.tokenizer or {}).get("end"):
        return "its tokenizer has no end token"
    return unsupported_reason("ctranslate2", description.family, description.model)


def generate_with_ctranslate2(
    folder: Path, prompt: str, options: SamplingOptions, on_text: Callable[[str], None]
) -> None:
    """Continue a prompt, calling `on_text` with each new part of the text."""
    import ctranslate2

    description = read_description(folder)
    tokenizer, _ = read_tokenizers(folder, description)
    assert tokenizer is not None, "ctranslate2_refusal requires a tokenizer"
    ids = tokenizer.encode_prompt(prompt)
    check_capacity(options, len(ids), max_positions(description.model))
    ctranslate2.set_random_seed(options.seed)  # applies to threads that start now
    generator = ctranslate2.Generator(
        str(converted(folder, int8=False)),
        compute_type="float32",
        intra_threads=single_request_threads(),
    )
    best = options.temperature == 0
    steps = generator.generate_tokens(
        [tokenizer.token_of(id) for id in ids],
        max_length=options.max_tokens,
        sampling_topk=1 if best else options.top_k or 0,
        sampling_topp=1.0 if best else options.top_p or 1.0,
        sampling_temperature=1.0 if best else options.temperature,
        repetition_penalty=options.repetition_penalty,
        no_repeat_ngram_size=options.no_repeat,
    )
    stream = TextStream(tokenizer, ids, on_text)
    for step in steps:
        if step.token_id != tokenizer.end_id:
            stream.add(step.token_id)
    stream.close()


class TextStream:
    """Decodes a growing text and passes on complete characters."""

    def __init__(
        self, tokenizer: Tokenizer, prompt_ids: list[int], on_text: Callable[[str], None]
    ) -> None:
        self.tokenizer, self.on_text = tokenizer, on_text
        self._ids = list(prompt_ids)
        self._sent = len(tokenizer.decode(prompt_ids))

    def add(self, token: int) -> None:
        """Add one token."""
        self._ids.append(token)
        text = self.tokenizer.decode(self._ids)
        if not text.endswith("\ufffd"):  # an incomplete character
            self.on_text(text[self._sent :])
            self._sent = len(text)

    def close(self) -> None:
        """Pass on the rest, including incomplete characters."""
        if rest := self.tokenizer.decode(self._ids)[self._sent :]:
            self.on_text(rest)
