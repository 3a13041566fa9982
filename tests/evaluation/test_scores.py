import pytest
import sacrebleu

from regard.errors import InputError
from regard.evaluation.report import ModelReadings, evaluate
from regard.evaluation.scores import (
    by_length,
    by_rarity,
    count_words,
    exact_match,
    score_systems,
    sentence_scores,
)

REFERENCES = [
    "Ein Mann mit einem Hut steht an der Straße.",
    "Zwei Hunde laufen über eine grüne Wiese.",
    "Eine Frau liest ein Buch in der Sonne.",
    "Das Kind spielt mit dem roten Ball am Strand.",
] * 3
GOOD = [line.replace("grüne", "grünen").replace("Buch", "Heft") for line in REFERENCES]
BAD = [" ".join(line.split()[::-1]) for line in REFERENCES]


def test_scores_equal_sacrebleu():
    ((bleu, chrf, ter),) = score_systems({"good": GOOD}, REFERENCES, samples=50).values()
    assert bleu.value == pytest.approx(sacrebleu.corpus_bleu(GOOD, [REFERENCES]).score)
    assert chrf.value == pytest.approx(sacrebleu.corpus_chrf(GOOD, [REFERENCES]).score)
    assert ter.value == pytest.approx(sacrebleu.corpus_ter(GOOD, [REFERENCES]).score)
    assert bleu.signature.startswith(
        "nrefs:1|bs:50|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp"
    )
    assert 0 < bleu.margin < 30
    assert abs(bleu.mean - bleu.value) < bleu.margin
    assert bleu.p_value is None


def test_lowercase_adds_a_bleu_that_ignores_case():
    titles = {"titled": [line.title() for line in GOOD], "good": GOOD}
    for systems in (titles, {"titled": titles["titled"]}):
        found = score_systems(systems, REFERENCES, lowercase=True, samples=20)["titled"]
        assert [score.name for score in found] == ["BLEU", "BLEU lc", "chrF2", "TER"]
        plain = sacrebleu.corpus_bleu(GOOD, [REFERENCES], lowercase=True).score
        assert found[1].value == pytest.approx(plain)
        assert found[0].value < found[1].value
        assert "case:lc" in found[1].signature


def test_only_different_systems_differ_significantly():
    found = score_systems({"good": GOOD, "bad": BAD}, REFERENCES, samples=100)
    alone = score_systems({"good": GOOD}, REFERENCES, samples=100)["good"]
    assert [s.value for s in found["good"]] == pytest.approx([s.value for s in alone])
    assert all(score.p_value < 0.05 for score in found["bad"])
    same = score_systems({"good": GOOD, "twin": list(GOOD)}, REFERENCES, samples=100)
    assert all(score.p_value > 0.5 for score in same["twin"])


def test_perfect_translations():
    (bleu, chrf, ter) = score_systems({"it": REFERENCES}, REFERENCES, samples=20)["it"]
    assert (bleu.value, chrf.value, ter.value) == pytest.approx((100, 100, 0))
    assert exact_match(REFERENCES, REFERENCES) == 1
    assert exact_match(GOOD, REFERENCES) == 0.5
    assert sentence_scores(["x"], ["x"]) == [100]


def test_groups_by_length():
    sources = ["one", "a b c d e f g", "a " * 12, "a " * 40] * 3
    groups = by_length(sources, GOOD, REFERENCES, samples=10)
    assert [(group.label, group.n) for group in groups] == [
        ("1–5", 3),
        ("6–10", 3),
        ("11–15", 3),
        ("31+", 3),
    ]
    third = [i for i in range(12) if i % 4 == 1]
    expected = sacrebleu.corpus_bleu([GOOD[i] for i in third], [[REFERENCES[i] for i in third]])
    assert groups[1].value == pytest.approx(expected.score)


def test_f1_by_word_count_by_hand():
    # rare: "b" once right of one in the reference and two in the translation: 2 · 1 / (1 + 2)
    groups = by_rarity(["a b b", "a"], ["a b", "a"], {"a": 200, "b": 1})
    assert [(g.label, g.n, pytest.approx(g.value)) for g in groups] == [
        ("1", 1, 200 / 3),
        ("100+", 2, 100),
    ]
    unseen = by_rarity(["x"], ["y"], {})
    assert [(g.label, g.n, g.value) for g in unseen] == [("0", 1, 0)]
    assert count_words(["Ein Hund, ein Hund."]) == {"Ein": 1, "Hund": 2, ",": 1, "ein": 1, ".": 1}


def test_an_evaluation_as_json():
    systems = {"good": ModelReadings(GOOD, 1.5), "bad": ModelReadings(BAD)}
    found = evaluate(REFERENCES, REFERENCES, systems, samples=20)
    written = found.to_json()
    assert written["sentences"] == 12
    assert written["words_counted_in"] == "references"
    assert [one["system"] for one in written["systems"]] == ["good", "bad"]
    assert written["systems"][0]["perplexity"] == 1.5
    assert written["systems"][1]["heads"] == []
    counted = evaluate(
        REFERENCES,
        REFERENCES,
        {"a": ModelReadings(GOOD)},
        samples=5,
        seen={"Ein": 9},
    )
    assert counted.counted == "training"


@pytest.mark.parametrize(
    ("texts", "references", "sentence"),
    [
        (["a"], ["a", "b"], "1 lines of translations and 2 of references"),
        ([], [], "no lines: there is nothing to compare with"),
    ],
)
def test_different_numbers_of_lines_are_refused(texts, references, sentence):
    with pytest.raises(InputError, match=sentence):
        score_systems({"a": texts}, references)


def test_unknown_tokenizers_are_refused():
    with pytest.raises(InputError, match="BLEU has no tokenizer 'words'; it has 13a, "):
        score_systems({"a": GOOD}, REFERENCES, tokenize="words")
