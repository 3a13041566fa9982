"""A toy model for searches, small enough to try every sequence."""

from itertools import product

import torch

from regard.generation.stepper import Stepper

START, END = 0, 1


class Tables(Stepper):
    """Sentences whose next token depends, by a random table of each, on the last two."""

    def __init__(self, seeds, n_vocab=4):
        self.tables = torch.stack(
            [
                torch.log_softmax(
                    2
                    * torch.randn(
                        n_vocab, n_vocab, n_vocab, generator=torch.Generator().manual_seed(s)
                    ),
                    -1,
                )
                for s in seeds
            ]
        )
        self.which, self.n_rows = torch.arange(len(seeds)), len(seeds)
        self.read = torch.zeros(self.n_rows, 1, dtype=torch.long)

    def step(self, ids):
        self.read = torch.cat([self.read, ids], 1)
        return self.tables[self.which, self.read[:, -2], self.read[:, -1]]

    def keep(self, rows):
        self.which, self.read, self.n_rows = self.which[rows], self.read[rows], len(rows)


def every_sequence(seed, limit, penalty, n_vocab=4):
    """All sequences up to a length with their scores, by brute force: the best first."""
    found = []
    letters = [token for token in range(n_vocab) if token != END]
    for length in range(limit + 1):
        for body in product(letters, repeat=length):
            ended = length < limit
            tokens = (*body, END) if ended else body
            stepper, total, before = Tables([seed], n_vocab), 0.0, START
            for token in tokens:
                total += float(stepper.step(torch.tensor([[before]]))[0, token])
                before = token
            found.append((total / penalty(len(tokens)), list(body)))
    return sorted(found, reverse=True)
