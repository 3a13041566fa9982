"""Batches: every example once, full, resumable, reproducible; padding and random numbers."""

import gzip
import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from regard.data.batches import Batches, collate, pad, split_among_ranks, uniform_draws
from regard.data.corpus import build_corpus
from regard.data.readers import parallel_text
from regard.errors import InputError
from regard.text.tokenizer_training import train_tokenizer

REPOSITORY = Path(__file__).resolve().parents[2]
LENGTHS = [np.random.default_rng(side).integers(1, 40, 3000).astype(np.uint32) for side in (0, 1)]


def batches(lengths=LENGTHS, **options):
    return Batches(lengths, **({"tokens": 200, "seed": 5} | options))


def cost(batch, lengths=LENGTHS):
    return len(batch) * max(max(side[batch]) for side in lengths)


def padding(all_batches, lengths):
    padded = sum(
        len(batch) * sum(int(side[batch].max()) for side in lengths) for batch in all_batches
    )
    return 1 - sum(int(side.sum()) for side in lengths) / padded


def test_three_short_examples_fill_one_batch_and_a_long_one_another_by_hand():
    # 3 × 4 = 12 tokens fit into 12; with the fourth example it would be 4 × 10
    lengths = [np.array([3, 10, 4, 4])]
    found = list(Batches(lengths, tokens=12, shuffle=False))
    assert found == [[0, 2, 3], [1]]


def test_the_longer_side_counts():
    lengths = [np.array([1, 1, 1]), np.array([6, 6, 6])]
    assert [len(batch) for batch in Batches(lengths, tokens=12, shuffle=False)] == [2, 1]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=60),
    st.integers(9, 40),
    st.integers(1, 4),
    st.integers(1, 20),
    st.booleans(),
)
def test_every_example_goes_to_exactly_one_rank_and_all_ranks_get_as_many_batches(
    pairs, tokens, ranks, block, shuffle
):
    lengths = [np.array(side) for side in zip(*pairs, strict=True)]
    options = {"tokens": tokens, "ranks": ranks, "block": block, "shuffle": shuffle}
    shares = [list(Batches(lengths, rank=rank, **options)) for rank in range(ranks)]
    examples = [number for share in shares for batch in share for number in batch]
    assert sorted(examples) == list(range(len(pairs)))
    assert len({len(share) for share in shares}) == 1
    assert len(shares[0]) == Batches(lengths, **options).count()
    assert all(cost(batch, lengths) <= tokens for share in shares for batch in share if batch)


def test_batches_are_as_full_as_possible():
    found = list(batches(shuffle=False))
    for batch, following in pairwise(found):
        assert cost([*batch, following[0]]) > 200


def test_epochs_and_seeds_differ_and_each_is_always_the_same():
    first = [list(batches().all(epoch)) for epoch in range(3)]
    assert first == [list(batches().all(epoch)) for epoch in range(3)]
    other = list(batches(seed=6).all(0))
    assert len({str(one) for one in [*first, other]}) == 4
    one_after_another = batches()
    assert [list(one_after_another) for _ in range(3)] == first


def test_a_shuffled_epoch_mixes_short_and_long_batches():
    sizes = [cost(batch) / len(batch) for batch in batches()]
    rises = sum(after > before for before, after in pairwise(sizes))
    assert 0.3 < rises / len(sizes) < 0.7


@pytest.mark.parametrize("block", [100, 2**17])
def test_resuming_anywhere_equals_an_uninterrupted_run(block):
    whole = batches(block=block)
    expected = [batch for _ in range(3) for batch in whole]
    dice = random.Random(1)
    for _ in range(2):
        stops = sorted(dice.sample(range(len(expected)), 4))
        found, state = [], batches().state()
        for stop in [*stops, len(expected)]:
            resumed = batches(block=block)
            resumed.resume(state)
            while len(found) < stop:
                for batch in resumed:
                    found.append(batch)
                    if len(found) == stop:
                        break
            state = resumed.state()
        assert found == expected


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_ranks_may_change_at_a_stop_without_losing_or_repeating_an_example(before, after):
    firsts = [batches(rank=rank, ranks=before) for rank in range(before)]
    seen = Counter()
    for loader in firsts:
        for _, batch in zip(range(7), loader, strict=False):
            seen.update(batch)
    states = [loader.state() for loader in firsts]
    assert all(state == {"epoch": 0, "position": 7 * before} for state in states)
    for rank in range(after):
        loader = batches(rank=rank, ranks=after)
        loader.resume(states[0])
        for batch in loader:
            seen.update(batch)
        assert loader.state() == {"epoch": 1, "position": 0}
    assert seen == Counter(range(3000))


def test_resuming_after_the_last_batch_starts_the_next_epoch():
    loader = batches()
    list(zip(range(loader.count()), loader, strict=False))
    state = loader.state()
    assert state == {"epoch": 0, "position": loader.count()}
    resumed = batches()
    resumed.resume(state)
    assert list(resumed) == []
    assert list(resumed) == list(batches().all(1))


def test_steps_of_several_ranks_are_the_batches_of_one():
    together = list(batches().all(0))
    ranks = [list(batches(rank=rank, ranks=3)) for rank in range(3)]
    for step in range(len(together) // 3):
        assert [share[step] for share in ranks] == together[3 * step : 3 * step + 3]


def test_leftover_batches_are_split_among_the_ranks():
    assert split_among_ranks([[1, 2, 3, 4], [5]], 3) == [[1, 2], [3, 4], [5]]
    assert split_among_ranks([[1]], 3) == [[1], [], []]


def test_without_shuffling_examples_come_block_by_block():
    found = list(batches(shuffle=False, block=1000).all(0))
    assert found == list(batches(shuffle=False, block=1000, seed=99).all(4))
    firsts = [min(batch) for batch in found]
    assert sorted(firsts, key=lambda number: number // 1024) == firsts


@pytest.mark.data("multi30k")
def test_padding_on_multi30k_is_below_three_percent_of_small_and_six_of_large_batches(data):
    texts = [
        gzip.decompress((data / "multi30k" / f"train.{side}.gz").read_bytes())
        .decode()
        .splitlines()[:12_000]
        for side in ("en", "de")
    ]
    tokenizer = train_tokenizer(texts[0] + texts[1], vocab_size=4000)
    lengths = [np.array([len(ids) for ids in tokenizer.encode_batch(side)]) for side in texts]
    for tokens, limit in [(1024, 0.03), (4096, 0.06)]:
        for epoch in (0, 1):
            found = list(Batches(lengths, tokens=tokens).all(epoch))
            assert padding(found, lengths) < limit
            tokens_in = sum(int(side.sum()) for side in lengths) / 2
            assert len(found) < 1.1 * tokens_in / tokens * 1.05  # and batches are full


def test_two_million_lines_are_batched_in_constant_memory(tmp_path):
    program = """
import sys, types
root = types.ModuleType("regard"); root.__path__ = ["regard"]; sys.modules["regard"] = root
import numpy as np
from regard.data.batches import Batches
count = 2_000_000
lengths = np.memmap(sys.argv[1] + "/l", np.uint32, "w+", shape=(count,))
for start in range(0, count, 100_000):
    lengths[start:start + 100_000] = np.random.default_rng(start).integers(3, 60, 100_000)
lengths.flush()
del lengths
def own():  # memory without the mapped files
    (line,) = [line for line in open("/proc/self/status") if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024
def peak(count):
    lengths = np.memmap(sys.argv[1] + "/l", np.uint32, "r", shape=(count,))
    most = 0
    for number, batch in enumerate(Batches([lengths, lengths], tokens=4096)):
        if number % 100 == 0:
            most = max(most, own())
        if number == 3000:
            break
    return most
small = peak(300_000)
print(peak(count) - small)
"""
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    assert float(run.stdout) < 8  # MiB


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([], {}, "at least one example"),
        ([np.array([])], {}, "at least one example"),
        ([np.array([1]), np.array([1, 2])], {}, "a length on every side"),
        ([np.array([1])], {"rank": 2, "ranks": 2}, "The rank is 2; with 2 ranks it must be 0 to 1"),
        ([np.array([1])], {"tokens": 0}, "must be 1 or more"),
        ([np.array([3, 9])], {"tokens": 8}, "Example 1 has 9 tokens, more than the 8 of a batch"),
    ],
)
def test_invalid_arguments_are_refused(lengths, options, message):
    with pytest.raises(InputError, match=message):
        batches(lengths, **options)


def test_an_invalid_state_is_refused():
    with pytest.raises(InputError, match="not a state of batches"):
        batches().resume({"epoch": -1, "position": 0})


def test_shorter_lists_are_padded_at_the_end():
    ids, lengths = pad([[5, 6, 7], [8]], 0)
    assert ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert lengths.tolist() == [3, 1]
    assert ids.dtype == lengths.dtype == np.int64


def test_no_lists_and_empty_lists_are_padded_too():
    assert pad([], 0)[0].shape == (0, 0)
    assert pad([[], [1]], 9)[0].tolist() == [[9], [1]]


def test_examples_of_a_corpus_are_collated(write, tokenizer, tmp_path):
    rows = parallel_text(write("a.tsv", "A dog runs.\tx\nA\tEin Hund läuft.\n"))
    corpus = build_corpus(rows, tokenizer, cache=tmp_path / "cache")
    (source, source_lengths), (target, _) = collate(corpus, [1, 0], pad_ids=[0, 0])
    assert tokenizer.decode_batch(source) == ["A", "A dog runs."]
    assert tokenizer.decode_batch(target) == ["Ein Hund läuft.", "x"]
    assert source_lengths.tolist() == [
        len(tokenizer.encode("A")),
        len(tokenizer.encode("A dog runs.")),
    ]
    assert collate(corpus, [], pad_ids=[0, 0])[0][0].shape == (0, 0)
    with pytest.raises(InputError, match="the fields source, target: 2 pad ids are needed, 1"):
        collate(corpus, [0], pad_ids=[0])


def test_the_first_number_of_splitmix64_by_its_published_value():
    # the reference generator with seed 0 gives 0xE220A8397B1DCDAF first; here it mixes four times
    from regard.data.batches import _GAMMA, _mix

    assert _mix(np.array([_GAMMA]))[0] == 0xE220A8397B1DCDAF


def test_numbers_depend_on_seed_epoch_and_example_and_on_nothing_else():
    together = uniform_draws(3, 1, np.arange(10), 4)
    assert_array_equal(uniform_draws(3, 1, np.array([7]), 4)[0], together[7])
    assert_array_equal(uniform_draws(3, 1, np.arange(10), 2), together[:, :2])
    for other in (uniform_draws(4, 1, np.arange(10), 4), uniform_draws(3, 2, np.arange(10), 4)):
        assert not (other == together).any()


def test_numbers_are_spread_evenly_and_do_not_follow_each_other():
    numbers = uniform_draws(0, 0, np.arange(20_000), 3)
    assert 0 <= numbers.min() < numbers.max() < 1
    assert_allclose(numbers.mean(axis=0), 0.5, atol=0.01)
    assert_allclose(numbers.var(axis=0), 1 / 12, atol=0.003)
    counts = np.histogram(numbers[:, 0], bins=100)[0]
    assert ((counts - 200) ** 2 / 200).sum() < 160  # chi-squared, 99 degrees of freedom
    by_column = np.corrcoef(numbers.T)
    assert abs(by_column - np.eye(3)).max() < 0.03
    assert abs(np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]) < 0.03


def test_any_whole_number_is_a_seed_and_there_may_be_no_examples():
    assert uniform_draws(-1, 0, np.array([0]), 1).shape == (1, 1)
    assert uniform_draws(2**70, 2**40, np.array([2**62]), 1).shape == (1, 1)
    assert uniform_draws(0, 0, np.array([], np.int64), 3).shape == (0, 3)
