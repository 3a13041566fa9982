"""`regard.train`: a training run from recipe to model folder."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from regard.files import write_atomic
from regard.hardware import keep_freed_memory, matmul_rate, peak_memory, set_threads
from regard.interop.model_names import find_model
from regard.model import Model
from regard.models.config import ModelConfig
from regard.training.build import (
    build_seeded,
    complete_config,
    config_fields,
    copy_weights,
    image_tokens,
    make_train_step,
    make_trainer,
)
from regard.training.callbacks import CallbackList, RunInfo, ValidationResult
from regard.training.datasets import Datasets
from regard.training.distributed import World, is_restart, join_world
from regard.training.loop import LoopResult, TrainerHooks
from regard.training.metrics import METRICS, CurvesFile, MetricsFile, TensorBoard
from regard.training.prepare_data import prepare
from regard.training.progress_report import estimate, format_bytes, format_seconds
from regard.training.recipe import Recipe, load_recipe
from regard.training.run_folder import CHECKPOINTS, RESULT, TRAINING, open_folder, stored_recipe
from regard.training.validation import RunEvaluator


@dataclass(frozen=True)
class TrainingResult:
    """The outcome of `regard.train`."""

    folder: Path
    """Model folder; metrics, curves and checkpoints are in its subfolder training/."""
    stopped_because: str
    """The limit that ended the run ("steps", "epochs", "minutes", "patience"), or "stopped" after
    SIGINT or SIGTERM."""
    steps: int
    epochs: float
    seconds: float
    scores: Mapping[str, float]
    """Metrics of the final model on the validation data."""
    test_scores: Mapping[str, float] = field(default_factory=dict)
    """Metrics on the test data, in the main process; empty if there are none."""
    estimated_seconds_per_epoch: float = 0.0
    """Without validations, which `seconds` includes."""
    estimated_memory: int = 0
    memory: int = 0
    """Peak in bytes."""
    signal: int = 0
    """Number of the signal that stopped the run, or 0."""

    @cached_property
    def model(self) -> Model:
        """The trained model, loaded from the folder."""
        return Model.load(self.folder)

    @property
    def seconds_per_epoch(self) -> float:
        """Measured duration of an epoch, including validations."""
        return self.seconds / self.epochs if self.epochs else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the content of training/result.json."""
        epoch = {"predicted": self.estimated_seconds_per_epoch, "measured": self.seconds_per_epoch}
        return {
            "folder": str(self.folder),
            "why": self.stopped_because,
            "steps": self.steps,
            "epochs": self.epochs,
            "seconds": self.seconds,
            "validation": dict(self.scores),
            "test": dict(self.test_scores),
            "seconds_per_epoch": epoch,
            "memory": {"predicted": self.estimated_memory, "measured": self.memory},
        }


def train(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    folder: str | Path,
    *,
    resume: bool = False,
    minutes: float | None = None,
    callbacks: Sequence[Any] = (),
    overrides: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Train a model and save it in a folder.

    Started by torchrun, all processes train together. SIGINT and SIGTERM save a checkpoint first.

    Args:
        recipe: a TOML file, the name of a bundled recipe ("dates"), or a mapping of its tables.
        resume: continue the run in the folder, if there is one.
        minutes: training time after which the run ends with a finished model.
        callbacks: objects with methods of `regard.training.callbacks.Callback`, called in the main
            process; `ConsoleProgress()` shows what `regard train` shows.
        overrides: recipe values by key, such as {"training.lr": 0.001}.

    Raises:
        DivergenceError: the loss is not finite or has exploded.
    """
    changes = dict(overrides or {}) | ({} if minutes is None else {"training.minutes": minutes})
    described = load_recipe(recipe, changes)
    with join_world() as world, ExitStack() as stack:
        for callback in callbacks:
            if hasattr(callback, "close"):
                stack.callback(callback.close)
        listening = CallbackList(callbacks if world.is_main else ())
        return _run(described, Path(folder), world, listening, resume=resume or is_restart())


def _run(
    recipe: Recipe, folder: Path, world: World, callbacks: CallbackList, *, resume: bool
) -> TrainingResult:
    keep_freed_memory()
    set_threads(recipe.training.threads)
    if world.is_main:
        open_folder(folder, recipe, resume=resume, report=callbacks.on_message)
    world.barrier()
    recipe = stored_recipe(folder)
    datasets, config, module = _prepare(recipe, folder / TRAINING, world, callbacks)
    evaluator = RunEvaluator(folder, recipe, datasets)
    train_step = make_train_step(recipe, module, world)
    hooks = _hooks(evaluator, config, callbacks)
    trainer = make_trainer(
        recipe, datasets, train_step, folder=folder / TRAINING / CHECKPOINTS, hooks=hooks
    )
    steps = trainer.checkpoints.steps()
    world.barrier()
    (peak,) = world.sum(matmul_rate(world.device))
    info = replace(
        estimate(train_step, trainer.loader),
        peak_flops=peak,
        resumed_at=steps[-1] if steps else None,
    )
    with _file_callbacks(folder, recipe, info, world) as files:
        callbacks.callbacks[:0] = files
        callbacks.on_message(
            f"{type(module).__name__} with {info.n_parameters:,} parameters; estimated "
            f"{format_seconds(info.seconds_per_epoch)} per epoch and {format_bytes(info.memory)}"
        )
        callbacks.on_start(info)
        result = _result(folder, trainer.run(), info, peak_memory(world.device))
        if world.is_main:
            if result.stopped_because != "stopped":
                result = replace(result, test_scores=evaluator.test())
            text = json.dumps(result.to_dict(), ensure_ascii=False)
            write_atomic(folder / TRAINING / RESULT, text + "\n")
            callbacks.on_end(result)
    world.barrier()
    return result


def _result(folder: Path, end: LoopResult, info: RunInfo, memory: int) -> TrainingResult:
    return TrainingResult(
        folder=folder,
        stopped_because=end.reason,
        steps=end.position.step,
        epochs=end.position.epochs,
        seconds=end.position.seconds,
        scores=dict(end.metrics),
        estimated_seconds_per_epoch=info.seconds_per_epoch,
        estimated_memory=info.memory,
        memory=memory,
        signal=end.signal,
    )


@contextmanager
def _file_callbacks(
    folder: Path, recipe: Recipe, info: RunInfo, world: World
) -> Iterator[list[Any]]:
    """Give the callbacks that write metrics.jsonl, curves.svg and tensorboard/."""
    training, resumed_at = folder / TRAINING, info.resumed_at
    with ExitStack() as stack:
        if not world.is_main:
            yield []
            return
        files: list[Any] = [
            MetricsFile(training / METRICS, resumed_at=resumed_at),
            CurvesFile(training, title=folder.absolute().name),
        ]
        if recipe.training.tensorboard:
            board = TensorBoard(training / "tensorboard", resumed_at=resumed_at)
            files.append(stack.enter_context(closing(board)))
        yield files


def _hooks(evaluator: RunEvaluator, config: ModelConfig, callbacks: CallbackList) -> TrainerHooks:
    def build() -> nn.Module:
        return build_seeded(config, evaluator.recipe.training.seed)

    def on_cpu(module: nn.Module) -> nn.Module:
        if next(module.parameters()).device.type == "cpu":
            return module
        copy = build()
        copy.load_state_dict(module.state_dict())
        return copy.eval()

    def evaluate(module: nn.Module) -> ValidationResult:
        return evaluator.evaluate(module, on_cpu(module))

    def save_snapshots(module: nn.Module, step: int) -> None:
        evaluator.save_snapshots(on_cpu(module), step)

    return TrainerHooks(evaluator.save_model, evaluate, save_snapshots, build, callbacks)


def _prepare(
    recipe: Recipe, folder: Path, world: World, callbacks: CallbackList
) -> tuple[Datasets, ModelConfig, nn.Module]:
    """Build datasets, config and model; the main process writes caches for the others."""
    start = recipe.model.get("start_from")
    base = None if start is None else Model.load(find_model(start))
    config = base.config if base else None
    fields = config_fields(recipe, base=config)
    tokenizers = (None, None)
    if base is not None:
        separate = base.target_tokenizer is not base.tokenizer
        tokenizers = (base.tokenizer, base.target_tokenizer if separate else None)

    def make() -> Datasets:
        return prepare(
            recipe,
            folder,
            tokenizers=tokenizers,
            n_tokens=lambda side: image_tokens(fields, side),
            callback=callbacks,
            progress_bars=bool(callbacks.callbacks) and sys.stderr.isatty(),
        )

    made = make() if world.is_main else None
    world.barrier()
    datasets = made or make()
    complete = complete_config(fields, recipe, datasets, base=config)
    module = build_seeded(complete, recipe.training.seed)
    if base is not None:
        fresh = copy_weights(module, base.module.state_dict())
        rest = f"; {len(fresh)} are initialized ({', '.join(fresh[:4])})" if fresh else ""
        callbacks.on_message(f"starting from the weights of {start}{rest}")
    return datasets, complete, module
