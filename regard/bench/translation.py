"""Translation speed of our engines compared with CTranslate2 and transformers."""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice, product
from pathlib import Path
from statistics import median
from typing import Any

from regard.bench.timing import markdown_table, new_process, take_turns
from regard.bench.translation_contenders import (
    CTranslate2Contender,
    HuggingFaceContender,
    OurContender,
    TranslationRun,
    TranslationSetting,
    timed_run,
)
from regard.errors import FileError, InputError
from regard.evaluation.alignment import learn_shortlist
from regard.files import read_lines
from regard.generation.ctranslate2_engine import SHORTLIST
from regard.training.data_sources import find_data

Run = Callable[[Sequence[str], TranslationSetting], TranslationRun]
_TEST, _TRAINING = "multi30k/test_2016_flickr.en.gz", "multi30k/train.{}.gz"
_SYLLABLES = ("ba", "do", "ki", "lu", "me", "no", "pa", "ra", "se", "ti", "un", "vo")


def benchmark_sentences(count: int) -> tuple[list[str], str]:
    """Return sentences to translate, and where they come from."""
    try:
        lines = [line.decode() for line in islice(read_lines(str(find_data(_TEST))), count)]
    except FileError:
        lines = []
    if len(lines) == count:
        return lines, "Multi30k, test_2016_flickr"
    return list(islice(_generated_sentences(), count)), "generated"


def training_texts(count: int = 5000) -> Iterable[str]:
    """Return texts to train a tokenizer on."""
    pairs = training_pairs(count)
    return chain.from_iterable(pairs) if pairs else islice(_generated_sentences(), count)


def training_pairs(count: int = 10_000) -> list[tuple[str, str]]:
    """Return sentence pairs of Multi30k's training data, or none if it is not available."""
    try:
        paths = [find_data(_TRAINING.format(side)) for side in ("en", "de")]
    except FileError:
        return []
    sides = ((line.decode() for line in islice(read_lines(str(path)), count)) for path in paths)
    return list(zip(*sides, strict=True))


def _generated_sentences() -> Iterator[str]:
    """Yield sentences of 5 to 22 words whose frequencies follow Zipf's law."""
    generator = random.Random(0)
    lengths = (generator.randint(1, 4) for _ in range(6000))
    words = ["".join(generator.choices(_SYLLABLES, k=length)) for length in lengths]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    while True:
        yield " ".join(generator.choices(words, weights, k=generator.randint(5, 22))) + " ."


OURS, SHORT = "regard", "regard, shortlist"
TORCH, TORCH_INT8 = "regard, torch", "regard, torch int8"
BEST, DEFAULT = "CTranslate2, best", "CTranslate2, default"
HUGGING_FACE = "transformers"
COLUMNS = (OURS, SHORT, BEST, DEFAULT, TORCH, TORCH_INT8, HUGGING_FACE)
_SAME_LINES = (OURS, BEST, SHORT)  # contenders of similar speed
_PAIRS = (  # contenders whose ratio is reported
    *((OURS, peer) for peer in (BEST, DEFAULT, HUGGING_FACE)),
    *((TORCH, HUGGING_FACE), (TORCH_INT8, HUGGING_FACE), (SHORT, BEST), (SHORT, OURS)),
)
_RANDOM_LENGTH = 15  # tokens written with random weights, as many as a caption of Multi30k has
_WARM_UP = {True: 64, False: 4}  # lines of the first run, batched or not; it estimates the speed
# with fewer lines some workers would be idle
_FEWEST_BATCHED: dict[str, int] = dict.fromkeys((*_SAME_LINES, TORCH, TORCH_INT8), 512)


@dataclass(frozen=True)
class TranslationPlan:
    """Settings of the translation benchmark."""

    lines: Sequence[str]
    rounds: int = 3
    beams: Sequence[int] = (1, 4)
    precisions: Sequence[str] = ("int8", "float32")
    peers: bool = True  # measure torch engines, transformers and a shortlist, too
    clock: str = "wall"  # or "cpu", for a machine that is busy
    seconds: float = 3.0
    """Duration of a turn, half of it for single lines; slow contenders skip lines to keep to it."""


@dataclass(frozen=True)
class TranslationSpeed:
    """Speed of one contender in one setting, with peak memory in megabytes."""

    name: str
    tokens_per_second: float
    peak: float
    lines: int = 0


@dataclass(frozen=True)
class SettingResult:
    """Speeds of all contenders in one setting."""

    model: str
    precision: str
    setting: TranslationSetting
    speeds: list[TranslationSpeed]

    @property
    def title(self) -> str:
        """The setting in words."""
        what = "" if self.setting.text else ", ids to ids"
        return f"{self.model} {self.precision}, beam {self.setting.beam}, {self._batching}{what}"

    @property
    def _batching(self) -> str:
        return "batches" if self.setting.batched else "one by one"

    def ratios(self) -> list[dict[str, Any]]:
        """Return how many times as fast as each peer we are."""
        speeds = {speed.name: speed.tokens_per_second for speed in self.speeds}
        about = {"model": self.model, "precision": self.precision, "beam": self.setting.beam}
        about["lines"] = self._batching
        about["tokenization"] = "included" if self.setting.text else "excluded"
        return [
            {"peer": peer, "ours": ours, **about, "ratio": round(speeds[ours] / speeds[peer], 3)}
            for ours, peer in _PAIRS
            if {ours, peer} <= set(speeds)
        ]

    def cells(self) -> list[str]:
        """Return tokens per second, our ratio and peak memory of each column's contender."""
        cells: dict[str, str] = dict.fromkeys(COLUMNS, "–")
        ours = next(one.tokens_per_second for one in self.speeds if one.name == OURS)
        for one in self.speeds:
            ratio = "" if one.name == OURS else f" (×{ours / one.tokens_per_second:.2f})"
            cells[one.name] = f"{one.tokens_per_second:,.0f}{ratio}, {one.peak:,.0f} MB"
        return list(cells.values())


def measure_translation(
    model: str, plan: TranslationPlan, log: Callable[[str], object] = lambda text: None
) -> list[SettingResult]:
    """Measure every setting of a model folder, or of a preset with random weights."""
    with model_folder(model, plan) as (folder, length), _contenders(folder, plan) as contenders:
        results = []
        for choice in product(plan.beams, (True, False), (True, False)):
            setting = TranslationSetting(*choice, length)
            shared = _measure({n: p for (x, n), p in contenders.items() if not x}, setting, plan)
            for precision in plan.precisions:
                own = {n: p for (x, n), p in contenders.items() if x == precision}
                speeds = [*_measure(own, setting, plan), *shared]
                results.append(SettingResult(Path(model).name, precision, setting, speeds))
                log(f"{results[-1].title}: done")
        return sorted(results, key=lambda result: plan.precisions.index(result.precision))


def _measure(
    contenders: dict[str, Run], setting: TranslationSetting, plan: TranslationPlan
) -> list[TranslationSpeed]:
    few = plan.lines[: _WARM_UP[setting.batched]]
    warm = {name: run(few, setting) for name, run in contenders.items()}
    lines = _select_lines({n: run.wall / len(few) for n, run in warm.items()}, setting, plan)
    turns = {name: partial(run, lines[name], setting) for name, run in contenders.items()}
    speeds = []
    for name, many in take_turns(turns, plan.rounds).items():
        speed = median(run.tokens / getattr(run, plan.clock) for run in many)
        peak = max(run.peak for run in many)
        speeds.append(TranslationSpeed(name, speed, peak, len(lines[name])))
    return speeds


def _select_lines(
    seconds: dict[str, float], setting: TranslationSetting, plan: TranslationPlan
) -> dict[str, Sequence[str]]:
    """Select the lines that each contender has time for, given its seconds per line."""
    time = plan.seconds if setting.batched else plan.seconds / 2
    slowest = max((pace for name, pace in seconds.items() if name in _SAME_LINES), default=0.0)
    selected = {}
    for name, pace in seconds.items():
        fewest = _FEWEST_BATCHED.get(name, _WARM_UP[True]) if setting.batched else _WARM_UP[False]
        count = max(time / (slowest if name in _SAME_LINES else pace), fewest)
        selected[name] = plan.lines[:: max(1, round(len(plan.lines) / count))]
    return selected


@contextmanager
def _contenders(folder: Path, plan: TranslationPlan) -> Iterator[dict[tuple[str, str], Run]]:
    """Yield all contenders by precision ("" for those without a choice) and name."""
    found: dict[tuple[str, str], Run] = {}
    with ExitStack() as stack:

        def add(precision: str, name: str, kind: type, **options: Any) -> None:
            process = stack.enter_context(new_process())
            run = partial(timed_run, kind, folder, options)
            found[precision, name] = lambda *given: process.submit(run, *given).result()

        for precision in plan.precisions:
            int8 = precision == "int8"
            add(precision, OURS, OurContender, engine="ctranslate2", int8=int8)
            add(precision, BEST, CTranslate2Contender, int8=int8, best=True)
            add(precision, DEFAULT, CTranslate2Contender, int8=int8, best=False)
            if (folder / SHORTLIST).is_file():
                options = {"engine": "ctranslate2", "int8": int8, "shortlist": True}
                add(precision, SHORT, OurContender, **options)
        if plan.peers:
            add("", TORCH, OurContender, engine="torch")
            add("", TORCH_INT8, OurContender, engine="torch", int8=True)
            if (exported := folder / "huggingface").is_dir():
                add("", HUGGING_FACE, HuggingFaceContender, exported=str(exported))
        yield found


@contextmanager
def model_folder(name: str, plan: TranslationPlan) -> Iterator[tuple[Path, int | None]]:
    """Save the model, with a copy for transformers; give the folder and the tokens to generate."""
    from regard.interop.huggingface import export_huggingface
    from regard.interop.model_names import find_model
    from regard.model import Model
    from regard.models.presets import PRESETS

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        is_preset = name in PRESETS
        model = random_translator(name) if is_preset else Model.load(find_model(name))
        model.save(folder)
        if plan.peers and (pairs := training_pairs()):
            source, target = model.tokenizer, model.target_tokenizer or model.tokenizer
            assert source is not None
            assert target is not None
            learn_shortlist(pairs, source, target).save(folder, source, target)
        if plan.peers and find_spec("transformers") is not None:
            with suppress(InputError):  # transformers has no such model
                export_huggingface(model, folder / "huggingface")
        yield folder, _RANDOM_LENGTH if is_preset else None


def random_translator(preset: str) -> Any:
    """Return a translator of a preset's size with random weights and a trained tokenizer."""
    import torch

    from regard.model import Model
    from regard.models.presets import get_preset
    from regard.models.transformer import Transformer, TransformerConfig
    from regard.text.tokenizer_training import train_tokenizer

    tokenizer = train_tokenizer(training_texts(), kind="bpe", vocab_size=8000)
    config = get_preset(preset, n_vocab=len(tokenizer)).config
    if not isinstance(config, TransformerConfig):
        raise InputError(
            f"the preset {preset} is not a translator: use another one, for example small or base."
        )
    torch.manual_seed(0)
    return Model(module=Transformer(config).eval(), task="translation", tokenizer=tokenizer)


def report(results: Sequence[SettingResult]) -> str:
    """Return speeds, ratios and memory as a Markdown table."""
    return markdown_table(["setting", *COLUMNS], [[one.title, *one.cells()] for one in results])


def seconds_to_first_line(model: str = "en-de", *, rounds: int = 5) -> float:
    """Return the median time from starting `regard translate` to its first translation."""
    command, times = [sys.executable, "-m", "regard", "translate", model], []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"The dog is sleeping.\n")
            process.stdin.close()
            process.stdout.readline()
            times.append(time.perf_counter() - start)
    return median(times[1:])  # the first run may convert the model
