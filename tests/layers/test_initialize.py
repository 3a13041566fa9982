import pytest
import torch
from torch import nn

from regard.errors import UnknownNameError
from regard.layers.embedding import LearnedPositions, TokenEmbedding
from regard.layers.stack import initialize

N_IN, N_OUT = 300, 900


def linear(scheme: str) -> nn.Linear:
    torch.manual_seed(0)
    module = nn.Linear(N_IN, N_OUT)
    initialize(module, scheme)
    return module


@pytest.mark.parametrize(
    ("scheme", "variance"),
    [
        ("xavier_uniform", 2 / (N_IN + N_OUT)),
        ("xavier_normal", 2 / (N_IN + N_OUT)),
        ("lecun", 1 / N_IN),
        ("lecun_uniform", 1 / N_IN),
        ("he", 2 / N_IN),
        ("he_uniform", 2 / N_IN),
        ("normal", 0.02**2),
    ],
)
def test_variances_are_those_of_the_papers_and_not_their_roots(scheme, variance):
    module = linear(scheme)
    assert module.weight.var().item() == pytest.approx(variance, rel=0.02)
    assert not module.bias.any()


def test_scaled_embeddings_have_unit_variance():
    torch.manual_seed(0)
    tokens, positions = TokenEmbedding(1000, 64, scaled=True), LearnedPositions(1000, 64)
    for module in (tokens, positions):
        initialize(module, "xavier_uniform")
    assert tokens(torch.arange(1000)[None]).var().item() == pytest.approx(1, rel=0.05)
    assert positions.weight.var().item() == pytest.approx(1 / 64, rel=0.05)


def test_norms_start_as_plain_normalization():
    norm = nn.LayerNorm(4)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    initialize(norm)
    assert norm.weight.tolist() == [1, 1, 1, 1]
    assert norm.bias.tolist() == [0, 0, 0, 0]


def test_an_unknown_scheme_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="initialization is 'xavier'; choose one of"):
        initialize(nn.Linear(1, 1), "xavier")
