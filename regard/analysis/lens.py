"""The lens: which tokens a model would predict if it stopped at a station of its residual stream.

    logits = unembedding(final norm(residual stream after a sub-layer))

nostalgebraist 2020, "interpreting GPT: the logit lens". The final norm and the unembedding are the
model's own, so the last station is the model's own output. Earlier stations were not trained to be
read this way: a lens shows what the last layer would make of them, not what they mean.
"""

from dataclasses import dataclass, field
from math import log
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.analysis.readout import answered_ids, open_readout, positions_of, stream_at
from regard.errors import InputError, check_counts
from regard.trace.trace import Trace

_CHUNK = 2**23
"""Logits computed at once: 32 MB of float32."""


@dataclass(frozen=True, repr=False)
class Lens:
    """The most probable entries at every station and position, and how far they are from the end.

    Entropy and divergence are in bits. The divergence is KL(final ‖ station): 0 at the last one.
    """

    side: str
    """The stack that is read: "decoder" or "encoder"."""
    entries: str
    """What is predicted: "tokens" or "classes"."""
    norm: str
    """The final norm that was applied: "layer" or "rms"; "none" if the model has none because its
    sub-layers end with norms (post-norm)."""
    stations: tuple[str, ...]
    """Paths of the residual stream, in the order of computation."""
    positions: tuple[str, ...]
    """The tokens at which the model predicts; one for classes."""
    ids: Int[Tensor, "station position rank"]
    """The most probable tokens or classes, the best first."""
    probabilities: Float[Tensor, "station position rank"]
    entropy: Float[Tensor, "station position"]
    divergence: Float[Tensor, "station position"]
    answers: Int[Tensor, " position"]
    """The ids of the translation; of other models, the most probable ones at the end."""
    answer_probabilities: Float[Tensor, "station position"]
    names: dict[int, str] = field(default_factory=dict)
    """The token or class of each id above."""

    def __repr__(self) -> str:
        last, width = self.ids[:, -1, 0].tolist(), max(map(len, self.stations))
        rows = zip(self.stations, last, self.probabilities[:, -1, 0].tolist(), strict=True)
        lines = [f"  {path:{width}}  {self.names[id]!r} {value:.3f}" for path, id, value in rows]
        sizes = f"{len(self.stations)} stations × {len(self.positions)} positions"
        return (
            "\n".join([f"<Lens of {sizes}, norm {self.norm}; at the last position:", *lines]) + ">"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the lens as JSON values."""
        arrays = ("ids", "probabilities", "entropy", "divergence", "answers")
        return {
            "side": self.side,
            "entries": self.entries,
            "norm": self.norm,
            "stations": list(self.stations),
            "positions": list(self.positions),
            **{name: getattr(self, name).tolist() for name in arrays},
            "answer_probabilities": self.answer_probabilities.tolist(),
            "names": {str(id): name for id, name in self.names.items()},
        }


@torch.no_grad()
def lens(trace: Trace, *, count: int = 5, rows: slice | None = None, batch: int = 0) -> Lens:
    """Read every station of the residual stream with the model's own final norm and unembedding.

    Args:
        count: number of tokens or classes at each station and position.
        rows: the positions to read; all by default.
        batch: index of the sequence in the batch.
    """
    check_counts(count=count)
    readout = open_readout(trace)
    positions, found = positions_of(trace, readout), []
    n_stream = len(stream_at(trace, readout.stations[0], batch))
    if readout.entries == "tokens" and len(positions) != n_stream:
        raise InputError(
            f"the trace has {len(positions)} tokens, but {n_stream} positions in its "
            "residual stream: trace one text at a time."
        )
    written, where = answered_ids(trace), torch.arange(len(positions))
    if rows is not None and readout.entries == "tokens":
        if not positions[rows]:
            raise InputError(
                f"rows {rows.start} to {rows.stop} select no position: "
                f"the text has {len(positions)}."
            )
        positions, where = positions[rows], where[rows]
    for part in where.split(max(1, _CHUNK // readout.n_entries)):
        tables = (  # one at a time
            readout.logits_at(trace, path, part, batch).float().log_softmax(-1)
            for path in readout.stations
        )
        last = readout.logits_at(trace, readout.stations[-1], part, batch)
        final = last.float().log_softmax(-1)
        answers = final.argmax(-1)
        if written is not None:
            answers = final.new_tensor([written[i] for i in part.tolist()]).long()
        measured = [_measure(table, final, answers, count) for table in tables]
        found.append((*map(torch.stack, zip(*measured, strict=True)), answers[None]))
    joined = [torch.cat(parts, dim=1).cpu() for parts in zip(*found, strict=True)]
    ids, probabilities, entropy, divergence, chosen, answers = joined
    known = torch.cat([ids.flatten(), answers.flatten()]).unique().tolist()
    return Lens(
        side=readout.side,
        entries=readout.entries,
        norm=readout.norm,
        stations=tuple(readout.stations),
        positions=positions,
        ids=ids,
        probabilities=probabilities,
        entropy=entropy,
        divergence=divergence,
        answers=answers[0],
        answer_probabilities=chosen,
        names={id: readout.name(id) for id in known},
    )


def _measure(
    table: Float[Tensor, "position entry"],
    final: Float[Tensor, "position entry"],
    answers: Int[Tensor, " position"],
    count: int,
) -> tuple[Tensor, ...]:
    """Return best ids and probabilities, entropy, divergence and the answers' probabilities."""
    best = table.topk(min(count, table.size(-1)))
    entropy = -(table.exp() * table).nan_to_num(0.0).sum(-1) / log(2)
    # rounding may make the divergence of equal distributions slightly negative
    apart = (final.exp() * (final - table)).nan_to_num(0.0).sum(-1).clamp(min=0) / log(2)
    chosen = table.gather(-1, answers[:, None])[:, 0].exp()
    return best.indices, best.values.exp(), entropy, apart, chosen
