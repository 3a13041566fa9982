"""The flow API: its numbers are those of the trace."""

import pytest
import torch
from safetensors.torch import load
from torch.testing import assert_close

from regard.server.settings import LIMITS
from regard.trace.capture import trace_model

TEXT = "the dog is sleeping"


@pytest.fixture(scope="module")
def flow(client, trace, model):
    """The description, the arrays of both sides, and the same run in Python."""
    made = trace(text=TEXT, target="der hund schläft")
    address = f"/api/trace/{made['id']}"
    info = client.get(f"{address}/flow").json()
    arrays = {}
    for side in info["sides"]:
        params = {"side": side["name"], "stop": side["n_tokens"]}
        arrays |= load(client.get(f"{address}/flow/arrays", params=params).content)
    return address, info, arrays, trace_model(model, TEXT, "der hund schläft")


def test_stations_follow_the_computation(flow):
    _, info, _, _ = flow
    encoder, decoder = info["sides"]
    assert [one["kind"] for one in encoder["stations"]] == [
        *("tokens", "embedding"),
        *("self", "feed_forward") * 2,
        "output",
    ]
    assert [one["kind"] for one in decoder["stations"][2:]] == [
        *("self", "cross", "feed_forward", "output")
    ]
    assert info["predicts"] == "decoder"


def test_norms_and_strips_are_those_of_the_trace(flow):
    _, info, arrays, run = flow
    for station in (one for side in info["sides"] for one in side["stations"]):
        vectors = run.values[station["path"]][0]
        assert_close(arrays[f"{station['path']}.norm"], vectors.norm(dim=-1), rtol=1e-6, atol=1e-6)
        strip = arrays[f"{station['path']}.strip"]  # 16 dimensions: no pooling
        assert_close(strip, vectors, rtol=1e-6, atol=1e-6)
        if station["added"]:
            added = sum(run.values[path][0] for path in station["added"]).norm(dim=-1)
            added = added.expand(len(vectors))
            assert_close(arrays[f"{station['path']}.added"], added, rtol=1e-6, atol=1e-6)


def test_lines_are_the_largest_weights(flow):
    _, _, arrays, run = flow
    for path, site in run.sites.items():
        weights = site.weights()
        mean, keys = weights.mean(0).topk(arrays[f"{path}.mean_keys"].size(-1))
        assert_close(arrays[f"{path}.mean_weights"], mean, rtol=1e-6, atol=1e-6)
        assert_close(weights.mean(0).gather(1, arrays[f"{path}.mean_keys"].long()), mean)
        heads, keys = (arrays[f"{path}.{x}"].long() for x in ("top_heads", "top_keys"))
        queries = torch.arange(site.n_query)[:, None]
        assert_close(arrays[f"{path}.top_weights"], weights[heads, queries, keys])
        assert_close(arrays[f"{path}.top_weights"], weights.amax(0).topk(keys.size(-1)).values)


def test_predictions_are_the_softmax_of_the_logits(flow):
    _, _, arrays, run = flow
    probabilities = run.values["output.logits"][0].softmax(-1)
    assert_close(arrays["predictions.probabilities"], probabilities.topk(5).values)


def test_one_vector_is_the_one_before_plus_what_was_added(flow, client):
    address, info, _, run = flow
    station = info["sides"][1]["stations"][3]
    params = {"path": station["path"], "position": 2}
    found = load(client.get(f"{address}/stream", params=params).content)
    assert_close(found["vector"], run.values[station["path"]][0, 2])
    assert station["normalized"]  # these models are post-norm
    assert_close(found["before"], run.values[station["before"]][0, 2])
    assert_close(found[station["added"][0]], run.values[station["added"][0]][0, 2])


def test_hidden_units_are_ranked_by_what_they_write(flow, client, model):
    address, _, _, run = flow
    path = "decoder.layers.0.feed_forward"
    params = {"path": path, "position": 1, "count": 3}
    found = client.get(f"{address}/units", params=params).json()
    activation = run.values[f"{path}.activation"][0, 1]
    columns = model.module.decoder.layers[0].feed_forward.inner.to_output.weight
    norms = activation.abs() * columns.norm(dim=0)
    best = norms.argmax().item()
    first = found["units"][0]
    assert first["index"] == best
    assert first["activation"] == pytest.approx(activation[best].item(), abs=1e-6)
    assert first["norm"] == pytest.approx(norms[best].item(), rel=1e-6)
    assert found["n_active"] == int((activation > 0).sum())
    largest = (activation[best] * columns[:, best]).abs().max().item()
    assert abs(first["written"][0]["amount"]) == pytest.approx(largest, rel=1e-6)


def test_hidden_layers_of_long_texts_are_computed_again(client, trace, model, monkeypatch):
    params = {"path": "encoder.layers.1.feed_forward", "position": 1}
    stored = trace(text="the dog is", target="der hund")
    first = client.get(f"/api/trace/{stored['id']}/units", params=params).json()
    monkeypatch.setattr(
        "regard.server.answers.LIMITS", LIMITS.model_copy(update={"activation_bytes": 0})
    )
    again = trace(text="the dog is", target="der hund", beam=2)
    second = client.get(f"/api/trace/{again['id']}/units", params=params).json()
    assert again["id"] != stored["id"]
    for one, other in zip(first["units"], second["units"], strict=True):
        assert other["index"] == one["index"]
        assert other["activation"] == pytest.approx(one["activation"], abs=1e-6)


@pytest.mark.parametrize("name", ["seq2seq", "encoder", "decoder"])
def test_every_family_has_a_flow(client, trace, name):
    made = trace(name, TEXT)
    info = client.get(f"/api/trace/{made['id']}/flow").json()
    for side in info["sides"]:
        params = {"side": side["name"], "stop": side["n_tokens"]}
        arrays = load(client.get(f"/api/trace/{made['id']}/flow/arrays", params=params).content)
        assert {f"{one['path']}.norm" for one in side["stations"]} <= set(arrays)
    kinds = {one["kind"] for side in info["sides"] for one in side["stations"]}
    assert (
        kinds
        == {
            "seq2seq": {"embedding", "context", "recurrent", "output"},
            "encoder": {"tokens", "embedding", "self", "feed_forward", "output"},
            "decoder": {"embedding", "self", "feed_forward", "output"},
        }[name]
    )


def test_places_that_do_not_exist_are_refused(flow, client):
    address, info, _, _ = flow
    wrong = {"side": "encoder", "start": 2, "stop": 99}
    assert (
        client.get(f"{address}/flow/arrays", params=wrong).json()["error"]["code"]
        == "invalid_range"
    )
    wrong = {"path": info["sides"][0]["stations"][0]["path"], "position": 99}
    assert (
        client.get(f"{address}/stream", params=wrong).json()["error"]["code"] == "unknown_position"
    )
    wrong = {"path": "encoder.nothing", "position": 0}
    assert client.get(f"{address}/stream", params=wrong).status_code == 422
    assert client.get(f"{address}/units", params=wrong).status_code == 422
    wrong = {"path": "encoder.layers.0.feed_forward", "position": 99}
    assert client.get(f"{address}/units", params=wrong).status_code == 422
