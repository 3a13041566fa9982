import pytest
import torch
from torch.testing import assert_close

import regard
from regard.analysis.steps import space
from regard.errors import InputError, UnknownNameError
from regard.trace.trace import Trace


def test_points_on_a_line_need_one_axis_by_hand():
    # attention adds (1, 0) to one point and nothing to the other: all lies on the first axis
    before = torch.tensor([[[0.0, 0.0], [4.0, 0.0]]])
    added = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]])
    with regard.watch() as watched:
        regard.attend(*torch.randn(3, 1, 1, 2, 2), site="s")
    trace = Trace(watched.sites, {"s.output": added, "s.residual": before + added})
    seen = space(trace, "s")
    assert seen.share[0] == pytest.approx(1.0)
    assert_close((seen.after - seen.before)[:, 0].abs(), torch.tensor([1.0, 0.0]).double())


@pytest.mark.parametrize("n_axes", [2, 3])
def test_arrows_add_up_from_before_to_after(trace, n_axes):
    seen = space(trace, "decoder.layers.1.cross", n_axes=n_axes)
    assert seen.arrows.shape == (3, len(seen.before), n_axes)
    assert_close(seen.before + seen.arrows.sum(0) + seen.rest, seen.after, rtol=0, atol=1e-5)


def test_axes_are_the_principal_ones_of_words(trace):
    path = "encoder.layers.0.self"
    seen = space(trace, path)
    residual, output = (
        trace.value(f"{path}.{name}")[0].double() for name in ("residual", "output")
    )
    words = [word is not None for word in trace.words["source"]]
    assert not all(words)
    points = torch.cat([(residual - output)[words], residual[words]])
    variances = torch.linalg.svdvals(points - points.mean(0)) ** 2
    assert_close(sum(seen.share), (variances[:2].sum() / variances.sum()).item())


def test_the_same_trace_gives_the_same_picture(trace):
    one, other = space(trace, "encoder.layers.0.self"), space(trace, "encoder.layers.0.self")
    assert torch.equal(one.before, other.before)


def test_invalid_axes_and_sites_without_streams_are_refused(trace):
    with pytest.raises(InputError, match="2 or 3 axes"):
        space(trace, "encoder.layers.0.self", n_axes=4)
    with regard.watch() as bare:
        regard.attend(*torch.randn(3, 1, 1, 2, 2), site="s")
    with pytest.raises(UnknownNameError, match=r"s\.output"):
        space(bare, "s")
