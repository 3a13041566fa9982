import pytest
import sacrebleu

from regard.errors import InputError
from regard.evaluation.report import Options, Own, evaluate
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


def test_scores_are_sacrebleus_own():
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


def test_capitals_do_not_count_in_a_second_bleu():
    titles = {"titled": [line.title() for line in GOOD], "good": GOOD}
    for systems in (titles, {"titled": titles["titled"]}):
        found = score_systems(systems, REFERENCES, lowercase=True, samples=20)["titled"]
        assert [score.name for score in found] == ["BLEU", "BLEU lc", "chrF2", "TER"]
        plain = sacrebleu.corpus_bleu(GOOD, [REFERENCES], lowercase=True).score
        assert found[1].value == pytest.approx(plain)
        assert found[0].value < found[1].value
        assert "case:lc" in found[1].signature


def test_a_better_system_is_told_from_a_worse_one_and_an_equal_one_is_not():
    found = score_systems({"good": GOOD, "bad": BAD}, REFERENCES, samples=200)
    alone = score_systems({"good": GOOD}, REFERENCES, samples=200)["good"]
    assert [s.value for s in found["good"]] == pytest.approx([s.value for s in alone])
    assert all(score.p_value < 0.05 for score in found["bad"])
    same = score_systems({"good": GOOD, "twin": list(GOOD)}, REFERENCES, samples=200)
    assert all(score.p_value > 0.5 for score in same["twin"])


def test_perfect_translations_are_perfect():
    (bleu, chrf, ter) = score_systems({"it": REFERENCES}, REFERENCES, samples=20)["it"]
    assert (bleu.value, chrf.value, ter.value) == pytest.approx((100, 100, 0))
    assert exact_match(REFERENCES, REFERENCES) == 1
    assert exact_match(GOOD, REFERENCES) == 0.5
    assert sentence_scores(["x"], ["x"]) == [100]


def test_groups_of_length_hold_every_sentence_once():
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


def test_words_by_frequency_by_hand():
    # rare: "b" once right of one in the reference and two in the translation: 2 · 1 / (1 + 2)
    groups = by_rarity(["a b b", "a"], ["a b", "a"], {"a": 200, "b": 1})
    assert [(g.label, g.n, pytest.approx(g.value)) for g in groups] == [
        ("1", 1, 200 / 3),
        ("100+", 2, 100),
    ]
    unseen = by_rarity(["x"], ["y"], {})
    assert [(g.label, g.n, g.value) for g in unseen] == [("0", 1, 0)]
    assert count_words(["Ein Hund, ein Hund."]) == {"Ein": 1, "Hund": 2, ",": 1, "ein": 1, ".": 1}


def test_an_evaluation_holds_it_all_and_can_be_written_down():
    systems = {"good": Own(GOOD, 1.5), "bad": Own(BAD)}
    found = evaluate(REFERENCES, REFERENCES, systems, Options(samples=20))
    told = found.to_json()
    assert told["sentences"] == 12
    assert told["words_counted_in"] == "references"
    assert [one["system"] for one in told["systems"]] == ["good", "bad"]
    assert told["systems"][0]["perplexity"] == 1.5
    assert told["systems"][1]["heads"] == []
    counted = evaluate(
        REFERENCES, REFERENCES, {"a": Own(GOOD)}, Options(samples=5, seen={"Ein": 9})
    )
    assert counted.counted == "training"


@pytest.mark.parametrize(
    ("texts", "references", "sentence"),
    [
        (["a"], ["a", "b"], "1 lines of translations and 2 of references"),
        ([], [], "no lines: there is nothing to compare with"),
    ],
)
def test_lines_that_do_not_belong_together_are_refused(texts, references, sentence):
    with pytest.raises(InputError, match=sentence):
        score_systems({"a": texts}, references)


def test_an_unknown_tokenizer_is_named():
    with pytest.raises(InputError, match="BLEU has no tokenizer 'words'; it has 13a, "):
        score_systems({"a": GOOD}, REFERENCES, tokenize="words")
