"""What texts are worth beside their references."""

from collections.abc import Sequence

from regard.errors import InputError

SCORES = ("exact", "bleu", "chrf")


def score_texts(written: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """The share that is exactly right, and sacreBLEU's BLEU and chrF with their usual settings."""
    if len(written) != len(references) or not written:
        raise InputError(
            f"{len(written)} texts cannot be compared with {len(references)} references."
        )
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    right = sum(one == other for one, other in zip(written, references, strict=True))
    return {
        "exact": right / len(written),
        "bleu": BLEU().corpus_score(list(written), [list(references)]).score,
        "chrf": CHRF().corpus_score(list(written), [list(references)]).score,
    }
