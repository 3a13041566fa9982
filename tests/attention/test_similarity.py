"""Similarities: by hand, against torch, their laws and corners."""

from math import tanh

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.attention.similarity import (
    SIMILARITIES,
    Additive,
    Alibi,
    CustomSimilarity,
    General,
    Similarity,
    alibi_slopes,
    as_similarity,
    make_similarity,
)
from regard.attention.tile import Grid
from regard.errors import InputError, ShapeError

NAMED = ["dot", "scaled_dot", "cosine"]


def grid_of(n_query: int, n_key: int, *lead: int) -> Grid:
    return Grid.whole(lead, n_query, n_key, torch.device("cpu"))


def test_cosines_by_hand():
    query, key = torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 3.0], [-6.0, -8.0], [-4.0, 3.0]])
    assert_close(as_similarity("cosine").compare(query, key), torch.tensor([[0.96, -1.0, 0.0]]))


def test_general_by_hand():
    similarity = General(2, 3)
    with torch.no_grad():
        similarity.weight.copy_(torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]]))
    # q W = [1, 2, 2 - 2] = [1, 2, 0]
    query, key = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 1.0, 5.0], [4.0, -1.0, 0.0]])
    assert similarity(query, key).tolist() == [[3.0, 2.0]]


def test_additive_by_hand():
    similarity = Additive(1, 1, 2)
    with torch.no_grad():
        similarity.to_query.weight.copy_(torch.tensor([[1.0], [0.0]]))
        similarity.to_key.weight.copy_(torch.tensor([[1.0], [2.0]]))
        similarity.to_score.weight.copy_(torch.tensor([[3.0, -1.0]]))
    # hidden = tanh([q + k, 2 k]), score = 3 h_0 - h_1
    scores = similarity(torch.tensor([[0.5]]), torch.tensor([[0.25], [-0.5]]))
    expected = [3 * tanh(0.75) - tanh(0.5), 3 * tanh(0.0) - tanh(-1.0)]
    assert_close(scores, torch.tensor([expected]))


def test_cosine_is_torchs_cosine_similarity():
    query, key = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8)
    expected = F.cosine_similarity(query.unsqueeze(-2), key.unsqueeze(-3), dim=-1)
    assert_close(as_similarity("cosine").compare(query, key), expected)


def test_general_is_torchs_bilinear_layer():
    similarity, query, key = General(3, 4), torch.randn(5, 3), torch.randn(6, 4)
    for i in range(5):
        expected = F.bilinear(query[i].expand(6, 3).contiguous(), key, similarity.weight[None])
        assert_close(similarity(query, key)[i], expected[:, 0])


@pytest.mark.parametrize("similarity", [*NAMED, General(4, 4)])
def test_dot_products_of_transformed_vectors_equal_the_similarity(similarity):
    similarity = as_similarity(similarity)
    query, key = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    pair = similarity.as_dot(query, key)
    assert pair is not None
    assert_close(pair[0] @ pair[1].mT, similarity.compare(query, key))


@pytest.mark.parametrize("similarity", [Additive(4, 4, 2), CustomSimilarity(torch.cdist)])
def test_other_similarities_are_not_dot_products(similarity):
    assert similarity.as_dot(torch.ones(1, 4), torch.ones(1, 4)) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_zero_vector_has_cosine_zero_with_everything(dtype):
    cosine = as_similarity("cosine").compare(torch.zeros(1, 3, dtype=dtype), torch.eye(3).to(dtype))
    assert cosine.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(
    ("n_heads", "exponents"),
    [
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (3, [4, 8, 2]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes_of_alibi_by_hand(n_heads, exponents):
    assert alibi_slopes(n_heads) == [2.0**-x for x in exponents]


def test_alibi_subtracts_slope_times_distance():
    bias = Alibi(8).bias(grid_of(3, 3, 2, 8))
    assert bias is not None
    expected = torch.tensor([[0, -1, -2], [-1, 0, -1], [-2, -1, 0]])
    assert torch.equal(bias[0], expected * 0.5)
    assert torch.equal(bias[7], expected / 256)


def test_with_cached_keys_alibi_counts_queries_as_the_last_positions():
    whole, step = Alibi(2).bias(grid_of(5, 5, 2)), Alibi(2).bias(grid_of(1, 5, 2))
    assert whole is not None
    assert step is not None
    assert torch.equal(step, whole[:, 4:])


def test_alibi_for_another_number_of_heads_is_refused():
    sentence = (
        r"this alibi similarity was built for 3 heads, but the scores have shape \(2, 4, 5, 5\)"
    )
    with pytest.raises(ShapeError, match=sentence):
        Alibi(3).bias(grid_of(5, 5, 2, 4))
    with pytest.raises(ShapeError, match=r"built for 3 heads, but the scores have shape \(5, 5\)"):
        Alibi(3).bias(grid_of(5, 5))


def test_an_object_is_returned_and_a_function_is_wrapped():
    general = General(2, 2)
    assert as_similarity(general) is general
    own = as_similarity(lambda q, k: q @ k.mT)
    assert isinstance(own, CustomSimilarity)
    assert own.compare(torch.ones(2, 3), torch.ones(4, 3)).tolist() == [[3.0] * 4] * 2


@pytest.mark.parametrize("name", SIMILARITIES)
def test_every_name_can_be_built(name):
    similarity = make_similarity(name, d_q=3, d_k=3, d_hidden=5)
    assert isinstance(similarity, Similarity)
    assert similarity.name == name
    assert similarity.compare(torch.ones(2, 3), torch.ones(4, 3)).shape == (2, 4)


@pytest.mark.parametrize(
    ("name", "made"), [("additive", r"Additive\(d_q, d_k, d_hidden\)"), ("general", r"General\(d_")]
)
def test_the_name_of_a_trained_similarity_is_refused(name, made):
    sentence = f"^similarity '{name}' has trainable weights: build it once with regard.{made}"
    with pytest.raises(InputError, match=sentence):
        as_similarity(name)


def test_an_object_that_is_not_a_similarity_is_refused(no_shape_checks):
    with pytest.raises(
        InputError,
        match=r"^similarity is a name \(dot, scaled_dot, cosine, additive, general\), a similarity "
        r"object or a function of \(queries, keys\), not a int\.$",
    ):
        as_similarity(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("similarity", "name"), [(General(3, 4), "general"), (Additive(3, 4, 5), "additive")]
)
def test_widths_that_do_not_fit_the_weights_are_refused(similarity, name):
    similarity.check(3, 4)
    sentence = (
        f"^queries and keys are 4 and 3 wide, but this {name} similarity was built for 3 and 4.$"
    )
    with pytest.raises(ShapeError, match=sentence):
        similarity.check(4, 3)


def test_a_function_that_returns_the_wrong_shape_is_refused():
    query, key = torch.ones(2, 3, 4), torch.ones(2, 5, 4)
    sentence = (
        r"^the similarity function returned \(2, 5, 3\); for these queries and keys it must "
        r"return scores of shape \(2, 3, 5\)\.$"
    )
    with pytest.raises(ShapeError, match=sentence):
        as_similarity(lambda q, k: (q @ k.mT).mT).compare(query, key)
    with pytest.raises(ShapeError, match="the similarity function returned NoneType; "):
        as_similarity(lambda q, k: None).compare(query, key)  # type: ignore[arg-type]
