"""Each view shows the trace's own numbers."""

import re
from itertools import combinations

import pytest

from regard.analysis.heads import readable
from regard.server.html_export import write_html
from regard.trace.capture import trace_model

SITE = "decoder.layers.1.cross"


def test_the_first_paint_is_never_empty(explorer, trace, shown):
    explorer.open()
    start = readable(trace)
    assert explorer.state() == {} or explorer.state().get("language") == "en"
    assert f"head {start.head}" in explorer.text(".pattern .title")
    weights = trace[start.site].weights(start.head)[start.query]
    assert shown(weights[start.key].item()) in explorer.text(".reading")
    assert explorer.text(".sentence").endswith(".")


def test_nothing_is_asked_from_outside(explorer):
    explorer.open()
    explorer.page.wait_for_selector("#regard[data-pictures]")
    inner = ("file:", "data:", "about:", "blob:")
    assert [url for url in explorer.requests if not url.startswith(inner)] == []
    assert len([url for url in explorer.requests if url.startswith("file:")]) == 1


@pytest.mark.parametrize("stage", ["scores", "masked", "weights"])
def test_ranges_are_those_of_the_table(explorer, trace, stage, shown):
    explorer.open(f"site=decoder.layers.0.self&head=1&stage={stage}")
    table = getattr(trace["decoder.layers.0.self"], stage)(1)
    finite = table[table.isfinite()]
    caption = explorer.text(".board figcaption .range")
    assert caption.startswith(f"{shown(finite.min().item())} … {shown(finite.max().item())}")
    assert ("−∞" in caption) == (stage == "masked")


def test_areas_of_circles_are_in_proportion_to_the_weights(explorer, trace):
    page = explorer.open(f"site={SITE}&head=2&query=0&key=0")
    path = page.get_attribute("svg.grid path.weights", "d")
    radii = sorted(float(r) for r in re.findall(r"a([\d.]+) \1 0 1 0 \d", path))
    weights = sorted(trace[SITE].weights(2).flatten().tolist())[-len(radii) :]
    largest = max(radii) ** 2 / max(weights)
    for radius, weight in zip(radii, weights, strict=True):
        assert radius**2 / largest == pytest.approx(weight, abs=0.01)


def test_rows_sum_to_one_and_axes_say_who_asks(explorer):
    page = explorer.open(f"site={SITE}&head=0")
    sums = page.locator("svg.grid text.sum").all_text_contents()
    assert set(sums) == {"1.000", "sum"}
    axes = page.locator("svg.grid text.axis").all_text_contents()
    assert any("queries" in text for text in axes)
    assert any("keys" in text for text in axes)


def test_turning_the_grid_exchanges_the_axes_and_keeps_the_numbers(explorer):
    page = explorer.open(f"site={SITE}&head=0&query=1&key=2")
    before = explorer.text(".reading")
    rows = page.locator("svg.grid text.tick.query").all_text_contents()
    page.click("button.turn")
    explorer.settle()
    assert explorer.text(".reading") == before
    first = page.locator("svg.grid text.tick").first
    assert "key" in first.get_attribute("class")
    assert page.locator("svg.grid text.tick.query").all_text_contents() == rows


def test_bars_show_one_querys_weights_and_their_sum(explorer, trace, shown):
    page = explorer.open(f"site={SITE}&head=1&query=2&key=0&view=bars")
    numbers = page.locator("svg.bars text.number").all_text_contents()
    weights = trace[SITE].weights(1)[2]
    assert numbers[: len(weights)] == [shown(x) for x in weights.tolist()]
    assert numbers[-1] == "sum 1.000"


def test_lines_carry_the_numbers_of_the_chosen_query(explorer, trace, shown):
    page = explorer.open(f"site={SITE}&head=1&query=2&key=0&view=lines")
    weights = trace[SITE].weights(1)[2].tolist()
    seen = page.locator("svg.lines text.number").all_text_contents()
    assert seen == [shown(x) for x in weights if x >= 0.02]


def test_a_graph_has_a_node_for_each_token(explorer, trace):
    page = explorer.open("site=encoder.layers.0.self&head=1&view=graph")
    assert page.locator("svg.graph circle.node").count() == len(trace.tokens["source"])
    explorer.page.goto(f"{explorer.path.as_uri()}#language=en&site={SITE}&head=0&view=graph")
    explorer.settle()
    both = len(trace.tokens["source"]) + len(trace.tokens["output"])
    assert page.locator("svg.graph circle.node").count() == both


def test_labels_of_a_graph_do_not_lie_on_each_other(open_page, translator, tmp_path):
    longer = trace_model(translator, "the dog is sleeping " * 3, "der Hund schläft " * 3)
    write_html(longer, tmp_path / "longer.html")
    page = open_page(tmp_path / "longer.html").open("site=decoder.layers.1.cross&view=graph")
    boxes = [one.bounding_box() for one in page.locator("svg.graph text.tick").all()]
    assert len(boxes) == len(longer.tokens["source"]) + len(longer.tokens["output"])
    for one, other in combinations(boxes, 2):
        left, right = sorted((one, other), key=lambda box: box["x"])
        assert left["x"] + left["width"] <= right["x"] or abs(one["y"] - other["y"]) > 12


def test_three_stages_stand_side_by_side(explorer):
    page = explorer.open("site=decoder.layers.0.self&head=0&stage=all")
    names = page.locator(".board figcaption > span:not(.range)").all_inner_texts()
    assert [name for name in names if name in ("scores", "masked", "weights")] == [
        "scores",
        "masked",
        "weights",
    ]
    assert page.locator(".board svg.grid").count() == 3
    assert page.locator(".board path.hatch").count() == 2  # masked cells, in two of the three


def test_words_add_up_the_weights_of_their_tokens(explorer, trace):
    explorer.open(f"site={SITE}&head=0&words=1")
    labels = explorer.page.locator("svg.grid text.tick.key").all_text_contents()
    words = trace.words["source"]
    n_words = len({word for word in words if word is not None})
    assert len(labels) == n_words + sum(word is None for word in words)
    assert "sleeping" in labels


def test_the_filter_leaves_the_fewest_keys_that_make_up_the_share(explorer, trace):
    page = explorer.open(f"site={SITE}&head=1&query=0&view=bars&mass=0.5")
    weights, _ = trace[SITE].weights(1)[0].sort(descending=True)
    needed = int((weights.cumsum(0) < 0.5).sum()) + 1
    assert page.locator("svg.bars text.tick.key").count() == needed


def test_hovering_reads_all_digits_of_a_cell(explorer, trace):
    page = explorer.open(f"site={SITE}&head=2&query=0&key=0")
    box = page.locator("svg.grid rect.chosen").bounding_box()
    middle = (box["x"] + box["width"] * 2.5, box["y"] + box["height"] * 1.5)
    page.mouse.move(*middle)
    explorer.settle()
    weight = trace[SITE].weights(2)[1, 2].item()
    read = page.locator(".reading .weights b").inner_text()
    assert float(read.replace("−", "-")) == pytest.approx(weight, abs=1e-6)


def test_steps_show_the_numbers_of_the_trace(explorer, trace, shown):
    page = explorer.open(f"site={SITE}&head=1&query=2&key=3&pinned=1")
    page.wait_for_selector(".steps[data-ready]")
    site = trace[SITE]
    said = {name: explorer.text(f'[data-step="{name}"]') for name in _steps(page)}
    assert list(said) == [
        *("input", "compare", "scale", "mask", "softmax", "values", "join", "output", "residual"),
    ]
    assert shown(site.compared(1)[2, 3].item()) in said["compare"]
    assert shown(site.scores(1)[2, 3].item()) in said["scale"]
    assert "allowed" in said["mask"]
    assert shown(site.weights(1)[2, 3].item()) in said["softmax"]
    assert "sum to 1.000" in said["softmax"]


def _steps(page):
    return page.evaluate("[...document.querySelectorAll('.step')].map((x) => x.dataset.step)")


def test_a_forbidden_key_is_shown_as_minus_infinity(explorer):
    page = explorer.open("site=decoder.layers.0.self&head=0&query=0&key=2&pinned=1")
    page.wait_for_selector(".steps[data-ready]")
    assert "forbidden → −∞" in explorer.text('[data-step="mask"]')


def test_all_terms_of_a_product_sum_up_to_it(explorer, trace, shown):
    page = explorer.open(f"site={SITE}&head=1&query=2&key=3&pinned=1")
    page.wait_for_selector(".steps[data-ready]")
    page.click('[data-step="compare"] summary')
    last = page.locator("table.terms tr:last-child td:last-child").inner_text()
    assert last == shown(trace[SITE].compared(1)[2, 3].item())


def test_a_number_lights_up_what_it_comes_from(explorer):
    page = explorer.open(f"site={SITE}&head=1&query=2&key=3&pinned=1")
    page.wait_for_selector(".steps[data-ready]")
    page.hover('[data-step="scale"] [data-name="score"]')
    lit = page.evaluate("[...document.querySelectorAll('.lit')].map((x) => x.dataset.name)")
    assert lit == ["compared"]


def test_the_table_for_those_who_listen_holds_the_weights(explorer, trace, shown):
    page = explorer.open(f"site={SITE}&head=0")
    explorer.settle(300)
    cells = page.locator(".pattern .visually-hidden table td").all_inner_texts()
    weights = trace[SITE].weights(0).flatten().tolist()
    assert [cell for cell in cells if cell] == [shown(x) for x in weights]


def test_the_answer_has_its_probabilities(explorer, trace):
    page = explorer.open()
    tokens = page.locator('.token[data-side="output"]')
    assert tokens.count() == len(trace.tokens["output"])
    chance = float(tokens.nth(1).get_attribute("data-chance"))
    assert chance == pytest.approx(2.718281828 ** trace.output["log_probabilities"][1], rel=1e-6)


def test_the_overview_sorts_and_tells_measures(explorer, trace):
    page = explorer.open()
    page.wait_for_selector("#regard[data-pictures]")
    assert page.locator(".group canvas").count() == 3
    page.select_option(".overview select", "entropy")
    explorer.settle()
    assert explorer.state()["sort"] == "entropy"
    page.click(".group:nth-child(3) canvas", position={"x": 12, "y": 12})
    explorer.settle()
    from regard.analysis.heads import measure_heads

    paths = [path for path in trace if path.endswith("cross")]
    heads = [
        (one.entropy, path, i) for path in paths for i, one in enumerate(measure_heads(trace[path]))
    ]
    _, path, head = min(heads)
    state = explorer.state()
    assert (state["site"], state["head"]) == (path, str(head))
