"""Look into a Transformer of PyTorch without changing a line of it."""

import torch
from torch import nn

import regard

torch.manual_seed(0)
model = nn.Transformer(32, 4, 2, 2, 64, batch_first=True).eval()
source, target = torch.randn(1, 6, 32), torch.randn(1, 4, 32)
causal = nn.Transformer.generate_square_subsequent_mask(4)

with torch.no_grad(), regard.watch(model) as trace:
    output = model(source, target, tgt_mask=causal)
for path in trace:
    print(f"{path:34} {trace[path].kind}")

# The weights that the fused kernels never show, of one head; each row sums to 1.
print(trace["decoder.layers.0.self_attn"].weights(head=2).round(decimals=2))

# The model continues with what an edit changes.
edits = [regard.ablate("encoder.layers.*.self_attn", head=2)]
with torch.no_grad(), regard.watch(model, edits=edits):
    changed = model(source, target, tgt_mask=causal)
print(f"without head 2 of the encoder, outputs move by up to {(changed - output).abs().max():.2f}")
