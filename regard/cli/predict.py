"""`regard fill`, `classify` and `embed`: predictions of models without a target."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from regard.cli.options import (
    ModelArgument,
    ReaderOption,
    ReaderPrecision,
)
from regard.cli.output import (
    CountLine,
    answer_each,
    answer_lines,
    decoded_lines,
    print_json,
    say,
    to_json,
    use_utf8,
    warn,
    write_vectors,
)
from regard.errors import InputError, RegardError, translate
from regard.files import chunks, is_text

if TYPE_CHECKING:
    from regard.generation.predictions import Candidate


VECTOR_FILES = (".npy", ".safetensors", ".jsonl")
_WINDOW = 1024  # texts or images that are read before answers are written


def fill_command(
    model: ModelArgument,
    text: str | None = Argument(
        None,
        metavar="[TEXT|FILE|-]",
        help="Text with [MASK] where a word is missing, or a file of such lines.",
    ),
    count: int = Option(5, "-n", "--count", help="Print this many candidates for each gap."),
    engine: ReaderOption = "auto",
    precision: ReaderPrecision = "float32",
    as_json: bool = Option(False, "--json", help="Print one JSON object for each text."),
) -> None:
    """Fill the gaps of a text.

    Without a text, every line that is typed is answered with candidates. Every line that is piped
    in, or of a file, is printed with its gaps filled.

    Example: regard fill my-bert "The dog is [MASK] in the garden."
    """
    from regard.model import load

    use_utf8()
    source = _line_source(text)
    filler = load(model)
    tokenizer = filler.tokenizer
    mask = tokenizer.token_of(tokenizer.mask_id) if tokenizer and tokenizer.mask_id else ""
    fill = partial(filler.fill, count=count, engine=engine, precision=precision)

    def answer(line: str) -> None:
        gaps = fill(line)
        if as_json:
            print_json(_gaps_record(gaps))
            return
        for number, gap in enumerate(gaps, start=1):
            heading = [translate(f"gap {number}", short=True)] if len(gaps) > 1 else []
            found = [f"{candidate.probability:7.4f}  {candidate.text}" for candidate in gap]
            typer.echo("\n".join(heading + found))

    def answer_all(lines: list[str]) -> list[str]:
        asked = [line for line in lines if mask in line]
        found = iter(fill(asked))
        return [_filled(line, mask, next(found) if mask in line else [], as_json) for line in lines]

    if source is not None:
        answer_lines(source, answer_all, as_json=as_json)
    else:
        given = [] if text is None else [text]
        answer_each(given, answer, what=f"a text with {mask or 'a gap'}", as_json=as_json)


def _line_source(given: str | None) -> str | None:
    """Return the file of lines, or - for the input; None for a text, or if lines are typed."""
    if given is None:
        return None if sys.stdin.isatty() else "-"
    return None if is_text(given) else given


def _filled(line: str, mask: str, gaps: list[list["Candidate"]], as_json: bool) -> str:
    if as_json:
        return to_json(_gaps_record(gaps))
    for gap in gaps:
        line = line.replace(mask, gap[0].text, 1)
    return line


def _gaps_record(gaps: list[list["Candidate"]]) -> dict[str, Any]:
    """Return the candidates of each gap of a text, and the engine that found them, if any."""
    return {"gaps": [[asdict(candidate) for candidate in gap] for gap in gaps], **_spoke(gaps)}


def _spoke(answers: Any) -> dict[str, str | None]:
    return {name: getattr(answers, name, None) for name in ("engine", "precision")}


def classify_command(
    model: ModelArgument,
    images: list[str] | None = Argument(
        None,
        metavar="[IMAGE...|TEXT|FILE|-]",
        help="Image files or folders of them; for a text classifier, texts, or a file of lines.",
    ),
    count: int = Option(3, "-n", "--count", help="Print this many classes for each input."),
    skip_bad: bool = Option(
        False, "--skip-bad", help="Name files that cannot be read, skip them and exit with 1."
    ),
    engine: ReaderOption = "auto",
    precision: ReaderPrecision = "float32",
    as_json: bool = Option(False, "--json", help="Print one JSON object for each input."),
) -> None:
    """Classify images or texts.

    A model of images reads files, or every line that is typed or piped in as the name of one. A
    model of texts reads a text, several texts, or every line of a file or the input as one.

    Examples: regard classify fashion shoe.png shirts/
    or regard classify my-bert "What a film!"
    """
    from regard.model import load

    use_utf8()
    classifier = load(model)
    reads_images = classifier.tokenizer is None
    classify = partial(classifier.classify, count=count, engine=engine, precision=precision)

    def line_of(image: str, candidates: list["Candidate"]) -> str:
        if as_json:
            classes = [asdict(one) for one in candidates]
            return to_json({"input": image, "classes": classes, **_spoke(candidates)})
        return f"{image}\t" + ", ".join(f"{one.text} {one.probability:.4f}" for one in candidates)

    def answer_all(lines: list[str]) -> list[str]:
        return list(map(line_of, lines, classify(list(lines))))

    single = images[0] if images and len(images) == 1 else None
    if reads_images and images:
        _classify_files(classify, list(_files(images)), line_of, skip_bad=skip_bad)
    elif not images and sys.stdin.isatty():
        what = "the name of an image file" if reads_images else "a text"
        answer_each([], lambda line: typer.echo(answer_all([line])[0]), what=what)
    elif source := None if images and single is None else _line_source(single):
        answer_lines(source, answer_all, as_json=as_json)
    else:
        typer.echo("\n".join(answer_all(images or [])))


def _classify_files(
    classify: Callable[..., Any],
    files: list[str],
    line_of: Callable[[str, list["Candidate"]], str],
    *,
    skip_bad: bool,
) -> None:
    progress, failed = CountLine(len(files)), 0
    for window in chunks(files, _WINDOW // 8, first=8):
        for image, candidates in _classify(classify, window, skip_bad=skip_bad):
            if candidates is None:
                failed += 1
            else:
                typer.echo(line_of(image, candidates))
        progress.advance(len(window))
    progress.close()
    if failed:
        warn(f"{failed:,} of {len(files):,} inputs could not be read; see above.")
        raise typer.Exit(1)


def _files(names: Iterable[str]) -> Iterator[str]:
    """Yield the files, and those in the folders, in order of their names."""
    for name in names:
        folder = Path(name)
        if not folder.is_dir():
            yield name
            continue
        found = [str(f) for f in sorted(folder.rglob("*")) if f.is_file() and f.name[0] != "."]
        if not found:
            raise InputError(f"{folder} has no files: give a folder of images.")
        yield from found


def _classify(
    classify: Callable[..., Any], given: list[str], *, skip_bad: bool
) -> list[tuple[str, "list[Candidate] | None"]]:
    """Classify inputs together; one that cannot be read gives None or, unless skipped, an error."""
    try:
        return list(zip(given, classify(list(given)), strict=True))
    except RegardError:
        if not skip_bad:
            raise
    found: list[tuple[str, Any]] = []
    for one in given:
        try:
            found.append((one, classify(one)))
        except RegardError as error:
            warn(str(error))
            found.append((one, None))
    return found


def embed_command(
    model: ModelArgument,
    text: str = Argument(
        metavar="TEXT|FILE|-", help="A text, a file with one text per line, or - for the input."
    ),
    output: Path | None = Option(None, "-o", "--output", help="File: .npy, .safetensors, .jsonl."),
    similarity: bool = Option(
        False, "--similarity", help="Print the cosine of the angle between all pairs of texts."
    ),
    normalize: bool | None = Option(
        None, help="Make vectors of length 1; by default as the checkpoint says."
    ),
    engine: ReaderOption = "auto",
    precision: ReaderPrecision = "float32",
    as_json: bool = Option(False, "--json", help="Print the vectors or similarities as JSON."),
) -> None:
    """Turn texts into vectors.

    Without -o, one JSON array is printed for each text.

    Example: regard embed minilm sentences.txt -o vectors.npy
    """
    from regard.generation.graph_engines import reader_of
    from regard.model import load

    _check_vector_file(output, similarity=similarity)
    use_utf8()
    lines = iter([text]) if is_text(text) else decoded_lines(text)
    encoder = load(model)
    embed = partial(encoder.embed, engine=engine, precision=precision)

    def spoke() -> dict[str, str]:
        reader = reader_of(encoder, engine, precision)
        return {"engine": reader.name, "precision": reader.precision}

    if similarity:
        _print_similarity(embed, list(lines), spoke if as_json else None)
        return

    def windows() -> Iterator[Any]:
        progress = CountLine(None)
        for window in chunks(lines, _WINDOW):
            yield embed(window, normalize=normalize)
            progress.advance(len(window))
        progress.close()

    if output is None:
        for vectors in windows():
            for vector in vectors.tolist():
                print_json({"vector": vector, **spoke()} if as_json else vector)
    else:
        count, width = write_vectors(output, windows(), encoder.config.d_model)
        by, kind = spoke().values()
        say(f"{output}: {count:,} vectors of {width} numbers by {by} in {kind}", err=True)


def _check_vector_file(output: Path | None, *, similarity: bool) -> None:
    if output is not None and output.suffix not in VECTOR_FILES:
        raise InputError(f"{output} must end in {', '.join(VECTOR_FILES)}.")
    if output is not None and similarity:
        raise InputError("give either -o or --similarity, not both.")


def _print_similarity(
    embed: Callable[..., Any], texts: list[str], spoke: Callable[[], dict[str, str]] | None
) -> None:
    if len(texts) > 50:
        raise InputError(f"there are {len(texts):,} texts; --similarity prints at most 50.")
    vectors = embed(texts, normalize=True)
    cosines = (vectors @ vectors.T).tolist()
    if spoke:
        print_json({"texts": texts, "similarity": cosines, **spoke()})
        return
    for number, (text, row) in enumerate(zip(texts, cosines, strict=True), 1):
        numbers = "  ".join(f"{value:6.3f}" for value in row)
        typer.echo(f"{number:3}  {numbers}  {text[:60]}")
