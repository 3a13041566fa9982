import json
from math import exp

import pytest

from regard.analysis.heads import ALIGNMENT_HEADS
from regard.errors import InputError
from regard.evaluation.alignment import Gold
from regard.evaluation.alignment_heads import (
    Aligner,
    AlignmentHeads,
    cache_heads,
    cross_attention,
    occlusion_links,
)
from regard.evaluation.report import perplexity, read_gold, reference_part
from regard.generation.ctranslate2_engine import fingerprint
from regard.model import Model, load
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from tests.generation.toy import pairs, tokenizer, toy

pytestmark = pytest.mark.long

TEST = pairs(30, seed=-9)


@pytest.fixture(scope="module")
def model():
    return load(toy())


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def parts(model):
    return [reference_part(model, source, target) for source, target in TEST]


@pytest.fixture(scope="module")
def truth():
    """Sentences are translated backwards."""
    lengths = [len(source.split()) for source, _ in TEST]
    links = [frozenset((n - 1 - t, t) for t in range(n)) for n in lengths]
    return [Gold(sure, sure) for sure in links]


def test_occlusion_finds_true_links(model, parts, truth):
    aligner = Aligner(model)
    found = [occlusion_links(model, part, aligner.words(part)) for part in parts]
    links = [(link, gold) for one, gold in zip(found, truth, strict=True) for link in one.sure]
    assert len(links) > 30
    assert sum(link in gold.sure for link, gold in links) >= 0.9 * len(links)


def test_the_best_heads_have_the_lowest_error(model, parts, truth):
    measured = Aligner(model).measure(parts, truth, source="gold")
    assert len(measured.heads) == 2 * 2
    single = [min(head.error, head.error_after) for head in measured.heads]
    assert measured.best.error <= min(single)
    assert measured.best.error < 0.15
    assert max(single) > measured.best.error + 0.1  # heads differ
    named = {(head.site, head.head) for head in measured.heads}
    assert set(measured.best.places) <= named
    assert measured.best.n_links == sum(len(gold.sure) for gold in truth)


def test_heads_chosen_by_occlusion_align_well(model, parts, truth):
    aligner = Aligner(model)
    heads = aligner.find_heads(parts)
    assert heads.source == "occlusion"
    done = model.translate([source for source, _ in TEST], engine="torch")
    right = total = 0
    for one, gold, (_, target) in zip(aligner.align(done), truth, TEST, strict=True):
        if " ".join(one.target_words) == target:
            right += len(set(one.links) & gold.sure)
            total += len(gold.sure)
    assert total > 60
    assert right > 0.85 * total


def test_without_links_the_penultimate_layer_is_chosen(model, parts):
    nothing = [Gold(frozenset(), frozenset(), frozenset())] * len(parts)
    best = Aligner(model).measure(parts, nothing, source="dictionary").best
    assert best.source == "none"
    assert best.places == (("decoder.layers.0.cross", 0), ("decoder.layers.0.cross", 1))


def test_batched_weights_equal_those_of_single_traces(model, parts):
    together = list(cross_attention(model, parts))
    for part, table in zip(parts[:6], together, strict=False):
        (alone,) = cross_attention(model, [part])
        assert alone == pytest.approx(table, abs=1e-5)
        trace = model.trace(part.source_ids, [*part.ids, model.target_tokenizer.end_id])
        site = trace["decoder.layers.1.cross"]
        assert site.weights(1).numpy() == pytest.approx(table[3], abs=1e-5)


def test_heads_come_from_the_run_then_the_folder_then_the_cache(tmp_path):
    folder = toy()
    first, second, third = (
        AlignmentHeads((("decoder.layers.0.cross", i),), False, "gold") for i in range(3)
    )
    assert Aligner.of_folder(folder).chosen is None
    cache_heads(folder, third)
    assert Aligner.of_folder(folder).chosen == third
    model = Model.load(folder)
    model.extras = {ALIGNMENT_HEADS: second.to_json()}
    model.save(tmp_path / "own")
    assert Aligner.of_folder(tmp_path / "own").chosen == second
    assert Aligner.of_folder(tmp_path / "own", first.to_json()).chosen == first
    assert json.loads(json.dumps(first.to_json())) == first.to_json()
    assert fingerprint(folder) != fingerprint(tmp_path / "own")


def test_models_without_attention_are_refused(parts):
    config = Seq2SeqConfig(n_vocab=len(tokenizer()), d_model=8, attention="none")
    model = Model(module=Seq2Seq(config).eval(), task="translation", tokenizer=tokenizer())
    with pytest.raises(InputError, match="has no cross-attention"):
        list(cross_attention(model, parts[:1]))
    with pytest.raises(InputError, match="names no heads"):
        AlignmentHeads.from_json({"places": 3})


def test_an_rnn_with_attention(parts):
    config = Seq2SeqConfig(n_vocab=len(tokenizer()), d_model=8, attention="additive")
    model = Model(module=Seq2Seq(config).eval(), task="translation", tokenizer=tokenizer())
    (table,) = cross_attention(model, parts[:1])
    assert table.shape == (1, len(parts[0].ids) + 1, len(parts[0].source_ids))
    assert table.sum(-1) == pytest.approx(1)


def test_perplexity_equals_that_of_the_traces(model, parts):
    end = model.target_tokenizer.end_id
    traces = [model.trace(part.source_ids, [*part.ids, end]) for part in parts[:5]]
    flat = [x for trace in traces for x in trace.output["log_probabilities"]]
    assert perplexity(model, parts[:5]) == pytest.approx(exp(-sum(flat) / len(flat)), rel=1e-4)
    assert 1 < perplexity(model, parts) < 3
    with pytest.raises(InputError, match="at least one reference"):
        perplexity(model, [])


def test_gold_links_are_sure_or_possible():
    read = read_gold(1, "0-0 1p2 3?4")
    assert read.sure == {(0, 0)}
    assert read.possible == {(0, 0), (1, 2), (3, 4)}
    assert read_gold(1, "").sure == frozenset()
    with pytest.raises(InputError, match="Line 7 has '1:2'; write links as 1-2"):
        read_gold(7, "1:2")
