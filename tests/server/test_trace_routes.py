"""Routes with JSON answers: their numbers are those of Python."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load

from regard.analysis.heads import measure_heads
from regard.model import load as load_model
from regard.server.settings import LIMITS
from regard.trace.edits import ablate, edit_schema, forbid, temperature

SITE = "decoder.layers.0.cross"
TEXT = "the dog is sleeping"


def png(size=8):
    data = io.BytesIO()
    pixels = np.arange(3 * size * size, dtype=np.uint8).reshape(size, size, 3)
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


@pytest.fixture
def answer(client):
    """Post a request and return its answer."""

    def post(model="transformer", text=TEXT, **more):
        body = {"model": model, "text": text, **more}
        return client.post("/api/answer", json=body).json()["answer"]

    return post


def test_models_are_listed_with_examples_and_limits(client):
    listed = client.get("/api/models").json()
    names = [one["name"] for one in listed["models"]]
    assert names[:5] == ["transformer", "seq2seq", "encoder", "decoder", "vision"]
    assert listed["limits"]["beam"] == LIMITS.beam
    examples = client.get("/api/examples", params={"model": "encoder"}).json()["examples"]
    assert "[MASK]" in examples[0]["text"]
    assert client.get("/api/edits/schema").json() == edit_schema()


@pytest.mark.parametrize("name", ["transformer", "seq2seq", "encoder", "decoder"])
def test_a_text_is_traced_and_described(client, trace, name):
    described = trace(name)
    assert described["start"]["site"] in [site["path"] for site in described["sites"]]
    assert client.get(f"/api/trace/{described['id']}").json() == described


def test_an_image_is_traced_from_base64_or_an_upload(client):
    name = client.post("/api/images", content=png()).json()["image"]
    text = base64.b64encode(png()).decode()
    first, *others = (
        client.post("/api/trace", json={"model": "vision", "image": image}).json()
        for image in (name, text, f"data:image/png;base64,{text}")
    )
    assert [one["id"] for one in others] == [first["id"]] * 2
    assert first["asked"] == {"model": "vision", "image": name, "beam": 4}
    assert first["answer"]["kind"] == "classes"
    seen = load(client.get(f"/api/trace/{first['id']}/pixels").content)["pixels"]
    # normalization by the model is undone
    assert np.abs(seen.astype(int) - np.asarray(Image.open(io.BytesIO(png())))).max() <= 1


def test_the_answer_is_the_translation_and_its_trace(trace, model):
    best = model.translate(TEXT, beam=4, n_best=4)
    answer = trace()["answer"]
    assert (answer["kind"], answer["text"]) == ("translation", best.text)
    assert [one["text"] for one in answer["alternatives"]] == [x.text for x in best.alternatives]
    assert answer["score"] == pytest.approx(best.score, abs=1e-4)
    assert answer["parts"] == [{"source": TEXT, "text": best.text}]
    assert (answer["engine"], answer["precision"], answer["differs"]) == (
        best.engine,
        "float32",
        [],
    )
    rough, same = trace(precision="int8")["answer"], model.trace(TEXT, precision="int8").output
    assert (rough["precision"], rough["ids"]) == ("int8", list(same.ids))
    assert rough["differs"] == list(same.differs)
    forced = model.trace(TEXT, [model.target_tokenizer.start_id, *answer["ids"]])
    probabilities = [one["probability"] for one in answer["tokens"]]
    assert probabilities == pytest.approx(np.exp(forced.output.log_probs), abs=1e-5)


def test_an_example_opens_with_the_connection_that_it_shows(trace, service, monkeypatch):
    text = "the dog is in the garden"
    asks = trace(text=text)["tokens"]["output"][0].strip()
    example = {"text": text, "looks": [asks, "garden"]}
    extras = service.catalog["transformer"].description.extras
    monkeypatch.setitem(extras, "examples", [example])
    found = trace(text=text, beam=2)  # another request: the first one is stored
    start = found["start"]
    assert start["site"] == SITE
    assert found["tokens"]["source"][start["key"]].strip() == "garden"
    assert found["tokens"]["output"][start["query"]].strip() == asks


def test_ids_of_a_target_are_read_as_in_python(trace, answer, model):
    ids = trace()["answer"]["ids"]
    assert ids[-1] == model.target_tokenizer.end_id
    for target in (ids, ids[:-1]):  # also without an end, as at the length limit
        found, expected = trace(target=target), model.trace(TEXT, target)
        assert found["answer"]["ids"] == list(expected.output.ids) == target
        assert found["tokens"] == expected.tokens
        edited = answer(target=target, edits=[ablate(SITE).to_dict()])
        assert edited["ids"] == target
        assert len(edited["compare"]) == len(target)
    text = trace(target="der hund")
    assert text["tokens"] == model.trace(TEXT, "der hund").tokens


@pytest.mark.parametrize(
    "text",
    [
        "the dog is sleeping in the garden . The garden is sleeping .",
        "the dog is sleeping in the garden and " * 26,  # one sentence of more than 256 tokens
    ],
    ids=["two sentences", "one long sentence"],
)
def test_each_part_of_a_long_text_can_be_traced(client, trace, model, text):
    sources = [part.source for part in model.translate(text).parts]
    assert len(sources) == 2
    for number in range(2):
        described = trace(text=text, part=number)
        assert [one["source"] for one in described["answer"]["parts"]] == sources
        part = trace(text=sources[number])
        assert described["tokens"] == part["tokens"]
        assert described["answer"]["ids"] == part["answer"]["ids"]
        same = trace(text=text, part=number, target=described["answer"]["ids"])  # ids of the part
        assert same["tokens"] == part["tokens"]
    refused = client.post("/api/trace", json={"model": "transformer", "text": text, "part": 2})
    assert refused.json()["error"]["params"] == {"part": 2, "count": 2}


def test_measures_are_those_of_python(client, trace, model):
    described = trace()
    address = f"/api/trace/{described['id']}/measures"
    found = client.get(address).json()["measures"]
    assert list(found) == [site["path"] for site in described["sites"]]
    target = [model.target_tokenizer.start_id, *described["answer"]["ids"]]
    expected = measure_heads(model.trace(TEXT, target)[SITE])[1]
    assert found[SITE][1] == pytest.approx(vars(expected), abs=1e-5)
    assert client.get(address, params={"site": SITE}).json()["measures"] == {SITE: found[SITE]}


def test_next_tokens_depend_on_the_temperature(client, trace):
    described = trace(model="decoder", text="the dog")

    def probabilities(**query):
        found = client.get(f"/api/trace/{described['id']}/next", params=query).json()["candidates"]
        return {one["id"]: one["probability"] for one in found}

    plain = {one["id"]: one["probability"] for one in described["answer"]["candidates"]}
    assert probabilities() == pytest.approx(plain, abs=1e-6)
    first, second = list(plain)[:2]
    cold = probabilities(temperature=0.5)  # p ** 2, normalized
    assert cold[first] / cold[second] == pytest.approx((plain[first] / plain[second]) ** 2)
    assert next(iter(probabilities(temperature=0).values())) == 1


@pytest.mark.parametrize(
    "edit",
    [
        temperature("encoder.layers.0.self", 0.2, head=1),
        forbid("encoder.layers.1.self", query=1, key=2),
        ablate("encoder.layers.0.self", head=0, to="mean"),
    ],
    ids=lambda edit: edit.kind,
)
def test_an_edit_has_the_same_effect_as_in_python(answer, model, edit):
    found = answer(text="the dog", target="der hund", edits=[edit.to_dict()])
    after = np.exp(model.trace("the dog", "der hund", edits=[edit]).output.log_probs)
    before = np.exp(model.trace("the dog", "der hund").output.log_probs)
    assert [one["probability"] for one in found["tokens"]] == pytest.approx(after, abs=1e-5)
    assert [one["before"] for one in found["compare"]] == pytest.approx(before, abs=1e-5)
    assert [one["after"] for one in found["compare"]] == pytest.approx(after, abs=1e-5)
    assert found["before"]["kind"] == "translation"


def test_an_edit_without_effect_does_not_change_the_answer(answer):
    plain = answer()
    edited = answer(edits=[{"kind": "temperature", "site": SITE, "value": 1.0}])
    assert edited["text"] == plain["text"]
    assert edited["score"] == pytest.approx(plain["score"], abs=1e-4)
    texts = [[one["text"] for one in found["alternatives"]] for found in (edited, plain)]
    assert texts[0] == texts[1]


def test_edits_of_positions_that_a_shorter_answer_lacks_are_reported(client, answer):
    n = len(answer()["ids"])
    last = {"kind": "forbid", "site": SITE, "query": n - 1, "key": 0}
    found = answer(edits=[{"kind": "ablate", "site": "decoder.layers.0.self"}, last])
    assert len(found["ids"]) < n
    assert found["unmet"] == [last]
    body = {"model": "transformer", "text": TEXT, "edits": [{**last, "query": n}]}
    refused = client.post("/api/answer", json=body)
    assert refused.status_code == 422
    assert "query" in refused.json()["error"]["message"]


def test_a_token_can_be_replaced(trace, answer, model):
    plain = trace("encoder")
    token = model.tokenizer.encode("garden", specials=False)[0]
    edit = {"kind": "token", "side": "source", "position": 1, "token": token}
    edited = trace("encoder", edits=[edit])
    assert edited["tokens"]["source"][1] != plain["tokens"]["source"][1]
    assert edited["tokens"]["source"][2:] == plain["tokens"]["source"][2:]
    ids = model.tokenizer.encode(TEXT)
    expected = model.trace([ids[0], token, *ids[2:]])
    assert answer(edits=[edit])["ids"] == list(expected.output.ids)


def test_candidates_are_compared_for_models_without_a_target(trace):
    answer = trace("decoder", edits=[{"kind": "unscaled", "site": "*"}])["answer"]
    after = {one["name"]: one["probability"] for one in answer["candidates"]}
    for one in answer["compare"]:
        if one["name"] in after:
            assert one["after"] == pytest.approx(after[one["name"]], abs=1e-6)
    before = [one["probability"] for one in answer["before"]["candidates"]]
    assert [one["before"] for one in answer["compare"]] == before


def test_alternatives_start_with_the_tokens_before_the_position(client, trace):
    described = trace()
    address = f"/api/trace/{described['id']}/alternatives"
    found = client.get(address, params={"position": 1, "count": 3}).json()["alternatives"]
    ids = described["answer"]["ids"]
    assert all(one["ids"][0] == ids[0] for one in found if len(one["ids"]) > 1)
    assert ids[1] in [one["id"] for one in found]
    probabilities = [one["probability"] for one in found]
    assert probabilities == sorted(probabilities, reverse=True)
    for one in (*found, *described["answer"]["alternatives"]):
        assert trace(target=one["ids"])["answer"]["text"] == one["text"]
    end = described["answer"]["ids"][-1]
    assert end in [one["ids"][-1] for one in found]
    refused = client.get(address, params={"position": len(ids)})
    assert refused.json()["error"]["code"] == "unknown_position"


def test_texts_are_translated_in_order(client, model):
    texts = ["the dog", "the garden is", "sleeping"] * 7
    found = client.post("/api/translate", json={"model": "transformer", "texts": texts}).json()
    expected = [one.text for one in model.translate(texts)]
    assert [one["text"] for one in found["translations"]] == expected


def test_a_text_is_continued(client, folders):
    body = {"model": "decoder", "text": "the dog", "max_tokens": 5, "seed": 3}
    found = client.post("/api/generate", json=body).json()
    expected = load_model(folders["decoder"]).generate("the dog", max_tokens=5, seed=3)
    assert found["text"] == expected.text


def events_of(client, body):
    headers = {"accept": "text/event-stream"}
    with client.stream("POST", "/api/trace", json=body, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        text = "".join(response.iter_text())
    events = [event.split("\n", 1) for event in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), data.removeprefix("data: ")) for name, data in events]


def test_progress_is_streamed_before_the_result(client):
    body = {"model": "encoder", "text": "the garden is sleeping in the garden"}
    *progress, (name, data) = events_of(client, body)
    assert {name for name, _ in progress} == {"progress"}
    assert json.loads(progress[0][1])["doing"] == "loading"
    assert (name, json.loads(data)["asked"]) == ("result", {**body, "beam": 4})


def test_the_parts_of_a_long_text_are_counted_while_they_are_written_and_traced(client):
    body = {"model": "transformer", "text": "The dog is sleeping. " * 3, "beam": 1}
    *progress, (name, data) = events_of(client, body)
    n = len(json.loads(data)["answer"]["parts"])
    counted = [json.loads(one) for _, one in progress]
    assert name == "result"
    assert n == 3
    for doing in ("writing", "tracing"):  # the last count is always sent
        assert (doing, n, n) in [(one["doing"], one["done"], one["of"]) for one in counted]


def test_an_error_is_an_event_with_a_code(client):
    body = {"model": "transformer", "text": "the dog"}
    edits = [{"kind": "unscaled", "site": "nowhere"}]
    name, data = events_of(client, {**body, "edits": edits})[-1]
    error = json.loads(data)["error"]
    assert (name, error["code"]) == ("error", "edit_unmatched")
    assert "matched nothing" in error["message"]
