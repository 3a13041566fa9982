"""Options that several commands share, and groups of options as dataclasses."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from typer import Argument, Option
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

from regard.errors import InputError

if TYPE_CHECKING:
    from regard.generation.search import SearchOptions

ModelArgument = Annotated[str, Argument(help="Name of a bundled model, or path of a model folder.")]
OptionalModel = Annotated[
    str | None, Argument(help="Name of a bundled model, or path of a model folder.")
]
EngineOption = Annotated[str, Option(help="Compute with this engine: auto, ctranslate2 or torch.")]
PrecisionOption = Annotated[
    str, Option(help="Compute in float32, int8 (faster, changes some answers), or auto.")
]
ReaderOption = Annotated[
    str, Option("--engine", help="Compute with this engine: auto, openvino, onnx or torch.")
]
ReaderPrecision = Annotated[
    str, Option("--precision", help="Compute in float32, or bfloat16 (faster, less exact).")
]
Int8Flag = Annotated[bool, Option("--int8", help="The same as --precision int8.")]
LanguageOption = Annotated[str, Option(help="Language of captions: en or ko.")]
JsonFlag = Annotated[bool, Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class SearchFlags:
    """Search."""

    beam: int | None = Option(None, help="Sequences kept at each step; 1 is greedy.  [default: 4]")
    alpha: float = Option(1.0, help="Divide log-probabilities by length to this power.")
    penalty: str = Option("average", help="Use this length penalty: average, gnmt or none.")
    stop: str = Option("beam", help="End a search by this rule: beam, bound or first.")

    def options(self, **more: Any) -> "SearchOptions":
        """Return the settings of the search; `more` are further fields of SearchOptions."""
        from regard.generation.search import SearchOptions

        beam = max(4, more.get("n_best", 1)) if self.beam is None else self.beam
        return SearchOptions(**{**vars(self), "beam": beam, **more})


@dataclass(frozen=True)
class EngineFlags:
    """Engine."""

    engine: EngineOption = "auto"
    int8: bool = Option(False, "--int8", help="Compute with 8-bit weights: faster, hardly worse.")


def chosen_precision(precision: str, *, int8: bool) -> str:
    """Return the precision that both options ask for."""
    if int8 and precision not in ("float32", "int8"):
        raise InputError(f"--int8 contradicts --precision {precision}: give one of them.")
    return "int8" if int8 else precision


class _QuickParameters:
    """Parameters whose plain values are not checked by pydantic.

    typer imports it to check every value, defaults included, which takes longer than a translation.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)  # type: ignore[misc]
        for parameter in found:
            if getattr(parameter, "_runtime_param", ()) is None:  # typer before 0.29 has none
                parameter._runtime_param = _QuickValue()
        return found


class QuickCommand(_QuickParameters, TyperCommand):
    """A command that starts quickly."""


class QuickGroup(_QuickParameters, TyperGroup):
    """A group of commands that starts quickly."""


class _QuickValue:
    """Converts the text of one option, or leaves it to typer."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        described = param.type_descriptor
        info, several = described.parameter_info, param.multiple or param.nargs == -1
        kinds = [one for one in get_args(described.annotation) if one is not NoneType]
        kind = kinds[0] if len(kinds) == 1 else described.annotation
        if value is None:
            return () if several else None
        plain = info.parser is None and info.min is None and info.max is None and not several
        if plain and type(value) is kind:
            return value
        if plain and kind is int and value.isascii() and value.isdecimal():
            return int(value)
        param._runtime_param = None  # for typer to build its own
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Turn each parameter that is a dataclass into one option for each of its fields.

    The first line of the dataclass's docstring is the heading of its options in the help.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    opened: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            opened += _parameters(groups[name])
        else:
            opened.append(parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**given, **made)

    run.__signature__ = inspect.Signature(opened)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in opened}
    del run.__wrapped__  # typer would inspect the command itself
    return run


def _parameters(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    heading = inspect.getdoc(kind).partition("\n")[0].rstrip(".")  # type: ignore[union-attr]
    found = []
    for field in fields(kind):
        hint, default = hints[field.name], field.default
        for option in (*get_args(hint), default):
            if isinstance(option, OptionInfo):
                option.rich_help_panel = heading
        default = inspect.Parameter.empty if default is MISSING else default
        keyword = inspect.Parameter.KEYWORD_ONLY
        found.append(inspect.Parameter(field.name, keyword, default=default, annotation=hint))
    return found
