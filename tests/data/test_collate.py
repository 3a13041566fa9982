import numpy as np
import pytest

from regard.data.batches import collate, pad
from regard.data.corpus import build_corpus
from regard.data.readers import parallel_text
from regard.errors import InputError


def test_shorter_lists_are_padded_at_the_end():
    ids, lengths = pad([[5, 6, 7], [8]], 0)
    assert ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert lengths.tolist() == [3, 1]
    assert ids.dtype == lengths.dtype == np.int64


def test_the_published_padding_pattern():
    boy = [101, 1247, 1110, 170, 2298, 102]
    girls = [101, 1247, 1132, 1160, 3287, 1105, 1160, 2636, 102]
    ids, lengths = pad([boy, girls], 0)
    assert ids.tolist() == [[*boy, 0, 0, 0], girls]
    mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(int)
    assert mask.tolist() == [[1] * 6 + [0] * 3, [1] * 9]


def test_no_lists_and_empty_lists_are_padded_too():
    assert pad([], 0)[0].shape == (0, 0)
    assert pad([[], [1]], 9)[0].tolist() == [[9], [1]]


def test_examples_of_a_corpus_are_put_together(write, tokenizer, tmp_path):
    rows = parallel_text(write("a.tsv", "A dog runs.\tx\nA\tEin Hund läuft.\n"))
    corpus = build_corpus(rows, tokenizer, cache=tmp_path / "cache")
    (source, source_lengths), (target, _) = collate(corpus, [1, 0], pad_ids=[0, 0])
    assert tokenizer.decode_batch(source) == ["A", "A dog runs."]
    assert tokenizer.decode_batch(target) == ["Ein Hund läuft.", "x"]
    assert source_lengths.tolist() == [
        len(tokenizer.encode("A")),
        len(tokenizer.encode("A dog runs.")),
    ]
    assert collate(corpus, [], pad_ids=[0, 0])[0][0].shape == (0, 0)
    with pytest.raises(InputError, match="the fields source, target: 2 pad ids are needed, 1"):
        collate(corpus, [0], pad_ids=[0])
