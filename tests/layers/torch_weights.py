"""Our weights in torch's own Transformer layers, for comparisons."""

import torch
from torch import nn

from regard.layers.stack import Layer


def copy_layer(ours: Layer, twin: nn.Module) -> None:
    """Copy the weights of our layer into torch's encoder or decoder layer."""
    sites = [(ours.self_attention, twin.self_attn)]
    if ours.cross_attention is not None:
        sites.append((ours.cross_attention, twin.multihead_attn))
    for sublayer, site in sites:
        parts = [getattr(sublayer.inner, f"to_{name}") for name in ("query", "key", "value")]
        site.in_proj_weight.data = torch.cat([part.weight.data for part in parts])
        site.in_proj_bias.data = torch.cat([part.bias.data for part in parts])
        site.out_proj.load_state_dict(sublayer.inner.to_output.state_dict())
    sublayers = [*(sublayer for sublayer, _ in sites), ours.feed_forward]
    for number, sublayer in enumerate(sublayers, start=1):
        getattr(twin, f"norm{number}").load_state_dict(sublayer.norm.state_dict())
    twin.linear1.load_state_dict(ours.feed_forward.inner.to_hidden.state_dict())
    twin.linear2.load_state_dict(ours.feed_forward.inner.to_output.state_dict())
