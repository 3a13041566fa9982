"""Small runs that learn to write numbers backwards: their data, and a recipe for it."""

from pathlib import Path

RECIPE = """
task = "translation"
[data]
train = "{data}"
validation = 0.1
[tokenizer]
kind = "characters"
[model]
d_model = 16
n_heads = 2
d_ff = 32
n_encoder_layers = 1
n_decoder_layers = {n_decoder_layers}
{model}
[training]
lr = 0.01
warmup = 5
threads = 1
{training}
[evaluate]
{evaluate}
"""


def write_numbers(folder: Path) -> Path:
    """A file of numbers and, after a tab, the same backwards."""
    path = folder / "digits.tsv"
    numbers = [str(7 * n * n + n) for n in range(1, 300)]
    path.write_text("".join(f"{' '.join(n)}\t{' '.join(reversed(n))}\n" for n in numbers))
    return path


def write_recipe(
    folder: Path, *, training: str, evaluate: str, model: str = "", n_decoder_layers: int = 1
) -> Path:
    """A recipe for them; `training`, `evaluate` and `model` are more lines of those tables."""
    path = folder / "backwards.toml"
    tables = {"model": model, "training": training, "evaluate": evaluate}
    data = write_numbers(folder)
    path.write_text(RECIPE.format(data=data, n_decoder_layers=n_decoder_layers, **tables))
    return path
