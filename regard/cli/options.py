"""Options that several commands share, and groups of options as dataclasses."""

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from typer import Argument, Option
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

from regard.errors import InputError, RegardError, translate, user_language
from regard.hardware import use_device

if TYPE_CHECKING:
    from regard.generation.search import SearchOptions
    from regard.model import Model

_IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")


def load_for(name: str, text: str, languages: "LanguageFlags") -> "Model":
    """Load a model to run on a text; refuse an image file if the model reads text."""
    from regard.model import load

    model = load(name)
    if languages.source_language or languages.target_language:
        model = model.between(languages.source_language, languages.target_language)
    if model.tokenizer is not None and text.lower().endswith(_IMAGES) and Path(text).is_file():
        raise InputError(
            f"{name} reads text, and {text} is an image file: give a text, or a model of images."
        )
    return model


def complete_models(incomplete: str) -> list[str]:
    """Return the models and the folders that start like this, for the shell."""
    from regard.interop.model_names import PACKAGED, bundled

    place = Path(incomplete)
    folder = place if incomplete.endswith("/") else place.parent
    try:
        folders = [one for one in folder.iterdir() if (one / "config.json").is_file()]
    except OSError:
        folders = []
    names = [*bundled(), *PACKAGED, *map(str, folders)]
    return sorted(one for one in names if one.startswith(incomplete))


def complete_sites(ctx: Any, incomplete: str) -> list[str]:
    """Return the attention sites of the model on the command line."""
    from regard.interop.model_names import find_model
    from regard.model_folder import read_description

    # With an option that has no value yet, typer has parsed nothing; the shell gives all words.
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    for name in filter(None, [ctx.params.get("model"), *words.split()[2:]]):
        with suppress(RegardError):
            settings = read_description(find_model(name)).model
            break
    else:
        return []
    counts = {"": "n_layers", "encoder": "n_encoder_layers", "decoder": "n_decoder_layers"}
    sites = [
        f"{stack or side}.layers.{number}.{kind}"
        for stack, name in counts.items()
        for side in (("encoder", "decoder") if not stack else (stack,))
        for number in range(int(settings.get(name) or 0))
        for kind in (("self", "cross") if stack == "decoder" else ("self",))
    ]
    return [one for one in sites if one.startswith(incomplete)]


def complete_from(*values: str) -> Callable[[str], list[str]]:
    """Return a completion by these values."""

    def complete(incomplete: str) -> list[str]:
        return [one for one in values if one.startswith(incomplete)]

    return complete


def complete_kinds(incomplete: str) -> list[str]:
    """Return the kinds of figures that start like this."""
    from regard.figures.kinds import KINDS

    return [one for one in KINDS if one.startswith(incomplete)]


def complete_recipes(incomplete: str) -> list[str]:
    """Return the bundled recipes and the .toml files that start like this."""
    from regard.training.recipe import bundled_recipes

    place = Path(incomplete)
    folder = place if incomplete.endswith("/") else place.parent
    files = [str(one) for one in folder.glob("*") if one.suffix == ".toml" or one.is_dir()]
    return sorted(one for one in [*bundled_recipes(), *files] if one.startswith(incomplete))


ModelArgument = Annotated[
    str,
    Argument(
        help="Name of a bundled model, or path of a model folder.", autocompletion=complete_models
    ),
]
OptionalModel = Annotated[
    str | None,
    Argument(
        help="Name of a bundled model, or path of a model folder.", autocompletion=complete_models
    ),
]
_PRECISIONS = complete_from("float32", "bfloat16", "int8", "auto")
EngineOption = Annotated[
    str,
    Option(
        help="Compute with this engine: auto, ctranslate2 or torch.",
        autocompletion=complete_from("auto", "ctranslate2", "torch"),
    ),
]
PrecisionOption = Annotated[
    str,
    Option(
        help="Compute in float32, bfloat16 or int8 (changes some answers), or auto.",
        autocompletion=_PRECISIONS,
    ),
]
ReaderOption = Annotated[
    str,
    Option(
        "--engine",
        help="Compute with this engine: auto, openvino, onnx or torch.",
        autocompletion=complete_from("auto", "openvino", "onnx", "torch"),
    ),
]
ReaderPrecision = Annotated[
    str, Option("--precision", help="Compute in float32, bfloat16 or int8 (less exact), or auto.")
]
Int8Flag = Annotated[bool, Option("--int8", help="The same as --precision int8.")]
LanguageOption = Annotated[
    str | None, Option(help="Language of captions: en or ko, by default that of $LANG.")
]
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
    precision: PrecisionOption = "float32"
    int8: Int8Flag = False

    def opening(self) -> dict[str, str]:
        """Return the arguments of `open_translator`."""
        chosen = chosen_precision(self.precision, int8=self.int8)
        return {"engine": self.engine, "precision": chosen}


@dataclass(frozen=True)
class LanguageFlags:
    """Languages."""

    source_language: str | None = Option(None, help="Translate from this language, if many.")
    target_language: str | None = Option(None, help="Translate to this language, if many.")


def chosen_precision(precision: str, *, int8: bool) -> str:
    """Return the precision that both options ask for."""
    if int8 and precision not in ("float32", "int8"):
        raise InputError(f"--int8 contradicts --precision {precision}: give one of them.")
    return "int8" if int8 else precision


class _Quick:
    """A command that starts quickly and speaks the user's language.

    typer imports pydantic to check every value, defaults included, which takes longer than a
    translation; plain values are converted without it.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)  # type: ignore[misc]
        for parameter in found:
            if getattr(parameter, "_runtime_param", ()) is None:  # typer before 0.29 has none
                parameter._runtime_param = _QuickValue()
            for name in ("help", "rich_help_panel"):
                if text := getattr(parameter, name, None):
                    setattr(parameter, name, translate(text))
        return found

    def get_usage(self, ctx: Any) -> str:
        usage: str = super().get_usage(ctx)  # type: ignore[misc]
        return usage.replace("Usage:", translate("Usage:"), 1)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        commands: list[Any] = [self, *getattr(self, "commands", {}).values()]
        for command in commands:
            command.help = translate_help(command.help or "")
        _translate_typer()
        super().format_help(ctx, formatter)  # type: ignore[misc]

    def main(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().main(*arguments, **options)  # type: ignore[misc]
        finally:
            _restore_typer()

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _translated_errors():
            return super().make_context(*arguments, **options)  # type: ignore[misc]

    def invoke(self, ctx: Any) -> Any:
        with _translated_errors():
            return super().invoke(ctx)  # type: ignore[misc]


class QuickCommand(_Quick, TyperCommand):
    """A command of regard."""


class QuickGroup(_Quick, TyperGroup):
    """A group of commands of regard."""


def translate_help(text: str) -> str:
    """Return a help text in the user's language, paragraph by paragraph."""
    if user_language() == "en":
        return text
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        translate(one if one.startswith(" ") else " ".join(one.split())) for one in paragraphs
    )


_REPLACED: list[tuple[Any, str, Any]] = []  # what `_translate_typer` has replaced


def _translate_typer() -> None:
    """Let typer say its own words in the user's language, until the command ends."""
    if user_language() == "en" or _REPLACED:
        return
    from rich.text import Text
    from typer import rich_utils

    def strip_end(text: Text, size: int) -> None:
        """Crop spaces beyond a width; rich counts letters, and would crop wide ones with them."""
        while text.cell_len > size and text.plain.endswith(" "):
            text.right_crop()

    new: dict[tuple[Any, str], Any] = {(Text, "rstrip_end"): strip_end}
    for name, text in vars(rich_utils).items():
        if name.endswith(("_STRING", "_TITLE", "_TEXT", "_HELP")) and isinstance(text, str):
            new[rich_utils, name] = translate(text)
    for (owner, name), value in new.items():
        _REPLACED.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)


def _restore_typer() -> None:
    while _REPLACED:
        setattr(*_REPLACED.pop())


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Give errors of typer, such as an unknown option, a message in the user's language."""
    try:
        yield
    except Exception as error:
        if user_language() != "en" and hasattr(error, "format_message"):
            _translate_typer()
            said = translate(error.format_message())  # type: ignore[attr-defined]
            error.format_message = lambda: said  # type: ignore[attr-defined]
        raise


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
        if plain and kind in (int, float) and isinstance(value, str):
            digits = value.replace(".", "", 1) if kind is float else value
            if digits.isascii() and digits.isdecimal():
                return kind(value)
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


def with_device(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option --device, which holds for every model that the command loads."""

    @wraps(command)
    def run(*, device: str, **given: Any) -> None:
        use_device(device)
        command(**given)

    added = inspect.Parameter(
        "device",
        inspect.Parameter.KEYWORD_ONLY,
        default=Option("cpu", help="Compute on this device of torch, such as cuda."),
        annotation=str,
    )
    hints = get_type_hints(command, include_extras=True)
    own = [
        one.replace(annotation=hints.get(name, one.annotation), kind=one.KEYWORD_ONLY)
        for name, one in inspect.signature(command).parameters.items()
    ]
    run.__signature__ = inspect.Signature([*own, added])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (*own, added)}
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
