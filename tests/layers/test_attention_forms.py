"""Forms of attention built from settings."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.similarity import Alibi
from regard.errors import InputError, UnknownNameError
from regard.layers.attention_forms import AttentionConfig

QKV = torch.randn(3, 2, 4, 5, 6)


def make_form(*, alibi=False, **settings):
    return AttentionConfig(**settings).make_form(n_heads=4, d_k=6, n_tokens=9, alibi=alibi)


def test_exact_is_attention_by_its_definition():
    assert_close(make_form()(*QKV), attend(*QKV))


def test_exact_with_alibi_prefers_near_keys():
    got = make_form(alibi=True)(*QKV)
    assert_close(got, attend(*QKV, similarity=Alibi(4)))
    assert (got - attend(*QKV)).abs().max() > 0.01


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        (
            {"attention": "efficient", "attention_normalization": "scaling"},
            "Efficient(normalization='scaling')",
        ),
        (
            {"attention": "linformer", "attention_size": 3, "attention_sharing": "none"},
            "Linformer(n_tokens=9, n_projected=3, sharing='none', n_heads=4)",
        ),
        (
            {
                "attention": "longformer",
                "attention_size": 2,
                "attention_dilation": 2,
                "attention_global_tokens": (0,),
            },
            "Longformer(longformer(2, dilation=2, global_tokens=[0]))",
        ),
        (
            {"attention": "performer", "attention_size": 8, "attention_redraw": 5},
            "Performer(d_k=6, n_features=8, redraw_every=5)",
        ),
        (
            {
                "attention": "reformer",
                "attention_size": 4,
                "attention_rounds": 2,
                "attention_chunk": 3,
            },
            "Reformer(d_k=6, n_buckets=4, n_rounds=2, chunk=3)",
        ),
    ],
)
def test_every_setting_reaches_its_form(settings, shown):
    form = make_form(**settings)
    assert repr(form) == shown
    assert form(*QKV).shape == QKV[0].shape


def test_global_tokens_get_separate_projections():
    form = make_form(
        attention="longformer", attention_global_tokens=(0,), attention_global_heads=True
    )
    assert form.to_global_query.weight.shape == (24, 24)


def test_a_setting_of_another_form_is_refused():
    with pytest.raises(InputError, match="attention_rounds is a setting of reformer attention"):
        make_form(attention="performer", attention_rounds=2)


def test_an_unknown_form_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="the nearest are efficient"):
        make_form(attention="efficent")
