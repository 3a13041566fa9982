"""`regard bench`: speed and memory compared with other libraries, measured on this machine."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import grouped
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.bench.translation import TranslationPlan

app = typer.Typer(
    help="Measure speed and memory compared with other libraries; above 1 regard is faster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
Json = Annotated[bool, typer.Option("--json", help="Print all numbers and ratios as JSON.")]
Quick = Annotated[bool, typer.Option("--quick", help="Measure less, in a minute or two.")]
CpuTime = Annotated[
    bool, typer.Option("--cpu-time", help="Count processor time, for a machine that is busy.")
]
Lengths = Annotated[
    list[int] | None, typer.Option("--length", help="Number of positions; may be repeated.")
]
Rounds = Annotated[int, typer.Option(help="Turns of each contender.")]


@dataclass(frozen=True)
class TranslationFlags:
    """Options of the translation benchmark."""

    count: Annotated[int, typer.Option(help="Number of sentences.")] = 1000
    rounds: Rounds = 3
    beam: Annotated[list[int] | None, typer.Option(help="Beam sizes.  [default: 1 4]")] = None
    precision: Annotated[list[str] | None, typer.Option(help="[default: int8 float32]")] = None
    seconds: Annotated[float, typer.Option(help="Duration of a turn.")] = 3.0
    quick: Quick = False
    cpu_time: CpuTime = False

    def plan(self) -> tuple["TranslationPlan", str]:
        """Return the plan, and the origin of the sentences."""
        from regard.bench.translation import TranslationPlan, benchmark_sentences

        precisions = tuple(self.precision or ("int8", "float32"))
        if unknown := set(precisions) - {"int8", "float32"}:
            raise InputError(f"precision is {unknown.pop()!r}; it can be int8 or float32.")
        _check_positive(count=self.count, rounds=self.rounds)
        lines, origin = benchmark_sentences(min(self.count, 100) if self.quick else self.count)
        plan = TranslationPlan(
            lines,
            rounds=1 if self.quick else self.rounds,
            beams=tuple(self.beam or (1, 4)),
            precisions=precisions,
            clock="cpu" if self.cpu_time else "wall",
            seconds=min(self.seconds, 0.5) if self.quick else self.seconds,
        )
        return plan, origin


@app.command("translate")
@grouped
def translate_bench(
    flags: TranslationFlags,
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Model folders, names, presets.  [default: small base]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure translation with our engines, CTranslate2 and transformers, in turns.

    The sentences are those of Multi30k if $REGARD_DATA has them, otherwise generated. Presets get
    random weights and write 15 tokens; slow contenders get fewer sentences.

    Example: regard bench translate small --quick
    """
    from regard.bench.timing import describe_machine
    from regard.bench.translation import measure_translation, report, seconds_to_first_line

    plan, origin = flags.plan()
    names = models or (["small"] if flags.quick else ["small", "base"])
    start = seconds_to_first_line(rounds=1 if flags.quick else 5)
    results = [one for name in names for one in measure_translation(name, plan, _log)]
    about = f"{describe_machine()}; {len(plan.lines):,} sentences ({origin}), "
    about += f"{plan.rounds} rounds, {plan.clock} time"
    if as_json:
        speeds = [{"setting": one.title, **vars(x)} for one in results for x in one.speeds]
        ratios = [ratio for one in results for ratio in one.ratios()]
        _print_json(about, start_seconds=start, figures=speeds, against=ratios)
        return
    typer.echo(
        f"{about}\n\nFrom the start of the process to the first line of en-de: {start:.2f} s\n"
    )
    typer.echo("Tokens per second, in brackets regard's ratio to each, and peak memory:\n")
    typer.echo(report(results))


@app.command("complexity")
def complexity_bench(
    length: Lengths = None, quick: Quick = False, cpu_time: CpuTime = False, as_json: Json = False
) -> None:
    """Measure time and memory of every form of attention by length.

    Example: regard bench complexity --length 512 --length 2048
    """
    from regard.bench.attention_kernels import AttentionTimings, measure_forms, report
    from regard.bench.timing import describe_machine

    lengths = _lengths(length, [256, 512] if quick else [512, 1024, 2048, 4096, 8192])
    found = AttentionTimings(cpu_time)
    for found in measure_forms(lengths, rounds=2 if quick else 5, cpu_time=cpu_time):
        _log(f"{list(found.times)[-1]} positions: done")
    if as_json:
        numbers = {"milliseconds": found.times, "megabytes": found.memory}
        _print_json(describe_machine(), **numbers, against=found.ratios())
    else:
        typer.echo(report(found))


@app.command("attention")
def attention_bench(
    length: Lengths = None, quick: Quick = False, cpu_time: CpuTime = False, as_json: Json = False
) -> None:
    """Measure `attend` and multi-head attention compared with torch's.

    Example: regard bench attention --quick
    """
    from regard.bench.attention_kernels import compare_with_torch
    from regard.bench.timing import describe_machine, markdown_table

    lengths = _lengths(length, [128, 256] if quick else [128, 256, 512, 1024, 2048])
    found = compare_with_torch(lengths, rounds=3 if quick else 15, cpu_time=cpu_time)
    if as_json:
        _print_json(describe_machine(), against=found)
        return
    heads = ["ours", "peer", "length", "mask", "pass", "peer_ms", "ratio"]
    rows = [[str(row[head]) for head in heads] for row in found]
    typer.echo(f"{describe_machine()}\n\n{markdown_table(heads, rows)}")


@app.command("train")
def train_bench(
    models: Annotated[
        list[str] | None, typer.Argument(help="Presets.  [default: small base]")
    ] = None,
    rounds: Rounds = 3,
    threads: Annotated[int, typer.Option(help="Threads of each contender.")] = 2,
    quick: Quick = False,
    cpu_time: CpuTime = False,
    as_json: Json = False,
) -> None:
    """Measure training compared with Marian, x-transformers and nn.Transformer, in turns.

    All train on the same batches of 4,096 tokens; target tokens without padding are counted.

    Example: regard bench train small --rounds 1
    """
    from regard.bench import training_speed
    from regard.bench.timing import describe_machine

    _check_positive(rounds=rounds, threads=threads)
    installed = training_speed.installed_peers()
    for peer in set(training_speed.PEERS) - set(installed):
        _log(f"{peer} is not installed and is left out: pip install 'regard[bench]' installs it")
    plan = training_speed.TrainingPlan(
        tuple(models or (["small"] if quick else ["small", "base"])),
        rounds=1 if quick else rounds,
        n_batches=2 if quick else 4,
        threads=threads,
        cpu_time=cpu_time,
        peers=installed,
    )
    speeds = training_speed.measure_training(plan, _log)
    clock = "CPU" if cpu_time else "wall"
    about = f"{describe_machine()}; {threads} threads each, {plan.rounds} rounds, {clock} time"
    if as_json:
        ratios = training_speed.ratios(speeds)
        _print_json(about, figures=[vars(speed) for speed in speeds], against=ratios)
    else:
        typer.echo(f"{about}\n\n{training_speed.report(speeds)}")


def _lengths(given: Sequence[int] | None, default: list[int]) -> list[int]:
    lengths = list(given or default)
    if min(lengths) < 16:
        raise InputError(f"a length is {min(lengths)}; it must be 16 or more.")
    return lengths


def _check_positive(**options: int) -> None:
    for name, value in options.items():
        if value < 1:
            raise InputError(f"{name} is {value}; it must be 1 or more.")


def _print_json(about: str, **numbers: Any) -> None:
    typer.echo(json.dumps({"about": about, **numbers}, indent=1, ensure_ascii=False))


_log = partial(typer.echo, err=True)
