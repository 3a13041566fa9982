"""Hypothesis strategies for damaged JSON values and bytes."""

import copy
import json
from random import Random

from hypothesis import strategies as st

HOSTILE = [
    *(None, True, False, 0, -1, 1, 2, 7, 10**6, 10**12, 10**30, -(10**30), 0.5, 1e-320, 1e308),
    *(
        float("nan"),
        float("inf"),
        "",
        "x",
        "../../etc/passwd",
        "/dev/zero",
        "\ud800",
        "\0",
        "é" * 99,
    ),
    *([], {}, [[]], [None], {"a": {}}, [1, 2, 3], "[" * 99, "a" * 10_000, [[[[[[[[]]]]]]]]),
]
seeds = st.integers(0, 2**32 - 1)


def _paths(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in items:
        if isinstance(one, dict | list):
            yield from _paths(one, (*path, key))
        else:
            yield (*path, key)


def change_json(value, seed):
    """Return the value with one to three places replaced, deleted, renamed or doubled."""
    random, value = Random(seed), copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        paths = [path for path in _paths(value) if path]
        if not paths:
            return random.choice(HOSTILE)
        *parents, key = random.choice(paths)
        at = value
        for parent in parents:
            at = at[parent]
        action = random.random()
        if action < 0.7:
            at[key] = copy.deepcopy(random.choice(HOSTILE))  # which a later change may change
        elif action < 0.85:
            del at[key]
        elif isinstance(at, dict):
            at[random.choice(("x", "family", "n_layers", ""))] = at.pop(key)
        else:
            at.insert(0, copy.deepcopy(at[key]))
    return value


def change_bytes(data, seed):
    """Return the bytes with flips, cuts, insertions, zeros, or a huge number somewhere."""
    random, data = Random(seed), bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        at, kind = random.randrange(len(data) + 1), random.randrange(6)
        size = random.choice((1, 2, 4, 8, 64))
        if kind == 0:
            data[at : at + size] = random.randbytes(size)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = random.randbytes(size)
        elif kind == 3:
            data[at : at + size] = bytes(size)
        elif kind == 4:
            data[at : at + size] = b"\xff" * size
        elif at < len(data):
            data[at] ^= 1 << random.randrange(8)
    return bytes(data)


def change_safetensors(data, seed):
    """Change the header by its values: names, types, shapes, offsets and metadata."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = change_json(json.loads(data[8:end]), seed)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return len(text).to_bytes(8, "little") + text + data[end:]


def change_file(file, seed):
    """Damage a file in place: JSON by its values most of the time, everything else by its bytes."""
    data = file.read_bytes()
    if file.suffix == ".json" and seed % 4:
        text = json.dumps(change_json(json.loads(data), seed))
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
    elif file.suffix == ".safetensors" and seed % 4 > 1:
        file.write_bytes(change_safetensors(data, seed))
    else:
        file.write_bytes(change_bytes(data, seed))
