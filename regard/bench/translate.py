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
from regard.bench.sentences import texts_to_learn_from
from regard.bench.worker import Run, Worker
from regard.errors import InputError

OURS, TORCH, HUGGING_FACE = "regard", "regard, engine torch", "transformers generate, float32"
BEST, DEFAULT = "CTranslate2, best settings", "CTranslate2, default settings"
_SLOW = {TORCH: 5, HUGGING_FACE: 10}
"""Those who would take too long translate only one of so many lines."""
_LENGTH = 15
"""Tokens that models write which have learnt nothing: as many as a caption of Multi30k has."""


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Args:
        clock: "wall", or "cpu" for a machine that is busy with other work.
    """

    lines: Sequence[str]
    rounds: int = 3
    beams: Sequence[int] = (1, 4)
    precisions: Sequence[str] = ("int8", "float32")
    peers: bool = True
    clock: str = "wall"


@dataclass(frozen=True)
class Figure:
    """One contender's speed in one setting."""

    name: str
    tokens_per_second: float
    peak: float
    """Megabytes of its process at most."""


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

    def against(self) -> list[dict[str, Any]]:
        """How many times as fast we are as each peer."""
        own = {figure.name: figure.tokens_per_second for figure in self.figures}
        pairs = [(OURS, name) for name in own if name not in (OURS, TORCH)]
        pairs += [(TORCH, HUGGING_FACE)] if {TORCH, HUGGING_FACE} <= set(own) else []
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
    with folder_of(model) as (folder, length), _workers(folder, plan) as workers:
        name = Path(model).name
        found = []
        for precision in plan.precisions:
            own = {
                who: worker for (kind, who), worker in workers.items() if kind in (precision, "")
            }
            for setting in _settings(plan, length):
                figures = _figures(own, setting, plan)
                found.append(Measured(name, precision, setting, figures))
                told(found[-1].title)
        return found


def _settings(plan: Plan, length: int | None) -> Iterator[Setting]:
    for beam in plan.beams:
        for together in (True, False):
            for text in (True, False):
                yield Setting(beam, together, text, length)


def _figures(workers: dict[str, Worker], setting: Setting, plan: Plan) -> list[Figure]:
    """The contenders in turn, the second round backwards, so that none has the better places."""
    count = len(plan.lines) if setting.together else max(len(plan.lines) // 5, 1)
    runs: dict[str, list[Run]] = {name: [] for name in workers}
    for turn in range(plan.rounds + 1):
        for name in list(workers) if turn % 2 else list(workers)[::-1]:
            lines = plan.lines[: max(count // _SLOW.get(name, 1), 1)]
            if turn or name not in _SLOW:  # the first round warms up those that are quick
                runs[name].append(workers[name].run(lines, setting))
    pace = {
        name: [r.tokens / getattr(r, plan.clock) for r in rs[-plan.rounds :]]
        for name, rs in runs.items()
    }
    return [Figure(name, median(pace[name]), max(r.peak for r in runs[name])) for name in workers]


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
        if plan.peers:
            workers["", TORCH] = Worker("ours", folder, engine="torch")
        if plan.peers and exported.is_dir():
            workers["", HUGGING_FACE] = Worker("transformers", folder, exported=str(exported))
        yield workers
    finally:
        for worker in workers.values():
            worker.close()


@contextmanager
def folder_of(model: str) -> Iterator[tuple[Path, int | None]]:
    """A folder with the model, beside it the same for transformers, and how much it shall write."""
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
        if find_spec("transformers") is not None:
            _export(bundle, folder / "huggingface")
        yield folder, length


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
