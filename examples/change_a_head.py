"""Change what a model computes inside, and compare the output."""

import regard

model = regard.load("dates")
date = "12 août 2021"
letters = range(4, 8)  # positions of "août"

edits = {
    "unchanged": [],
    "month hidden": [regard.forbid("decoder.cross", key=key) for key in letters],
    "temperature of 5": [regard.temperature("decoder.cross", 5.0)],
    "attention ablated": [regard.ablate("decoder.cross", head=0)],
}
for name, edit in edits.items():
    print(f"{name:>18}: {model.trace(date, edits=edit).output.text}")
