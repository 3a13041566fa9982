"""Memory and communication of three models for docs/scaling.md, computed from their configs.

Activations are measured: the tensors that autograd saves are counted for texts of two lengths and
for one and two layers, which gives the bytes of one more token in a model of any depth.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.bench.timing import markdown_table
from regard.models.config import ModelConfig, build, build_on_meta
from regard.models.decoder import llama_config
from regard.models.presets import get_preset
from regard.training.loader import PairBatch, TextBatch
from regard.training.objective import LanguageObjective, TranslationObjective

GB = 1e9
MODELS: dict[str, ModelConfig] = {
    "base": get_preset("base").config,
    "big": get_preset("big").config,
    "1.3 billion": llama_config(n_vocab=32_000, d_model=2048, n_heads=16, n_layers=24, d_ff=5504),
}
LINKS = {"100 Gbit/s": 12.5e9, "300 GB/s": 300e9}


@dataclass(frozen=True)
class Weights:
    """Bytes of one process that do not depend on the batch, in float32."""

    parameters: int

    @property
    def weights(self) -> int:
        return 4 * self.parameters

    @property
    def whole(self) -> int:
        """Weights, gradients and both moments of Adam."""
        return 4 * self.weights

    def sharded(self, ranks: int) -> float:
        return self.whole / ranks

    def all_reduce(self, ranks: int) -> float:
        """Return the bytes that each process sends, and receives, in a step of DDP (ring)."""
        return 2 * (ranks - 1) / ranks * self.weights

    def shard_traffic(self, ranks: int) -> float:
        """Return the same for FSDP2: two all-gathers of weights, a reduce-scatter of gradients."""
        return 3 * (ranks - 1) / ranks * self.weights


def count(config: ModelConfig) -> Weights:
    return Weights(sum(one.numel() for one in build_on_meta(config).parameters()))


def kept_bytes(config: ModelConfig, length: int, *, narrow: bool) -> int:
    """Return the bytes that autograd saves for one text (or pair), without weights."""
    model: Any = build(config)
    objective: Any
    ids, lengths = torch.ones(1, length, dtype=torch.long), torch.tensor([length])
    if config.family == "transformer":
        objective, batch = TranslationObjective(model, label_smoothing=0.1), None
        batch = PairBatch(ids[:, :-1], ids, lengths - 1, lengths)
    else:
        objective, batch = LanguageObjective(model), TextBatch(ids, lengths)
    own = {one.untyped_storage().data_ptr() for one in model.parameters()}
    seen: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    half = torch.autocast("cpu", torch.bfloat16) if narrow else nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), half:
        sums = objective(batch)
    total = sum(seen.values())
    del sums
    return total


def with_layers(config: Any, count: int) -> tuple[Any, int]:
    """Return the config with `count` layers, and the number of layers of the whole model."""
    if config.family == "transformer":
        return replace(config, n_encoder_layers=count, n_decoder_layers=count), (
            config.n_encoder_layers
        )
    return replace(config, n_layers=count), config.n_layers


def bytes_per_token(config: Any, *, narrow: bool) -> float:
    """Return the bytes of one more token; for pairs, of one on each side."""
    config = replace(config, n_vocab=1000)  # logits are not saved, so their number does not matter

    def slope(n_layers: int) -> float:
        shallow, _ = with_layers(config, n_layers)
        one, two = (kept_bytes(shallow, length, narrow=narrow) for length in (65, 129))
        return (two - one) / 64

    first, second = slope(1), slope(2)
    return first + (with_layers(config, 1)[1] - 1) * (second - first)


def memory_rows() -> list[list[str]]:
    rows = []
    for name, config in MODELS.items():
        found = count(config)
        parts = [found.weights, found.weights, 2 * found.weights, found.whole, found.sharded(8)]
        rows.append([name, f"{found.parameters:,}", *(f"{part / GB:.2f}" for part in parts)])
    return rows


def traffic_rows(ranks: int) -> list[list[str]]:
    rows = []
    for name, config in MODELS.items():
        found = count(config)
        ways = {"all-reduce": found.all_reduce(ranks), "FSDP2": found.shard_traffic(ranks)}
        cells = [f"{size / GB:.2f}" for size in ways.values()]
        cells += [f"{1e3 * size / speed:.0f}" for speed in LINKS.values() for size in ways.values()]
        rows.append([name, *cells])
    return rows


def activation_rows() -> list[list[str]]:
    rows = []
    for name, config in MODELS.items():
        sizes = [bytes_per_token(config, narrow=narrow) for narrow in (False, True)]
        cells = [f"{size / 1e3:,.0f}" for size in sizes]
        rows.append([name, *cells, *(f"{4096 * size / GB:.1f}" for size in sizes)])
    return rows


MEMORY = ["model", "parameters", "weights", "gradients", "Adam's two moments", "together"]
MEMORY += ["of 8 with FSDP2"]
TRAFFIC = ["model", "DDP GB", "FSDP2 GB"]
TRAFFIC += [f"{way} at {link}, ms" for link in LINKS for way in ("DDP", "FSDP2")]
ACTIVATIONS = ["model", "float32, kB a token", "bf16, kB a token"]
ACTIVATIONS += ["4,096 tokens, float32, GB", "4,096 tokens, bf16, GB"]


def main() -> None:
    torch.set_num_threads(1)
    print(markdown_table(MEMORY, memory_rows()), "\n")
    print(markdown_table(ACTIVATIONS, activation_rows()), "\n")
    for ranks in (8, 64):
        print(f"{ranks} processes\n\n{markdown_table(TRAFFIC, traffic_rows(ranks))}\n")


if __name__ == "__main__":
    main()
