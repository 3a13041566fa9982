"""Routes with arrays: they are those of the Python trace."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load
from torch.testing import assert_close

from regard.analysis.heads import rollout
from regard.model import load as load_model

SITE = "decoder.layers.0.cross"


def arrays(client, id, what, **given):
    answer = client.get(f"/api/trace/{id}/{what}", params=given)
    assert answer.status_code == 200, answer.text
    return load(answer.content)


def metadata_of(client, id, what, **given):
    """Return the metadata of a safetensors file."""
    data = client.get(f"/api/trace/{id}/{what}", params=given).content
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header.get("__metadata__", {})


@pytest.mark.parametrize("stage", ["scores", "masked", "weights"])
def test_tiles_are_those_of_the_trace(client, trace, model, stage):
    described = trace(target="der hund")
    site = model.trace("the dog is sleeping", "der hund")["decoder.layers.0.self"]
    span = {"row_start": 1, "row_stop": 3, "column_start": 0, "column_stop": 3}
    found = arrays(client, described["id"], "tile", site=site.path, head=1, stage=stage, **span)
    expected = getattr(site, stage)(1, rows=slice(1, 3), columns=slice(0, 3))
    assert_close(torch.from_numpy(found["tile"]), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("what", ["vectors", "steps", "projections", "space", "rollout", "tile"])
def test_arrays_are_read_in_reader_threads(client, service, trace, monkeypatch, what):
    jobs, read = [], service.read
    monkeypatch.setattr(service, "read", lambda job: jobs.append(job) or read(job))
    span = {"row_start": 0, "row_stop": 2, "column_start": 0, "column_stop": 2}
    site = "encoder.layers.0.self"
    arrays(client, trace()["id"], what, site=site, query=0, key=1, **span)
    assert len(jobs) == 1
    assert service._readers._max_workers == 2


def test_tiles_come_in_fewer_bins_and_in_smaller_types(client, trace):
    described = trace()
    site = next(one for one in described["sites"] if one["path"] == SITE)
    span = {"row_start": 0, "row_stop": site["n_query"], "row_bins": 1}
    span |= {"column_start": 0, "column_stop": site["n_key"], "column_bins": 2}
    place = {"site": SITE, "head": 0, **span}
    whole = arrays(
        client, described["id"], "tile", **{**place, "row_bins": 2048, "column_bins": 2048}
    )
    half = (site["n_key"] + 1) // 2
    expected = [whole["tile"][:, :half].max(), whole["tile"][:, half:].max()]
    small = arrays(client, described["id"], "tile", **place)["tile"]
    assert small.tolist() == [pytest.approx(expected, abs=1e-6)]
    halves = arrays(client, described["id"], "tile", dtype="float16", **place)["tile"]
    assert halves.dtype == np.float16
    assert halves[0].tolist() == pytest.approx(expected, abs=1e-3)
    coded = arrays(client, described["id"], "tile", dtype="uint8", **place)["tile"][0].astype(float)
    metadata = metadata_of(client, described["id"], "tile", dtype="uint8", **place)
    low, high = float(metadata["low"]), float(metadata["high"])
    read = low + (coded - 1) / 254 * (high - low)
    assert read.tolist() == pytest.approx(expected, abs=(high - low) / 254)


def test_thumbnails_of_all_heads_are_one_response(client, trace):
    described = trace()
    found = arrays(client, described["id"], "thumbnails", size=4)
    assert set(found) == {site["path"] for site in described["sites"]}
    site = next(one for one in described["sites"] if one["path"] == SITE)
    span = {"row_start": 0, "row_stop": site["n_query"]}
    span |= {"column_start": 0, "column_stop": site["n_key"]}
    whole = arrays(client, described["id"], "tile", site=SITE, head=1, **span)["tile"]
    # bins are those of tiles: bin i starts at ⌈i · n / 4⌉
    bands = [-(-i * site["n_query"] // 4) for i in range(5)]
    columns = [-(-i * site["n_key"] // 4) for i in range(5)]
    cell = whole[bands[0] : bands[1], columns[2] : columns[3]].mean()
    assert (found[SITE][1, 0, 2] / 255) ** 2 == pytest.approx(cell, abs=0.01)
    one = arrays(client, described["id"], "thumbnails", size=4, site=SITE)
    assert list(one) == [SITE]
    assert (one[SITE] == found[SITE]).all()


@pytest.mark.parametrize("name", ["transformer", "seq2seq", "decoder"])
def test_the_weights_follow_from_the_vectors(client, trace, folders, name):
    target = [] if name == "decoder" else ["der hund"]
    described = trace(name, **dict(zip(["target"], target, strict=False)))
    path = described["sites"][-1]["path"]
    found = arrays(client, described["id"], "vectors", site=path, head=0)
    site = load_model(folders[name]).trace("the dog is sleeping", *target)[path]
    query, key = (torch.from_numpy(found[x]) for x in ("query", "key"))
    if "compare_weight" in found:
        pair = [torch.from_numpy(found[f"compare_{x}"]) for x in ("query", "key")]
        terms = torch.tanh(pair[0][:, None] + pair[1])
        scores = (terms * torch.from_numpy(found["compare_weight"])).sum(-1)
    else:
        scores = query @ key.T
    scores = scores * described["sites"][-1]["scale"]
    if described["sites"][-1]["mask"]["kind"] == "causal":
        scores = scores.masked_fill(~torch.ones_like(scores).tril().bool(), -torch.inf)
    assert_close(scores.softmax(-1), site.weights(0 if site.lead else None), atol=1e-5, rtol=0)


def test_an_edited_mask_is_sent_as_bits(client, trace):
    edit = {"kind": "forbid", "site": "encoder.layers.0.self", "head": 1, "query": 0, "key": 1}
    described = trace("encoder", edits=[edit])
    site = described["sites"][0]
    assert site["mask"]["kind"] == "bits"
    n = site["n_query"]
    first, second = (
        np.unpackbits(
            arrays(client, described["id"], "vectors", site=site["path"], head=h)["allowed"]
        )
        for h in (0, 1)
    )
    assert first[: n * n].all()
    assert second[: n * n].reshape(n, n).tolist() == [
        [int((i, j) != (0, 1)) for j in range(n)] for i in range(n)
    ]


def test_steps_lead_from_the_inputs_to_the_weight(client, trace):
    described = trace("encoder")
    place = {"site": "encoder.layers.0.self", "head": 1}
    found = arrays(client, described["id"], "steps", **place, query=1, key=2)
    metadata = metadata_of(client, described["id"], "steps", **place, query=1, key=2)
    weights = arrays(client, described["id"], "projections", **place)
    query = weights["query.weight"] @ found["query_input"] + weights["query.bias"]
    assert query == pytest.approx(found["query"], abs=1e-4)
    assert found["terms"].sum() == pytest.approx(float(metadata["compared"]), abs=1e-4)
    assert float(metadata["compared"]) * float(metadata["scale"]) == pytest.approx(
        float(metadata["score"]), abs=1e-4
    )
    output = weights["output.weight"] @ found["joined"] + weights["output.bias"]
    assert output == pytest.approx(found["output"], abs=1e-4)


def test_arrows_lead_from_the_points_before_to_those_after(client, trace):
    described = trace("encoder")
    found = arrays(client, described["id"], "space", site="encoder.layers.1.self", axes=3)
    assert found["before"].shape[1] == 3
    total = found["before"] + found["arrows"].sum(0) + found["rest"]
    assert total == pytest.approx(found["after"], abs=1e-4)


def test_a_trace_without_a_model_has_no_projections(client):
    example = client.get("/api/models").json()["example"]
    place = {"site": "encoder.layers.0.self", "head": 0}
    assert arrays(client, example, "projections", **place) == {}


def test_a_rollout_is_that_of_python_and_includes_edits(client, trace, service):
    path = "encoder.layers.1.self"
    described = trace("encoder")
    found = arrays(client, described["id"], "rollout", site=path)["rollout"]
    expected = rollout(service.traces.get(described["id"]).trace, path)
    assert found == pytest.approx(expected.numpy(), abs=1e-6)
    changed = trace("encoder", edits=[{"kind": "temperature", "site": "*", "value": 1e9}])
    even = arrays(client, changed["id"], "rollout", site=path)["rollout"]
    n = len(even)
    assert even == pytest.approx(0.25 * np.eye(n) + 0.75 / n, abs=1e-3)


def test_exact_attention_is_not_compared_with_itself(client, trace):
    described = trace("encoder")
    answer = client.get(f"/api/trace/{described['id']}/exact?site=encoder.layers.0.self")
    assert answer.status_code == 422
    assert "nothing to compare" in answer.json()["error"]["message"]
