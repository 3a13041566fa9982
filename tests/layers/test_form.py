import pytest
import torch
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.efficient import efficient_attention
from regard.attention.similarity import Alibi
from regard.errors import InputError, UnknownNameError
from regard.layers.attention_forms import FormPlan, make_form

QKV = torch.randn(3, 2, 4, 5, 6)


def test_exact_is_attention_by_its_definition():
    assert_close(make_form(FormPlan(n_heads=4, d_k=QKV[0].size(-1)))(*QKV), attend(*QKV))


def test_exact_with_alibi_prefers_near_keys():
    got = make_form(FormPlan(n_heads=4, d_k=QKV[0].size(-1), alibi=True))(*QKV)
    assert_close(got, attend(*QKV, similarity=Alibi(4)))
    assert (got - attend(*QKV)).abs().max() > 0.01


def test_efficient_is_efficient_attention():
    assert_close(
        make_form(FormPlan(name="efficient", n_heads=4, d_k=4))(*QKV), efficient_attention(*QKV)
    )


def test_an_unknown_form_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="the nearest are efficient"):
        make_form(FormPlan(name="efficent", n_heads=4, d_k=4))


def test_alibi_needs_scores():
    with pytest.raises(InputError, match="efficient attention never computes"):
        make_form(FormPlan(name="efficient", n_heads=4, d_k=4, alibi=True))
