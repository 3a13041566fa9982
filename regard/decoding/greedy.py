"""Greedy decoding: at every step the best token."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor


@torch.no_grad()
def greedy(
    model: Any,
    source_ids: Int[Tensor, "batch source"],
    source_lengths: Int[Tensor, " batch"],
    *,
    start_id: int,
    end_id: int,
    max_length: int,
) -> list[list[int]]:
    """What the model writes for each source, without start and end tokens.

    Rows that are finished leave the batch, so the others go on faster. A row that has not ended
    after `max_length` tokens is cut there.
    """
    memory = model.encode(source_ids, source_lengths)
    cache = model.new_cache()
    written: list[list[int]] = [[] for _ in source_ids]
    rows = torch.arange(len(source_ids), device=source_ids.device)
    newest = torch.full_like(rows, start_id)
    for position in range(max_length):
        if not len(rows):
            break
        states = model.decode(newest[:, None], memory, source_lengths, cache=cache)
        newest = model.project(states[:, -1], first=position).argmax(dim=-1)
        for row, token in zip(rows.tolist(), newest.tolist(), strict=True):
            if token != end_id:
                written[row].append(token)
        going = (newest != end_id).nonzero().squeeze(1)
        if len(going) < len(rows):
            rows, newest = rows[going], newest[going]
            memory, source_lengths = memory[going], source_lengths[going]
            for site in cache.values():
                site.keep(going)
    return written
