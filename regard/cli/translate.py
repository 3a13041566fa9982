"""`regard translate`: line in, line out; from a file, a pipe or a person."""

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import grouped
from regard.cli.output import Progress, Records, speak_utf8, typed
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.generation.bulk import Output, Reading, Remaining
    from regard.generation.search import SearchOptions
    from regard.generation.translator import LineTranslator, Translation


@dataclass(frozen=True)
class Search:
    """How translations are looked for."""

    beam: Annotated[
        int | None, typer.Option(help="Sequences kept at every token; 1 is greedy.  [default: 4]")
    ] = None
    n_best: Annotated[int, typer.Option(help="Translations for each line.")] = 1
    alpha: Annotated[float, typer.Option(help="Scores are divided by length^alpha.")] = 1.0
    penalty: Annotated[
        str, typer.Option(help="average, gnmt (((5 + length) / 6)^alpha) or none.")
    ] = "average"
    stop: Annotated[
        str, typer.Option(help="When a line is done: beam, bound or first; see docs/decoding.md.")
    ] = "beam"
    prefix: Annotated[str, typer.Option(help="What every translation begins with.")] = ""
    must: Annotated[
        list[str] | None, typer.Option(help="A word that must appear; may be given several times.")
    ] = None
    beam_tree: Annotated[
        bool, typer.Option("--beam-tree", help="With --json: all that the search looked at.")
    ] = False

    def options(self, *, scores: bool) -> "SearchOptions":
        """The same for engines."""
        from regard.generation.search import SearchOptions

        return SearchOptions(
            beam=max(4, self.n_best) if self.beam is None else self.beam,
            n_best=self.n_best,
            alpha=self.alpha,
            penalty=self.penalty,
            stop=self.stop,
            prefix=self.prefix,
            must=tuple(self.must or ()),
            beam_tree=self.beam_tree,
            scores=scores or self.n_best > 1,
        )


@dataclass(frozen=True)
class Place:
    """Where translations are computed."""

    engine: Annotated[str, typer.Option(help="auto, ctranslate2 or torch.")] = "auto"
    int8: Annotated[bool, typer.Option("--int8", help="Faster, and hardly worse.")] = False
    shortlist: Annotated[
        bool,
        typer.Option("--shortlist", help="Faster: write only what `regard shortlist` learned."),
    ] = False
    ensemble: Annotated[
        list[str] | None,
        typer.Option(help="A model that votes on every token, too; may be given several times."),
    ] = None
    cluster: Annotated[
        bool, typer.Option("--cluster", help="On Ray: this machine's cores as workers, or …")
    ] = False
    address: Annotated[
        str | None, typer.Option(help="… the cluster at this address, which has the model, too.")
    ] = None

    def opening(self, only_torch: str) -> dict[str, Any]:
        """How the model is opened."""
        from regard.interop.model_names import find_model

        return {
            "engine": self.engine,
            "int8": self.int8,
            "shortlist": self.shortlist,
            "only_torch": only_torch,
            "others": [find_model(name) for name in self.ensemble or ()],
        }

    @property
    def elsewhere(self) -> bool:
        """Whether a cluster does it."""
        return self.cluster or self.address is not None


@dataclass(frozen=True)
class Target:
    """What is written, and where to."""

    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to a file.")] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the file where it stopped.")
    ] = False
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Say which word comes from which, too.")
    ] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object to a line: scores, tokens, ….")
    ] = False


@grouped
def translate_command(
    model: Annotated[str, typer.Argument(help="A bundled model's name, or a model folder.")],
    search: Search,
    target: Target,
    place: Place,
    file: Annotated[
        str | None,
        typer.Argument(help="One sentence to a line; plain, .gz or .zst; - reads from input."),
    ] = None,
) -> None:
    """Translate lines; without a file, those that you type.

    Every line of input gives one line of output, in order, whatever it holds: empty lines stay
    empty, lines in which the model knows nothing are copied, long ones are translated sentence by
    sentence, and bytes that are no UTF-8 are read as U+FFFD. With --alignments a line ends in
    ` ||| 0-0 1-2`: word 1 of the line gave word 2 of the translation, counted from 0 between
    spaces. With --n-best a line gives several, `number ||| translation ||| score`.

    Example: regard translate en-de news.en.gz -o news.de --resume
    """
    from regard.interop.model_names import find_model

    options = search.options(scores=target.as_json)
    if search.beam_tree and not target.as_json:
        raise InputError("--beam-tree writes a tree for each line, which only --json can hold.")
    _check_output(file, target.output, target.resume)
    folder = find_model(model)
    aligning = folder if target.alignments else None
    records = Records(as_json=target.as_json, n_best=search.n_best, folder=aligning)
    opening = place.opening(options.only_torch)
    work = _Work(folder, _maker(folder, opening, place), options, records)
    speak_utf8()
    if file is None and sys.stdin.isatty() and not place.elsewhere:
        work.converse(model)
    elif target.output is None:
        work.pipe(file or "-")
    else:
        settings = _settings(search, target, place, options.beam)
        work.write(file or "-", target.output, settings, resume=target.resume)


def _settings(search: Search, target: Target, place: Place, beam: int) -> dict[str, Any]:
    """What must be the same for a run to go on with a file of another."""
    return {
        **{name.replace("_", "-"): value for name, value in vars(search).items()},
        "beam": beam,
        "alignments": target.alignments,
        "json": target.as_json,
        "engine": place.engine,
        "int8": place.int8,
        "shortlist": place.shortlist,
        "ensemble": place.ensemble,
    }


def _maker(folder: Path, opening: dict[str, Any], place: Place) -> Callable[[], "LineTranslator"]:
    """What opens the model, here or on the workers of a cluster."""

    def make() -> Any:
        if place.elsewhere:
            from regard.generation.ray_cluster import ClusterTranslator

            return ClusterTranslator(folder, opening=opening, address=place.address)
        from regard.generation.translator import open_translator

        return open_translator(folder, **opening)

    return make


@dataclass(frozen=True)
class _Work:
    """One call of the command: what to translate with, and what to write."""

    folder: Path
    make: Callable[[], "LineTranslator"]
    options: "SearchOptions"
    records: Records

    def converse(self, name: str) -> None:
        """Translate what somebody types, line by line."""
        with suppress(ImportError):
            import readline  # noqa: F401  arrow keys and history for input()
        translator = self.make()
        typer.echo(f"{name}: type a line and press Enter; Ctrl-D ends.", err=True)
        number = 0
        while (line := typed()) is not None:
            if line.strip():
                done = list(translator.translate([line], self.options))
                typer.echo(self.records.write([line], done, number), nl=False)
                number += 1

    def pipe(self, source: str) -> None:
        """Write to standard output; lines that come slowly are answered at once."""
        from regard.generation.bulk import Reading

        translator, reading = self.make(), Reading(source)
        progress = Progress(_size(source)) if sys.stderr.isatty() else None
        if sys.stdout.isatty():
            progress = None  # translations and progress would write over each other
        came = reading.windows_as_they_come(translator.window)
        number = 0
        for lines, done in _together(translator, came, self.options):
            _print(self.records.write(lines, done, number))
            number += len(lines)
            _advance(progress, done, reading)
        _end(progress, reading)

    def write(self, source: str, path: Path, settings: dict[str, Any], *, resume: bool) -> None:
        """Write to a file, from its beginning or from where an earlier run stopped."""
        from regard.generation.bulk import Begun, Output, Reading, Remaining
        from regard.generation.ctranslate2_engine import fingerprint

        numbered = self.options.n_best > 1 and not self.records.as_json
        settings = {"model": fingerprint(self.folder), "input": _head(source), **settings}
        output = Output(path, settings, numbered=numbered)
        begun = output.begun() if resume else Begun(0, 0)
        self.records.remember(output.noted() if resume else {})
        translator, reading = self.make(), Reading(source)
        left = Remaining(begun.records, reading)
        # Input that cannot be read is found out before the output is touched.
        came = _begun(left.windows(translator.window))
        with output.written_from(begun):
            try:
                self._go_on(translator, came, left, output)
            except KeyboardInterrupt:
                typer.echo(f"\n{path} is unfinished: --resume goes on with it.", err=True)
                raise
        left.check(path)

    def _go_on(
        self,
        translator: "LineTranslator",
        windows: Iterable[Sequence[str]],
        left: "Remaining",
        output: "Output",
    ) -> None:
        progress: Progress | None = None
        for lines, done in _together(translator, windows, self.options):
            progress = progress or Progress(_size(left.reading.path), first=left.skipped_bytes)
            text = self.records.write(lines, done, left.number, skip=left.skip)
            output.note(**self.records.notes())
            output.write(text)
            left.advance(len(lines))
            _advance(progress, done, left.reading)
        _end(progress, left.reading)


def _begun(windows: Iterator[Sequence[str]]) -> Iterator[Sequence[str]]:
    """The same windows, the first of which is read now."""
    first = list(islice(windows, 1))
    return chain(first, windows)


def _together(
    translator: "LineTranslator", windows: Iterable[Sequence[str]], options: "SearchOptions"
) -> Iterator[tuple[Sequence[str], list["Translation"]]]:
    """Each window of lines with its translations."""
    waiting: list[Sequence[str]] = []

    def watched() -> Iterator[Sequence[str]]:
        for window in windows:
            if window:
                waiting.append(window)
            yield window

    for done in translator.translate_windows(watched(), options):
        yield waiting.pop(0), done


def _advance(progress: Progress | None, done: list["Translation"], reading: "Reading") -> None:
    if progress is not None:
        tokens = sum(len(one.tokens) for one in done)
        progress.advance(len(done), tokens, reading.n_bytes)


def _end(progress: Progress | None, reading: "Reading") -> None:
    if progress is not None:
        progress.close()
    if reading.n_damaged:
        which = ", ".join(map(str, reading.damaged)) + (", …" if reading.n_damaged > 5 else "")
        typer.echo(
            f"regard: {reading.n_damaged:,} lines hold bytes that are no UTF-8, read as U+FFFD: "
            f"{which}",
            err=True,
        )


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None


def _check_output(file: str | None, output: Path | None, resume: bool) -> None:
    if resume and output is None:
        raise InputError("--resume goes on with a file: name it with -o.")
    if output is None:
        return
    if output.suffix in (".gz", ".zst"):
        raise InputError(f"{output} would be plain text under a packed name: leave out the ending.")
    if output.is_dir():
        raise InputError(f"{output} is a folder: name a file to write.")
    if (
        file not in (None, "-")
        and output.exists()
        and Path(file).exists()
        and output.samefile(file)
    ):
        raise InputError(f"{output} is the input itself: write to another file.")


def _size(source: str) -> int | None:
    """How many bytes there are to read, where lines are as long as the file says."""
    path = Path(source)
    packed = path.suffix in (".gz", ".zst")
    return path.stat().st_size if source != "-" and path.is_file() and not packed else None


def _head(source: str) -> str:
    """What tells one input from another, whatever its name is."""
    if source == "-" or not Path(source).is_file():
        return ""
    with Path(source).open("rb") as stream:
        return hashlib.sha256(stream.read(4096)).hexdigest()[:12]
