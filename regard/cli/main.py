"""The command `regard`: one file per command, all of them listed here."""

import gc
import io
import logging
import os
import signal
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

import typer
from typer import Option

import regard
from regard.cli.options import QuickCommand, QuickGroup, with_device
from regard.cli.output import warn
from regard.errors import RegardError, check_language, is_out_of_memory, speaking, translate

_COMMANDS = {
    "translate": "translate.translate_command",
    "evaluate": "evaluate.evaluate_command",
    "shortlist": "convert.shortlist_command",
    "generate": "generate.generate_command",
    "fill": "predict.fill_command",
    "classify": "predict.classify_command",
    "embed": "predict.embed_command",
    "train": "train.train_command",
    "distill": "train.distill_command",
    "curves": "train.curves_command",
    "trace": "show.trace_command",
    "show": "show.show_command",
    "figure": "figure.figure_command",
    "serve": "show.serve_command",
    "work": "figure.work_command",
    "models": "models.models_command",
    "import": "convert.import_command",
    "export": "convert.export_command",
    "doctor": "doctor.doctor_command",
    "tokenizer": "tokenizer_commands.app",
    "bench": "bench.app",
}
"""The function of each command, or the app of a group of them, in regard.cli."""
_FIRST_COLLECTION = 1_000_000  # objects; torch and all of regard make half as many
_WITH_DEVICE = (
    *("translate", "evaluate", "generate", "fill", "classify", "embed"),
    *("trace", "show", "figure", "serve"),
)
"""Commands that run a model, on the CPU or another device."""
_WITH_CAPTIONS = ("evaluate", "curves", "figure", "work")


@cache
def _app(names: Iterable[str], *, listed: bool = False) -> typer.Typer:
    """Return the command line with these commands; modules of others are not imported.

    Args:
        listed: the commands are only shown with their help, so their options are left out.
    """
    app = typer.Typer(
        name="regard",
        cls=QuickGroup,
        help="Train, run and open up Transformers: see and change every number inside.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in names:
        module, _, attribute = _COMMANDS[name].partition(".")
        found: Any = getattr(import_module(f"regard.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        elif listed:
            app.command(name, cls=QuickCommand, help=found.__doc__)(lambda: None)
        else:
            command = with_device(found) if name in _WITH_DEVICE else found
            app.command(name, cls=QuickCommand)(command)
    return app


def __getattr__(name: str) -> typer.Typer:
    if name != "app":
        raise AttributeError(f"module 'regard.cli.main' has no attribute {name!r}")
    return _app(tuple(_COMMANDS))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {regard.__version__}")
        raise typer.Exit


def _options(
    version: bool = Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
    language: str | None = Option(
        None, metavar="en|ko", help="Language of messages and help; by default that of $LANG."
    ),
) -> None:
    del version, language  # both are read before the command line is built


def _chosen_language(arguments: list[str]) -> str | None:
    """Take --language from the command line, for all that is printed.

    Commands that draw have the option themselves, for their captions.
    """
    given = arguments[: arguments.index("--")] if "--" in arguments else arguments
    at = next((i for i, one in enumerate(given) if one.split("=")[0] == "--language"), None)
    if at is None:
        return None
    _, joined, value = given[at].partition("=")
    if not joined and at + 1 == len(given):
        return None  # typer says that the value is missing
    value = value if joined else given[at + 1]
    check_language(value)
    if at == 1 or given[1] not in _WITH_CAPTIONS:
        del arguments[at : at + (1 if joined else 2)]
    return value


def _run() -> None:
    wanted = tuple(name for name in sys.argv[1:2] if name in _COMMANDS)
    listed = sys.argv[1:] in ([], ["-h"], ["--help"]) and "_REGARD_COMPLETE" not in os.environ
    try:
        _app(wanted or tuple(_COMMANDS), listed=listed)()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # which typer makes a failure
            raise BrokenPipeError from None
        raise
    except RegardError as error:
        warn(str(error))
        sys.exit(2)


def _as_utf8(before: str, word: str) -> str:
    """Return a text that a terminal without UTF-8 has split into bytes; paths stay as they are."""
    try:
        text = os.fsencode(word).decode()
    except UnicodeError:
        return word
    return word if before.startswith("-") or os.path.lexists(word) else text


def _collect_garbage_later() -> None:
    """Let the garbage collector wait for more objects once: imports leave hardly any garbage.

    It would take a seventh of the time of a command that imports torch.
    """
    usual = gc.get_threshold()

    def restore(phase: str, _: dict[str, int]) -> None:
        if phase == "stop":
            gc.callbacks.remove(restore)
            gc.set_threshold(*usual)

    gc.callbacks.append(restore)
    gc.set_threshold(_FIRST_COLLECTION)


def _exit_on_signal(number: int, frame: object) -> None:
    """Exit as Ctrl-C does, so that temporary files are removed; the shell expects this status."""
    del frame
    sys.exit(128 + number)


def _handle_signals() -> None:
    """Let `kill`, `timeout` and closed terminals end the program as an exception does."""
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores it
            signal.signal(number, _exit_on_signal)


def run() -> None:
    """Run the command line; errors that the user can fix exit with status 2."""
    _collect_garbage_later()
    _handle_signals()
    for stream in (sys.stdout, sys.stderr):  # print ? for characters the terminal lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.argv = [_as_utf8(*pair) for pair in pairwise(["-", *sys.argv])]
    notes = logging.getLogger("regard.files")  # such as folders that were created
    handler = logging.StreamHandler()
    handler.format = lambda record: translate(record.getMessage())
    notes.addHandler(handler)
    notes.setLevel(logging.INFO)
    try:
        with speaking(_chosen_language(sys.argv)):
            _run()
    except RegardError as error:
        warn(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except BaseException as error:  # a panic of a library in Rust is not an Exception
        if isinstance(error, SystemExit) or not is_out_of_memory(error):
            raise
        warn("there is not enough memory: close other programs, or use a smaller model or batch.")
        sys.exit(2)
