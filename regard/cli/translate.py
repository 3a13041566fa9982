"""`regard translate`: translate a text, or the lines of a file, a pipe or a terminal."""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from regard.cli.options import EngineFlags, LanguageFlags, ModelArgument, SearchFlags, grouped
from regard.cli.output import (
    ProgressLine,
    RecordWriter,
    say,
    typed_lines,
    use_utf8,
    warn,
    write_flushed,
)
from regard.errors import InputError
from regard.files import is_text

if TYPE_CHECKING:
    from regard.generation.bulk import RemainingInput
    from regard.generation.search import SearchOptions
    from regard.generation.translator import Translation, Translator


@dataclass(frozen=True)
class ResultFlags:
    """Translations."""

    n_best: int = Option(1, help="Write this many translations of each line.")
    prefix: str = Option("", help="Start every translation with this text.")
    must: list[str] | None = Option(None, help="Require this word; can be repeated.")
    constraints: bool = Option(
        False, "--constraints", help="Require in each line the words after its tabs."
    )
    no_repeat: int = Option(0, help="Never repeat n-grams of this size; 0 allows all.")
    beam_tree: bool = Option(False, "--beam-tree", help="With --json, write every sequence tried.")

    def settings(self) -> dict[str, Any]:
        """Return the settings of the search."""
        given = {**vars(self), "must": tuple(self.must or ())}
        if given.pop("constraints") and (self.must or self.prefix or self.beam_tree):
            raise InputError(
                "--constraints cannot be combined with --must, --prefix or --beam-tree."
            )
        return given


@dataclass(frozen=True)
class ComputeFlags:
    """Models and machines."""

    shortlist: bool = Option(False, "--shortlist", help="Use only what `regard shortlist` learned.")
    ensemble: list[str] | None = Option(None, help="Average with this model; can be repeated.")
    cluster: bool = Option(False, "--cluster", help="Use Ray with one worker on each core.")
    address: str | None = Option(None, help="Use this Ray cluster, whose machines have the model.")

    @property
    def on_cluster(self) -> bool:
        """True if Ray translates."""
        return self.cluster or self.address is not None

    def open(self, folder: Path, opening: dict[str, Any]) -> Any:
        """Return a translator in this process or on a cluster."""
        if self.on_cluster:
            from regard.generation.bulk import ClusterTranslator

            return ClusterTranslator(folder, opening=opening, address=self.address)
        from regard.generation.translator import open_translator

        return open_translator(folder, **opening)


@dataclass(frozen=True)
class OutputFlags:
    """Output."""

    output: Path | None = Option(None, "-o", "--output", help="Write to this file.")
    resume: bool = Option(False, "--resume", help="Continue the output file where it ends.")
    alignments: bool = Option(False, "--alignments", help="Write the source word of each word.")
    as_json: bool = Option(False, "--json", help="Write JSON lines, with scores and tokens.")
    differences: bool = Option(
        False, "--differences", help="With --json, mark tokens that float32 would not have chosen."
    )


@grouped
def translate_command(
    model: ModelArgument,
    search: SearchFlags,
    translations: ResultFlags,
    languages: LanguageFlags,
    engine: EngineFlags,
    compute: ComputeFlags,
    target: OutputFlags,
    file: str | None = Argument(
        None,
        metavar="[TEXT|FILE|-]",
        help="Text, or file of lines, also .gz and .zst; - is the input.",
    ),
) -> None:
    """Translate a text, or lines of a file, a pipe or a terminal.

    Every line of input gives one line of output, in order. Empty lines stay empty, lines without
    known tokens are copied, and long lines are translated sentence by sentence. Bytes that are not
    valid UTF-8 are read as U+FFFD. With --alignments a line ends in ` ||| 0-0 1-2`: word 1 of the
    line gave word 2 of the translation, counted from 0 between spaces. With --n-best a line gives
    several, `number ||| translation ||| score`. With --constraints a line is a text and,
    each after a tab, the words that its translation must contain.

    Examples: regard translate en-de "The cat sleeps on the table."
    or regard translate en-de news.en.gz -o news.de --resume
    """
    from regard.interop.model_names import find_model

    options = search.options(
        **translations.settings(), scores=target.as_json or translations.n_best > 1
    )
    if translations.constraints and (compute.on_cluster or target.differences):
        raise InputError("--constraints cannot be combined with --differences and clusters.")
    if options.beam_tree and not target.as_json:
        raise InputError("--beam-tree needs --json, because text output cannot hold a tree.")
    _check_output(file, target.output, target.resume)
    folder = find_model(model)
    opening: dict[str, Any] = {
        **engine.opening(),
        "shortlist": compute.shortlist,
        "torch_feature": "required words" if translations.constraints else options.torch_feature,
        "ensemble": [find_model(name) for name in compute.ensemble or ()],
    }
    spoken = languages.source_language, languages.target_language
    if any(spoken):
        if compute.on_cluster or target.alignments:
            raise InputError("languages cannot be combined with a cluster or --alignments.")
        opening["languages"] = spoken
    writer = RecordWriter(
        as_json=target.as_json, n_best=options.n_best, folder=folder if target.alignments else None
    )
    exact = _exact_opening(opening, options, target, on_cluster=compute.on_cluster)
    make = partial(compute.open, folder, opening)
    task = _Task(folder, make, options, writer, exact, by_line=translations.constraints)
    use_utf8()
    if file is None and sys.stdin.isatty() and not compute.on_cluster:
        task.converse(model)
    elif target.output is None:
        task.pipe(file or "-")
    else:
        settings = {
            **_named(vars(translations)),
            **vars(search),
            **engine.opening(),
            **_named({name: value for name, value in vars(languages).items() if value}),
            "beam": options.beam,
            "alignments": target.alignments,
            "json": target.as_json,
            "shortlist": compute.shortlist,
            "ensemble": compute.ensemble,
        }
        task.write(file or "-", target.output, settings, resume=target.resume)


def _named(flags: dict[str, Any]) -> dict[str, Any]:
    """Return values by the names of their options."""
    return {name.replace("_", "-"): value for name, value in flags.items()}


def _exact_opening(
    opening: dict[str, Any], options: "SearchOptions", target: OutputFlags, *, on_cluster: bool
) -> dict[str, Any] | None:
    """Return how the translator that answers are compared with is opened, if one is needed."""
    if not target.differences:
        return None
    if not target.as_json or options.must or on_cluster or opening["shortlist"]:
        raise InputError(
            "--differences needs --json, and cannot be combined with --must, --shortlist and "
            "clusters."
        )
    return {**opening, "precision": "float32"}


@dataclass(frozen=True)
class _Task:
    """One call of the command."""

    folder: Path
    open: Callable[[], "Translator"]
    options: "SearchOptions"
    writer: RecordWriter
    exact: dict[str, Any] | None = None  # of the translator that answers are compared with
    by_line: bool = False  # True if lines contain the words that their translations require

    def converse(self, name: str) -> None:
        """Translate each line that is typed."""
        translator = self.open()
        for number, line in enumerate(typed_lines(f"{name}: type a line")):
            (done,) = self._translated(translator, [[line]])
            text = self._texts([line])
            typer.echo(self.writer.format(text, self._compare(done), number), nl=False)

    def pipe(self, source: str) -> None:
        """Write to standard output; lines that arrive slowly are answered at once."""
        from regard.generation.bulk import LineReader, RemainingInput

        translator, left = self.open(), RemainingInput(0, LineReader(source))
        windows = left.reader.available_windows(translator.window)
        # On one terminal, translations and progress would overwrite each other.
        self._run(translator, windows, left, write_flushed, quiet=sys.stdout.isatty())

    def write(self, source: str, path: Path, settings: dict[str, Any], *, resume: bool) -> None:
        """Write to a file, from its start or from where an earlier run stopped."""
        from regard.generation.bulk import LineReader, OutputFile, OutputProgress, RemainingInput
        from regard.generation.ctranslate2_engine import fingerprint

        settings = {"model": fingerprint(self.folder), "input": _input_hash(source), **settings}
        numbered = self.options.n_best > 1 and not self.writer.as_json
        output = OutputFile(path, settings, numbered=numbered)
        done = output.progress() if resume else OutputProgress()
        self.writer.restore(output.saved_settings() if resume else {})
        translator, left = self.open(), RemainingInput(done.records, LineReader(source))
        windows = left.windows(translator.window)
        # The first window is read before the output is touched: the input may be unreadable.
        windows = chain(list(islice(windows, 1)), windows)

        def save(text: str) -> None:
            output.save_settings(**self.writer.settings())
            output.write(text)

        with output.open_from(done):
            try:
                self._run(translator, windows, left, save)
            except KeyboardInterrupt:
                typer.echo(err=True)
                say(f"{path} is incomplete: continue with --resume.", err=True)
                raise
        left.check(path)

    def _compare(self, done: list["Translation"]) -> list["Translation"]:
        """Mark the tokens that float32 would have chosen otherwise, if that was asked for."""
        if self.exact is None:
            return done
        from regard.generation.translator import mark_differences

        return mark_differences(done, self._exact.engine, self.options)

    @cached_property
    def _exact(self) -> "Translator":
        from regard.generation.translator import open_translator

        return open_translator(self.folder, **(self.exact or {}))

    def _translated(
        self, translator: "Translator", windows: Iterable[Sequence[str]]
    ) -> Iterator[list["Translation"]]:
        """Yield the translations of each window that has lines."""
        if not self.by_line:
            yield from translator.translate_windows(windows, self.options)
            return
        for window in filter(None, windows):
            done: list[Translation] = []
            for line in window:
                text, *words = (part.strip() for part in line.split("\t"))
                required = replace(self.options, must=tuple(filter(None, words)))
                done += translator.translate([text], required)
            yield done

    def _texts(self, lines: Sequence[str]) -> Sequence[str]:
        """Return the lines without the words that they require."""
        return [line.partition("\t")[0] for line in lines] if self.by_line else lines

    def _run(
        self,
        translator: "Translator",
        windows: Iterable[Sequence[str]],
        left: "RemainingInput",
        write: Callable[[str], None],
        *,
        quiet: bool = False,
    ) -> None:
        reader = left.reader
        progress = ProgressLine(_size(reader.path), first=left.skipped_bytes, quiet=quiet)
        given, kept = tee(windows)
        n_bytes = left.skipped_bytes
        filled = (window for window in kept if window)
        for done in self._translated(translator, given):
            lines, done = next(filled), self._compare(done)
            write(self.writer.format(self._texts(lines), done, left.number, skip=left.skip))
            left.number += len(lines)
            # Windows are read ahead: what is translated counts, not what is read.
            n_bytes += sum(len(line.encode(errors="replace")) + 1 for line in lines)
            progress.advance(done, n_bytes)
        progress.close()
        if reader.n_damaged:
            which = ", ".join(map(str, reader.damaged)) + (", …" if reader.n_damaged > 5 else "")
            warn(
                f"{reader.n_damaged:,} lines are not valid UTF-8 and were read with U+FFFD: {which}"
            )


def _check_output(file: str | None, output: Path | None, resume: bool) -> None:
    source = None if file is None or file == "-" or is_text(file) else Path(file)
    if resume and output is None:
        raise InputError("--resume continues a file: name it with -o.")
    if output is None:
        return
    if output.suffix in (".gz", ".zst"):
        raise InputError(f"{output} would not be compressed: leave out the ending.")
    if output.is_dir():
        raise InputError(f"{output} is a folder: name a file.")
    if source is not None and output.exists() and output.samefile(source):
        raise InputError(f"{output} is the input itself: write to another file.")


def _size(source: str) -> int | None:
    """Return the number of bytes to read, if the file is not compressed."""
    compressed = source.endswith((".gz", ".zst"))
    if source == "-" or is_text(source) or compressed or not Path(source).is_file():
        return None
    return Path(source).stat().st_size


def _input_hash(source: str) -> str:
    """Return a hash of the start of the input, whatever its name is."""
    if is_text(source):
        return hashlib.sha256(source.encode(errors="replace")).hexdigest()[:12]
    if source == "-" or not Path(source).is_file():
        return ""
    with Path(source).open("rb") as stream:
        return hashlib.sha256(stream.read(4096)).hexdigest()[:12]
