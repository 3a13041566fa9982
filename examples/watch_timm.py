"""Look into a ViT of timm, whose fused attention never shows its weights.

timm needs torchvision. Where one of them is missing, a block as timm writes it takes their place.
"""

import torch
import torch.nn.functional as F
from torch import nn

import regard


class Attention(nn.Module):
    """Fused attention, as in timm."""

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(24, 72), nn.Linear(24, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 3, 8)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class SmallViT(nn.Module):
    """Four patches, one block, the mean of all positions."""

    def __init__(self):
        super().__init__()
        self.patch_embed, self.norm, self.head = (
            nn.Conv2d(3, 24, 16, 16),
            nn.LayerNorm(24),
            nn.Linear(24, 5),
        )
        self.blocks = nn.ModuleList(
            [nn.ModuleDict({"norm1": nn.LayerNorm(24), "attn": Attention()})]
        )

    def forward(self, images):
        x = self.patch_embed(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = x + block["attn"](block["norm1"](x))
        return self.head(self.norm(x).mean(1))


torch.manual_seed(0)
try:
    import timm

    sizes = {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    model = timm.create_model("vit_tiny_patch16_224", **sizes).eval()
except (ImportError, RuntimeError):
    print("timm or torchvision is missing: a small ViT takes the place of timm's")
    model = SmallViT().eval()

with torch.no_grad(), regard.watch(model) as trace:
    trace.output = model(torch.randn(1, 3, 32, 32))
print(*trace)
print(trace["blocks.0.attn"].weights(head=0)[0].round(decimals=2))  # of the first position
print(trace.lens().stations[-1])
