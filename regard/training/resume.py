"""What a run that goes on must have in common with the one that was begun."""

import json
from collections.abc import Mapping
from typing import Any

from regard.errors import InputError
from regard.training.recipe import Training

_FIXED = ("seed", "optimiser", "precision", "batch_tokens")
"""Without these, moments, the scale of gradients and the place in the data mean nothing."""


def fixed_settings(settings: Training) -> dict[str, Any]:
    """The settings that a run cannot change on its way."""
    return {name: getattr(settings, name) for name in _FIXED}


def check_settings(before: Mapping[str, Any], settings: Training) -> None:
    """Refuse to go on with settings that must stay as they were and have not."""
    for name, value in before.items():
        now = getattr(settings, name)
        if now != value:
            raise InputError(
                f"the run was begun with training.{name} = {json.dumps(value)} and cannot go on "
                f"with {json.dumps(now)}: set it back, or begin another run."
            )


def changed_settings(before: Training, now: Training) -> list[str]:
    """What is said of each setting that is another one than before."""
    pairs = {name: (getattr(before, name), getattr(now, name)) for name in Training.model_fields}
    return [
        f"training.{name} is {json.dumps(new)} now and was {json.dumps(old)}"
        for name, (old, new) in pairs.items()
        if old != new
    ]
