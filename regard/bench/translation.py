"""How long the command takes from its start to the first translation."""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, islice
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from regard.bench.timing import table
from regard.bench.translation_contenders import Run, Setting, Worker
from regard.errors import FileError, InputError
from regard.evaluation.ibm_model1 import learn_shortlist
from regard.files import read_lines
from regard.generation.beam_tree import BeamTree
from regard.generation.translator import Translation
from regard.generation.vocabulary_shortlist import SHORTLIST
from regard.training.data_sources import find_data

_TEST, _TRAINING = "multi30k/test_2016_flickr.en.gz", "multi30k/train.{}.gz"
_SYLLABLES = ("ba", "do", "ki", "lu", "me", "no", "pa", "ra", "se", "ti", "un", "vo")


def sentences(count: int) -> tuple[list[str], str]:
    """So many sentences, and where they are from."""
    try:
        lines = [line.decode() for line in islice(read_lines(str(find_data(_TEST))), count)]
    except FileError:
        lines = []
    if len(lines) == count:
        return lines, "Multi30k, test_2016_flickr"
    return list(islice(_made_up(), count)), "made up"


def texts_to_learn_from(count: int = 5000) -> Iterable[str]:
    """Texts for a tokenizer that cuts these sentences as a trained one would."""
    pairs = pairs_to_learn_from(count)
    return chain.from_iterable(pairs) if pairs else islice(_made_up(), count)


def pairs_to_learn_from(count: int = 10_000) -> list[tuple[str, str]]:
    """Sentences of Multi30k's training data and their translations; none where it is not."""
    try:
        places = [find_data(_TRAINING.format(side)) for side in ("en", "de")]
    except FileError:
        return []
    sides = ((line.decode() for line in islice(read_lines(str(x)), count)) for x in places)
    return list(zip(*sides, strict=True))


def _made_up() -> Iterator[str]:
    """Sentences of 5 to 22 words, some of which are frequent and most of which are rare."""
    chance = random.Random(0)
    words = ["".join(chance.choices(_SYLLABLES, k=chance.randint(1, 4))) for _ in range(6000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    while True:
        yield " ".join(chance.choices(words, weights, k=chance.randint(5, 22))) + " ."


TIE = 1e-4
"""How much nearly equal sequences may differ in log-probability or score."""


@dataclass(frozen=True)
class Agreement:
    """How many lines two engines translate alike."""

    lines: int
    same: int
    ties: int
    """Lines that differ because two sequences were equally good but for rounding."""

    @property
    def unexplained(self) -> int:
        """Lines that differ for another reason."""
        return self.lines - self.same - self.ties


def agreement(
    given: Sequence[Translation], searched: Sequence[Translation], end_id: int
) -> Agreement:
    """What an engine gave beside what another has searched, which has trees of its search."""
    pairs = list(zip(given, searched, strict=True))
    other = [(one, two) for one, two in pairs if one.tokens != two.tokens]
    ties = sum(_is_tie(one, two, end_id) for one, two in other)
    return Agreement(len(pairs), len(pairs) - len(other), ties)


def _is_tie(one: Translation, two: Translation, end_id: int) -> bool:
    parts = zip(one.parts, two.parts, strict=True)
    return all(
        mine.ids == other.ids
        or (other.tree is not None and missed_by(other.tree, mine.ids, end_id) <= TIE)
        for mine, other in parts
    )


def missed_by(tree: BeamTree, ids: Sequence[int], end_id: int) -> float:
    """How much a sequence lacked to win this search, at the step where it was dropped.

    Infinite if it was not even looked at.
    """
    at: int | None = None
    for id in (*ids, end_id):
        found = [i for i, n in enumerate(tree.nodes) if n.parent == at and n.id == id]
        if not found:
            return inf
        at, node = found[0], tree.nodes[found[0]]
        if node.fate == "finished":
            return tree.nodes[tree.best].score - node.score
        if node.fate != "kept":
            kept = [n.log_prob for n in tree.nodes if n.step == node.step and n.fate != "pruned"]
            return min(kept) - node.log_prob
    return inf


OURS, SHORT = "regard", "regard, shortlist"
TORCH, TORCH_INT8 = "regard, engine torch", "regard, engine torch, int8"
HUGGING_FACE = "transformers generate, float32"
BEST, DEFAULT = "CTranslate2, best settings", "CTranslate2, default settings"
_EQUAL = (OURS, BEST, SHORT)
"""Those who are so near each other that all must translate the same lines."""
_PAIRS = ((TORCH, HUGGING_FACE), (TORCH_INT8, HUGGING_FACE), (SHORT, BEST), (SHORT, OURS))
"""Who is compared with whom, beside us with every peer."""
_LENGTH = 15
"""Tokens that models write which have learned nothing: as many as a caption of Multi30k has."""
_WARM_UP = {True: 64, False: 4}
"""Lines of a first run, in batches and one by one, which also tells how fast somebody is."""
_FEWEST = {True: dict.fromkeys((*_EQUAL, TORCH, TORCH_INT8), 512), False: {}}
"""Lines below which some worker would have none; for all others, those of the first run."""


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Args:
        seconds: how long one turn of a contender may take; those who would take longer translate
            every second, third … line. One by one, half of that.
        clock: "wall", or "cpu" for a machine that is busy with other work.
    """

    lines: Sequence[str]
    rounds: int = 3
    beams: Sequence[int] = (1, 4)
    precisions: Sequence[str] = ("int8", "float32")
    peers: bool = True
    clock: str = "wall"
    seconds: float = 3.0


@dataclass(frozen=True)
class Figure:
    """One contender's speed in one setting."""

    name: str
    tokens_per_second: float
    peak: float
    """Megabytes of its process at most."""
    lines: int = 0
    """How many it has translated in each round."""


@dataclass(frozen=True)
class Measured:
    """All contenders in one setting."""

    model: str
    precision: str
    setting: Setting
    figures: list[Figure]

    @property
    def title(self) -> str:
        """The setting in words."""
        how = "batches" if self.setting.together else "one by one"
        what = "text to text" if self.setting.text else "without tokenization"
        return f"{self.model}, {self.precision}, beam {self.setting.beam}, {how}, {what}"

    def told(self) -> str:
        """The setting, and everybody's tokens in a second and megabytes."""
        paces = (f"{x.name} {x.tokens_per_second:,.0f} ({x.peak:,.0f} MB)" for x in self.figures)
        return f"{self.title}: {', '.join(paces)}"

    def against(self) -> list[dict[str, Any]]:
        """How many times as fast we are as each peer."""
        own = {figure.name: figure.tokens_per_second for figure in self.figures}
        pairs = [(OURS, name) for name in (BEST, DEFAULT, HUGGING_FACE) if name in own]
        pairs += [pair for pair in _PAIRS if set(pair) <= set(own)]
        return [
            {
                "peer": peer,
                "ours": ours,
                "model": self.model,
                "precision": self.precision,
                "beam": self.setting.beam,
                "lines": "batches" if self.setting.together else "one by one",
                "tokenization": "included" if self.setting.text else "excluded",
                "ratio": round(own[ours] / own[peer], 3),
            }
            for ours, peer in pairs
        ]


def measure(
    model: str, plan: Plan, told: Callable[[str], object] = lambda text: None
) -> list[Measured]:
    """Every setting of one model: a folder, or the name of a preset with random weights."""
    made = folder_of(model, narrow=plan.peers)
    with made as (folder, length), _workers(folder, plan) as workers:
        name, slow = Path(model).name, {w: x for (kind, w), x in workers.items() if not kind}
        found = []
        for setting in _settings(plan, length):
            others = _figures(slow, setting, plan)
            for precision in plan.precisions:
                own = {who: worker for (kind, who), worker in workers.items() if kind == precision}
                figures = [*_figures(own, setting, plan), *others]
                found.append(Measured(name, precision, setting, figures))
                told(found[-1].told())
        return sorted(found, key=lambda one: plan.precisions.index(one.precision))


def _settings(plan: Plan, length: int | None) -> Iterator[Setting]:
    for beam in plan.beams:
        for together in (True, False):
            for text in (True, False):
                yield Setting(beam, together, text, length)


def _figures(workers: dict[str, Worker], setting: Setting, plan: Plan) -> list[Figure]:
    """The contenders in turn, the second round backwards, so that none has the better places."""
    few = plan.lines[: _WARM_UP[setting.together]]
    warm = {name: worker.run(few, setting) for name, worker in workers.items()}
    lines = _shares({name: run.wall / len(few) for name, run in warm.items()}, setting, plan)
    runs: dict[str, list[Run]] = {name: [] for name in workers}
    for turn in range(plan.rounds):
        for name in list(workers) if turn % 2 else list(workers)[::-1]:
            runs[name].append(workers[name].run(lines[name], setting))
    return [
        Figure(
            name,
            median(run.tokens / getattr(run, plan.clock) for run in runs[name]),
            max(run.peak for run in runs[name]),
            len(lines[name]),
        )
        for name in workers
    ]


def _shares(paces: dict[str, float], setting: Setting, plan: Plan) -> dict[str, Sequence[str]]:
    """The lines that each contender has time for, by its seconds for a line: all, or every nth."""
    time = plan.seconds if setting.together else plan.seconds / 2
    slowest = max((pace for name, pace in paces.items() if name in _EQUAL), default=0.0)
    counts = {
        name: max(
            time / (slowest if name in _EQUAL else pace),
            _FEWEST[setting.together].get(name, _WARM_UP[setting.together]),
        )
        for name, pace in paces.items()
    }
    return {name: plan.lines[:: max(1, round(len(plan.lines) / n))] for name, n in counts.items()}


@contextmanager
def _workers(folder: Path, plan: Plan) -> Iterator[dict[tuple[str, str], Worker]]:
    """All contenders' processes, by precision and name; the slow ones have none to choose."""
    workers: dict[tuple[str, str], Worker] = {}
    exported = folder / "huggingface"
    try:
        for precision in plan.precisions:
            int8 = precision == "int8"
            workers[precision, OURS] = Worker("ours", folder, engine="ctranslate2", int8=int8)
            workers[precision, BEST] = Worker("bare", folder, int8=int8, best=True)
            workers[precision, DEFAULT] = Worker("bare", folder, int8=int8, best=False)
            if (folder / SHORTLIST).is_file():
                options = {"engine": "ctranslate2", "int8": int8, "shortlist": True}
                workers[precision, SHORT] = Worker("ours", folder, **options)
        if plan.peers:
            workers["", TORCH] = Worker("ours", folder, engine="torch")
            workers["", TORCH_INT8] = Worker("ours", folder, engine="torch", int8=True)
        if plan.peers and exported.is_dir():
            workers["", HUGGING_FACE] = Worker("transformers", folder, exported=str(exported))
        yield workers
    finally:
        for worker in workers.values():
            worker.close()


@contextmanager
def folder_of(module: str, *, narrow: bool = False) -> Iterator[tuple[Path, int | None]]:
    """A folder with the model, beside it the same for transformers, and how much it shall write.

    Args:
        narrow: whether it shall have a shortlist, if there are sentences to learn it from.
    """
    from regard.interop.model_names import find_model
    from regard.model import Model
    from regard.models.presets import PRESETS

    with tempfile.TemporaryDirectory() as room:
        folder = Path(room) / "model"
        if module in PRESETS:
            model, length = untrained(module), _LENGTH
        else:
            model, length = Model.load(find_model(module)), None
        model.save(folder)
        if narrow and (pairs := pairs_to_learn_from()):
            _save_shortlist(folder, model, pairs)
        if find_spec("transformers") is not None:
            _export(model, folder / "huggingface")
        yield folder, length


def _save_shortlist(folder: Path, model: Any, pairs: list[tuple[str, str]]) -> None:
    source, target = model.tokenizer, model.target_tokenizer or model.tokenizer
    learn_shortlist(pairs, source, target).save(folder, source, target)


def untrained(preset: str) -> Any:
    """A translator of a preset's size that has learned nothing but how text is cut."""
    import torch

    from regard.model import Model
    from regard.models.presets import get_preset
    from regard.models.transformer import Transformer, TransformerConfig
    from regard.text.tokenizer_training import train_tokenizer

    tokenizer = train_tokenizer(texts_to_learn_from(), kind="bpe", vocab_size=8000)
    config = get_preset(preset, n_vocab=len(tokenizer)).config
    if not isinstance(config, TransformerConfig):
        raise InputError(f"the preset {preset} is no translator: take small or base, for example.")
    torch.manual_seed(0)
    return Model(module=Transformer(config).eval(), task="translation", tokenizer=tokenizer)


def _export(model: Any, folder: Path) -> None:
    from regard.interop.huggingface import export_huggingface

    try:
        export_huggingface(model, folder)
    except InputError:  # it has no model like this one: then it is not among the contenders
        return


_SHORT = {
    OURS: "regard",
    SHORT: "regard, shortlist",
    BEST: "CTranslate2, best",
    DEFAULT: "CTranslate2, default",
    TORCH: "regard, torch",
    TORCH_INT8: "regard, torch int8",
    HUGGING_FACE: "transformers",
}


def speeds(measured: Sequence[Measured]) -> str:
    """Tokens per second and megabytes of every contender, and our ratio to each."""
    names = [name for name in _SHORT if any(name in _figure_rows(one) for one in measured)]
    rows = [[_case(one), *(_cell(one, name) for name in names)] for one in measured]
    return table(["setting", *(_SHORT[name] for name in names)], rows)


def _case(one: Measured) -> str:
    how = "batches" if one.setting.together else "one by one"
    what = "" if one.setting.text else ", ids to ids"
    return f"{one.model} {one.precision}, beam {one.setting.beam}, {how}{what}"


def _cell(one: Measured, name: str) -> str:
    figures = _figure_rows(one)
    if name not in figures:
        return "–"
    pace, peak = figures[name]
    ratio = f" (×{figures[OURS][0] / pace:.2f})" if name != OURS else ""
    return f"{pace:,.0f}{ratio}, {peak:,.0f} MB"


def _figure_rows(one: Measured) -> dict[str, tuple[float, float]]:
    return {figure.name: (figure.tokens_per_second, figure.peak) for figure in one.figures}


_LINE = b"The dog is sleeping.\n"


def seconds_to_first_line(model: str = "en-de", *, rounds: int = 5) -> float:
    """The median over some runs, the first of which, that may have to convert, is left out."""
    taken = []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        command = [sys.executable, "-m", "regard", "translate", model]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(_LINE)
            process.stdin.close()
            process.stdout.readline()
            taken.append(time.perf_counter() - begun)
    return median(taken[1:])
