"""How large the tensors are that a computation makes."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Largest(TorchDispatchMode):
    """Remembers how many numbers the largest tensor has that is made while it is on."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                # A view may seem large, or have more entries than the memory behind it.
                held = leaf.untyped_storage().nbytes() // leaf.element_size()
                self.numbers = max(self.numbers, min(held, leaf.numel()))
        return result
