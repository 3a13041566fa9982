import mmap

from regard.bench.timing import markdown_table, median_times, process_memory, reset_peak_memory


def test_contenders_alternate_and_medians_are_returned():
    now, order = 0.0, []

    def contender(name, seconds):
        def call():
            nonlocal now
            order.append(name)
            now += seconds

        return call

    calls = {"a": contender("a", 2.0), "b": contender("b", 6.0)}
    assert median_times(calls, rounds=3, clock=lambda: now) == {"a": 2.0, "b": 6.0}
    assert order[4:] == ["b", "a", "a", "b", "b", "a"]


def test_peak_memory_includes_what_was_freed():
    reset_peak_memory()
    before = process_memory()
    with mmap.mmap(-1, 40_000_000) as block:  # malloc could reuse pages that are counted already
        block.write(bytes(len(block)))
    assert process_memory() - before > 20


def test_a_table_by_hand():
    assert markdown_table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
