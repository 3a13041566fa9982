"""The vision family: by hand, against transformers, by its laws, and at its corners."""

from math import exp

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import regard
from regard.errors import InputError, UnknownNameError
from regard.models.config import build, config_from_dict
from regard.models.vision import Vision, VisionConfig, patch_grid

TINY = {
    "n_classes": 3,
    "image_size": 8,
    "patch_size": 4,
    "n_channels": 1,
    "d_model": 8,
    "n_heads": 2,
    "n_layers": 2,
    "d_ff": 12,
    "norm_eps": 1e-6,
}


def vision(seed=0, **changes):
    torch.manual_seed(seed)
    model = Vision(VisionConfig(**(TINY | changes)))
    for weight in model.parameters():  # far from the small numbers that training starts with
        nn.init.normal_(weight, std=0.4)
    return model.eval()


def images(*size, seed=1):
    torch.manual_seed(seed)
    return torch.randn(*size)


@pytest.mark.parametrize(
    ("changes", "n_tokens"),
    [
        ({}, 5),
        ({"patch_size": 2}, 17),
        ({"patch_size": 8}, 2),
        ({"pool": "mean"}, 4),
        ({"n_channels": 3}, 5),
        ({"distillation": "token"}, 6),
        ({"distillation": "classifier"}, 6),
        ({"pooler": "tanh", "d_pooler": 6}, 5),
    ],
)
def test_shapes_and_every_parameter_gets_a_gradient(changes, n_tokens):
    model = vision(**changes)
    given = images(2, model.config.n_channels, 8, 8)
    states = model.states(given)
    logits = model(given)
    assert states.shape == (2, n_tokens, 8)
    assert len(patch_grid(model.config)) == n_tokens
    assert logits.shape == (2, 3)
    logits.square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        # the same bias on every key adds the same to every score of a query: softmax ignores it
        assert weight.grad.abs().sum() > 0 or name.endswith("to_key.bias"), name


@pytest.mark.parametrize(
    ("changes", "millions"),
    [
        ({}, 86.567656),  # ViT-B/16, Dosovitskiy et al. 2021, table 1: 86M
        ({"d_model": 192, "n_heads": 3, "d_ff": 768}, 5.717416),  # DeiT-Ti, table 1: 5M
    ],
)
def test_published_models_have_their_published_number_of_parameters(changes, millions):
    with torch.device("meta"):
        model = Vision(VisionConfig(n_classes=1000, **changes))
    assert sum(weight.numel() for weight in model.parameters()) == round(millions * 1e6)


def test_one_layer_and_one_head_by_hand():
    model = vision(
        patch_size=8, d_model=2, n_heads=1, n_layers=1, d_ff=1, n_classes=2, norm_eps=1e-12
    )
    layer = model.encoder.layers[0]
    attention = layer.self_attention.inner
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        for norm in (layer.self_attention.norm, layer.feed_forward.norm, model.encoder.norm):
            norm.weight.fill_(1.0)
        model.embedding.special.copy_(torch.tensor([[1.0, 0.0]]))
        model.embedding.to_token.weight[1].fill_(1 / 64)  # the mean of the pixels
        model.embedding.positions.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
        for part in (attention.to_query, attention.to_key):
            part.weight.copy_(torch.eye(2))
        attention.to_value.weight.copy_(torch.tensor([[0.0, 0.0], [0.0, 2.0]]))
        attention.to_output.weight.copy_(torch.eye(2))
        model.classifier.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
    # tokens: class (2, 0), patch (0, 5); LayerNorm makes them (1, -1) and (-1, 1)
    # scores of the class token / sqrt(2): itself 2, patch -2; values (0, -2) and (0, 2)
    weight = 1 / (1 + exp(-4 / 2**0.5))
    # residual (2, 2 - 4 w), the feed-forward adds nothing; w > 1/2, so the norm is (1, -1)
    image = torch.full((1, 1, 8, 8), 5.0)
    with regard.watch() as trace:
        logits = model(image)
    expected = torch.tensor([weight, 1 - weight])
    assert_close(trace["encoder.layers.0.self"].weights(head=0)[0], expected)
    residual = trace.value("encoder.layers.0.feed_forward.residual")[0, 0]
    assert_close(residual, torch.tensor([2.0, 2 - 4 * weight]))
    assert_close(logits, torch.tensor([[1.0, -3.0]]))


def test_moving_patches_with_their_positions_moves_the_states_along():
    model = vision(patch_size=2)
    given = images(1, 1, 8, 8)
    order = torch.randperm(16)
    patches = given.unfold(2, 2, 2).unfold(3, 2, 2).reshape(16, 2, 2)
    moved = patches[order].view(1, 1, 4, 4, 2, 2).permute(0, 1, 2, 4, 3, 5).reshape(1, 1, 8, 8)
    states, logits = model.states(given), model(given)
    with torch.no_grad():
        model.embedding.positions[1:] = model.embedding.positions[1:][order]
    assert_close(model.states(moved)[:, 1:], states[:, 1:][:, order])
    assert_close(model(moved), logits)


def test_images_of_other_sizes_are_read_by_interpolated_positions():
    model = vision()
    wide = images(1, 1, 8, 16)
    with regard.watch() as trace:
        assert model(wide).shape == (1, 3)
    grid = patch_grid(model.config, 8, 16)
    positions = trace.value("encoder.embedding.positions")[0]
    assert len(positions) == len(grid) == 9
    assert torch.equal(positions[0], model.embedding.positions[0])
    left, right = model.embedding.positions[1], model.embedding.positions[2]
    # column 1 of 4 lies at 0.25 of the way, where the edges repeat: the kernel with a = -0.75
    # gives the right one a share of f(0.75) + f(1.75)
    share = 1.25 * 0.75**3 - 2.25 * 0.75**2 + 1
    share += -0.75 * 1.75**3 + 3.75 * 1.75**2 - 6 * 1.75 + 3
    assert_close(positions[2], left + share * (right - left), atol=1e-6, rtol=1e-5)


def test_gradcheck_of_a_tiny_model_in_float64():
    model = vision(image_size=4, patch_size=2, d_model=4, n_layers=1, d_ff=3).double()
    given = images(1, 1, 4, 6).double().requires_grad_()
    assert torch.autograd.gradcheck(model, (given,))


@pytest.mark.long
@pytest.mark.usefixtures("no_shape_checks")
def test_a_compiled_model_is_one_graph_with_the_same_result():
    model, given = vision(), images(2, 1, 8, 8)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert_close(compiled(given), model(given))
    assert_close(compiled(images(2, 1, 12, 8)), model(images(2, 1, 12, 8)))


def test_weights_and_config_survive_a_round_trip_bit_by_bit():
    model = vision(distillation="classifier")
    again = build(config_from_dict(model.config.to_dict()))
    again.load_state_dict(model.state_dict())
    given = images(2, 1, 8, 8)
    assert torch.equal(again.eval()(given), model(given))


def test_without_classes_the_model_gives_one_vector_for_each_image():
    model, given = vision(n_classes=None, pooler="tanh", d_pooler=5), images(2, 1, 8, 8)
    first = model.states(given)[:, 0]
    assert_close(model(given), torch.tanh(model.pooler(first)))
    with pytest.raises(InputError, match="built without n_classes"):
        model.classify(model.states(given))


def test_class_and_distillation_logits_are_averaged():
    model, given = vision(distillation="classifier"), images(2, 1, 8, 8)
    first, second = model.states(given)[:, :2].unbind(1)
    expected = (model.classifier(first) + model.distillation_classifier(second)) / 2
    assert_close(model(given), expected)


def test_mean_pooling_is_the_mean_over_patches():
    model, given = vision(pool="mean"), images(2, 1, 8, 8)
    assert_close(model(given), model.classifier(model.states(given).mean(1)))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"patch_size": 3}, InputError, "not a multiple of patch_size 3"),
        ({"n_heads": 3}, InputError, "8, which 3 heads cannot share"),
        ({"n_classes": 0}, InputError, "n_classes is 0"),
        ({"pool": "max"}, UnknownNameError, "pool is 'max'"),
        ({"distillation": "token", "pool": "mean"}, InputError, "choose pool 'class'"),
        ({"distillation": "classifier", "n_classes": None}, InputError, "give n_classes"),
        ({"d_model": 0}, InputError, "d_model is 0"),
        ({"dropout": 1.0}, InputError, "dropout is 1.0"),
    ],
)
def test_impossible_configurations_are_refused(changes, error, words):
    with pytest.raises(error, match=words):
        VisionConfig(**(TINY | changes))


def hf_weights(state, config):
    """The weights of transformers' ViT or DeiT under our names."""
    special = ["embeddings.cls_token", "embeddings.distillation_token"][: config.n_special]
    kernel = state["embeddings.patch_embeddings.projection.weight"]
    ours = {
        "embedding.special": torch.cat([state[name][0] for name in special]),
        "embedding.positions": state["embeddings.position_embeddings"][0],
        "embedding.to_token.weight": kernel.flatten(1),
        "embedding.to_token.bias": state["embeddings.patch_embeddings.projection.bias"],
    }
    names = {
        "attention.q_proj": "self_attention.inner.to_query",
        "attention.k_proj": "self_attention.inner.to_key",
        "attention.v_proj": "self_attention.inner.to_value",
        "attention.o_proj": "self_attention.inner.to_output",
        "mlp.fc1": "feed_forward.inner.to_hidden",
        "mlp.fc2": "feed_forward.inner.to_output",
        "layernorm_before": "self_attention.norm",
        "layernorm_after": "feed_forward.norm",
    }
    for kind in ("weight", "bias"):
        ours[f"encoder.norm.{kind}"] = state[f"layernorm.{kind}"]
        ours[f"pooler.{kind}"] = state[f"pooler.dense.{kind}"]
        for i in range(config.n_layers):
            for theirs, mine in names.items():
                ours[f"encoder.layers.{i}.{mine}.{kind}"] = state[f"layers.{i}.{theirs}.{kind}"]
    return ours


@pytest.mark.parametrize("size", [(12, 12), (16, 8)])
@pytest.mark.parametrize("kind", ["ViT", "DeiT"])
def test_states_and_patterns_equal_those_of_transformers(kind, size):
    import transformers

    torch.manual_seed(3)
    theirs_config = getattr(transformers, f"{kind}Config")(
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=20,
        image_size=12,
        patch_size=4,
        num_channels=3,
        attn_implementation="eager",
    )
    theirs = getattr(transformers, f"{kind}Model")(theirs_config).eval()
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.3)
    config = VisionConfig(
        image_size=12,
        patch_size=4,
        d_model=16,
        n_heads=4,
        n_layers=3,
        d_ff=20,
        norm_eps=theirs_config.layer_norm_eps,
        distillation="token" if kind == "DeiT" else "none",
        pooler="tanh",
    )
    model = Vision(config).eval()
    model.load_state_dict(hf_weights(theirs.state_dict(), config))
    given = images(2, 3, *size)
    with torch.no_grad(), regard.watch() as trace:
        states = model.states(given)
        pooled = model.pooled(states)
        expected = theirs(given, interpolate_pos_encoding=True, output_attentions=True)
    assert_close(states, expected.last_hidden_state, atol=1e-4, rtol=0)
    assert_close(pooled, expected.pooler_output, atol=1e-4, rtol=0)
    assert len(trace) == len(expected.attentions) == 3
    for path, pattern in zip(trace, expected.attentions, strict=True):
        for i in range(2):
            assert_close(trace[path].weights(batch=i), pattern[i], atol=1e-5, rtol=0)
