"""One contender of the training benchmark, in a process of its own.

The allocator's settings are a whole process's, and memory that one has touched must not be the
next one's gain. Run by `regard.bench.training_speed`, never by hand: one JSON object is its argument, and
one its answer.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.hardware import keep_freed_memory, matmul_rate
from regard.layers.position import SinusoidalPositions, token_positions
from regard.models.transformer import TransformerConfig
from regard.training.batch import PairBatch

Step = Callable[[PairBatch], object]
_LR, _CLIP, _SMOOTHING = 1e-4, 1.0, 0.1


def ours(config: TransformerConfig) -> Step:
    """What `regard train` does in a step."""
    from regard.models.config import build
    from regard.training.distributed import Team
    from regard.training.objective import Translation
    from regard.training.optimizer import OptimizerPlan, make_optimizer
    from regard.training.step import Learner

    objective = Translation(build(config), label_smoothing=_SMOOTHING).train()
    optimizer = make_optimizer(objective, OptimizerPlan())
    learner = Learner(objective, optimizer, Team(), clip=_CLIP)
    return lambda batch: learner.learn([batch], step=1, lr=_LR)


def _learning(module: nn.Module, loss_of: Callable[[PairBatch], Tensor]) -> Step:
    """A step of a peer, with the same optimizer and clipping."""
    module.train()
    optimizer = torch.optim.Adam(module.parameters(), lr=_LR, betas=(0.9, 0.98), fused=True)

    def step(batch: PairBatch) -> None:
        loss_of(batch).backward()
        nn.utils.clip_grad_norm_(module.parameters(), _CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def marian(config: TransformerConfig) -> Step:
    """MarianMTModel of transformers; its loss has no label smoothing."""
    from transformers import MarianConfig, MarianMTModel

    model = MarianMTModel(
        MarianConfig(
            vocab_size=config.n_vocab,
            d_model=config.d_model,
            encoder_layers=config.n_encoder_layers,
            decoder_layers=config.n_decoder_layers,
            encoder_attention_heads=config.n_heads,
            decoder_attention_heads=config.n_heads,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            dropout=config.dropout,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=512,
            pad_token_id=config.pad_id,
            decoder_start_token_id=config.pad_id,
            eos_token_id=config.pad_id,
            forced_eos_token_id=None,
        )
    )

    def loss_of(batch: PairBatch) -> Tensor:
        seen = torch.arange(batch.source_ids.size(1)) < batch.source_lengths[:, None]
        targets = batch.target_ids[:, 1:]
        told = torch.arange(targets.size(1)) < (batch.target_lengths - 1)[:, None]
        found = model(
            input_ids=batch.source_ids,
            attention_mask=seen.long(),
            decoder_input_ids=batch.target_ids[:, :-1],
            labels=targets.masked_fill(~told, -100),
            use_cache=False,
        )
        return found.loss

    return _learning(model, loss_of)


def x_transformers(config: TransformerConfig) -> Step:
    """XTransformer with its fused attention; it has no dropout on what a sub-layer adds."""
    from x_transformers import XTransformer  # pyright: ignore[reportMissingImports]  by an extra

    sides: dict[str, Any] = {}
    depths = {"enc": config.n_encoder_layers, "dec": config.n_decoder_layers}
    for side, depth in depths.items():
        sides |= {
            f"{side}_num_tokens": config.n_vocab,
            f"{side}_depth": depth,
            f"{side}_heads": config.n_heads,
            f"{side}_attn_dim_head": config.d_model // config.n_heads,
            f"{side}_ff_mult": config.d_ff // config.d_model,
            f"{side}_max_seq_len": 512,
            f"{side}_attn_flash": True,
            f"{side}_ff_dropout": config.dropout,
            f"{side}_emb_dropout": config.dropout,
        }
    model = XTransformer(
        dim=config.d_model,
        tie_token_emb=True,
        pad_value=config.pad_id,
        ignore_index=config.pad_id,
        **sides,
    )

    def loss_of(batch: PairBatch) -> Tensor:
        seen = torch.arange(batch.source_ids.size(1)) < batch.source_lengths[:, None]
        return model(batch.source_ids, batch.target_ids, mask=seen)

    return _learning(model, loss_of)


class Plain(nn.Module):
    """torch's nn.Transformer with what a translator needs around it."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.n_vocab, config.d_model)
        nn.init.normal_(self.tokens.weight, std=config.d_model**-0.5)
        self.positions = SinusoidalPositions(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.d_model,
            config.n_heads,
            config.n_encoder_layers,
            config.n_decoder_layers,
            config.d_ff,
            config.dropout,
            norm_first=config.norm == "pre",
            batch_first=True,
        )

    def embed(self, ids: Tensor) -> Tensor:
        tokens = self.tokens(ids) * self.config.d_model**0.5
        where = token_positions(ids.size(1), first=0, device=ids.device)
        return self.dropout(tokens + self.positions(where, tokens, stop=ids.size(1)))

    def forward(self, batch: PairBatch) -> Tensor:
        """The mean loss of the targets."""
        hidden = torch.arange(batch.source_ids.size(1)) >= batch.source_lengths[:, None]
        read, targets = batch.target_ids[:, :-1], batch.target_ids[:, 1:]
        causal = nn.Transformer.generate_square_subsequent_mask(read.size(1))
        states = self.transformer(
            self.embed(batch.source_ids),
            self.embed(read),
            tgt_mask=causal,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
            tgt_is_causal=True,
        )
        return F.cross_entropy(
            (states @ self.tokens.weight.T).flatten(0, 1),
            targets.flatten(),
            ignore_index=self.config.pad_id,
            label_smoothing=_SMOOTHING,
        )


def nn_transformer(config: TransformerConfig) -> Step:
    """torch.nn.Transformer; its one dropout is also on attention weights."""
    module = Plain(config)
    return _learning(module, module)


KINDS = {
    "regard": ours,
    "transformers": marian,
    "x-transformers": x_transformers,
    "nn.Transformer": nn_transformer,
}


@dataclass(frozen=True)
class Turn:
    """What a contender did in one turn."""

    seconds: float
    targets: int
    peak: float
    """Floating-point operations a second of a large product, in this process."""


def load_batches(path: Path) -> list[PairBatch]:
    """The batches that `regard.bench.training_speed` has written."""
    stored = np.load(path)
    names = ("source_ids", "target_ids", "source_lengths", "target_lengths")
    count = len(stored.files) // len(names)
    return [
        PairBatch(*(torch.from_numpy(stored[f"{name}_{i}"]) for name in names))
        for i in range(count)
    ]


def take_turn(
    kind: str, config: TransformerConfig, batches: Sequence[PairBatch], clock: Any
) -> Turn:
    """Warm up with the last batch, then learn from all others while the clock runs."""
    torch.manual_seed(1)
    step = KINDS[kind](config)
    step(batches[-1])
    begin = clock()
    for batch in batches[:-1]:
        step(batch)
    seconds = clock() - begin
    targets = sum(batch.n_targets() for batch in batches[:-1])
    return Turn(seconds, targets, matmul_rate(torch.device("cpu"), clock=clock))


def main(given: dict[str, Any]) -> dict[str, Any]:
    """One turn, as asked for."""
    torch.set_num_threads(given["threads"])
    if given["tuned"]:
        keep_freed_memory()
    clock = time.process_time if given["cpu_time"] else time.perf_counter
    config = TransformerConfig(**given["config"])
    found = take_turn(given["kind"], config, load_batches(Path(given["batches"])), clock)
    return {"seconds": found.seconds, "targets": found.targets, "peak": found.peak}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))) + "\n")
