"""The command `regard`: one file per command, all of them listed here."""

import io
import os
import sys

import typer

import regard
from regard.cli import (
    bench,
    convert,
    doctor,
    evaluate,
    figure,
    generate,
    models,
    predict,
    serve,
    show,
    tokenizer_commands,
    train,
    translate,
)
from regard.cli.output import warn
from regard.errors import RegardError

app = typer.Typer(
    name="regard",
    help="Train, run and open up Transformers: see and change every number inside.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("translate")(translate.translate_command)
app.command("evaluate")(evaluate.evaluate_command)
app.command("shortlist")(convert.shortlist_command)
app.command("generate")(generate.generate_command)
app.command("fill")(predict.fill_command)
app.command("classify")(predict.classify_command)
app.command("embed")(predict.embed_command)
app.command("train")(train.train_command)
app.command("distill")(train.distill_command)
app.command("curves")(train.curves_command)
app.command("trace")(show.trace_command)
app.command("show")(show.show_command)
app.command("figure")(figure.figure_command)
app.command("serve")(serve.serve_command)
app.command("work")(figure.work_command)
app.command("models")(models.models_command)
app.command("import")(convert.import_command)
app.command("export")(convert.export_command)
app.command("doctor")(doctor.doctor_command)
app.add_typer(tokenizer_commands.app, name="tokenizer")
app.add_typer(bench.app, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {regard.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    del version


def run() -> None:
    """Run the command line; errors that the user can fix exit with status 2."""
    for stream in (sys.stdout, sys.stderr):  # print ? for characters the terminal lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except RegardError as error:
        warn(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
