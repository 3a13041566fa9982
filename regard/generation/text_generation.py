"""A decoder-only model goes on with a text: what all engines share, and CTranslate2's own way.

Nothing here imports torch, so the first words come a fraction of a second after the command.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.generation.ctranslate2_engine import converted
from regard.generation.search import SampleOptions
from regard.generation.translator import room_of
from regard.hardware import single_request_threads
from regard.model_folder import Description, read_description, read_tokenizers
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Generation:
    """A text that a model has written after a prompt."""

    text: str
    """The prompt and what follows it."""
    written: str
    """What follows it alone."""
    log_prob: float
    finished: bool
    """Whether the model itself ended the text."""


def begun(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The prompt's ids without an end; a start token (or the end, as GPT-2 has it) if empty."""
    ids = tokenizer.encode(prompt, literal=True)
    if len(ids) > 1 and ids[-1] == tokenizer.end_id:
        ids = ids[:-1]
    if ids:
        return ids
    first = tokenizer.start_id if tokenizer.start_id is not None else tokenizer.end_id
    if first is None:
        raise InputError("the prompt is empty, and this model knows no start token: write a word.")
    return [first]


def checked(tokenizer: Tokenizer, ids: list[int], positions: int, **options: Any) -> SampleOptions:
    """How to draw, for a model of so many positions that has read these ids."""
    chosen = SampleOptions(tokenizer.end_id, **options)
    room = max(0, positions - len(ids))
    if chosen.max_tokens > room:
        raise InputError(
            f"{chosen.max_tokens} tokens were asked for after a prompt of {len(ids)}; this model "
            f"has room for {room} more: ask for fewer, or shorten the prompt."
        )
    return chosen


def writes_fast(description: Description) -> bool:
    """Whether CTranslate2 can run the model, and knows when its texts end."""
    settings = description.model
    d_k = settings.get("d_k") or settings.get("d_model", 0) // (settings.get("n_heads") or 1)
    return (
        description.family == "decoder"
        and bool(description.tokenizer and description.tokenizer.get("end"))
        and settings.get("attention", "exact") == "exact"
        and settings.get("rotary_scaling") is None
        and settings.get("d_v") in (None, d_k)
    )


def write_fast(
    folder: Path, prompt: str, *, on_text: Callable[[str], None], **options: Any
) -> None:
    """Go on with a text by CTranslate2; `options` are those of SampleOptions.

    `on_text` is called with each further part of the text as soon as it is complete.
    """
    import ctranslate2

    description = read_description(folder)
    tokenizer, _ = read_tokenizers(folder, description)
    assert tokenizer is not None, "models without one are not fast"
    ids = begun(tokenizer, prompt)
    chosen = checked(tokenizer, ids, room_of(description.model), **options)
    ctranslate2.set_random_seed(chosen.seed)  # for the threads that begin now
    engine = ctranslate2.Generator(
        str(converted(folder, int8=False)),
        compute_type="float32",
        intra_threads=single_request_threads(),
    )
    told = Telling(tokenizer, ids, on_text)
    for step in engine.generate_tokens([tokenizer.token_of(id) for id in ids], **_asked(chosen)):
        if step.token_id != tokenizer.end_id:
            told.token(0, step.token_id)
    told.end()


def _asked(options: SampleOptions) -> dict[str, Any]:
    """The same in the engine's words."""
    best = options.temperature == 0
    return {
        "max_length": options.max_tokens,
        "sampling_topk": 1 if best else options.top_k or 0,
        "sampling_topp": 1.0 if best else options.top_p or 1.0,
        "sampling_temperature": 1.0 if best else options.temperature,
        "repetition_penalty": options.repetition_penalty,
        "no_repeat_ngram_size": options.no_repeat,
    }


class Telling:
    """Tells a growing text in parts that are whole characters."""

    def __init__(
        self, tokenizer: Tokenizer, begun: list[int], on_text: Callable[[str], None] | None
    ) -> None:
        self.tokenizer, self.on_text = tokenizer, on_text
        self.ids = list(begun)
        self.told = len(tokenizer.decode(begun))

    def token(self, row: int, token: int) -> None:
        """One more token was written."""
        del row
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids)
        if self.on_text is not None and not text.endswith("\ufffd"):  # half a character
            self.on_text(text[self.told :])
            self.told = len(text)

    def end(self) -> None:
        """Tell what is left, half characters, too."""
        rest = self.tokenizer.decode(self.ids)[self.told :]
        if self.on_text is not None and rest:
            self.on_text(rest)
