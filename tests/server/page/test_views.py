"""Every view shows the trace's own numbers."""

import re
from itertools import combinations

import pytest
import torch

import regard
from regard.analysis.heads import default_selection, measure_heads
from regard.server.html_export import write_html
from regard.trace.capture import trace_model
from tests.server.page.test_approximation_view import trace_of

SITE = "decoder.layers.1.cross"
CELL = f"site={SITE}&head=1&query=2&key=3&pinned=1"


def test_the_page_opens_on_a_readable_head_without_any_request(explorer, trace, shown):
    page = explorer.open()
    start = default_selection(trace)
    assert explorer.state().get("language", "en") == "en"
    assert f"head {start.head}" in explorer.text(".pattern .title")
    weights = trace[start.site].weights(start.head)[start.query]
    assert shown(weights[start.key].item()) in explorer.text(".reading")
    assert explorer.text(".sentence").endswith(".")
    page.wait_for_selector("#regard[data-pictures]")
    inner = ("file:", "data:", "about:", "blob:")
    assert [url for url in explorer.requests if not url.startswith(inner)] == []
    assert len([url for url in explorer.requests if url.startswith("file:")]) == 1


def test_the_answer_has_its_probabilities(explorer, trace):
    tokens = explorer.open().locator('.token[data-side="output"]')
    assert tokens.count() == len(trace.tokens["output"])
    probability = float(tokens.nth(1).get_attribute("data-chance"))
    expected = 2.718281828 ** trace.output["log_probabilities"][1]
    assert probability == pytest.approx(expected, rel=1e-6)


def test_decoder_self_attention_asks_at_the_token_of_the_answer_that_it_reads(explorer):
    page = explorer.open("site=decoder.layers.0.self&head=1&query=1&key=1")
    page.click('.token[data-side="output"] >> nth=2')
    explorer.settle()
    assert explorer.state()["query"] == "3"  # position 0 is [CLS]
    chosen = explorer.text('.token[data-side="output"].asks').removeprefix("##")
    assert explorer.text(".sentence .term.query").lstrip("·") == chosen


def test_captions_give_the_range_of_the_table(explorer, trace, shown):
    page = explorer.open("site=decoder.layers.0.self&head=1&stage=all")
    ranges = page.locator(".board figcaption .range").all_inner_texts()
    assert page.locator(".board path.hatch").count() == 2  # masked cells, in two of three stages
    for stage, text in zip(("scores", "masked", "weights"), ranges, strict=True):
        table = getattr(trace["decoder.layers.0.self"], stage)(1)
        finite = table[table.isfinite()]
        assert text.startswith(f"{shown(finite.min().item())} … {shown(finite.max().item())}")
        assert ("−∞" in text) == (stage == "masked")


def test_circle_areas_are_proportional_to_weights(explorer, trace):
    page = explorer.open(f"site={SITE}&head=2&query=0&key=0")
    path = page.get_attribute("svg.grid path.weights", "d")
    radii = sorted(float(r) for r in re.findall(r"a([\d.]+) \1 0 1 0 \d", path))
    weights = sorted(trace[SITE].weights(2).flatten().tolist())[-len(radii) :]
    largest = max(radii) ** 2 / max(weights)
    for radius, weight in zip(radii, weights, strict=True):
        assert radius**2 / largest == pytest.approx(weight, abs=0.01)


def test_row_sums_and_axes_of_the_grid(explorer):
    page = explorer.open(f"site={SITE}&head=0&query=1&key=2")
    assert set(page.locator(".grid-plot text.sum").all_text_contents()) == {"1.000", "sum"}
    axes = " ".join(page.locator(".grid-plot text.axis").all_text_contents())
    assert "queries" in axes
    assert "keys" in axes
    before = explorer.text(".reading")
    rows = page.locator(".grid-plot text.tick.query").all_text_contents()
    page.click(".more summary")
    page.click("button.turn")
    explorer.settle()
    assert explorer.text(".reading") == before
    assert "key" in page.locator("svg.labels.aside text.tick").first.get_attribute("class")
    assert page.locator(".grid-plot text.tick.query").all_text_contents() == rows


def test_bars_and_lines_show_the_weights_of_one_query(explorer, trace, shown):
    weights = trace[SITE].weights(1)[2].tolist()
    page = explorer.open(f"site={SITE}&head=1&query=2&key=0&view=bars")
    numbers = page.locator("svg.bars text.number").all_text_contents()
    assert numbers == [*(shown(x) for x in weights), "sum 1.000"]
    page.keyboard.press("2")
    explorer.settle()
    seen = page.locator("svg.lines text.number").all_text_contents()
    assert seen == [shown(x) for x in weights if x >= 0.02]


def test_the_filter_keeps_the_fewest_keys_that_make_up_the_share(explorer, trace):
    page = explorer.open(f"site={SITE}&head=1&query=0&view=bars&mass=0.5")
    weights, _ = trace[SITE].weights(1)[0].sort(descending=True)
    needed = int((weights.cumsum(0) < 0.5).sum()) + 1
    assert page.locator("svg.bars text.tick.key").count() == needed


def test_a_graph_has_a_node_for_each_token(explorer, trace):
    page = explorer.open("site=encoder.layers.0.self&head=1&view=graph")
    assert page.locator("svg.graph circle.node").count() == len(trace.tokens["source"])
    page.evaluate(f"location.hash = '#language=en&site={SITE}&head=0&view=graph'")
    explorer.settle()
    both = len(trace.tokens["source"]) + len(trace.tokens["output"])
    assert page.locator("svg.graph circle.node").count() == both


def test_graph_labels_do_not_overlap(open_page, translator, tmp_path):
    longer = trace_model(translator, "the dog is sleeping " * 3, "der Hund schläft " * 3)
    write_html(longer, tmp_path / "longer.html")
    page = open_page(tmp_path / "longer.html").open(f"site={SITE}&view=graph")
    boxes = [one.bounding_box() for one in page.locator("svg.graph text.tick").all()]
    assert len(boxes) == len(longer.tokens["source"]) + len(longer.tokens["output"])
    for one, other in combinations(boxes, 2):
        left, right = sorted((one, other), key=lambda box: box["x"])
        assert left["x"] + left["width"] <= right["x"] or abs(one["y"] - other["y"]) > 12


def test_tokens_are_grouped_into_words(explorer, trace):
    explorer.open(f"site={SITE}&head=0&words=1")
    labels = explorer.page.locator(".grid-plot text.tick.key").all_text_contents()
    words = trace.words["source"]
    n_words = len({word for word in words if word is not None})
    assert len(labels) == n_words + sum(word is None for word in words)
    assert "sleeping" in labels


def test_hovering_shows_all_digits_of_a_cell(explorer, trace):
    page = explorer.open(f"site={SITE}&head=2&query=0&key=0")
    box = page.locator("svg.grid rect.chosen").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 2.5, box["y"] + box["height"] * 1.5)
    explorer.settle()
    read = page.locator(".reading .weights b").inner_text()
    assert float(read) == pytest.approx(trace[SITE].weights(2)[1, 2].item(), abs=1e-6)


def test_steps_show_the_numbers_of_the_trace_and_their_inputs(explorer, trace, shown):
    page = explorer.open(CELL)
    page.wait_for_selector(".steps[data-ready]")
    site = trace[SITE]
    names = page.evaluate("[...document.querySelectorAll('.step')].map((x) => x.dataset.step)")
    assert names == [
        *("input", "compare", "scale", "mask", "softmax", "values", "join", "output", "residual"),
        "answer",
    ]
    texts = {name: explorer.text(f'[data-step="{name}"]') for name in names}
    product = shown(site.compared(1)[2, 3].item())
    assert product in texts["compare"]
    assert shown(site.scores(1)[2, 3].item()) in texts["scale"]
    assert "allowed" in texts["mask"]
    assert shown(site.weights(1)[2, 3].item()) in texts["softmax"]
    assert "sum to 1.000" in texts["softmax"]
    page.click('[data-step="compare"] summary')
    assert page.locator("table.terms tr:last-child td:last-child").inner_text() == product
    page.hover('[data-step="scale"] [data-name="score"]')
    lit = page.evaluate("[...document.querySelectorAll('.lit')].map((x) => x.dataset.name)")
    assert lit == ["compared"]


SIMILARITIES = {
    "scaled": ({}, "s = q·k / √d_k"),
    "dot": ({"similarity": "dot"}, "s = q·k"),
    "cosine": ({"similarity": "cosine"}, "s = cos(q, k)"),
    "general": ({"similarity": regard.General(6, 6)}, "s = q · W k"),
    "additive": ({"similarity": regard.Additive(6, 6, 5)}, "s = v · tanh(W_Q q + W_K k)"),
}


def test_a_score_has_the_formula_of_its_similarity(open_page, tmp_path):
    with regard.watch() as trace:
        for name, (options, _) in SIMILARITIES.items():
            regard.attend(*torch.randn(3, 1, 2, 4, 6), site=name, **options)
    write_html(trace, tmp_path / "x.html")
    explorer = open_page(tmp_path / "x.html")
    for name, (_, formula) in SIMILARITIES.items():
        page = explorer.open(f"site={name}&head=1&query=1&key=2&pinned=1")
        page.wait_for_selector(".steps[data-ready] [data-step=scale]")
        assert page.get_attribute("[data-step=scale] h3 .math", "aria-label") == formula
        assert page.locator("[data-step=scale] .root").count() == (2 if name == "scaled" else 0)


def test_attention_without_scores_has_no_scaled_dot_product(open_page, tmp_path):
    write_html(trace_of("performer"), tmp_path / "x.html")
    page = open_page(tmp_path / "x.html").open("query=2&key=3&pinned=1")
    page.wait_for_selector(".steps[data-ready] [data-step=softmax]")
    formulas = page.locator(".steps .step h3 .math").evaluate_all(
        "all => all.map(x => x.ariaLabel)"
    )
    assert "w = φ(q)·φ(k) / Σ φ(q)·φ(k)" in formulas
    assert not any("e^s" in formula or "q·k" in formula for formula in formulas)
    assert page.locator(".steps [data-step=scale], .steps [data-step=compare]").count() == 0


def test_products_and_roots_stay_together_in_both_languages(explorer):
    for language in ("en", "ko"):
        page = explorer.open(f"language={language}&{CELL}")
        page.wait_for_selector(".steps[data-ready] [data-step=scale]")
        lines, sign, bar = page.evaluate(
            """() => {
              const box = (name) => document.querySelector(name).getBoundingClientRect();
              const scale = "[data-step=scale] .body .root";
              const letters = [...document.querySelector(".product").getClientRects()];
              return [
                new Set(letters.map((x) => x.top)).size,
                box(`${scale} .radical`),
                box(`${scale} .radicand`),
              ];
            }"""
        )
        assert lines == 1
        assert sign["right"] == pytest.approx(bar["left"], abs=0.5)
        assert sign["top"] == pytest.approx(bar["top"], abs=1)  # the sign ends where its bar starts
        assert sign["bottom"] == pytest.approx(bar["bottom"], abs=1)


def test_a_masked_key_has_a_score_of_minus_infinity(explorer):
    page = explorer.open("site=decoder.layers.0.self&head=0&query=0&key=2&pinned=1")
    page.wait_for_selector(".steps[data-ready]")
    assert "forbidden → −∞" in explorer.text('[data-step="mask"]')


def test_screen_readers_get_a_table_of_the_weights(explorer, trace, shown):
    page = explorer.open(f"site={SITE}&head=0")
    explorer.settle(210)
    cells = page.locator(".pattern .visually-hidden table td").all_inner_texts()
    weights = trace[SITE].weights(0).flatten().tolist()
    assert [cell for cell in cells if cell] == [shown(x) for x in weights]


def test_the_overview_sorts_heads_by_a_measure(explorer, trace):
    page = explorer.open()
    page.wait_for_selector("#regard[data-measured]")
    assert page.locator(".group canvas").count() == 3
    page.select_option(".overview select", "entropy")
    explorer.settle()
    assert explorer.state()["sort"] == "entropy"
    page.click(".group:nth-child(3) canvas", position={"x": 12, "y": 12})
    paths = [path for path in trace if path.endswith("cross")]
    heads = [
        (one.entropy, path, i) for path in paths for i, one in enumerate(measure_heads(trace[path]))
    ]
    _, path, head = min(heads)
    state = explorer.state()
    assert (state["site"], state["head"]) == (path, str(head))
