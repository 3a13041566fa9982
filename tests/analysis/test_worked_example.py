from math import e, inf, tanh
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from regard.analysis.worked_example import (
    DEFAULT,
    EXAMPLES,
    find_example,
    list_examples,
    read_example,
    work,
)
from regard.errors import FileError, InputError, UnknownNameError


def close(table, values, tolerance=1e-4):
    given, wanted = torch.tensor(table.values), torch.tensor(values)
    assert_close(given.float(), wanted.float(), atol=tolerance, rtol=0)


def test_the_default_example_by_hand():
    worked = work()
    close(worked["query"], [[2, 0, 1, 1], [0, 2, 0, 2], [2, 1, 1, 2]])
    close(worked["key"], [[0, 1, 1, 2], [2, 0, 2, 0], [1, 1, 2, 2]])
    close(worked["value"], [[1, 2, 3, 3], [0, 6, 2, 0], [1, 5, 4, 3]])
    close(worked["compared"], [[3, 6, 6], [6, 0, 6], [6, 6, 9]])
    close(worked["scores"], [[1.5, 3, 3], [3, 0, 3], [3, 3, 4.5]])
    weights = [[0.1004, 0.4498, 0.4498], [0.4879, 0.0243, 0.4879], [0.1543, 0.1543, 0.6914]]
    close(worked["weights"], weights)
    output = [[0.5502, 5.1487, 3.0000, 1.6506], [0.9757, 3.5607, 3.4636, 2.9271]]
    close(worked["context"], [*output, [0.8457, 4.6914, 3.5372, 2.5372]])


def test_with_a_causal_mask_the_first_word_sees_only_itself():
    worked = work({**DEFAULT, "mask": "causal"})
    close(worked["weights"], [[1, 0, 0], [0.9526, 0.0474, 0], [0.1543, 0.1543, 0.6914]])
    assert worked["masked"].values[0] == [1.5, -inf, -inf]
    assert worked["context"].values[0] == worked["value"].values[0]


def test_every_spelling_of_a_mask():
    rows = [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    by_hand = work({**DEFAULT, "mask": rows})["weights"].values
    pairs = [[i, j] for i in range(3) for j in range(3) if rows[i][j]]
    assert work({**DEFAULT, "mask": {"window": 1}})["weights"].values == by_hand
    assert work({**DEFAULT, "mask": {"edges": pairs}})["weights"].values == by_hand


def test_without_projections_the_inputs_are_used():
    worked = work({"x": [[1, 0], [0, 1]], "similarity": "dot"})
    close(worked["context"], torch.softmax(torch.eye(2), -1).tolist())
    assert [table.name for table in worked.tables] == [
        *("x", "query", "key", "value", "compared", "exponentials", "weights", "context")
    ]


def test_cross_attention_has_other_inputs_for_keys_and_values():
    worked = work({"x": [[1.0, 0]], "x_key": [[1, 0], [0, 1], [1, 1]], "similarity": "cosine"})
    close(worked["compared"], [[1, 0, 2**-0.5]])
    assert (worked["weights"].rows, worked["weights"].columns) == (["1"], ["1", "2", "3"])


def test_learned_similarities_read_their_weights():
    general = work({"x": [[1, 0], [0, 1]], "similarity": "general", "general": [[8, 9], [9, 8]]})
    close(general["weights"], [[0.2689, 0.7311], [0.7311, 0.2689]])
    parts = {"w_query": [[1, 0]], "w_key": [[0, 1]], "v": [[2]]}
    additive = work({"x": [[0.5, 1.0]], "similarity": "additive", "additive": parts})
    close(additive["compared"], [[2 * torch.tanh(torch.tensor(1.5)).item()]])


def shipped(name):
    return work(read_example(find_example(Path(name))))


@pytest.mark.parametrize("name", list_examples())
def test_every_shipped_example_has_two_titles_and_works(name):
    english, korean = list_examples()[name]
    assert english.isascii()
    assert any("가" <= c <= "힣" for c in korean)
    assert (EXAMPLES / f"{name}.toml").exists()
    worked = shipped(name)
    assert worked.tables[-1].values


def test_efficient_attention_by_hand():
    first = [0.5377, 4.8584, 2.8742, 1.6132]
    last = [[0.8388, 3.9406, 3.2708, 2.5165], [0.6560, 4.4987, 3.0302, 1.9680]]
    close(shipped("efficient")["efficient output"], [first, *last])


def test_two_heads_are_the_heads_of_the_split_columns():
    worked, whole = shipped("multi-head"), work()
    close(worked["joined"], [[*a, *b] for a, b in zip(*_contexts(worked), strict=True)])
    halves = torch.tensor(whole["query"].values), torch.tensor(whole["key"].values)
    scores = halves[0][:, :2] @ halves[1][:, :2].T / 2**0.5
    close(worked["weights"], scores.softmax(-1).tolist())


def _contexts(worked):
    return [table.values for table in worked.tables if table.name == "context"]


def test_the_inner_steps_of_additive_attention_by_hand():
    # B = [1, 0]; C = [1, 0] and [1, 1]; tanh of the sums, times v = [1, 2]
    worked = shipped("additive")
    close(worked["mixed"], [[tanh(2), tanh(0)], [tanh(2), tanh(1)]])
    close(worked["compared"], [[tanh(2), tanh(2) + 2 * tanh(1)]])


def test_patches_are_cut_row_by_row():
    worked = shipped("patches")
    assert worked["patches"].values == [[0] * 4, [1] * 4, [1, 1, 1, 0], [0] * 4]
    close(worked["x"], [[0, 0], [2, 2], [2, 1], [0, 0]])


def test_exponentials_and_temperature_zero():
    close(
        work()["exponentials"], [[e**1.5, e**3, e**3], [e**3, 1, e**3], [e**3, e**3, e**4.5]], 1e-3
    )
    cold = shipped("temperature-0")
    assert [table.name for table in cold.tables].count("exponentials") == 0
    close(cold["weights"], [[0, 0.5, 0.5], [0.5, 0, 0.5], [0, 0, 1]])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"w_query": [[1, 0, 1, 0]] * 4}, "w_query has 4 rows, but the inputs are 3 wide"),
        ({"x": [[1, 2], [3]]}, r"x is \[\[1, 2\], \[3\]\]; give rows of numbers"),
        ({"mask": "diagonal"}, "mask is 'diagonal'; it can be 'none', 'causal'"),
        ({"words": ["one"]}, "give 3 words, one for each row"),
        ({"n_heads": 3}, "n_heads is 3; give a number that divides the widths 4, 4, 4"),
        ({"form": "fast"}, "form is 'fast'; choose one of exact, efficient"),
        ({"image": [[1, 2, 3]]}, "patch_size is 2; give a number that divides the image of 1 × 3"),
        ({"temperature": "hot"}, "temperature is 'hot'; give a number"),
        ({"temperature": -1}, "temperature is -1.0; it must be 0"),
        ({"similarity": "dots"}, "unknown similarity 'dots'"),
        ({"similarity": "additive", "additive": {}}, "w_query is None; give rows of numbers"),
    ],
)
def test_invalid_settings_are_refused(change, sentence):
    with pytest.raises(InputError, match=sentence):
        work({**DEFAULT, **change})


def test_invalid_files_are_refused(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('x = [[1]]\nwrods = ["a"]')
    with pytest.raises(UnknownNameError, match=r"'wrods'; the nearest .*words"):
        read_example(path)
    path.write_text("x = [[1]")
    with pytest.raises(FileError, match=r"mine\.toml is not TOML"):
        read_example(path)
    path.write_text("temperature = 1")
    with pytest.raises(InputError, match="has no x"):
        read_example(path)
    path.write_bytes(b"x = '\xff'")
    with pytest.raises(FileError, match="not a text file in UTF-8"):
        read_example(path)
    with pytest.raises(FileError, match=r"none\.toml cannot be read"):
        read_example(tmp_path / "none.toml")
