import torch
from torch import nn
from torch.testing import assert_close

from regard.attention.mask import causal
from regard.layers.embedding import LearnedPositions, SinusoidalPositions, sinusoid, token_positions
from regard.layers.stack import InputEmbedding, LayerConfig, Stack, cache_length, without_padding
from regard.trace.watch import watch

CPU = torch.device("cpu")


def stack(norm: str = "post", *, cross: bool = False, n_layers: int = 2) -> Stack:
    torch.manual_seed(0)
    plan = LayerConfig(d_model=8, n_heads=2, d_ff=12, norm=norm)
    return Stack(plan, n_layers, path="decoder" if cross else "encoder", cross=cross).eval()


def test_a_stack_is_its_layers_one_after_another():
    made, x = stack(), torch.randn(1, 3, 8)
    assert_close(made(x), made.layers[1](made.layers[0](x)))


def test_only_pre_norm_has_one_more_norm_at_the_end():
    made, x = stack("pre"), torch.randn(1, 3, 8)
    assert_close(made(x), made.norm(made.layers[1](made.layers[0](x))))
    assert stack("post").norm is None


def test_tokens_types_and_positions_are_added_by_hand():
    embedding = InputEmbedding(2, positions=LearnedPositions(3, 2), n_types=2)
    embedding.positions.weight.data = torch.tensor([[1.0, 0], [2, 0], [3, 0]])
    embedding.types.weight.data = torch.tensor([[0.0, 10], [0, 20]])
    tokens = torch.tensor([[[100.0, 0], [200, 0]]])
    got = embedding(tokens, token_positions(2, device=CPU), types=torch.tensor([[1, 0]]))
    assert_close(got, torch.tensor([[[101.0, 20], [202, 10]]]))
    # without types, all tokens have the first type
    assert_close(embedding(tokens, token_positions(2, device=CPU))[0, 0], torch.tensor([101.0, 10]))


def test_the_sum_is_normalized_where_the_model_does_so():
    embedding = InputEmbedding(4, positions=SinusoidalPositions(4), norm=nn.LayerNorm(4))
    tokens = torch.randn(2, 3, 4)
    expected = nn.functional.layer_norm(tokens + sinusoid(3, 4).float(), (4,))
    assert_close(embedding(tokens, token_positions(3, device=CPU)), expected)


def test_reading_step_by_step_equals_reading_at_once():
    made, memory, x = stack("pre", cross=True), torch.randn(2, 4, 8), torch.randn(2, 5, 8)
    cache = made.new_cache()
    assert cache_length(cache) == cache_length(None) == 0
    steps = []
    for first, last in ((0, 2), (2, 3), (3, 5)):
        allowed = causal(offset=cache_length(cache))
        steps.append(made(x[:, first:last], memory, allowed=allowed, cache=cache))
        assert cache_length(cache) == last
    assert_close(torch.cat(steps, dim=1), made(x, memory, allowed=causal()))


def test_a_trace_of_steps_equals_a_trace_of_all_at_once():
    made, memory, x = stack("pre", cross=True), torch.randn(1, 4, 8), torch.randn(1, 5, 8)
    with watch() as whole:
        made(x, memory, allowed=causal())
    cache = made.new_cache()
    with watch() as steps:
        for i in range(5):
            made(x[:, i : i + 1], memory, allowed=causal(offset=i), cache=cache)
    assert list(whole) == list(steps)
    assert list(whole.values) == list(steps.values)
    for path in whole.values:
        assert_close(steps.values[path], whole.values[path], msg=path)
    for path in whole:
        assert_close(steps[path].query, whole[path].query)
        assert_close(steps[path].key, whole[path].key)


def test_a_cache_has_an_entry_for_every_site():
    made = stack(cross=True)
    cache = made.new_cache()
    sites = [f"decoder.layers.{i}.{kind}" for i in (0, 1) for kind in ("self", "cross")]
    assert list(cache) == sites
    assert [cache[site].grows for site in sites] == [True, False, True, False]


def test_no_lengths_mean_no_mask():
    assert without_padding(None) is None
    assert repr(without_padding([2, 3])) == "padding([2, 3])"
