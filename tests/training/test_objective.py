"""Objectives: the loss of each task is cross-entropy over exactly the places that count."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.errors import InputError
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.encoder import Encoder, EncoderConfig
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.vision import Vision, VisionConfig
from regard.training.loader import (
    IGNORE_INDEX,
    ImageBatch,
    LabeledTextBatch,
    MaskedBatch,
    PairBatch,
    TextBatch,
)
from regard.training.objective import (
    ClassificationObjective,
    LanguageObjective,
    MaskedObjective,
    TranslationObjective,
)

SMALL = {"d_model": 8, "n_heads": 2, "d_ff": 16, "dropout": 0.0}


def transformer(**options) -> Transformer:
    torch.manual_seed(0)
    layers = {"n_encoder_layers": 1, "n_decoder_layers": 1}
    return Transformer(TransformerConfig(n_vocab=11, **SMALL, **layers, **options)).double()


def pairs() -> PairBatch:
    random = torch.Generator().manual_seed(1)
    source = torch.randint(5, 11, (3, 6), generator=random)
    target = torch.randint(5, 11, (3, 5), generator=random)
    return PairBatch(source, target, torch.tensor([6, 4, 2]), torch.tensor([5, 2, 3]))


def by_rows(model, batch: PairBatch, smoothing: float) -> torch.Tensor:
    """The loss of each pair by itself, without any padding, summed."""
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(batch.source_ids)):
        source = batch.source_ids[row : row + 1, : batch.source_lengths[row]]
        target = batch.target_ids[row : row + 1, : batch.target_lengths[row]]
        logits = model(source, target)[0]
        total = total + F.cross_entropy(
            logits, target[0, 1:], label_smoothing=smoothing, reduction="sum"
        )
    return total


@pytest.mark.parametrize("options", [{}, {"tie": "none"}, {"logits_bias": True}])
def test_the_loss_of_a_padded_batch_is_the_sum_over_its_pairs_alone(options):
    model, batch = transformer(**options), pairs()
    loss = TranslationObjective(model, label_smoothing=0.1)(batch).loss
    assert_close(loss, by_rows(model, batch, 0.1))
    ours = torch.autograd.grad(loss, list(model.parameters()))
    theirs = torch.autograd.grad(by_rows(model, batch, 0.1), list(model.parameters()))
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine, other)


@pytest.mark.parametrize("attention", ["additive", "none"])
def test_recurrent_models_have_the_same_loss(attention):
    torch.manual_seed(0)
    model = Seq2Seq(Seq2SeqConfig(n_vocab=11, d_model=8, attention=attention, dropout=0.0)).double()
    batch = pairs()
    assert_close(TranslationObjective(model)(batch).loss, by_rows(model, batch, 0.0))


def test_targets_are_counted_without_start_tokens_and_padding():
    assert pairs().n_targets() == 4 + 1 + 2


def test_ids_of_padding_do_not_matter():
    batch, model = pairs(), transformer()
    other = batch.target_ids.clone()
    other[1, 2:] = 7
    changed = PairBatch(batch.source_ids, other, batch.source_lengths, batch.target_lengths)
    assert torch.equal(
        TranslationObjective(model)(batch).loss, TranslationObjective(model)(changed).loss
    )


def test_language_models_predict_every_token_but_the_first():
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(n_vocab=11, n_layers=1, **SMALL)).double()
    ids = torch.randint(0, 11, (2, 5))
    sums = LanguageObjective(model)(TextBatch(ids, torch.tensor([5, 3])))
    logits = model(ids[:, :-1])
    expected = F.cross_entropy(logits[0], ids[0, 1:], reduction="sum")
    expected = expected + F.cross_entropy(logits[1, :2], ids[1, 1:3], reduction="sum")
    assert_close(sums.loss, expected)
    assert TextBatch(ids, torch.tensor([5, 3])).n_targets() == 4 + 2


def test_masked_models_predict_hidden_tokens_only():
    torch.manual_seed(0)
    model = Encoder(EncoderConfig(n_vocab=11, n_layers=1, **SMALL)).double()
    ids, lengths = torch.randint(0, 11, (2, 4)), torch.tensor([4, 3])
    predicted = torch.tensor([[False, True, True, False], [True, False, False, False]])
    targets = torch.randint(0, 11, (2, 4))
    sums = MaskedObjective(model)(MaskedBatch(ids, lengths, targets, predicted))
    logits = model.fill_logits(model(ids, lengths))
    assert_close(sums.loss, F.cross_entropy(logits[predicted], targets[predicted], reduction="sum"))


def test_classification_loss_and_correct_answers():
    torch.manual_seed(0)
    reader = Encoder(EncoderConfig(n_vocab=11, n_layers=1, n_classes=3, fill_head=False, **SMALL))
    ids, lengths, labels = torch.randint(0, 11, (4, 5)), torch.full((4,), 5), torch.arange(4) % 3
    sums = ClassificationObjective(reader)(LabeledTextBatch(ids, lengths, labels))
    logits = reader.classify(reader(ids, lengths), lengths)
    assert_close(sums.loss, F.cross_entropy(logits, labels, reduction="sum"))
    assert sums.correct == (logits.argmax(-1) == labels).sum()
    config = VisionConfig(
        n_classes=3, image_size=8, patch_size=4, n_layers=1, n_channels=1, **SMALL
    )
    viewer, images = Vision(config), torch.randn(4, 1, 8, 8)
    sums = ClassificationObjective(viewer, label_smoothing=0.2)(ImageBatch(images, labels))
    expected = F.cross_entropy(viewer(images), labels, label_smoothing=0.2, reduction="sum")
    assert_close(sums.loss, expected)


BLANKS = [
    (lambda: TranslationObjective(transformer()), pairs),
    (
        lambda: LanguageObjective(Decoder(DecoderConfig(n_vocab=11, n_layers=1, **SMALL))),
        lambda: TextBatch(torch.ones(2, 4, dtype=torch.long), torch.tensor([4, 2])),
    ),
    (
        lambda: MaskedObjective(Encoder(EncoderConfig(n_vocab=11, n_layers=1, **SMALL))),
        lambda: MaskedBatch(
            torch.ones(2, 4, dtype=torch.long),
            torch.tensor([4, 2]),
            torch.ones(2, 4, dtype=torch.long),
            torch.ones(2, 4, dtype=torch.bool),
        ),
    ),
    (
        lambda: ClassificationObjective(
            Vision(VisionConfig(n_classes=3, image_size=8, patch_size=4, n_layers=1, **SMALL))
        ),
        lambda: ImageBatch(torch.randn(2, 3, 8, 8), torch.tensor([0, 1])),
    ),
]


@pytest.mark.parametrize(("objective", "batch"), BLANKS)
def test_a_blank_batch_has_no_loss_and_gives_every_parameter_a_gradient_of_zero(objective, batch):
    module, blank = objective(), batch().without_targets()
    loss = module(blank).loss
    loss.backward()
    assert blank.n_targets() == 0
    assert loss == 0
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert not parameter.grad.any(), name


def test_models_that_lack_the_head_for_a_task_are_refused():
    headless = Encoder(EncoderConfig(n_vocab=11, n_layers=1, fill_head=False, **SMALL))
    with pytest.raises(InputError, match="fill_head = true"):
        MaskedObjective(headless)
    with pytest.raises(InputError, match="set n_classes"):
        ClassificationObjective(headless)


@pytest.mark.parametrize(("objective", "batch"), BLANKS)
def test_two_passes_without_dropout_equal_one(objective, batch):
    module, examples = objective(), batch()
    once = module(examples)
    twice = type(module)(module.model, agreement=5.0)(examples)
    for one, other in zip(twice, once, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize(("objective", "batch"), BLANKS)
def test_a_blank_batch_has_no_disagreement(objective, batch):
    module = objective()
    sums = type(module)(module.model, agreement=5.0)(batch().without_targets())
    sums.loss.backward()
    assert sums.loss == 0
    assert all(
        one.grad is not None and not one.grad.any()
        for one in module.parameters()
        if one.requires_grad
    )


def test_disagreement_of_two_passes_counts_in_training_only():
    torch.manual_seed(0)
    options = {**SMALL, "dropout": 0.5}
    model = Vision(VisionConfig(n_classes=3, image_size=8, patch_size=4, n_layers=1, **options))
    batch = ImageBatch(torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, IGNORE_INDEX]))
    torch.manual_seed(1)
    loss = ClassificationObjective(model, agreement=5.0)(batch).loss
    torch.manual_seed(1)
    logits = model(batch.repeated().images)
    labels = batch.labels.repeat(2)
    lost = F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="sum") / 2
    p, q = logits.log_softmax(dim=1).chunk(2)
    apart = F.kl_div(q[:3], p[:3], log_target=True, reduction="sum")
    apart = (apart + F.kl_div(p[:3], q[:3], log_target=True, reduction="sum")) / 2
    assert apart > 0.001
    assert_close(loss, lost + 2.5 * apart)
    resting = ClassificationObjective(model, agreement=5.0).eval()(batch).loss
    assert_close(resting, ClassificationObjective(model).eval()(batch).loss)
