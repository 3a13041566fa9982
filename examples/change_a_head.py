"""Change something inside a model, and compare what it then writes."""

import regard

model = regard.load("dates")
given = "12 août 2021"
letters = range(4, 8)  # where "août" stands among the tokens

edits = {
    "as it is": [],
    "the month hidden": [regard.forbid("decoder.cross", key=key) for key in letters],
    "attention too warm": [regard.temperature("decoder.cross", 5.0)],
    "attention switched off": [regard.ablate("decoder.cross", head=0)],
}
for name, edit in edits.items():
    print(f"{name:>22}: {model.trace(given, edits=edit).output['text']}")
