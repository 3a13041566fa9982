"""From a configuration to a model."""

from importlib import import_module

from torch import nn

from regard.models.config import FAMILIES, ModelConfig


def build(config: ModelConfig) -> nn.Module:
    """A fresh model of the configuration's family."""
    entry = FAMILIES[config.family]
    return getattr(import_module(entry.module), entry.model)(config)
