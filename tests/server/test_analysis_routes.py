"""Routes of the lens, attributions, sweeps and patches: the numbers are those of Python."""

import base64
import io
import json

import pytest
import torch
from PIL import Image

from regard.trace.edits import ablate, patch

TEXT = "the dog is sleeping"


@pytest.fixture(scope="module")
def image() -> str:
    file = io.BytesIO()
    Image.effect_noise((8, 8), 60).convert("RGB").save(file, "png")
    return base64.b64encode(file.getvalue()).decode()


def get(client, id: str, what: str, **query):
    response = client.get(f"/api/trace/{id}/{what}", params=query)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_lens_of_the_server_is_that_of_python(client, trace, model):
    info = trace(text=TEXT)
    found, expected = get(client, info["id"], "lens", count=3), model.trace(TEXT).lens(count=3)
    assert found["stations"] == list(expected.stations)
    assert torch.tensor(found["ids"]).equal(expected.ids)
    assert found["names"] == {str(id): name for id, name in expected.names.items()}
    for name in ("probabilities", "entropy", "divergence", "answer_probabilities"):
        torch.testing.assert_close(torch.tensor(found[name]), getattr(expected, name))
    some = get(client, info["id"], "lens", count=3, start=1, stop=2)
    assert (some["start"], some["n_positions"]) == (1, len(expected.positions))
    rows = torch.tensor(found["entropy"])[:, 1:2]
    torch.testing.assert_close(torch.tensor(some["entropy"]), rows, atol=1e-5, rtol=0)


def test_the_last_station_is_the_answer(client, trace, image):
    info = trace("decoder", TEXT)
    found = get(client, info["id"], "lens")
    best = info["answer"]["candidates"][0]
    assert found["names"][str(found["ids"][-1][-1][0])] == best["name"]
    assert found["probabilities"][-1][-1][0] == pytest.approx(best["probability"], abs=1e-6)
    info = trace("vision", None, image=image)
    found = get(client, info["id"], "lens")
    assert found["entries"] == "classes"
    assert found["probabilities"][-1][0][0] == pytest.approx(
        info["answer"]["candidates"][0]["probability"], abs=1e-6
    )


@pytest.mark.parametrize("family", ["transformer", "decoder", "encoder", "vision"])
def test_stored_traces_keep_what_attributions_need(family, client, trace, image):
    given = {"image": image} if family == "vision" else {}
    info = trace(family, None if family == "vision" else f"{TEXT} [MASK]", **given)
    found = get(client, info["id"], "attribution", token=1, relative_to=2)
    assert {part["kind"] for part in found["parts"]} >= {"embedding", "head", "feed_forward"}
    total = sum(part["value"] for part in found["parts"])
    assert total == pytest.approx(found["logit"] - found["bias"], abs=1e-4)


def test_the_attribution_of_the_server_is_that_of_python(client, trace, model):
    found = get(client, trace(text=TEXT)["id"], "attribution", position=1)
    expected = model.trace(TEXT).attribution(position=1)
    assert found["name"] == expected.name
    assert [part["value"] for part in found["parts"]] == pytest.approx(
        [part.value for part in expected.parts], abs=1e-6
    )


@pytest.mark.parametrize(
    ("family", "what", "query", "sentence"),
    [
        ("seq2seq", "lens", {}, "recurrent model"),
        ("seq2seq", "attribution", {}, "recurrent model"),
        ("decoder", "attribution", {"position": 99}, "no position 99"),
        ("decoder", "attribution", {"token": 9999}, "no token 9999"),
        ("decoder", "lens", {"start": 99}, "no position"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(family, what, query, sentence, client, trace):
    response = client.get(f"/api/trace/{trace(family, TEXT)['id']}/{what}", params=query)
    assert response.status_code == 422
    assert sentence in response.json()["error"]["message"]


def test_a_sweep_of_the_server_is_that_of_python(client, model):
    edit = {"kind": "ablate", "site": "decoder.layers.0.cross", "head": 0}
    body = {"model": "transformer", "text": TEXT, "edits": [edit]}
    found = client.post("/api/sweep", json=body).json()
    edits = [ablate("decoder.layers.0.cross", head=0)]
    expected = model.sweep(TEXT, edits=edits)
    assert found["ids"] == list(expected.ids)
    for path, table in expected.changes.items():
        torch.testing.assert_close(torch.tensor(found["changes"][path]), table.float())
    # a head that is off already changes nothing
    assert found["changes"]["decoder.layers.0.cross"][0] == pytest.approx([0] * len(found["ids"]))


def test_a_sweep_reports_progress_and_is_computed_once(client, service, monkeypatch, image):
    body = {"model": "vision", "image": image, "to": "mean"}
    stream = client.post("/api/sweep", json=body, headers={"accept": "text/event-stream"}).text
    events = [line.removeprefix("data: ") for line in stream.splitlines() if line[:5] == "data:"]
    assert {"doing": "sweeping", "done": 2, "of": 2, "text": None} in map(json.loads, events)
    result = json.loads(events[-1])
    assert result["positions"] == [None]
    monkeypatch.setattr("regard.server.analysis_routes.sweep_heads", None)
    assert client.post("/api/sweep", json=body).json() == result
    assert service.traces.get(result["id"]) is not None


def test_a_patch_runs_the_other_text_and_carries_its_values(trace, model):
    other = {"text": "the garden is sleeping"}
    site = "encoder.layers.0.self"
    edit = {"kind": "patch", "path": f"{site}.context", "source": other, "head": 1, "position": 1}
    found = trace(text=TEXT, edits=[edit])
    patches = [patch(f"{site}.context", model.trace(other["text"]), head=1, position=1)]
    expected = model.trace(TEXT, edits=patches)
    assert found["answer"]["text"] == expected.output.text
    before = model.trace(TEXT)
    after = [one["after"] for one in found["answer"]["compare"]]
    start = model.target_tokenizer.start_id
    forced = model.trace(TEXT, [start, *before.output.ids], edits=patches)
    assert after == pytest.approx(torch.tensor(forced.output.log_probs).exp().tolist(), abs=1e-5)
    assert found["answer"]["unmet"] == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"source": {"text": "the dog in the garden"}, "position": None}, "same length"),
        ({"source": {"texts": "a"}}, "no field source.texts"),
        ({"source": {"text": "a", "edits": [{"kind": "x"}]}}, "source.edits"),
        ({"source": {}}, "either a text or an image"),
        ({"source": {"text": "dog", "model": "no"}}, "no model"),
        ({"path": "encoder.layers.7.self.context"}, "matched nothing"),
    ],
)
def test_patches_that_do_not_fit_are_refused(change, sentence, client):
    edit = {"kind": "patch", "path": "encoder.layers.0.self.context", "source": {"text": TEXT}}
    body = {"model": "transformer", "text": TEXT, "edits": [{**edit, "position": 0, **change}]}
    response = client.post("/api/trace", json=body)
    assert response.status_code == (404 if sentence == "no model" else 422)
    assert sentence in response.json()["error"]["message"]
