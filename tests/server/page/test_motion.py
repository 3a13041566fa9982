"""Motion explains and then ends: what stays are the numbers of the tensors, also without motion."""

import re

import pytest

from regard.analysis.steps import space

CROSS = "decoder.layers.1.cross"
SELF = "encoder.layers.1.self"
MOTION = pytest.mark.parametrize("motion", ["no-preference", "reduce"])
# Count the animations that start, and the frames in which vectors have not arrived.
WATCH = """() => {
  window.started = 0;
  const animate = Element.prototype.animate;
  Element.prototype.animate = function (...given) {
    window.started += 1;
    window.longest = Math.max(window.longest ?? 0, given[1].duration + (given[1].delay ?? 0));
    return animate.apply(this, given);
  };
}"""


@MOTION
def test_values_shrink_to_their_weights_and_stack_into_the_output(
    open_page, file, trace, shown, motion
):
    explorer = open_page(file, height=1200, reduced_motion=motion)
    page = explorer.open(f"site={CROSS}&head=1&query=1&key=0&pane=steps&pinned=1")
    page.wait_for_selector(".steps[data-ready]")
    page.evaluate(WATCH)
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(f'.steps[data-ready="{CROSS}:1:2:0"]')
    page.locator('[data-step="values"]').scroll_into_view_if_needed()
    if motion == "no-preference":
        page.wait_for_function("() => window.started > 1")
        assert page.evaluate("window.longest") <= 400
    page.wait_for_function("() => !document.querySelector('.ghost-strip')")
    assert (page.evaluate("window.started") > 0) == (motion == "no-preference")
    weights = trace[CROSS].weights(1)[2]
    rows = page.locator(".line.value")
    found = [float(x) for x in rows.evaluate_all("all => all.map((x) => x.dataset.weight)")]
    largest = sorted(weights.tolist(), reverse=True)[:3]  # the selected key may be the fourth
    assert found[:3] == pytest.approx(largest, rel=1e-5)
    assert rows.first.locator(".num").inner_text() == shown(weights.max().item())


@MOTION
def test_vectors_travel_and_end_at_the_projection(open_page, file, trace, motion):
    explorer = open_page(file, reduced_motion=motion)
    page = explorer.open(f"site={SELF}&head=1&query=2&view=space")
    page.wait_for_selector(".custom-view[data-ready]")
    page.wait_for_selector("svg.space:not([aria-busy])")
    seen = space(trace, SELF, n_axes=3)

    def points(selector):
        path = page.get_attribute(selector, "d")
        return [(float(x), float(y)) for x, y in re.findall(r"M(-?[\d.]+) (-?[\d.]+)a", path)]

    before, after = points("path.before"), points("path.after")
    scale = (before[3][0] - before[0][0]) / (seen.before[3, 0] - seen.before[0, 0]).item()
    for i, (x, y) in enumerate(after):
        moved = (seen.after[i] - seen.before[0]).tolist()
        expected = (before[0][0] + scale * moved[0], before[0][1] - scale * moved[1])
        assert (x, y) == pytest.approx(expected, abs=0.7)  # the radius of rings and discs differs


@MOTION
def test_stages_turns_and_temperatures_end_at_the_weights(open_page, file, trace, motion):
    explorer = open_page(file, reduced_motion=motion)
    page = explorer.open(f"site={CROSS}&head=1&query=1&key=0&stage=scores")
    explorer.settle()
    for key in "sst":  # masked scores, weights, turned
        page.keyboard.press(key)
        explorer.settle()
    page.wait_for_function("() => !document.querySelector('svg.grid').getAnimations().length")
    radii = re.findall(r"a([\d.]+) ", page.get_attribute("path.weights", "d"))
    largest = max(float(r) for r in radii)
    cell = page.locator("svg.grid rect.chosen").bounding_box()["width"] + 1
    most = trace[CROSS].weights(1).max().item()
    full = cell / 2 - max(1, cell * 0.06)
    assert largest == pytest.approx(most**0.5 * full, abs=0.6)  # area is the weight
