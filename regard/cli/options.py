"""Options that belong together, as one dataclass in a command's parameters."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

_BY_NAME = inspect.Parameter.KEYWORD_ONLY


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer reads it: each parameter that is a dataclass opened into its fields."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    opened: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            opened += _parameters(groups[name])
        else:
            opened.append(parameter.replace(annotation=hints[name], kind=_BY_NAME))

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**given, **made)

    run.__signature__ = inspect.Signature(opened)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in opened}
    del run.__wrapped__  # or typer would look through to the command itself
    return run


def _parameters(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for field in fields(kind):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        found.append(
            inspect.Parameter(field.name, _BY_NAME, default=default, annotation=hints[field.name])
        )
    return found
