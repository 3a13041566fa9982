"""Decoding, step by step: its numbers are the trace's, and it ends at the answer."""

import math

import pytest
import torch

import regard
from regard.generation.decoding_steps import describe_step, sample_steps
from regard.generation.search import SamplingOptions
from regard.model import load

pytestmark = pytest.mark.long

PROMPT = "the dog"


@pytest.fixture(scope="module")
def decoded(client, trace):
    """Trace a text, decode it, and return both answers."""

    def get(model="transformer", text="the dog is sleeping", query="", **more):
        info = trace(model, text, **more)
        response = client.get(f"/api/trace/{info['id']}/decoding?{query}")
        assert response.status_code == 200, response.text
        return info, response.json()

    return get


@pytest.mark.parametrize("model", ["transformer", "seq2seq"])
def test_the_winner_of_the_search_is_the_answer(decoded, model):
    info, found = decoded(model)
    tree = found["tree"]
    assert (found["kind"], found["is_answer"]) == ("beam", True)
    assert [node["id"] for node in tree if node["won"]] == info["answer"]["ids"] == found["ids"]
    assert found["score"] == pytest.approx(info["answer"]["score"], abs=1e-4)
    best = max((one for one in tree if one["fate"] == "finished"), key=lambda one: one["score"])
    assert best["won"]
    # each sequence is its parent's with one more token, so it is less probable
    for node in tree:
        if node["parent"] is not None:
            parent = tree[node["parent"]]
            assert parent["step"] == node["step"] - 1
            assert parent["log_prob"] >= node["log_prob"]


@pytest.mark.parametrize("model", ["transformer", "seq2seq"])
def test_probabilities_are_those_of_the_trace(decoded, model):
    info, found = decoded(model)
    for token, step in zip(info["answer"]["tokens"], found["steps"], strict=True):
        (chosen,) = (one for one in step["candidates"] if one["id"] == step["chosen"])
        assert chosen["probability"] == pytest.approx(token["probability"], abs=1e-6)
        assert math.exp(chosen["log_prob"]) == pytest.approx(token["probability"], abs=1e-6)
        ranks = [one["rank"] for one in step["candidates"]]
        assert ranks[:8] == list(range(8))


def test_a_branch_starts_with_what_was_forced_and_is_searched_from_there(decoded):
    info, found = decoded()
    end = info["answer"]["ids"][-1]
    others = [one["id"] for one in found["steps"][0]["candidates"][1:] if one["id"] != end]
    forced = others[:2]
    _, branch = decoded(query=f"forced={forced[0]},{forced[1]}")
    assert branch["ids"][:2] == forced
    assert [step["forced"] for step in branch["steps"][:3]] == [True, True, False]
    assert min(node["step"] for node in branch["tree"]) == 3
    # greedy search writes the same text if what it chose is forced
    _, greedy = decoded(beam=1)
    _, same = decoded(beam=1, query=f"forced={greedy['ids'][0]}")
    assert same["ids"] == greedy["ids"]


def test_edits_change_the_search(decoded):
    edit = {"kind": "ablate", "site": "decoder.layers.0.cross", "head": 0}
    info, found = decoded(edits=[edit])
    assert found["ids"] == info["answer"]["ids"]
    chances = [one["probability"] for one in info["answer"]["tokens"]]
    assert [_chosen(step)["probability"] for step in found["steps"]] == pytest.approx(
        chances, abs=1e-6
    )


def test_a_given_text_has_no_search(decoded):
    _, found = decoded(target="der hund")
    assert (found["kind"], found["tree"]) == ("given", None)


OPTIONS = {"temperature": 0.8, "top_k": 6, "top_p": 0.9, "seed": 3, "max_tokens": 6}


def test_the_same_seed_gives_the_text_of_generate(decoded, folders):
    query = "&".join(f"{name}={value}" for name, value in OPTIONS.items())
    _, found = decoded("decoder", PROMPT, query)
    assert found["text"] == load(folders["decoder"]).generate(PROMPT, **OPTIONS).text
    for step in found["steps"]:
        kept = [one for one in step["candidates"] if not one["cut"]]
        assert len(kept) <= OPTIONS["top_k"]
        assert sum(one["probability"] for one in kept) == pytest.approx(1, abs=1e-5)
        assert _chosen(step)["cut"] == ""
    model = load(folders["decoder"])
    for seed in range(4):  # so hot that special tokens would be drawn if they could be
        options = {"temperature": 9.0, "max_tokens": 12, "seed": seed}
        steps = sample_steps(model, PROMPT, SamplingOptions(**options))
        assert tuple(steps.ids) == model.generate(PROMPT, engine="torch", **options).ids
        assert all(one.log_prob > -math.inf for step in steps.steps for one in step.candidates)


def test_forcing_the_tokens_that_were_drawn_changes_nothing(folders):
    model, options = load(folders["decoder"]), SamplingOptions(max_tokens=6, seed=5)
    free = sample_steps(model, PROMPT, options)
    assert sample_steps(model, PROMPT, options, forced=free.ids[:3]) == free


def test_the_first_step_under_edits_is_the_prediction_of_the_edited_trace(decoded):
    edit = {"kind": "ablate", "site": "decoder.layers.0.self", "head": 1}
    info, found = decoded("decoder", PROMPT, edits=[edit])
    best = info["answer"]["candidates"][0]
    first = found["steps"][0]["candidates"][0]
    assert first["id"] == best["id"]
    assert math.exp(first["log_prob"]) == pytest.approx(best["probability"], abs=1e-6)


def test_a_step_by_hand():
    # 1/2, 1/4, 1/4 at temperature 1/2 are 4/6, 1/6, 1/6; top-k 1 keeps the first one only
    log_probs = torch.tensor([0.25, 0.5, 0.25]).log()
    step = describe_step(log_probs, 1, options=SamplingOptions(temperature=0.5))
    assert [one.probability for one in step.candidates] == pytest.approx([4 / 6, 1 / 6, 1 / 6])
    assert step.candidates[0].scaled == pytest.approx(2 * math.log(0.5))
    only = describe_step(log_probs, 1, options=SamplingOptions(top_k=1))
    assert [one.cut for one in only.candidates] == ["", "top_k", "top_k"]
    best = describe_step(log_probs, 1, options=SamplingOptions(temperature=0.0))
    assert [one.probability for one in best.candidates] == [1, 0, 0]
    assert best.candidates[0].scaled is None


def test_an_image_is_not_written(client, service):
    assert client.get("/api/trace/none/decoding").json()["error"]["code"] == "unknown_trace"
    id = service.worked_example().id
    assert client.get(f"/api/trace/{id}/decoding").json()["error"]["code"] == "writes_no_text"


@pytest.mark.parametrize("name", ["en-de", "en-ko", "dates"])
def test_bundled_translators_end_at_their_answers(name):
    from regard.generation.decoding_steps import search_tree
    from regard.generation.search import SearchOptions
    from regard.server.catalog import bundled_examples

    model, search = regard.load(name), SearchOptions(beam=4, n_best=4)
    for example in bundled_examples()[name][:3]:
        (part, *_) = model.translate(example["text"]).parts
        found = search_tree(model, part.source_ids, search=search)
        assert found.best.ids == part.ids
        assert found.best.score == pytest.approx(part.score, abs=1e-3)


def _chosen(step):
    return next(one for one in step["candidates"] if one["id"] == step["chosen"])
