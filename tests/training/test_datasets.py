"""Datasets: from example numbers to tensors, for every kind of data."""

import numpy as np
import pytest
import torch

from regard.data.corpus import build_corpus
from regard.data.images import Images, Normalization
from regard.data.readers import labeled_text, parallel_text, plain_text
from regard.data.token_augmentation import Masking, MergeDropout
from regard.text.tokenizer_training import train_tokenizer
from regard.training.datasets import (
    ImageDataset,
    LabeledTextDataset,
    MaskedTextDataset,
    PairDataset,
    WindowDataset,
)

TEXTS = ["one two three", "four five", "six seven eight nine", "ten"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS * 3, kind="wordpiece", vocab_size=60)


def ids(batch, lengths):
    return [row[:length].tolist() for row, length in zip(batch, lengths, strict=True)]


def test_merge_dropout_differs_by_epoch_and_side(tmp_path):
    tokenizer = train_tokenizer(TEXTS * 3, vocab_size=60)
    path = tmp_path / "pairs.tsv"
    texts = [*TEXTS, " ".join(TEXTS)]
    path.write_text("".join(f"{text}\t{text}\n" for text in texts))
    corpus = build_corpus(parallel_text(path), [tokenizer] * 2, cache=tmp_path / "cache")
    merge_dropout = [MergeDropout.of(tokenizer, share=0.5)] * 2
    pairs = PairDataset(corpus, source_pad=0, target_pad=0, merge_dropout=merge_dropout, seed=1)
    batch, again, later = pairs([1, 0], 5), pairs([1, 0], 5), pairs([1, 0], 6)
    seen = ids(batch.source_ids, batch.source_lengths)
    assert seen == ids(again.source_ids, again.source_lengths)
    assert seen != ids(later.source_ids, later.source_lengths)
    assert seen != ids(batch.target_ids, batch.target_lengths)
    assert [tokenizer.decode(one) for one in seen] == [TEXTS[1], TEXTS[0]]
    assert pairs([4], 5).source_ids.tolist() == [tokenizer.encode(texts[4])]  # the longest stays


def test_pairs_are_padded_and_in_the_given_order(tokenizer, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{text}\t{text.upper()}\n" for text in TEXTS))
    corpus = build_corpus(parallel_text(path), [tokenizer] * 2, cache=tmp_path / "cache")
    pairs = PairDataset(corpus, source_pad=7, target_pad=9)
    batch = pairs([2, 0], epoch=5)
    assert ids(batch.source_ids, batch.source_lengths) == [
        tokenizer.encode(TEXTS[number]) for number in (2, 0)
    ]
    assert batch.source_ids[1, batch.source_lengths[1] :].unique().tolist() == [7]
    assert batch.target_ids[1, batch.target_lengths[1] :].unique().tolist() == [9]
    assert [len(side) for side in pairs.lengths] == [4, 4]
    assert batch.n_targets() == int((batch.target_lengths - 1).sum())


def test_windows_overlap_by_one_token_and_cover_the_text():
    stream = np.arange(100, dtype=np.uint16)
    windows = WindowDataset(stream, length=10, seed=3)
    batch = windows(range(len(windows.lengths[0])), epoch=0)
    first = int(batch.ids[0, 0])
    assert 0 <= first < 10
    predicted = np.concatenate([row[1:n] for row, n in zip(batch.ids, batch.lengths, strict=True)])
    assert predicted.tolist() == list(
        range(first + 1, first + 1 + len(predicted))
    )  # each predicted once
    assert len(predicted) >= 100 - 10 - 1


def test_windows_start_elsewhere_in_every_epoch():
    windows = WindowDataset(np.arange(1000, dtype=np.uint16), length=50, seed=3)
    starts = [int(windows([0], epoch=epoch).ids[0, 0]) for epoch in range(8)]
    assert len(set(starts)) > 3
    assert starts == [int(windows([0], epoch=epoch).ids[0, 0]) for epoch in range(8)]


def test_validation_windows_predict_every_token_but_the_first():
    stream = np.arange(23, dtype=np.uint16)
    windows = WindowDataset(stream, length=10, seed=3, shift=False)
    batch = windows(range(len(windows.lengths[0])), epoch=4)
    predicted = [int(x) for row, n in zip(batch.ids, batch.lengths, strict=True) for x in row[1:n]]
    assert predicted == list(range(1, 23))
    assert batch.n_targets() == 22


def test_a_text_shorter_than_a_window_is_one_window():
    windows = WindowDataset(np.arange(4, dtype=np.uint16), length=10, seed=0)
    assert len(windows.lengths[0]) == 1
    assert windows([0], epoch=0).ids.tolist() == [[0, 1, 2, 3]]


def test_only_hidden_tokens_are_predicted(tokenizer, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS * 20) + "\n")
    corpus = build_corpus(plain_text(path), [tokenizer], cache=tmp_path / "cache")
    masking = Masking.of(tokenizer, share=0.5)
    hidden = MaskedTextDataset(corpus, masking, pad_id=tokenizer.pad_id, seed=1)
    one, again, later = (hidden(range(40), epoch=epoch) for epoch in (0, 0, 1))
    assert torch.equal(one.ids, again.ids)
    assert not torch.equal(one.predicted, later.predicted)
    assert torch.equal(one.ids[~one.predicted], one.targets[~one.predicted])
    assert (one.ids == tokenizer.mask_id).any()
    real = torch.arange(one.ids.size(1)) < one.lengths[:, None]
    assert not (one.predicted & ~real).any()
    share = one.n_targets() / int((real & (one.targets != 0)).sum())
    assert 0.2 < share < 0.6  # of half the tokens that are not special


def test_labeled_texts_have_their_classes(tokenizer, tmp_path):
    path = tmp_path / "labels.tsv"
    path.write_text("b\tone two\na\tthree\nb\tfour\n")
    corpus = build_corpus(labeled_text(path), [tokenizer], cache=tmp_path / "cache")
    batch = LabeledTextDataset(corpus, pad_id=tokenizer.pad_id)([1, 0], epoch=0)
    assert corpus.classes == ("a", "b")
    assert batch.labels.tolist() == [0, 1]
    assert ids(batch.ids, batch.lengths) == [tokenizer.encode("three"), tokenizer.encode("one two")]


def test_images_are_cropped_normalized_and_labeled():
    pixels = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4, 1)
    images = Images(pixels, np.array([3, 1]), ("w", "x", "y", "z"))
    normalization = Normalization(mean=(0.5,), deviation=(0.25,))
    pictures = ImageDataset(images, normalization, n_tokens=5, side=2)
    batch = pictures([1, 0], epoch=0)
    assert batch.labels.tolist() == [1, 3]
    assert batch.images.shape == (2, 1, 2, 2)
    middle = pixels[1, 1:3, 1:3, 0] / 255
    np.testing.assert_allclose(batch.images[0, 0].numpy(), (middle - 0.5) / 0.25, rtol=1e-5)
    assert pictures.lengths[0].tolist() == [5, 5]
