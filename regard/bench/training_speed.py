"""Training speed compared with other libraries: target tokens per second on batches of Multi30k.

Every contender trains on the same batches in the same order, in its own process and in turns, with
the default allocator settings and with those of `regard train`: these hold for a whole process, and
memory that one contender has touched must not speed up the next.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from regard.bench.timing import Clock, markdown_table, new_process, take_turns
from regard.bench.translation import training_texts
from regard.data.batches import Batches, pad
from regard.errors import RegardError
from regard.hardware import keep_freed_memory, matmul_rate
from regard.layers.embedding import SinusoidalPositions, token_positions
from regard.models.presets import get_preset
from regard.models.transformer import TransformerConfig
from regard.training.loader import PairBatch

Step = Callable[[PairBatch], object]
_LR, _CLIP, _SMOOTHING = 1e-4, 1.0, 0.1


def regard_step(config: TransformerConfig) -> Step:
    """Return a step of `regard train`."""
    from regard.models.config import build
    from regard.training.distributed import World
    from regard.training.objective import TranslationObjective
    from regard.training.optimizer import make_optimizer
    from regard.training.step import TrainStep

    objective = TranslationObjective(build(config), label_smoothing=_SMOOTHING).train()
    train_step = TrainStep(objective, make_optimizer(objective), World(), clip=_CLIP)
    return lambda batch: train_step.run([batch], step=1, lr=_LR)


def _training_step(module: nn.Module, loss_of: Callable[[PairBatch], Tensor]) -> Step:
    module.train()
    optimizer = torch.optim.Adam(module.parameters(), lr=_LR, betas=(0.9, 0.98), fused=True)

    def step(batch: PairBatch) -> None:
        loss_of(batch).backward()
        nn.utils.clip_grad_norm_(module.parameters(), _CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def within_lengths(ids: Tensor, lengths: Tensor) -> Tensor:
    """Return a mask of the ids that are not padding."""
    return torch.arange(ids.size(1)) < lengths[:, None]


def marian_model(
    config: TransformerConfig, *, start: int | None = None, end: int | None = None
) -> Any:
    """Return transformers' MarianMTModel of this size; start and end token are padding if None."""
    from transformers import MarianConfig, MarianMTModel

    settings: dict[str, Any] = {"vocab_size": config.n_vocab, "d_model": config.d_model}
    settings |= {"dropout": config.dropout, "activation_function": "relu", "scale_embedding": True}
    settings |= {"max_position_embeddings": 512, "forced_eos_token_id": None}
    for side, depth in (("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)):
        settings |= {f"{side}_layers": depth, f"{side}_attention_heads": config.n_heads}
        settings[f"{side}_ffn_dim"] = config.d_ff
    tokens = {"pad": config.pad_id, "decoder_start": start, "eos": end}
    for token, number in tokens.items():
        settings[f"{token}_token_id"] = config.pad_id if number is None else number
    return MarianMTModel(MarianConfig(**settings))


def marian_loss(model: Any, batch: PairBatch, *, smoothing: float = 0.0) -> Tensor:
    """Return the mean loss of the targets."""
    targets = batch.target_ids[:, 1:]
    targets = targets.masked_fill(~within_lengths(targets, batch.target_lengths - 1), -100)
    output = model(
        input_ids=batch.source_ids,
        attention_mask=within_lengths(batch.source_ids, batch.source_lengths).long(),
        decoder_input_ids=batch.target_ids[:, :-1],
        labels=None if smoothing else targets,
        use_cache=False,
    )
    if not smoothing:
        return output.loss
    logits = output.logits.flatten(0, 1)
    return F.cross_entropy(logits, targets.flatten(), label_smoothing=smoothing)


def marian_step(config: TransformerConfig) -> Step:
    """Return a step of transformers' MarianMTModel, whose loss has no label smoothing."""
    model = marian_model(config)
    return _training_step(model, partial(marian_loss, model))


def x_transformers_step(config: TransformerConfig) -> Step:
    """Return a step of XTransformer with fused attention; it has no dropout on residuals."""
    from x_transformers import XTransformer  # pyright: ignore[reportMissingImports]  by an extra

    sides: dict[str, Any] = {}
    for side, depth in (("enc", config.n_encoder_layers), ("dec", config.n_decoder_layers)):
        settings = {"num_tokens": config.n_vocab, "depth": depth, "heads": config.n_heads}
        settings |= {"attn_dim_head": config.d_model // config.n_heads, "attn_flash": True}
        settings |= {"ff_mult": config.d_ff // config.d_model, "max_seq_len": 512}
        settings |= {"ff_dropout": config.dropout, "emb_dropout": config.dropout}
        sides |= {f"{side}_{name}": value for name, value in settings.items()}
    padding = {"pad_value": config.pad_id, "ignore_index": config.pad_id}
    model = XTransformer(dim=config.d_model, tie_token_emb=True, **padding, **sides)

    def loss_of(batch: PairBatch) -> Tensor:
        mask = within_lengths(batch.source_ids, batch.source_lengths)
        return model(batch.source_ids, batch.target_ids, mask=mask)

    return _training_step(model, loss_of)


class TorchTranslator(nn.Module):
    """nn.Transformer with embeddings, positions and a tied output projection."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.n_vocab, config.d_model)
        nn.init.normal_(self.tokens.weight, std=config.d_model**-0.5)
        self.positions = SinusoidalPositions(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        depths = config.n_encoder_layers, config.n_decoder_layers
        sizes = config.d_model, config.n_heads, *depths, config.d_ff, config.dropout
        self.transformer = nn.Transformer(*sizes, norm_first=config.norm == "pre", batch_first=True)

    def embed(self, ids: Tensor) -> Tensor:
        tokens = self.tokens(ids) * self.config.d_model**0.5
        where = token_positions(ids.size(1), first=0, device=ids.device)
        return self.dropout(tokens + self.positions(where, tokens, stop=ids.size(1)))

    def forward(self, batch: PairBatch) -> Tensor:
        """Return the mean loss of the targets."""
        padded = ~within_lengths(batch.source_ids, batch.source_lengths)
        inputs, targets = batch.target_ids[:, :-1], batch.target_ids[:, 1:]
        states = self.transformer(
            self.embed(batch.source_ids),
            self.embed(inputs),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(inputs.size(1)),
            src_key_padding_mask=padded,
            memory_key_padding_mask=padded,
            tgt_is_causal=True,
        )
        logits = (states @ self.tokens.weight.T).flatten(0, 1)
        settings = {"ignore_index": self.config.pad_id, "label_smoothing": _SMOOTHING}
        return F.cross_entropy(logits, targets.flatten(), **settings)


def torch_step(config: TransformerConfig) -> Step:
    """Return a step of nn.Transformer, which also drops attention weights."""
    module = TorchTranslator(config)
    return _training_step(module, module)


CONTENDERS: dict[str, Callable[[TransformerConfig], Step]] = {
    "regard": regard_step,
    "transformers": marian_step,
    "x-transformers": x_transformers_step,
    "nn.Transformer": torch_step,
}


def training_turn(
    name: str,
    config: TransformerConfig,
    batches: Sequence[PairBatch],
    *,
    clock: Clock,
    threads: int,
    tuned: bool,
) -> tuple[float, float]:
    """Warm up with the last batch, then time a step on each of the others.

    Returns target tokens per second, and the peak FLOP/s of matrix products. With `tuned`, the
    process keeps its freed memory, as `regard train` does.
    """
    torch.set_num_threads(threads)
    if tuned:
        keep_freed_memory()
    torch.manual_seed(1)
    step = CONTENDERS[name](config)
    step(batches[-1])
    start = clock()
    for batch in batches[:-1]:
        step(batch)
    seconds = clock() - start
    targets = sum(batch.n_targets() for batch in batches[:-1])
    return targets / seconds, matmul_rate(torch.device("cpu"), clock=clock)


Contender = tuple[str, bool]  # name, and True if it keeps freed memory
OURS = "regard"
PEERS = tuple(name for name in CONTENDERS if name != OURS)
VOCABULARY = 8000
_MODULES = {"transformers": "transformers", "x-transformers": "x_transformers"}


def installed_peers() -> tuple[str, ...]:
    """Return the peers that are installed; `pip install 'regard[bench]'` installs all."""
    return tuple(peer for peer in PEERS if find_spec(_MODULES.get(peer, "torch")) is not None)


class ContenderError(RegardError):
    """A contender's process has failed."""


@dataclass(frozen=True)
class TrainingPlan:
    """Settings of the training benchmark; `n_batches` does not count the one for warming up."""

    models: tuple[str, ...] = ("small", "base")
    rounds: int = 3
    n_batches: int = 4
    batch_tokens: int = 4096
    threads: int = 2
    cpu_time: bool = False
    peers: tuple[str, ...] = PEERS


@dataclass(frozen=True)
class TrainingSpeed:
    """Median speed of a contender."""

    model: str
    name: str
    tuned: bool  # True if it keeps freed memory, as `regard train` does
    tokens_per_second: float
    share: float  # share of the peak rate of matrix products in the same run
    ratio: float  # our speed divided by this one


def measure_training(
    plan: TrainingPlan, log: Callable[[str], None] = lambda text: None
) -> list[TrainingSpeed]:
    """Measure all contenders with all models, ours first, in rounds of alternating order."""
    batches, n_vocab = make_batches(plan)
    models = ((name, get_preset(name, n_vocab=n_vocab).config) for name in plan.models)
    return [x for model in models for x in _measure_model(*model, batches, plan, log)]


def _measure_model(
    model: str,
    config: Any,
    batches: list[PairBatch],
    plan: TrainingPlan,
    log: Callable[[str], None],
) -> Iterator[TrainingSpeed]:
    def run(contender: Contender) -> tuple[float, float]:
        speed, peak = _run_contender(config, batches, plan, contender)
        log(f"{model}, {contender[0]}{' tuned' * contender[1]}: {speed:,.0f} tokens/s")
        return speed, peak

    contenders = [(OURS, True), *((peer, tuned) for tuned in (False, True) for peer in plan.peers)]
    flops = _flops_per_target(config, batches[0])
    turns = take_turns({one: partial(run, one) for one in contenders}, plan.rounds)
    peak = max(peak for many in turns.values() for _, peak in many)
    medians = {one: median(speed for speed, _ in many) for one, many in turns.items()}
    for (name, tuned), speed in medians.items():
        share, ratio = speed * flops / peak, medians[OURS, True] / speed
        yield TrainingSpeed(model, name, tuned, speed, share, ratio)


def _run_contender(
    config: TransformerConfig, batches: list[PairBatch], plan: TrainingPlan, contender: Contender
) -> tuple[float, float]:
    name, tuned = contender
    clock = time.process_time if plan.cpu_time else time.perf_counter
    settings = {"clock": clock, "threads": plan.threads, "tuned": tuned}
    with new_process() as process:
        try:
            return process.submit(training_turn, name, config, batches, **settings).result()
        except Exception as error:
            raise ContenderError(
                f"{name} cannot be measured ({error}): install what it needs with pip install "
                "'regard[bench]', or leave it out."
            ) from error


def _flops_per_target(config: TransformerConfig, batch: PairBatch) -> float:
    torch.manual_seed(1)
    step = CONTENDERS[OURS](config)
    with FlopCounterMode(display=False) as counter:
        step(batch)
    return counter.get_total_flops() / batch.n_targets()


def make_batches(plan: TrainingPlan) -> tuple[list[PairBatch], int]:
    """Return batches of sentences of similar length, the largest last, and the vocabulary size."""
    from regard.text.tokenizer_training import train_tokenizer

    texts = list(training_texts(10_000))
    tokenizer = train_tokenizer(texts, kind="bpe", vocab_size=VOCABULARY)
    sides = [tokenizer.encode_batch(side) for side in (texts[::2], texts[1::2])]
    lengths = [np.array([len(ids) for ids in side]) for side in sides]
    every = list(Batches(lengths, tokens=plan.batch_tokens, seed=1).all(0))
    longest = max(every, key=lambda batch: len(batch) * int(lengths[1][batch].max()))
    batches = []
    for batch in [*every[: plan.n_batches], longest]:
        padded = [pad([side[i] for i in batch], tokenizer.pad_id or 0) for side in sides]
        ids, counts = (map(torch.from_numpy, arrays) for arrays in zip(*padded, strict=True))
        batches.append(PairBatch(*ids, *counts))
    return batches, len(tokenizer)


def report(speeds: Sequence[TrainingSpeed]) -> str:
    """Return speeds, shares of the peak rate and ratios as a Markdown table."""
    heads = ["model", "contender", "allocator", "target tokens/s", "of sgemm peak", "ours / theirs"]
    rows = []
    for one in speeds:
        allocator = "keeps freed memory" if one.tuned else "default"
        numbers = [f"{one.tokens_per_second:,.0f}", f"{100 * one.share:.0f} %"]
        ratio = "" if one.name == OURS else f"{one.ratio:.2f}"
        rows.append([one.model, one.name, allocator, *numbers, ratio])
    return markdown_table(heads, rows)
