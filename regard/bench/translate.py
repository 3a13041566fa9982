"""Translation measured: our engines beside CTranslate2 by itself and `transformers`.

All have the same weights, translate the same sentences, run in processes of their own and take
turns; what is compared are the medians of their rounds, in tokens that are written in a second.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from regard.bench.contender import Setting
from regard.bench.sentences import pairs_to_learn_from, texts_to_learn_from
from regard.bench.worker import Run, Worker
from regard.engine.shortlist import SHORTLIST
from regard.errors import InputError
from regard.explain.shortlist import learn_shortlist

OURS, SHORT = "regard", "regard, shortlist"
TORCH, TORCH_INT8 = "regard, engine torch", "regard, engine torch, int8"
HUGGING_FACE = "transformers generate, float32"
BEST, DEFAULT = "CTranslate2, best settings", "CTranslate2, default settings"
_EQUAL = (OURS, BEST, SHORT)
"""Those who are so near each other that all must translate the same lines."""
_PAIRS = ((TORCH, HUGGING_FACE), (TORCH_INT8, HUGGING_FACE), (SHORT, BEST), (SHORT, OURS))
"""Who is compared with whom, beside us with every peer."""
_LENGTH = 15
"""Tokens that models write which have learnt nothing: as many as a caption of Multi30k has."""
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
        what = "text to text" if self.setting.text else "without tokenisation"
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
                "tokenisation": "included" if self.setting.text else "excluded",
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
def folder_of(model: str, *, narrow: bool = False) -> Iterator[tuple[Path, int | None]]:
    """A folder with the model, beside it the same for transformers, and how much it shall write.

    Args:
        narrow: whether it shall have a shortlist, if there are sentences to learn it from.
    """
    from regard.bundle.bundle import Bundle
    from regard.interop.named import find_model
    from regard.models.presets import PRESETS

    with tempfile.TemporaryDirectory() as room:
        folder = Path(room) / "model"
        if model in PRESETS:
            bundle, length = untrained(model), _LENGTH
        else:
            bundle, length = Bundle.load(find_model(model)), None
        bundle.save(folder)
        if narrow and (pairs := pairs_to_learn_from()):
            _save_shortlist(folder, bundle, pairs)
        if find_spec("transformers") is not None:
            _export(bundle, folder / "huggingface")
        yield folder, length


def _save_shortlist(folder: Path, bundle: Any, pairs: list[tuple[str, str]]) -> None:
    source, target = bundle.tokenizer, bundle.target_tokenizer or bundle.tokenizer
    learn_shortlist(pairs, source, target).save(folder, source, target)


def untrained(preset: str) -> Any:
    """A translator of a preset's size that has learnt nothing but how text is cut."""
    import torch

    from regard.bundle.bundle import Bundle
    from regard.models.presets import get_preset
    from regard.models.transformer import Transformer, TransformerConfig
    from regard.text.train import train_tokenizer

    tokenizer = train_tokenizer(texts_to_learn_from(), kind="bpe", vocab_size=8000)
    config = get_preset(preset, n_vocab=len(tokenizer)).config
    if not isinstance(config, TransformerConfig):
        raise InputError(f"the preset {preset} is no translator: take small or base, for example.")
    torch.manual_seed(0)
    return Bundle(model=Transformer(config).eval(), task="translation", tokenizer=tokenizer)


def _export(bundle: Any, folder: Path) -> None:
    from regard.interop.huggingface import export_huggingface

    try:
        export_huggingface(bundle, folder)
    except InputError:  # it has no model like this one: then it is not among the contenders
        return
