"""Put a trained model into the package: its weights in half precision, its card complete.

Run: python tools/adopt.py NAME RUN --recipe recipes/NAME.toml
RUN is the folder that `regard train` wrote; NAME is what `regard.load` shall call it.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from regard.analysis.heads import ALIGNMENT_HEADS
from regard.interop.model_names import ZOO
from regard.model import Model
from regard.training.prepare_data import split_images
from regard.training.recipe import Recipe, read_recipe


def score_of(run: Path) -> str:
    """How the run scored on data that nothing was chosen by, or else on its validation data."""
    result = json.loads((run / "training" / "result.json").read_text("utf-8"))
    part = "test" if result["test"] else "validation"
    numbers = ", ".join(f"{name} {value:.4g}" for name, value in result[part].items())
    return f"{part}: {numbers}"


def draw_examples(recipe: Recipe, labels: tuple[str, ...], folder: Path) -> None:
    """One picture of each class that nothing was learned from, as PNG files named by class."""
    parts = split_images(recipe)
    images = parts.get("test") or parts["validation"]
    folder.mkdir(exist_ok=True)
    for label, name in enumerate(labels):
        number = int(np.flatnonzero(images.labels == label)[0])
        called = name.lower().replace("/", " or ").replace(" ", "-")
        Image.fromarray(images.pixels[number].squeeze()).save(folder / f"{called}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("run", type=Path)
    parser.add_argument("--recipe", type=Path, required=True)
    parser.add_argument("--heads", type=Path, help="which heads align, as `regard evaluate` found")
    options = parser.parse_args()
    recipe = read_recipe(options.recipe)
    model = Model.load(options.run)
    extras = {key: value for key, value in model.extras.items() if key != "recipe"}
    if model.tokenizer is not None and recipe.evaluate.snapshots:
        extras["examples"] = list(recipe.evaluate.snapshots)
    if options.heads is not None:
        extras[ALIGNMENT_HEADS] = json.loads(options.heads.read_text("utf-8"))
    card = replace(
        model.card,
        data=recipe.about,
        license=recipe.license,
        score=score_of(options.run),
        others={**model.card.others, "recipe": f"recipes/{options.recipe.name}"},
        text=f"## Limits\n\n{recipe.limits.strip()}",
    )
    folder = ZOO / options.name
    labels = tuple(recipe.data.classes) if recipe.data.classes else model.labels
    model = replace(model, labels=labels)
    replace(model, card=card, extras=extras).save(folder, dtype="float16")
    if model.pixels is not None:
        draw_examples(recipe, model.labels or (), folder / "examples")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder}: {size / 1e6:.2f} MB\n{(folder / 'card.md').read_text('utf-8')}")


if __name__ == "__main__":
    main()
