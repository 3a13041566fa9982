"""`regard bench`: speed and memory compared with other libraries, measured on this machine."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from regard.cli.options import QuickCommand, QuickGroup, complete_from, grouped
from regard.cli.output import print_json
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.bench.prediction_speed import Speed
    from regard.bench.translation import TranslationPlan

app = typer.Typer(
    cls=QuickGroup,
    help="Measure speed and memory compared with other libraries; above 1 regard is faster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
Json = Annotated[bool, Option("--json", help="Print all numbers and ratios as JSON.")]
Quick = Annotated[bool, Option("--quick", help="Measure less, in a minute or two.")]
CpuTime = Annotated[
    bool, Option("--cpu-time", help="Count processor time, for a machine that is busy.")
]
Lengths = Annotated[
    list[int] | None, Option("--length", min=16, help="Number of positions; can be repeated.")
]
Checkpoints = Annotated[
    list[str] | None,
    Argument(
        help="gpt2, bert, llama or small.  [default: gpt2 bert llama]",
        autocompletion=complete_from("gpt2", "bert", "llama", "small"),
    ),
]
Rounds = Annotated[int, Option(min=1, help="Turns of each contender.")]
Sentences = Annotated[int, Option(min=1, help="Number of sentences.")]
_log = partial(typer.echo, err=True)


def _print(about: str, text: str, *, as_json: bool, **numbers: Any) -> None:
    from regard.bench.timing import describe_machine

    machine = describe_machine() + about
    if as_json:
        print_json({"about": machine, **numbers}, indent=1)
    else:
        typer.echo(f"{machine}\n\n{text}")


@dataclass(frozen=True)
class TranslationFlags:
    """Options of the translation benchmark."""

    count: Sentences = 1000
    rounds: Rounds = 3
    beam: list[int] | None = Option(None, help="Beam sizes.  [default: 1 4]")
    precision: list[str] | None = Option(None, help="[default: int8 float32]")
    seconds: float = Option(3.0, help="Duration of a turn.")
    quick: Quick = False
    cpu_time: CpuTime = False

    def plan(self) -> tuple["TranslationPlan", str]:
        """Return the plan, and the origin of the sentences."""
        from regard.bench.translation import TranslationPlan, benchmark_sentences

        precisions = tuple(self.precision or ("int8", "float32"))
        if unknown := set(precisions) - {"int8", "float32"}:
            raise InputError(f"precision is {unknown.pop()!r}; it can be int8 or float32.")
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


@app.command("translate", cls=QuickCommand)
@grouped
def translate_bench(
    flags: TranslationFlags,
    models: list[str] | None = Argument(None, help="Models or presets.  [default: small base]"),
    as_json: Json = False,
) -> None:
    """Measure translation with our engines, CTranslate2 and transformers, in turns.

    The sentences are those of Multi30k if $REGARD_DATA has them, otherwise generated. Presets get
    random weights and write 15 tokens; slow contenders get fewer sentences.

    Example: regard bench translate small --quick
    """
    from regard.bench.translation import measure_translation, report, seconds_to_first_line

    plan, origin = flags.plan()
    names = models or (["small"] if flags.quick else ["small", "base"])
    start = seconds_to_first_line(rounds=1 if flags.quick else 5)
    results = [one for name in names for one in measure_translation(name, plan, _log)]
    _print(
        f"; {len(plan.lines):,} sentences ({origin}), {plan.rounds} rounds, {plan.clock} time",
        f"From the start of the process to the first line of en-de: {start:.2f} s\n\nTokens per "
        f"second, in brackets regard's ratio to each, and peak memory:\n\n{report(results)}",
        as_json=as_json,
        start_seconds=start,
        figures=[{"setting": one.title, **vars(x)} for one in results for x in one.speeds],
        against=[ratio for one in results for ratio in one.ratios()],
    )


@app.command("complexity", cls=QuickCommand)
def complexity_bench(
    length: Lengths = None, quick: Quick = False, cpu_time: CpuTime = False, as_json: Json = False
) -> None:
    """Measure time and memory of every form of attention by length.

    Example: regard bench complexity --length 512 --length 2048
    """
    from regard.bench.attention_kernels import measure_forms, report

    lengths = length or ([256, 512] if quick else [512, 1024, 2048, 4096, 8192])
    found = measure_forms(lengths, _log, rounds=2 if quick else 5, cpu_time=cpu_time)
    numbers = {"milliseconds": found.times, "megabytes": found.memory, "against": found.ratios()}
    _print("", report(found), as_json=as_json, **numbers)


@app.command("attention", cls=QuickCommand)
def attention_bench(
    length: Lengths = None, quick: Quick = False, cpu_time: CpuTime = False, as_json: Json = False
) -> None:
    """Measure `attend` and multi-head attention compared with torch's.

    Example: regard bench attention --quick
    """
    from regard.bench.attention_kernels import compare_with_torch
    from regard.bench.timing import markdown_table

    lengths = length or ([128, 256] if quick else [128, 256, 512, 1024, 2048])
    found = compare_with_torch(lengths, rounds=3 if quick else 15, cpu_time=cpu_time)
    heads = ["ours", "peer", "length", "mask", "pass", "peer_ms", "ratio"]
    table = markdown_table(heads, [[str(row[head]) for head in heads] for row in found])
    _print("", table, as_json=as_json, against=found)


@app.command("train", cls=QuickCommand)
def train_bench(
    models: list[str] | None = Argument(None, help="Presets.  [default: small base]"),
    rounds: Rounds = 3,
    threads: int = Option(2, min=1, help="Threads of each contender."),
    quick: Quick = False,
    cpu_time: CpuTime = False,
    quality: bool = Option(False, "--quality", help="Measure BLEU after the same time instead."),
    minutes: float = Option(30.0, min=0.1, help="Minutes of the peer, with --quality."),
    as_json: Json = False,
) -> None:
    """Measure training compared with Marian, x-transformers and nn.Transformer, in turns.

    All train on the same batches of 4,096 tokens; target tokens without padding are counted.

    With --quality, a Marian of transformers learns Multi30k for some minutes with its paper's
    schedule, and regard for 0.4 times as long and as long; each translates the test captions.

    Example: regard bench train small --rounds 1
    """
    from regard.bench import training_speed

    if quality:
        _training_quality(minutes, threads, as_json=as_json)
        return

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
    _print(
        f"; {threads} threads each, {plan.rounds} rounds, {'CPU' if cpu_time else 'wall'} time",
        training_speed.report(speeds),
        as_json=as_json,
        figures=[vars(one) for one in speeds],
        against=[
            {"model": one.model, "peer": one.name, "tuned": one.tuned, "ratio": one.ratio}
            for one in speeds
            if one.name != training_speed.OURS
        ],
    )


def _training_quality(minutes: float, threads: int, *, as_json: bool) -> None:
    from regard.bench.training_quality import QualityPlan, measure_quality, report

    found = measure_quality(QualityPlan(minutes, threads=threads), _log)
    about = f"; {threads} threads each, Multi30k, test_2016_flickr"
    _print(about, report(found), as_json=as_json, figures=[vars(one) for one in found])


@app.command("generate", cls=QuickCommand)
def generate_bench(
    model: str = Argument("shakespeare", help="Decoder-only model."),
    prompt: str = Option("First Citizen:", help="Text to continue."),
    tokens: int = Option(100, min=1, help="Tokens to write."),
    rounds: Rounds = 3,
    cpu_time: CpuTime = False,
    as_json: Json = False,
) -> None:
    """Measure greedy writing and the first token with our engines and others, in turns.

    Example: regard bench generate shakespeare --tokens 50
    """
    from regard.bench.prediction_speed import generation_calls, measure_speed
    from regard.bench.timing import select_clock
    from regard.model import load

    _name_missing("generate")
    clock, loaded, speeds = select_clock(cpu_time=cpu_time), load(model), []
    groups, note = generation_calls(loaded, prompt, tokens, alone=cpu_time)
    firsts, _ = generation_calls(loaded, prompt, 1, alone=cpu_time)
    for task, every, amount in (("tokens", groups, tokens), ("first token", firsts, 1)):
        for precision, calls in every.items():
            name = f"{task}, {precision}"
            speeds += measure_speed(name, calls, amount, rounds=rounds, clock=clock)
    about = f"; {model}, {tokens} tokens, {rounds} rounds, {_clock_name(cpu_time)}; {note}"
    _print_speeds(about, speeds, as_json=as_json)


def _name_missing(kind: str) -> None:
    from regard.bench.prediction_speed import missing_peers

    if missing := missing_peers(kind):
        _log(f"not installed and left out: {', '.join(missing)}")


def _clock_name(cpu_time: bool) -> str:
    return "processor time of one thread" if cpu_time else "wall time"


@app.command("embed", cls=QuickCommand)
def embed_bench(
    model: str = Argument("minilm", help="Encoder."),
    count: Sentences = 256,
    rounds: Rounds = 3,
    cpu_time: CpuTime = False,
    as_json: Json = False,
) -> None:
    """Measure embedding with our engines and others, in turns.

    Example: regard bench embed minilm --count 100
    """
    from regard.bench.translation import benchmark_sentences

    lines, origin = benchmark_sentences(count)
    plan = (rounds, cpu_time, as_json)
    _predict("embed", model, lines, f"{len(lines)} sentences ({origin})", plan)


@app.command("fill", cls=QuickCommand)
def fill_bench(
    model: str = Argument(help="Encoder that fills gaps."),
    count: Sentences = 256,
    rounds: Rounds = 3,
    cpu_time: CpuTime = False,
    as_json: Json = False,
) -> None:
    """Measure filling one gap in each sentence, with our engines and others.

    Example: regard bench fill my-bert --count 100
    """
    from regard.bench.translation import benchmark_sentences
    from regard.model import load

    tokenizer = load(model).tokenizer
    mask = tokenizer.token_of(tokenizer.mask_id) if tokenizer and tokenizer.mask_id else "[MASK]"
    lines = [f"{line} {mask}" for line in benchmark_sentences(count)[0]]
    _predict("fill", model, lines, f"{len(lines)} sentences", (rounds, cpu_time, as_json))


@app.command("classify", cls=QuickCommand)
def classify_bench(
    model: str = Argument("fashion", help="Model that classifies images."),
    count: int = Option(256, min=1, help="Number of random images."),
    rounds: Rounds = 3,
    cpu_time: CpuTime = False,
    as_json: Json = False,
) -> None:
    """Measure classifying images with our engines and others, in turns.

    Example: regard bench classify fashion --count 64
    """
    import torch

    from regard.model import load

    config = load(model).config
    shape = (count, config.n_channels, config.image_size, config.image_size)
    images = list(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
    _predict("classify", model, images, f"{count} random images", (rounds, cpu_time, as_json))


@app.command("models", cls=QuickCommand)
def models_bench(
    names: Checkpoints = None,
    rounds: Rounds = 3,
    threads: int = Option(2, min=1, help="Threads of each contender."),
    cpu_time: CpuTime = False,
    as_json: Json = False,
) -> None:
    """Measure loading, tracing and running large checkpoints compared with transformers.

    They have random weights: GPT-2 (124 million), BERT base (110) and a Llama in bfloat16 (1.1
    billion), which takes minutes and 5 GB of memory; small is quick. Below 1 regard needs less.

    Example: regard bench models gpt2 --rounds 1
    """
    from regard.bench.checkpoint_speed import CheckpointPlan, measure_checkpoints, report

    plan = CheckpointPlan(names or ["gpt2", "bert", "llama"], rounds, threads, cpu_time)
    found = measure_checkpoints(plan, _log)
    how = _clock_name(cpu_time) if cpu_time else f"{threads} threads each, wall time"
    _print(
        f"; {rounds} rounds, {how}", report(found), as_json=as_json, figures=list(map(vars, found))
    )


@app.command("start", cls=QuickCommand)
def start_bench(
    model: str = Argument("shakespeare", help="Decoder-only model."),
    rounds: Rounds = 5,
    cpu_time: CpuTime = False,
    as_json: Json = False,
) -> None:
    """Measure commands from their start to their end, next to bare imports.

    The first row is the time to a first token; ratios are to it.

    Example: regard bench start --rounds 3
    """
    from regard.bench.prediction_speed import measure_starts, start_commands

    speeds = measure_starts(start_commands(model), rounds=rounds, cpu_time=cpu_time)
    about = f"; {model}, {rounds} rounds, {'processor' if cpu_time else 'wall'} time"
    _print_speeds(about, speeds, as_json=as_json)


def _predict(
    task: str, name: str, inputs: list[Any], about: str, plan: tuple[int, bool, bool]
) -> None:
    from regard.bench.prediction_speed import measure_speed, prediction_calls
    from regard.bench.timing import select_clock
    from regard.model import load

    rounds, cpu_time, as_json = plan
    _name_missing("read")
    clock = select_clock(cpu_time=cpu_time)
    calls = prediction_calls(load(name), task, inputs, alone=cpu_time)
    speeds = measure_speed(task, calls, len(inputs), rounds=rounds, clock=clock)
    how = f"{rounds} rounds, {_clock_name(cpu_time)}"
    _print_speeds(f"; {name}, {about}, {how}", speeds, as_json=as_json)


def _print_speeds(about: str, speeds: "list[Speed]", *, as_json: bool) -> None:
    from regard.bench.prediction_speed import report

    _print(about, report(speeds), as_json=as_json, figures=[vars(one) for one in speeds])
