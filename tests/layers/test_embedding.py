import pytest
import torch
from torch.testing import assert_close

from regard.errors import InputError
from regard.layers.embedding import TokenEmbedding


def embedding(scaled: bool) -> TokenEmbedding:
    made = TokenEmbedding(3, 4, scaled=scaled)
    made.weight.data = torch.arange(12.0).view(3, 4)
    return made


def test_a_token_is_its_row_times_the_root_of_the_width_by_hand():
    ids = torch.tensor([[2, 0]])
    assert_close(embedding(False)(ids), torch.tensor([[[8.0, 9, 10, 11], [0, 1, 2, 3]]]))
    assert_close(embedding(True)(ids), torch.tensor([[[16.0, 18, 20, 22], [0, 2, 4, 6]]]))


def test_projection_is_the_product_with_the_same_matrix_unscaled():
    made = embedding(True)
    states = torch.randn(2, 5, 4)
    assert_close(made.project(states), states @ made.weight.T)


@pytest.mark.parametrize("wrong", [3, -1])
def test_an_id_outside_the_vocabulary_is_refused(wrong):
    with pytest.raises(InputError, match="the vocabulary has 3 tokens, 0 to 2"):
        embedding(False)(torch.tensor([[0, wrong]]))


def test_one_token_of_one_text_and_no_text_at_all():
    assert embedding(False)(torch.tensor([[1]])).shape == (1, 1, 4)
    assert embedding(False)(torch.empty(0, 5, dtype=torch.long)).shape == (0, 5, 4)
