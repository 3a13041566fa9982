"""Train a small translator in a minute: it learns to write numbers backwards."""

from pathlib import Path

import regard

numbers = [str(7 * n * n + n) for n in range(1, 2000)]
Path("numbers.tsv").write_text("".join(f"{one}\t{one[::-1]}\n" for one in numbers))
recipe = {
    "task": "translation",
    "data": {"train": "numbers.tsv", "validation": 0.05},
    "tokenizer": {"kind": "characters"},
    "model": {
        "d_model": 64,
        "n_heads": 4,
        "d_ff": 128,
        "n_encoder_layers": 1,
        "n_decoder_layers": 1,
    },
    "training": {"lr": 0.005, "warmup": 50, "batch_tokens": 2000, "steps": 400, "threads": 1},
}
result = regard.train(recipe, "backwards")
print(
    f"{result.steps} steps in {result.seconds:.0f} s, validation loss {result.scores['loss']:.3f}"
)

model = result.model  # or regard.load("backwards"); to explore it: regard serve backwards
print(model.translate("12345").text)
print(model.trace("12345"))
