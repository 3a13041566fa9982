"""Models of `transformers` with random weights, saved as folders: the independent reference."""

import os
from types import SimpleNamespace

import pytest
import torch

from regard.errors import RegardError
from tests.interop.changes import change_config

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

    def shake(model, *, seed=0, strength=0.1):
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "embed_positions" in name:  # sinusoids, which are computed
                    continue
                noise = torch.randn(weight.shape, generator=random)
                weight.copy_(weight + (0.3 if weight.dim() == 1 else strength) * noise)
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
    from regard.interop.import_checkpoint import import_checkpoint

    def save(kind, *, settings, folder=tmp_path / "checkpoint", strength=0.1):
        torch.manual_seed(0)
        configuration = getattr(transformers, kind).config_class(
            **settings, attn_implementation="eager"
        )
        theirs = shaken(getattr(transformers, kind)(configuration), strength=strength)
        theirs.save_pretrained(folder)
        return SimpleNamespace(theirs=theirs, ours=import_checkpoint(folder), folder=folder)

    return save


@pytest.fixture
def refused(saved):
    """Asserts that a checkpoint with these changes in its config.json is refused in a sentence."""
    from regard.interop.import_checkpoint import import_checkpoint

    def check(kind, *, settings, changes, sentence):
        folder = saved(kind, settings=settings).folder
        change_config(folder, **changes)
        with pytest.raises(RegardError, match=sentence):
            import_checkpoint(folder)

    return check


@pytest.fixture
def exported(transformers, tmp_path):
    """Exports a bundle as this kind of model, and loads that with `transformers`, all weights used.

    Names of weights that hold one of the words in `without` may be missing.
    """
    from regard.interop.huggingface import export_huggingface

    def export(model, kind, *, loader=None, without=()):
        assert export_huggingface(model, tmp_path / "out") == kind
        again, report = getattr(transformers, loader or kind).from_pretrained(
            tmp_path / "out", output_loading_info=True
        )
        missing = report["missing_keys"]
        report["missing_keys"] = [key for key in missing if not any(one in key for one in without)]
        assert not any(report.values())
        return again

    return export


@pytest.fixture(scope="session")
def same_patterns():
    """Asserts that the attention of every layer and head is the same, within 1e-5."""

    def check(trace, sites, attentions):
        assert len(attentions) > 0
        for i, theirs in enumerate(attentions):
            ours = trace[sites.replace("N", str(i))].weights()
            torch.testing.assert_close(ours, theirs[0], rtol=0, atol=1e-5)

    return check


LETTERS = "abcdefgh"


@pytest.fixture(scope="session")
def reverser():
    """Makes a small translator that has learned to write letters in reverse order, in a second.

    What a trained model writes depends on what it reads; with random weights it hardly does.
    """
    made = {}

    def make(**settings):
        key = tuple(sorted(settings.items()))
        if key not in made:
            made[key] = train_reverser(settings)
        return made[key]

    return make


@torch.enable_grad()
def train_reverser(settings):
    from regard.model import Model
    from regard.models.transformer import Transformer, TransformerConfig
    from regard.text.tokenizer_training import train_tokenizer

    tokenizer = train_tokenizer([" ".join(LETTERS)] * 2, kind="characters", vocab_size=20)
    sizes = {"n_vocab": len(tokenizer), "d_model": 32, "n_heads": 4, "d_ff": 48, "dropout": 0.0}
    stacks = {"n_encoder_layers": 1, "n_decoder_layers": 1}
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(**(sizes | stacks | settings)))
    random = torch.Generator().manual_seed(0)
    letters = torch.tensor([tokenizer.id_of(letter) for letter in LETTERS])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(160):
        words = letters[torch.randint(len(letters), (32, 2 + step % 5), generator=random)]
        ends = [torch.full((32, 1), id) for id in (tokenizer.start_id, tokenizer.end_id)]
        source = torch.cat([ends[0], words, ends[1]], dim=1)
        target = torch.cat([ends[0], words.flip(1), ends[1]], dim=1)
        logits = model(source, target)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1.5, loss.item()
    return Model(module=model.eval(), task="translation", tokenizer=tokenizer)
