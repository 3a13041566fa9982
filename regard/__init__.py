"""regard: Transformers you can look into.

Names are loaded when they are first used, so that commands which need no torch start at once.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from regard.attention.attend import attend
    from regard.attention.efficient import Efficient, efficient_attention
    from regard.attention.linformer import Linformer
    from regard.attention.longformer import Longformer
    from regard.attention.mask import Mask, causal, edges, padding, window
    from regard.attention.multi_head import MultiHeadAttention
    from regard.attention.performer import Performer
    from regard.attention.reformer import Reformer
    from regard.attention.similarity import Additive, Alibi, General, Similarity
    from regard.errors import RegardError
    from regard.interop.export import export
    from regard.interop.import_checkpoint import import_checkpoint
    from regard.interop.transformers_folder import register_attention
    from regard.model import Model, load
    from regard.models.config import build
    from regard.trace.edit import Edit
    from regard.trace.edits import (
        ablate,
        allow,
        forbid,
        patch,
        set_scores,
        set_value,
        set_weights,
        temperature,
        unscaled,
    )
    from regard.trace.site import Site
    from regard.trace.trace import Trace
    from regard.trace.watch import watch
    from regard.training.run import TrainingResult, train

__version__ = "0.2.0.dev0"

__all__ = [
    "Additive",
    "Alibi",
    "Edit",
    "Efficient",
    "General",
    "Linformer",
    "Longformer",
    "Mask",
    "Model",
    "MultiHeadAttention",
    "Performer",
    "Reformer",
    "RegardError",
    "Similarity",
    "Site",
    "Trace",
    "TrainingResult",
    "ablate",
    "allow",
    "attend",
    "build",
    "causal",
    "edges",
    "efficient_attention",
    "export",
    "forbid",
    "import_checkpoint",
    "load",
    "padding",
    "patch",
    "register_attention",
    "set_scores",
    "set_value",
    "set_weights",
    "temperature",
    "train",
    "unscaled",
    "watch",
    "window",
]

_HOMES = {
    "attention.attend": ("attend",),
    "attention.efficient": ("Efficient", "efficient_attention"),
    "attention.linformer": ("Linformer",),
    "attention.longformer": ("Longformer",),
    "attention.mask": ("Mask", "causal", "edges", "padding", "window"),
    "attention.multi_head": ("MultiHeadAttention",),
    "attention.performer": ("Performer",),
    "attention.reformer": ("Reformer",),
    "attention.similarity": ("Additive", "Alibi", "General", "Similarity"),
    "errors": ("RegardError",),
    "interop.export": ("export",),
    "interop.import_checkpoint": ("import_checkpoint",),
    "interop.transformers_folder": ("register_attention",),
    "model": ("Model", "load"),
    "models.config": ("build",),
    "trace.edits": (
        *("Edit", "ablate", "allow", "forbid", "set_scores", "set_value", "set_weights"),
        *("patch", "temperature", "unscaled"),
    ),
    "trace.site": ("Site",),
    "trace.trace": ("Trace",),
    "trace.watch": ("watch",),
    "training.run": ("TrainingResult", "train"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> _Any:
    if name not in _HOME:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    found = globals()[name] = getattr(_import_module(f"regard.{_HOME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
