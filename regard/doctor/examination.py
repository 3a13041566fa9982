"""All proofs on one model: the one that is given, or a tiny one that is made on the spot."""

from collections.abc import Iterator

import torch

from regard.bundle.bundle import Bundle
from regard.doctor.learning import prove_accumulation, prove_resuming
from regard.doctor.proof import Proof
from regard.doctor.reading import prove_batch_size, prove_caching, prove_padding
from regard.models.build import build
from regard.models.config import config_from_dict

PROOFS = (prove_padding, prove_batch_size, prove_caching, prove_accumulation, prove_resuming)


def examine(bundle: Bundle) -> Iterator[Proof]:
    """The proofs, one by one; the model and the caller's random numbers stay as they were."""
    mode = bundle.model.training
    for prove in PROOFS:
        with torch.random.fork_rng(devices=[]):
            proof = prove(bundle)
        bundle.model.train(mode)
        yield proof


def tiny_bundle() -> Bundle:
    """A Transformer of two layers with random weights."""
    settings = {"n_vocab": 50, "d_model": 32, "n_heads": 4, "d_ff": 64, "dropout": 0.1}
    layers = {"n_encoder_layers": 2, "n_decoder_layers": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build(config_from_dict({"family": "transformer", **settings, **layers}))
    return Bundle(model=model.eval(), task="translation")
