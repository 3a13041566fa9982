"""`regard bench`: how fast, beside the peers, measured in one run on this machine."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import grouped
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.bench.translation import Plan

app = typer.Typer(
    help="Measure speed and memory beside the peers; ratios above 1 mean that we are faster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
Json = Annotated[bool, typer.Option("--json", help="All numbers, with ratios to each peer.")]
Quick = Annotated[bool, typer.Option("--quick", help="A first impression in a minute or two.")]
CpuTime = Annotated[
    bool, typer.Option("--cpu-time", help="Count processor time: for a machine that is busy.")
]
Lengths = Annotated[
    list[int] | None, typer.Option("--length", help="Positions; may be given several times.")
]


@dataclass(frozen=True)
class Translating:
    """What is translated, how, and for how long."""

    count: Annotated[int, typer.Option(help="Sentences to translate.")] = 1000
    rounds: Annotated[int, typer.Option(help="Turns of every contender.")] = 3
    beam: Annotated[list[int] | None, typer.Option(help="Beams.  [default: 1 4]")] = None
    precision: Annotated[
        list[str] | None, typer.Option(help="int8 or float32.  [default: both]")
    ] = None
    seconds: Annotated[
        float, typer.Option(help="Of one turn: who is too slow for it has fewer sentences.")
    ] = 3.0
    quick: Quick = False
    cpu_time: CpuTime = False

    def plan(self) -> tuple["Plan", str]:
        """The same for the contenders, and where the sentences come from."""
        from regard.bench.translation import Plan, sentences

        precisions = tuple(self.precision or ("int8", "float32"))
        if unknown := set(precisions) - {"int8", "float32"}:
            raise InputError(f"precision is {unknown.pop()!r}; it can be int8 or float32.")
        if min(self.count, self.rounds) < 1:
            raise InputError(
                f"count is {self.count} and rounds {self.rounds}; both must be 1 or more."
            )
        lines, origin = sentences(min(self.count, 100) if self.quick else self.count)
        plan = Plan(
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
    translating: Translating,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Model folders or names, or presets, which get random weights and write 15 tokens."
            "  [default: small base]"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure translation: our engines, CTranslate2 by itself and transformers, in turns.

    Sentences are Multi30k's, where $REGARD_DATA has them, else made up.

    Example: regard bench translate small --quick
    """
    from regard.bench.timing import about, load
    from regard.bench.translation import measure, seconds_to_first_line, speeds

    plan, origin = translating.plan()
    quick = translating.quick
    chosen = models or (["small"] if quick else ["small", "base"])
    start = seconds_to_first_line(rounds=1 if quick else 5)
    found = [one for model in chosen for one in measure(model, plan, _note)]
    head = (
        f"{about()}; {len(plan.lines):,} sentences ({origin}), {plan.rounds} rounds, "
        f"{plan.clock} time; load {load():.1f}"
    )
    if as_json:
        figures = [{"setting": one.title, **vars(x)} for one in found for x in one.figures]
        against = [ratio for one in found for ratio in one.against()]
        told = {"about": head, "start_seconds": start, "figures": figures, "against": against}
        _print_json(told)
    else:
        typer.echo(
            f"{head}\n\nFrom the start of the process to en-de's first line: {start:.2f} s\n"
        )
        typer.echo("Tokens per second, our ratio to each, peak memory:\n")
        typer.echo(speeds(found))


@app.command("complexity")
def complexity_bench(
    length: Lengths = None, quick: Quick = False, cpu_time: CpuTime = False, as_json: Json = False
) -> None:
    """Measure time and memory of every form of attention as texts grow longer.

    Example: regard bench complexity --length 512 --length 2048
    """
    from regard.bench.attention_kernels import measure, report
    from regard.bench.timing import about

    lengths = _lengths(length, [256, 512] if quick else [512, 1024, 2048, 4096, 8192])
    found = None
    for found in measure(lengths, rounds=2 if quick else 5, cpu_time=cpu_time):
        _tell(f"{list(found.times)[-1]} positions")
    assert found is not None, "there is a length"
    if as_json:
        numbers = {"milliseconds": found.times, "megabytes": found.memory}
        _print_json({"about": about(), **numbers, "against": found.against()})
    else:
        typer.echo(report(found))


@app.command("attention")
def attention_bench(
    length: Lengths = None, quick: Quick = False, cpu_time: CpuTime = False, as_json: Json = False
) -> None:
    """Measure `attend` and multi-head attention beside torch's own.

    Example: regard bench attention --quick
    """
    from regard.bench.attention_kernels import measure_kernels
    from regard.bench.timing import about, table

    lengths = _lengths(length, [128, 256] if quick else [128, 256, 512, 1024, 2048])
    against = measure_kernels(lengths, rounds=3 if quick else 15, cpu_time=cpu_time)
    if as_json:
        _print_json({"about": about(), "against": against})
        return
    heads = ["ours", "peer", "length", "mask", "pass", "peer_ms", "ratio"]
    rows = [[str(one[head]) for head in heads] for one in against]
    typer.echo(f"{about()}\n\n{table(heads, rows)}")


@app.command("train")
def train_bench(
    models: Annotated[
        list[str] | None, typer.Argument(help="Presets.  [default: small base]")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Turns of every contender.")] = 3,
    threads: Annotated[int, typer.Option(help="Of each contender.")] = 2,
    quick: Quick = False,
    cpu_time: CpuTime = False,
    as_json: Json = False,
) -> None:
    """Measure training beside transformers' Marian, x-transformers and nn.Transformer, in turns.

    Every contender learns from the same batches of 4,096 tokens; tokens are targets, no padding.

    Example: regard bench train small --rounds 1
    """
    from regard.bench.timing import about, load
    from regard.bench.training_speed import PEERS, Plan, against, installed, measure, report

    if min(rounds, threads) < 1:
        raise InputError(f"rounds is {rounds} and threads {threads}; both must be 1 or more.")
    for peer in set(PEERS) - set(installed()):
        typer.echo(f"without {peer}: pip install 'regard[bench]' brings it", err=True)
    plan = Plan(
        tuple(models or (["small"] if quick else ["small", "base"])),
        rounds=1 if quick else rounds,
        n_batches=2 if quick else 4,
        threads=threads,
        cpu_time=cpu_time,
        peers=installed(),
    )
    found = measure(plan, _note)
    clock = "processor" if cpu_time else "wall"
    head = (
        f"{about()}; {threads} threads each, {plan.rounds} rounds, {clock} time; load {load():.1f}"
    )
    if as_json:
        figures = [vars(one) for one in found]
        _print_json({"about": head, "figures": figures, "against": against(found)})
    else:
        typer.echo(f"{head}\n\n{report(found)}")


def _lengths(given: Sequence[int] | None, usual: list[int]) -> list[int]:
    lengths = list(given or usual)
    if min(lengths) < 16:
        raise InputError(f"a length is {min(lengths)}; measure 16 positions or more.")
    return lengths


def _print_json(told: dict[str, Any]) -> None:
    typer.echo(json.dumps(told, indent=1, ensure_ascii=False))


def _note(text: str) -> None:
    typer.echo(text, err=True)


def _tell(text: str) -> None:
    typer.echo(f"{text}: done", err=True)
