"""The PyTorch engine: every family on every device, and everything CTranslate2 lacks."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import pad
from regard.errors import InputError
from regard.generation.beam import beam_search, constrained_search
from regard.generation.ctranslate2_engine import Shortlist
from regard.generation.fast_decoder import FastStepper, FastTransformer, can_run, in_fastest_layout
from regard.generation.sampling import sample
from regard.generation.search import (
    Hypothesis,
    SamplingOptions,
    SearchOptions,
    phrase_ids,
    prefix_ids,
)
from regard.generation.sentences import batches_by_length
from regard.generation.stepper import (
    DecoderStepper,
    Ensemble,
    NoRepeatStepper,
    Stepper,
    SuppressingStepper,
    TranslationStepper,
)
from regard.hardware import cpu_count
from regard.model_folder import read_description, read_tokenizers
from regard.tap import listening
from regard.text.tokenizer import Tokenizer, suppressed_ids


class TorchEngine:
    """Beam search with PyTorch, with one model or an ensemble; the tokenizer is the target's.

    Weights are copied when the first sentence is translated: make a new engine after changing them.
    """

    name = "torch"

    def __init__(
        self,
        modules: Sequence[Any],
        tokenizer: Tokenizer,
        *,
        shortlist: Shortlist | None = None,
        int8: bool = False,
    ) -> None:
        self.modules, self.tokenizer = list(modules), tokenizer
        self.shortlist, self.int8 = shortlist, int8
        self.precision = "int8" if int8 else precision_of(self.modules[0])
        self.start_id, self.end_id = (tokenizer.required_id(role) for role in ("start", "end"))
        self.forced = list(getattr(self.modules[0], "forced_ids", ()))
        self.suppressed = suppressed_ids(tokenizer, self.modules[0].config.n_vocab)

    def submit(
        self,
        sources: Sequence[list[int]],
        options: SearchOptions,
        starts: Sequence[list[int]] | None = None,
    ) -> Callable[[], list[list[Hypothesis]]]:
        if starts is None:
            return partial(self.translate, sources, options)
        alone = [
            partial(self._search, [s], options, t) for s, t in zip(sources, starts, strict=True)
        ]
        one_by_one = [[i] for i in range(len(alone))]
        return lambda: list(chain(*_run_parallel(lambda batch: alone[batch[0]](), one_by_one)))

    def translate(
        self, sources: Sequence[list[int]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        # With a shortlist translations depend on their batch, so it must not depend on the machine.
        workers = cpu_count() if self.shortlist is None else 1
        batches = batches_by_length(
            [len(source) for source in sources],
            tokens=max(4096 // options.beam, 1),
            rows=1 if options.must else max(128 // options.beam, 1),
            workers=workers,
            group=options.length_group,
        )
        done = _run_parallel(lambda b: self._search([sources[i] for i in b], options), batches)
        found = dict(zip(chain(*batches), chain(*done), strict=True))
        return [found[i] for i in range(len(sources))]

    @cached_property
    def _fast(self) -> list[FastTransformer | None]:
        options = {"suppressed": self.suppressed, "int8": self.int8}
        return [FastTransformer(m, **options) if can_run(m) else None for m in self.modules]

    def _search(
        self, sources: Sequence[list[int]], options: SearchOptions, start: Sequence[int] = ()
    ) -> list[list[Hypothesis]]:
        phrases = phrase_ids(self.tokenizer, options)
        candidates = None
        if self.shortlist is not None:
            candidates = sorted({*self.shortlist.candidates(sources), *chain(*phrases)})
        # Listeners need the taps of the model itself.
        fast = [None] * len(self.modules) if listening() else self._fast
        pairs = zip(self.modules, fast, strict=True)
        steppers = [self._stepper(*pair, sources, candidates, options) for pair in pairs]
        stepper = steppers[0] if len(steppers) == 1 else Ensemble(steppers)
        if options.no_repeat:
            stepper = NoRepeatStepper(stepper, options.no_repeat)
        limits = [options.limit(len(source)) for source in sources]
        ends = {"start_id": self.start_id, "end_id": self.end_id}
        if options.must:
            if self.forced:
                raise InputError("must cannot be used with a model that forces its first token.")
            found = constrained_search(stepper, limits[0], options, phrases, **ends)
            if not found:
                raise InputError(
                    f"no translation of {limits[0]} tokens contains {', '.join(options.must)}: "
                    "require fewer words, or allow more tokens with extra."
                )
            return [found]
        forced = list(start) or [*self.forced, *prefix_ids(self.tokenizer, options)]
        prefix = torch.tensor([forced] * len(sources), device=stepper.device) if forced else None
        return beam_search(stepper, limits, options, **ends, prefix=prefix)

    def _stepper(
        self,
        module: Any,
        fast: FastTransformer | None,
        sources: Sequence[list[int]],
        candidates: list[int] | None,
        options: SearchOptions,
    ) -> Stepper:
        device = next(module.parameters()).device
        ids, lengths = pad_ids(sources, device)
        known = None if candidates is None else torch.tensor(candidates, device=device)
        min_length = options.min_length(len(sources[0]))
        ends: dict[str, Any] = {"end_id": self.end_id, "min_length": min_length}
        if fast is not None:
            return FastStepper(fast, ids, lengths, **ends, candidates=known)
        inner = TranslationStepper(module, ids, lengths, candidates=known)
        return SuppressingStepper(inner, self.suppressed, **ends)


def precision_of(module: Any) -> str:
    """Return the type of a module's weights, such as "float32"."""
    return str(next(module.parameters()).dtype).removeprefix("torch.")


class ArraySteps:
    """A stepper that reads and returns arrays, as `sample` needs them."""

    def __init__(self, inner: Stepper) -> None:
        self.inner = inner

    def step(self, ids: np.ndarray) -> np.ndarray:
        predicted = self.inner.step(torch.from_numpy(ids).to(self.inner.device))
        wide = predicted if predicted.dtype == torch.float64 else predicted.float()
        return wide.cpu().numpy()

    def keep(self, rows: Sequence[int]) -> None:
        self.inner.keep(torch.tensor(list(rows), device=self.inner.device))


def use_fastest_layout(module: Any) -> None:
    """Store the weights of a module, which stay equal, so that single rows are multiplied faster.

    docs/benchmarks/engines.md has the times of GPT-2.
    """
    # An embedding can be the projection too.
    tied = module.tokens if getattr(module, "projection", module) is None else None
    for inner in module.modules():
        if not isinstance(inner, torch.nn.Linear) and inner is not tied:
            continue
        weight = inner.weight
        plain = weight.dtype == torch.float32 and weight.device.type == "cpu"
        if plain and weight.is_contiguous() and not weight.is_inference():
            weight.data = in_fastest_layout(weight.data)


class TorchWriter:
    """Continues texts with a decoder-only module of any form of attention, on any device.

    It stores the module's weights in another layout.
    """

    name = "torch"

    def __init__(self, module: Any, tokenizer: Tokenizer) -> None:
        use_fastest_layout(module)
        self.module, self.end_id = module, tokenizer.end_id
        self.precision = precision_of(module)
        self.barred = suppressed_ids(tokenizer, module.config.n_vocab)

    def log_prob(self, prompt: list[int], found: Hypothesis) -> float:
        return found.log_prob

    @torch.inference_mode()
    def write(
        self,
        prompts: Sequence[list[int]],
        options: SamplingOptions,
        on_token: Callable[[int, int], bool | None] | None,
    ) -> list[Hypothesis]:
        device = next(self.module.parameters()).device
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        stepper = ArraySteps(DecoderStepper(self.module, lengths))
        return sample(
            stepper,
            prompts,
            options,
            end_id=self.end_id,
            barred=self.barred,
            seeds=[options.seed] * len(prompts),
            on_token=on_token,
        )


def pad_ids(sources: Sequence[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the ids of all sources, padded on the right, and their lengths."""
    ids, lengths = pad(sources, 0)
    return torch.from_numpy(ids).to(device), torch.from_numpy(lengths).to(device)


def _run_parallel(
    work: Callable[[list[int]], list[list[Hypothesis]]], batches: list[list[int]]
) -> list[list[list[Hypothesis]]]:
    """Search batches on as many Python threads as there are cores, each with one torch thread.

    Products of a few rows are much slower on two threads than on one, and torch releases the GIL
    while it computes.
    """

    def search(batch: list[int]) -> list[list[Hypothesis]]:
        torch.set_num_threads(1)  # a setting of each thread in some builds
        with torch.inference_mode():
            return work(batch)

    workers, before = min(cpu_count(), len(batches)), torch.get_num_threads()
    try:
        if workers < 2:
            return [search(batch) for batch in batches]
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(copy_context().run, search, batch) for batch in batches]
            try:
                return [future.result() for future in futures]
            except BaseException:  # also an interrupt: batches that have not started are dropped
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        torch.set_num_threads(before)


def check_ensemble(folders: Sequence[Path]) -> None:
    """Refuse models that differ in task or tokenizers."""
    known = []
    for folder in folders:
        described = read_description(folder)
        tokenizers = read_tokenizers(folder, described)
        known.append([described.task, *(one.fingerprint for one in tokenizers if one is not None)])
        if known[-1] != known[0]:
            raise InputError(
                f"{folder} cannot form an ensemble with {folders[0]}: both must be models for "
                "translation with the same tokenizers."
            )
