"""Size of an HTML file with all heads of a model, compared with bertviz if it is installed.

12 layers × 12 heads, width 64, random queries and keys. bertviz is not a dependency: install it
with pip install --no-deps --target FOLDER bertviz and set PYTHONPATH=FOLDER.
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path
from time import process_time

import torch

import regard

LENGTHS = (32, 128, 256, 512)
N_LAYERS, N_HEADS, D_K = 12, 12, 64
PEER_UP_TO = 256  # its size grows quadratically, to about 1.7 GB at 512


def ours(length: int) -> int:
    """Return the size of regard's page in bytes."""
    with regard.watch() as trace:
        for layer in range(N_LAYERS):
            query, key, value = torch.randn(3, 1, N_HEADS, length, D_K)
            regard.attend(query, key, value, site=f"encoder.layers.{layer}.self")
    trace.tokens["source"] = [f"word{i}" for i in range(length)]
    with tempfile.TemporaryDirectory() as folder:
        trace.html(Path(folder) / "page.html")
        return (Path(folder) / "page.html").stat().st_size


def theirs(length: int) -> int:
    """Return the size of bertviz' model view in bytes."""
    from bertviz import model_view  # pyright: ignore[reportMissingImports]

    weights = tuple(torch.rand(1, N_HEADS, length, length).softmax(-1) for _ in range(N_LAYERS))
    words = [f"word{i}" for i in range(length)]
    return len(model_view(weights, words, html_action="return").data.encode())


def main():
    torch.manual_seed(0)
    contenders = {"regard": (ours, max(LENGTHS))}
    if find_spec("bertviz"):
        contenders["bertviz"] = (theirs, PEER_UP_TO)
    print("| tokens | library | MB | process time, s |\n| --- | --- | --- | --- |")
    for length in LENGTHS:
        for name, (size, up_to) in contenders.items():
            if length <= up_to:
                start = process_time()
                megabytes = size(length) / 1e6
                print(f"| {length} | {name} | {megabytes:.1f} | {process_time() - start:.1f} |")


if __name__ == "__main__":
    main()
