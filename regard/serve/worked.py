"""The trace of the worked example: what a server without models has to show."""

from typing import Any

import torch

from regard.attention.attend import attend
from regard.trace.trace import Trace, watch

SITE = "encoder.layers.0.self"


@torch.no_grad()
def worked_trace(example: dict[str, Any]) -> Trace:
    """What attention computes on small matrices, as a model of one head would."""
    x, *weights = (
        torch.tensor(example[name], dtype=torch.float32)
        for name in ("x", "w_query", "w_key", "w_value")
    )
    query, key, value = (x @ weight for weight in weights)
    with watch() as trace:
        attend(query[None], key[None], value[None], site=SITE)
    trace.tokens = {"source": list(example["words"])}
    trace.words = {"source": list(range(len(example["words"])))}
    return trace
