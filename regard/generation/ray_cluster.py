"""Bulk translation on Ray Data: the same windows of lines as in one process, on many workers.

Ray gives each window to a worker, and to another one if that worker dies, so every window comes
back exactly once. Windows come back in order, so the output is that of a single process.
"""

import logging
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.capabilities import choose_engine
from regard.errors import InputError
from regard.generation.search import SearchOptions
from regard.generation.translator import TORCH_WINDOW, WINDOW, Translation, open_translator
from regard.hardware import cpu_count
from regard.model_folder import read_description

_AT_ONCE = 64  # windows that are sent to the cluster together and held in memory here


class ClusterTranslator:
    """Translates windows of lines on a cluster, as a Translator does in one process.

    Args:
        folder: path of the model on every machine of the cluster.
        opening: arguments of `open_translator`.
        address: address of a running cluster; None starts one on this machine's cores.
    """

    def __init__(
        self, folder: Path, *, opening: Mapping[str, Any], address: str | None = None
    ) -> None:
        if address:
            _enable_token()
        try:
            import ray
            import ray.data
        except ImportError as error:
            raise InputError("--cluster needs Ray: pip install 'regard[ray]'.") from error
        ensemble = [Path(other).resolve() for other in opening.get("ensemble", ())]
        self.ray: Any = ray
        self.folder, self.opening = folder.resolve(), {**opening, "ensemble": ensemble}
        described = read_description(folder)
        names = ("engine", "int8", "torch_feature")
        chosen = {name: opening[name] for name in names if name in opening}
        engine = choose_engine(described.family, described.model, **chosen)
        self.window = TORCH_WINDOW if engine == "torch" or ensemble else WINDOW
        self._start(address)

    def translate_windows(
        self, given: Iterable[Sequence[str]], options: SearchOptions
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each window, in order; an empty window forces output."""
        for batch in _batches(given):
            rows = [{"number": i, "lines": list(window)} for i, window in enumerate(batch)]
            for number, row in enumerate(self._translate(rows, options)):
                assert row["number"] == number, "windows come back in order"
                yield pickle.loads(row["done"])

    def close(self) -> None:
        """Leave the cluster; one that was started here is stopped."""
        self.ray.shutdown()

    def _start(self, address: str | None) -> None:
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if not address:
            options |= {"include_dashboard": False, "num_cpus": cpu_count()}
        # Ray waits half a minute for its own processes, which is too short on a busy machine.
        for left in reversed(range(1 if address else 3)):
            try:
                self.ray.init(address or "local", **options)
                return
            except Exception as error:  # Ray raises nothing more specific
                self.ray.shutdown()
                if left == 0:
                    where = f"at {address!r}" if address else "on this machine"
                    raise InputError(
                        f"Ray did not start {where} ({error}): start a cluster with `ray start "
                        "--head` and give its address (and, from another machine, its token in "
                        "RAY_AUTH_TOKEN), or translate without --cluster."
                    ) from error

    def _translate(
        self, rows: list[dict[str, Any]], options: SearchOptions
    ) -> Iterator[dict[str, Any]]:
        data = self.ray.data
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        workers = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        found = data.from_items(rows, override_num_blocks=len(rows)).map(
            TranslationActor,
            fn_constructor_args=(str(self.folder), self.opening, options),
            compute=data.ActorPoolStrategy(size=min(workers, len(rows))),
            num_cpus=1,
        )  # an actor that dies is restarted, and its window is translated again
        return iter(found.iter_rows())


class TranslationActor:
    """One worker of the cluster."""

    def __init__(self, folder: str, opening: dict[str, Any], options: SearchOptions) -> None:
        os.environ["REGARD_WORKERS"] = "1"  # every core has an actor
        self.translator, self.options = open_translator(Path(folder), **opening), options

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        (done,) = self.translator.translate_windows([list(row["lines"])], self.options)
        return {"number": row["number"], "done": pickle.dumps(done)}


def _enable_token() -> None:
    """Let Ray use the token of the environment or of `ray start`, which it ignores by default."""
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if "RAY_AUTH_TOKEN" in os.environ or file.is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def _batches(windows: Iterable[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    """Yield lists of up to `_AT_ONCE` windows; an empty window ends a list."""
    batch: list[Sequence[str]] = []
    for window in windows:
        batch += [window] if window else []
        if batch and (not window or len(batch) == _AT_ONCE):
            yield batch
            batch = []
    if batch:
        yield batch
