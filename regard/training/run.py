"""`regard.train`: a training run from recipe to model folder."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from regard.files import file_errors, write_atomic, writing
from regard.hardware import (
    bf16_gain,
    keep_freed_memory,
    matmul_rate,
    peak_memory,
    set_threads,
)
from regard.interop.model_names import find_model
from regard.model import Model
from regard.training import build
from regard.training.callbacks import CallbackList, RunInfo, estimate, format_bytes, format_seconds
from regard.training.checkpoint import TrainingState
from regard.training.datasets import Datasets
from regard.training.distributed import World, is_restart, join_world
from regard.training.loop import LoopResult, Trainer
from regard.training.metrics import METRICS, CurvesFile, MetricsFile, TensorBoard
from regard.training.prepare_data import prepare
from regard.training.recipe import Recipe, load_recipe
from regard.training.run_folder import (
    CHECKPOINTS,
    RESULT,
    TRAINING,
    clear_folder,
    open_folder,
    stored_recipe,
)
from regard.training.step import PRECISIONS
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
    overwrite: bool = False,
    minutes: float | None = None,
    callbacks: Sequence[Any] = (),
    overrides: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Train a model and save it in a folder.

    Started by torchrun, all processes train together. SIGINT and SIGTERM save a checkpoint first.

    Args:
        recipe: a TOML file, the name of a bundled recipe ("dates"), or a mapping of its tables.
        resume: continue the run in the folder, if there is one.
        overwrite: delete the run and the model in the folder first.
        minutes: training time after which the run ends with a finished model.
        callbacks: objects with methods of `regard.training.callbacks.Callback`, called in the main
            process; `ConsoleProgress()` shows what `regard train` shows.
        overrides: recipe values by key, such as {"training.lr": 0.001}.

    Raises:
        DivergenceError: the loss is not finite or has exploded.
    """
    changes = dict(overrides or {}) | ({} if minutes is None else {"training.minutes": minutes})
    described = load_recipe(recipe, changes)
    build.check_model(described)
    with join_world() as world:
        listening = CallbackList(callbacks if world.is_main else ())
        path = Path(folder)
        # Processes of torchrun share the run, and the main one holds its lock.
        lock = writing((path / TRAINING).absolute()) if world.is_main else nullcontext()
        try:
            with file_errors(path, "written"), lock:
                if overwrite and world.is_main and not is_restart():
                    clear_folder(path)
                return _run(described, path, world, listening, resume=resume or is_restart())
        finally:
            listening.close()


def _run(
    recipe: Recipe, folder: Path, world: World, callbacks: CallbackList, *, resume: bool
) -> TrainingResult:
    keep_freed_memory()
    set_threads(recipe.training.threads)
    if world.is_main:
        gain = partial(bf16_gain, world.device)
        open_folder(folder, recipe, resume=resume, report=callbacks.on_message, bf16_gain=gain)
    world.barrier()
    recipe, training = stored_recipe(folder), folder / TRAINING
    datasets, module = _prepare(recipe, training, world, callbacks)
    evaluator = RunEvaluator(folder, recipe, datasets, module.config)
    train_step = build.make_train_step(recipe, module, world)
    kept = training / CHECKPOINTS
    trainer = Trainer(
        recipe, datasets, train_step, folder=kept, evaluator=evaluator, callbacks=callbacks
    )
    steps = trainer.checkpoints.steps()
    world.barrier()
    (peak,) = world.sum(matmul_rate(world.device, dtype=PRECISIONS[recipe.training.precision]))
    resumed_at = steps[-1] if steps else None
    info = replace(estimate(train_step, trainer.loader), peak_flops=peak, resumed_at=resumed_at)
    if world.is_main:
        resumed = None if resumed_at is None else trainer.checkpoints.load_state(resumed_at)
        callbacks.callbacks[:0] = _file_callbacks(training, recipe, resumed)
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
        write_atomic(training / RESULT, text + "\n")
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


def _file_callbacks(training: Path, recipe: Recipe, resumed: TrainingState | None) -> list[Any]:
    files = [
        MetricsFile(training / METRICS, resumed=resumed),
        CurvesFile(training, title=training.absolute().parent.name),
    ]
    if recipe.training.tensorboard:
        files.append(TensorBoard(training / "tensorboard", resumed=resumed))
    return files


def _prepare(
    recipe: Recipe, folder: Path, world: World, callbacks: CallbackList
) -> tuple[Datasets, Any]:
    """Build datasets and model; the main process writes caches for the others."""
    start = recipe.model.get("start_from")
    base = None if start is None else Model.load(find_model(start))
    config = base.config if base else None
    fields = build.config_fields(recipe, base=config)
    tokenizers = (None, None)
    if base is not None:
        separate = base.target_tokenizer is not base.tokenizer
        tokenizers = (base.tokenizer, base.target_tokenizer if separate else None)

    make = partial(
        prepare,
        recipe,
        folder,
        tokenizers=tokenizers,
        n_tokens=lambda side: build.image_tokens(fields, side),
        callback=callbacks,
        progress_bars=bool(callbacks.callbacks) and sys.stderr.isatty(),
    )
    made = make() if world.is_main else None
    world.barrier()
    datasets = made or make()
    complete = build.complete_config(fields, recipe, datasets, base=config)
    module = build.build_seeded(complete, recipe.training.seed)
    if base is not None:
        fresh = build.copy_weights(module, base.module.state_dict())
        callbacks.on_message(f"starting from the weights of {start}")
        if fresh:
            callbacks.on_message(f"{len(fresh)} weights are initialized ({', '.join(fresh[:4])})")
    return datasets, module
