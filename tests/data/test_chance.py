import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from regard.data.batches import uniform_draws


def test_the_first_number_of_splitmix64_by_its_published_value():
    # the reference generator with seed 0 gives 0xE220A8397B1DCDAF first; here it mixes four times
    from regard.data.batches import _STEP, _mixed

    assert _mixed(np.array([_STEP]))[0] == 0xE220A8397B1DCDAF


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
