"""Greedy decoding: the best token at every step, the same alone and in any batch."""

import pytest
import torch

from regard.generation.sampling import greedy
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.transformer import Transformer, TransformerConfig

START, END = 2, 3


def transformer(**options):
    torch.manual_seed(0)
    config = TransformerConfig(
        n_vocab=12,
        d_model=16,
        n_heads=2,
        d_ff=32,
        n_encoder_layers=1,
        n_decoder_layers=2,
        **options,
    )
    return Transformer(config).eval()


def recurrent():
    torch.manual_seed(1)
    return Seq2Seq(Seq2SeqConfig(n_vocab=12, d_model=16)).eval()


def by_definition(model, source: list[int], max_length: int) -> list[int]:
    """The whole target is read anew for every token."""
    ids = [START]
    while len(ids) <= max_length:
        states = model.decode(torch.tensor([ids]), model.encode(torch.tensor([source])))
        token = int(model.project(states)[0, -1].argmax())
        if token == END:
            break
        ids.append(token)
    return ids[1:]


def sources(count: int = 6) -> list[list[int]]:
    random = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 7, (count,), generator=random).tolist()
    return [torch.randint(4, 12, (one,), generator=random).tolist() for one in lengths]


def batch(rows: list[list[int]]):
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
    return ids, lengths


@pytest.mark.parametrize("make", [transformer, recurrent, lambda: transformer(norm="pre")])
def test_a_batch_gives_what_each_source_gives_alone_without_a_cache(make):
    model = make()
    with torch.no_grad():  # an end that comes sooner for some than for others
        model.tokens.weight[END] *= 1.5
    found = greedy(model, *batch(sources()), start_id=START, end_id=END, max_length=9)
    assert found == [by_definition(model, one, 9) for one in sources()]
    assert all(END not in one for one in found)


def test_rows_end_at_different_steps_in_that_test():
    model = transformer()
    with torch.no_grad():
        model.tokens.weight[END] *= 1.5
    found = greedy(model, *batch(sources()), start_id=START, end_id=END, max_length=9)
    assert len({len(one) for one in found}) > 1


class Script:
    """A model that writes what a table says, by row and step, to count what it is asked."""

    def __init__(self, tables: list[list[int]]):
        self.tables, self.rows = tables, []

    def encode(self, source_ids, source_lengths):
        return source_ids

    def new_cache(self):
        return {}

    def decode(self, ids, memory, source_lengths, *, cache):
        self.rows.append(memory[:, 0].tolist())
        return memory[:, :1, None].float()

    def project(self, states, *, first):
        logits = torch.zeros(len(states), 10)
        for number, row in enumerate(states[:, 0].long().tolist()):
            logits[number, self.tables[row][first]] = 1.0
        return logits


def test_finished_rows_leave_the_batch_by_hand():
    model = Script([[5, 3, 9, 9], [3, 9, 9, 9], [6, 7, 8, 9]])
    ids = torch.tensor([[0], [1], [2]])
    found = greedy(model, ids, torch.ones(3, dtype=torch.long), start_id=2, end_id=3, max_length=4)
    assert found == [[5], [], [6, 7, 8, 9]]
    assert model.rows == [[0, 1, 2], [0, 2], [2], [2]]


def test_no_rows_and_no_length_write_nothing():
    model = transformer()
    ids, lengths = batch([[4, 5]])
    assert greedy(model, ids, lengths, start_id=2, end_id=3, max_length=0) == [[]]
    assert greedy(model, ids[:0], lengths[:0], start_id=2, end_id=3, max_length=3) == []
