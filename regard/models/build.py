"""From a configuration to a model."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.models.config import FAMILIES, ModelConfig


def build(config: ModelConfig) -> nn.Module:
    """A fresh model of the configuration's family."""
    entry = FAMILIES[config.family]
    return getattr(import_module(entry.module), entry.model)(config)


def outline(config: ModelConfig) -> nn.Module:
    """The model without its numbers: weights that have a shape, but take no room and no time."""
    with torch.device("meta"), _NoNumbers():
        return build(config)


class _NoNumbers(TorchFunctionMode):
    """Leaves out what fills weights with numbers.

    Weights without room have none to fill, and torch would load its compiler to find that out.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        options = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return options["tensor"] if "tensor" in options else args[0]
        if func in (Tensor.normal_, Tensor.uniform_):
            return args[0]
        if func is torch.randn:
            return torch.empty(*args, **{k: v for k, v in options.items() if k != "generator"})
        return func(*args, **options)
