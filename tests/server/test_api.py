"""The API: numbers equal those of the Python trace, answers match the OpenAPI document."""

import base64
import io
import json

import jsonschema
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load

from regard.analysis.heads import measure_heads
from regard.model import load as load_model
from regard.server.openapi import document
from regard.trace.edits import ablate, forbid, temperature

SITE = "decoder.layers.0.cross"


def fits(answer, name):
    """Hold an answer against the schema of the document."""
    described = document("")
    jsonschema.validate(answer, {"$ref": f"#/components/schemas/{name}", **described})


def png(size=8):
    made = io.BytesIO()
    Image.fromarray(np.arange(3 * size * size, dtype=np.uint8).reshape(size, size, 3)).save(
        made, "PNG"
    )
    return made.getvalue()


def test_models_are_listed_with_what_to_try(client):
    answer = client.get("/api/models").json()
    fits(answer, "Models")
    names = [one["name"] for one in answer["models"]]
    assert names[:5] == ["transformer", "seq2seq", "encoder", "decoder", "vision"]
    examples = client.get("/api/examples", params={"model": "encoder"}).json()
    fits(examples, "Examples")
    assert "[MASK]" in examples["examples"][0]["text"]


@pytest.mark.parametrize("name", ["transformer", "seq2seq", "encoder", "decoder"])
def test_a_text_is_traced_and_described(client, ask, name):
    told = ask(name)
    fits(told, "TraceAbout")
    assert told["sites"]
    assert told["start"]["site"] in [site["path"] for site in told["sites"]]
    again = client.get(f"/api/trace/{told['id']}")
    assert again.json() == told


def test_a_picture_is_traced_from_base64_or_by_the_name_of_an_upload(client):
    name = client.post("/api/images", content=png()).json()
    fits(name, "Uploaded")
    coded = base64.b64encode(png()).decode()
    asked = [name["image"], coded, f"data:image/png;base64,{coded}"]
    told = [client.post("/api/trace", json={"model": "vision", "image": x}).json() for x in asked]
    fits(told[0], "TraceAbout")
    assert told[0]["id"] == told[1]["id"] == told[2]["id"]
    assert told[0]["asked"] == {"model": "vision", "image": name["image"], "beam": 4}
    assert told[0]["answer"]["kind"] == "classes"
    seen = load(client.get(f"/api/trace/{told[0]['id']}/pixels").content)["pixels"]
    assert seen.shape == (8, 8, 3)
    # the model normalizes and the picture is put together again: bytes come back as they were
    assert np.abs(seen.astype(int) - np.asarray(Image.open(io.BytesIO(png())))).max() <= 1


def test_the_answer_is_that_of_the_best_beam_and_its_trace(client, ask, model):
    told = ask()
    best = model.translate(["the dog is sleeping"], beam=4, n_best=4, engine="torch")[0]
    answer = told["answer"]
    assert (answer["kind"], answer["text"]) == ("translation", best.text)
    assert [one["text"] for one in answer["alternatives"]] == [
        one.text for one in best.alternatives
    ]
    assert answer["score"] == pytest.approx(best.score, abs=1e-4)
    written = [model.target_tokenizer.start_id, *answer["ids"]]
    forced = model.trace("the dog is sleeping", written)
    chances = [one["probability"] for one in answer["tokens"]]
    assert chances == pytest.approx(np.exp(forced.output["log_probabilities"]), abs=1e-5)


def test_measures_are_those_of_python_for_all_sites_or_one(client, ask, folders):
    told = ask()
    address = f"/api/trace/{told['id']}/measures"
    found = client.get(address).json()["measures"]
    assert list(found) == [site["path"] for site in told["sites"]]
    fits({"measures": found}, "Measures")
    model = load_model(folders["transformer"])
    target = [model.target_tokenizer.start_id, *told["answer"]["ids"]]
    expected = measure_heads(model.trace("the dog is sleeping", target)[SITE])[1]
    assert found[SITE][1] == pytest.approx(vars(expected), abs=1e-5)
    assert client.get(address, params={"site": SITE}).json()["measures"] == {SITE: found[SITE]}


def test_what_comes_next_follows_the_temperature(client, ask):
    told = ask(model="decoder", text="the dog")
    address = f"/api/trace/{told['id']}/next"

    def chances(**given):
        answer = client.get(address, params=given).json()
        fits(answer, "NextTokens")
        found = answer["candidates"]
        return {one["id"]: one["probability"] for one in found}

    plain = {one["id"]: one["probability"] for one in told["answer"]["candidates"]}
    assert chances() == pytest.approx(plain, abs=1e-6)
    first, second = list(plain)[:2]
    cold = chances(temperature=0.5)  # p ** 2, divided by the sum of all
    assert cold[first] / cold[second] == pytest.approx((plain[first] / plain[second]) ** 2)
    assert next(iter(chances(temperature=0).values())) == 1
    assert sum(chances(temperature=3, count=50).values()) <= 1 + 1e-6


@pytest.mark.parametrize(
    ("given", "edit"),
    [
        (
            {"kind": "temperature", "site": "encoder.layers.0.self", "value": 0.2, "head": 1},
            temperature("encoder.layers.0.self", 0.2, head=1),
        ),
        (
            {"kind": "forbid", "site": "encoder.layers.1.self", "query": 1, "key": 2},
            forbid("encoder.layers.1.self", query=1, key=2),
        ),
        (
            {"kind": "ablate", "site": "encoder.layers.0.self", "head": 0, "to": "mean"},
            ablate("encoder.layers.0.self", head=0, to="mean"),
        ),
    ],
)
def test_an_edit_has_the_effect_that_it_has_in_python(client, ask, model, given, edit):
    answer = client.post(
        "/api/answer",
        json={"model": "transformer", "text": "the dog", "target": "der hund", "edits": [given]},
    ).json()
    fits(answer, "Answered")
    expected = model.trace("the dog", "der hund", edits=[edit]).output["log_probabilities"]
    chances = [one["probability"] for one in answer["answer"]["tokens"]]
    assert chances == pytest.approx(np.exp(expected), abs=1e-5)
    before = model.trace("the dog", "der hund").output["log_probabilities"]
    told = answer["answer"]["compare"]
    assert [one["before"] for one in told] == pytest.approx(np.exp(before), abs=1e-5)
    assert [one["after"] for one in told] == pytest.approx(chances, abs=1e-6)
    assert answer["answer"]["before"]["kind"] == "translation"


def test_an_edit_that_changes_nothing_changes_no_answer(client):
    asked = {"model": "transformer", "text": "the dog is sleeping"}
    plain = client.post("/api/answer", json=asked).json()["answer"]
    edits = [{"kind": "temperature", "site": SITE, "value": 1.0}]
    edited = client.post("/api/answer", json={**asked, "edits": edits}).json()["answer"]
    assert edited["text"] == plain["text"]
    assert edited["score"] == pytest.approx(plain["score"], abs=1e-5)
    assert [one["text"] for one in edited["alternatives"]] == [
        one["text"] for one in plain["alternatives"]
    ]


def test_positions_that_a_shorter_answer_lacks_are_told_and_do_no_harm(client, ask):
    asked = {"model": "transformer", "text": "the dog is sleeping"}
    n = len(ask()["answer"]["ids"])
    edits = [{"kind": "ablate", "site": "decoder.layers.0.self"}]
    last = {"kind": "forbid", "site": SITE, "query": n - 1, "key": 0}
    answer = client.post("/api/answer", json={**asked, "edits": [*edits, last]}).json()["answer"]
    assert len(answer["ids"]) < n
    assert answer["unmet"] == [last]
    beyond = {**last, "query": n}
    refused = client.post("/api/answer", json={**asked, "edits": [beyond]})
    assert refused.status_code == 422
    assert "a query that is not there" in refused.json()["error"]


def test_another_token_can_be_put_in(client, ask, model):
    plain = ask("encoder")
    token = model.tokenizer.encode("garden", specials=False)[0]
    edit = {"kind": "token", "side": "source", "position": 1, "token": token}
    told = ask("encoder", edits=[edit])
    assert told["tokens"]["source"][1] != plain["tokens"]["source"][1]
    assert told["tokens"]["source"][2:] == plain["tokens"]["source"][2:]


def test_what_was_said_before_is_compared_for_models_that_write_nothing(client, ask):
    edit = {"kind": "unscaled", "site": "*"}
    told = ask("decoder", edits=[edit])["answer"]
    again = {one["name"]: one["probability"] for one in told["candidates"]}
    for one in told["compare"]:
        if one["name"] in again:
            assert one["after"] == pytest.approx(again[one["name"]], abs=1e-6)
    before = [one["probability"] for one in told["before"]["candidates"]]
    assert [one["before"] for one in told["compare"]] == before


def test_alternatives_begin_with_what_was_written_before_the_position(client, ask):
    told = ask()
    found = client.get(f"/api/trace/{told['id']}/alternatives", params={"position": 1, "count": 3})
    fits(found.json(), "Alternatives")
    others = found.json()["alternatives"]
    first = told["answer"]["ids"][0]
    assert all(one["ids"][0] == first for one in others if len(one["ids"]) > 1)
    assert [one["id"] for one in others if one["id"] == told["answer"]["ids"][1]]
    chances = [one["probability"] for one in others]
    assert chances == sorted(chances, reverse=True)


def test_texts_are_translated_in_order(client, model):
    texts = ["the dog", "the garden is", "sleeping"] * 7
    answer = client.post("/api/translate", json={"model": "transformer", "texts": texts}).json()
    fits(answer, "Translations")
    expected = [one.text for one in model.translate(texts, engine="torch")]
    assert [one["text"] for one in answer["translations"]] == expected


def test_a_text_is_gone_on_with(client, folders):
    asked = {"model": "decoder", "text": "the dog", "max_tokens": 5, "seed": 3}
    answer = client.post("/api/generate", json=asked).json()
    fits(answer, "Generated")
    expected = load_model(folders["decoder"]).generate("the dog", max_tokens=5, seed=3)
    assert answer["text"] == expected.text


def test_progress_is_streamed_and_ends_with_the_result(client, ask):
    told = ask(text="the garden")
    asked = {"model": "transformer", "text": "the garden is sleeping in the garden"}
    head = {"accept": "text/event-stream"}
    with client.stream("POST", "/api/trace", json=asked, headers=head) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = "".join(answer.iter_text())
    events = [part.split("\n", 1) for part in text.strip().split("\n\n")]
    names = [name.removeprefix("event: ") for name, _ in events]
    assert names[-1] == "result"
    assert set(names[:-1]) == {"progress"}
    result = json.loads(events[-1][1].removeprefix("data: "))
    fits(result, "TraceAbout")
    assert result["id"] != told["id"]


def test_a_fault_is_an_event_too(client):
    asked = {"model": "transformer", "text": ""}
    head = {"accept": "text/event-stream"}
    edits = [{"kind": "unscaled", "site": "nowhere"}]
    text = client.post(
        "/api/trace", json={**asked, "text": "the dog", "edits": edits}, headers=head
    )
    last = text.text.strip().split("\n\n")[-1]
    assert last.startswith("event: error")
    assert "met nothing" in last
