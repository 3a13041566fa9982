"""Bulk translation on Ray Data: the same windows of lines as in one process, on many workers.

Ray hands each window to a worker, and to another one if that worker dies, so every window comes
back exactly once; windows come back in order, so the output is that of a single process.
"""

import logging
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.generation.search import SearchOptions
from regard.generation.translator import (
    SLOW_WINDOW,
    WINDOW,
    Translation,
    choose_engine,
    open_translator,
)
from regard.model_folder import read_description

_AT_ONCE = 64
"""Windows that are handed to the cluster together: what this process holds in memory."""
_CHOOSING = ("engine", "int8", "only_torch")
"""What of an opening decides about the engine."""
_TRIES = 3
"""Ray waits half a minute for its own processes, which can be too short on a busy machine."""


class ClusterTranslator:
    """Translates windows of lines on a cluster, as a LineTranslator does in one process.

    Args:
        folder: where every machine of the cluster finds the model.
        opening: how it is opened; see `open_translator`.
        address: of a running cluster; without one, a cluster of this machine's cores is started.
    """

    def __init__(
        self,
        folder: Path,
        *,
        opening: Mapping[str, Any],
        address: str | None = None,
    ) -> None:
        if address:
            _show_token()
        others = [Path(other).resolve() for other in opening.get("others", ())]
        self.ray, self.folder = _ray(), folder.resolve()
        self.opening = {**opening, "others": others} if others else dict(opening)
        chosen = {name: value for name, value in opening.items() if name in _CHOOSING}
        engine = choose_engine(read_description(folder), **chosen)
        slow = engine == "torch" or opening.get("others")
        self.window = SLOW_WINDOW if slow else WINDOW
        self._start(address)

    def translate_windows(
        self, given: Iterable[Sequence[str]], options: SearchOptions
    ) -> Iterator[list[Translation]]:
        """The translations of each window, in order; an empty one brings out what came before."""
        for some in _handfuls(given):
            rows = [{"number": i, "lines": list(window)} for i, window in enumerate(some)]
            for number, row in enumerate(self._translated(rows, options)):
                assert row["number"] == number, "windows come back in order"
                yield pickle.loads(row["done"])

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self.ray.shutdown()

    def _start(self, address: str | None) -> None:
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        local = {} if address else {"include_dashboard": False, "num_cpus": os.cpu_count()}
        for left in reversed(range(1 if address else _TRIES)):
            try:
                self.ray.init(
                    address or "local", log_to_driver=False, logging_level="ERROR", **local
                )
                return
            except Exception as error:  # Ray raises nothing more special than that
                self.ray.shutdown()
                if left == 0:
                    where = f"at {address!r}" if address else "on this machine"
                    raise InputError(
                        f"Ray did not start {where} ({error}): start a cluster with `ray start "
                        "--head`, name its address and, from another machine, give its token in "
                        "$RAY_AUTH_TOKEN; or translate without --cluster."
                    ) from error

    def _translated(
        self, rows: list[dict[str, Any]], options: SearchOptions
    ) -> Iterator[dict[str, Any]]:
        data = self.ray.data
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        workers = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        told = {"folder": str(self.folder), "opening": self.opening, "options": options}
        found = data.from_items(rows, override_num_blocks=len(rows)).map(
            Translating,
            fn_constructor_kwargs=told,
            compute=data.ActorPoolStrategy(size=min(workers, len(rows))),
            num_cpus=1,
        )  # a worker that dies is started again, and what it was doing is done again
        return iter(found.iter_rows())


class Translating:
    """What one worker of the cluster does."""

    def __init__(self, folder: str, opening: dict[str, Any], options: SearchOptions) -> None:
        os.environ["REGARD_WORKERS"] = "1"  # the other cores have workers of their own
        self.translator, self.options = open_translator(Path(folder), **opening), options

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with its lines translated."""
        (done,) = self.translator.translate_windows([list(row["lines"])], self.options)
        return {"number": row["number"], "done": pickle.dumps(done)}


def _show_token() -> None:
    """Let Ray use the token that a cluster asks for: of this user, or of the environment.

    `ray start` makes one, but programs that join do not look for it unless they are told to.
    """
    own = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if "RAY_AUTH_TOKEN" in os.environ or own.is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def _handfuls(windows: Iterable[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    some: list[Sequence[str]] = []
    for window in windows:
        some += [window] if window else []
        if some and (not window or len(some) == _AT_ONCE):
            yield some
            some = []
    if some:
        yield some


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError(
            "a cluster needs Ray, which is not installed: pip install 'regard[ray]'."
        ) from error
    return ray
