"""Small recurrent models whose weights are far from zero, and a batch to run them on."""

import torch
from torch import nn

from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig

SOURCE = torch.tensor([[3, 1, 4, 1, 5], [2, 6, 5, 0, 0], [8, 0, 0, 0, 0]])
LENGTHS = torch.tensor([5, 3, 1])
TARGET = torch.tensor([[1, 7, 3, 2], [1, 4, 2, 0], [1, 5, 6, 2]])
SITE = "decoder.cross"


def seq2seq(seed=0, **changes):
    torch.manual_seed(seed)
    given = {"n_vocab": 9, "d_model": 6, "n_layers": 2, "dropout": 0.0} | changes
    model = Seq2Seq(Seq2SeqConfig(**given))
    for weight in model.parameters():  # far from how training starts, so that differences show
        nn.init.normal_(weight, std=0.6)
    return model.eval()


VARIANTS = [  # every pair of choices is there
    ("lstm", "additive", "bidirectional", "fed"),
    ("lstm", "dot", "bidirectional", "plain"),
    ("lstm", "general", "forwards", "plain"),
    ("lstm", "none", "forwards", "fed"),
    ("gru", "additive", "forwards", "plain"),
    ("gru", "dot", "forwards", "fed"),
    ("gru", "general", "bidirectional", "fed"),
    ("gru", "none", "bidirectional", "plain"),
]


def variant(cell, attention, direction, feeding):
    return seq2seq(
        cell=cell,
        attention=attention,
        bidirectional=direction == "bidirectional",
        input_feeding=feeding == "fed",
    )
