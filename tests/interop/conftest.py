"""Models of `transformers` with random weights, saved as folders: the independent reference."""

import os
from types import SimpleNamespace

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test asks the network


@pytest.fixture(scope="session")
def transformers():
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    return transformers


@pytest.fixture(scope="session")
def shaken():
    """Makes all weights random, norms and biases too, so that nothing can hide behind a 0 or 1."""

    def shake(model, *, seed=0):
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "embed_positions" in name:  # sinusoids, which are computed
                    continue
                noise = torch.randn(weight.shape, generator=random)
                weight.copy_(weight + (0.3 if weight.dim() == 1 else 0.1) * noise)
            for name, numbers in model.named_buffers():
                if name == "final_logits_bias":
                    numbers.copy_(torch.randn(numbers.shape, generator=random))
        return model.eval()

    return shake


@pytest.fixture
def saved(transformers, shaken, tmp_path):
    """Saves a model of `transformers` with random weights, and imports it here.

    Gives both: `theirs`, `ours` (a bundle) and the `folder`.
    """
    from regard.interop.imports import import_checkpoint

    def save(kind, *, settings, folder=tmp_path / "checkpoint", **options):
        torch.manual_seed(0)
        configuration = getattr(transformers, kind).config_class(
            **settings, attn_implementation="eager"
        )
        theirs = shaken(getattr(transformers, kind)(configuration))
        theirs.save_pretrained(folder, **options)
        return SimpleNamespace(theirs=theirs, ours=import_checkpoint(folder), folder=folder)

    return save


@pytest.fixture(scope="session")
def same_patterns():
    """Asserts that the attention of every layer and head is the same, within 1e-5."""

    def check(trace, sites, attentions):
        assert len(attentions) > 0
        for i, theirs in enumerate(attentions):
            ours = trace[sites.replace("N", str(i))].weights()
            torch.testing.assert_close(ours, theirs[0], rtol=0, atol=1e-5)

    return check
