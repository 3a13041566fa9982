"""Shapes that the scores of a site broadcast to."""

import pytest
import torch

from regard.attention.tile import broadcast_lead


@pytest.mark.parametrize(
    "shapes", [[(2, 1), (3,)], [(), (1,)], [(4, 1, 2), (3, 1), (1,)], [(2, 3)]]
)
def test_leading_axes_broadcast_as_in_torch(shapes):
    assert broadcast_lead(*shapes) == tuple(torch.broadcast_shapes(*shapes))


def test_leading_axes_that_differ_do_not_broadcast():
    with pytest.raises(RuntimeError, match=r"\(2,\), \(3,\) do not broadcast"):
        broadcast_lead((2,), (3,))
