"""The API: numbers equal those of the Python trace, answers match the OpenAPI document."""

import base64
import io
import json

import jsonschema
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load
from torch.testing import assert_close

from regard.explain.heads import measure_heads
from regard.explain.rollout import rollout
from regard.model import load as load_model
from regard.serve.openapi import document
from regard.trace.edit import ablate, forbid, temperature

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


def arrays(client, id, what, **given):
    answer = client.get(f"/api/trace/{id}/{what}", params=given)
    assert answer.status_code == 200, answer.text
    return load(answer.content)


def about(client, id, what, **given):
    """The metadata of a safetensors answer."""
    data = client.get(f"/api/trace/{id}/{what}", params=given).content
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header.get("__metadata__", {})


@pytest.fixture(scope="module")
def model(folders):
    return load_model(folders["transformer"])


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
    seen = arrays(client, told[0]["id"], "pixels")["pixels"]
    assert seen.shape == (8, 8, 3)
    # the model normalises and the picture is put together again: bytes come back as they were
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


@pytest.mark.parametrize("stage", ["scores", "masked", "weights"])
def test_tiles_are_those_of_the_trace(client, ask, model, stage):
    told = ask(target="der hund")
    site = model.trace("the dog is sleeping", "der hund")["decoder.layers.0.self"]
    span = {"row_start": 1, "row_stop": 3, "column_start": 0, "column_stop": 3}
    found = arrays(client, told["id"], "tile", site=site.path, head=1, stage=stage, **span)
    expected = getattr(site, stage)(1, rows=(1, 3), columns=(0, 3))
    assert_close(torch.from_numpy(found["tile"]), expected, atol=1e-5, rtol=0)


def test_tiles_come_in_fewer_bins_and_in_smaller_types(client, ask):
    told = ask()
    site = next(one for one in told["sites"] if one["path"] == SITE)
    span = {"row_start": 0, "row_stop": site["n_query"], "row_bins": 1}
    span |= {"column_start": 0, "column_stop": site["n_key"], "column_bins": 2}
    place = {"site": SITE, "head": 0, **span}
    whole = arrays(client, told["id"], "tile", **{**place, "row_bins": 2048, "column_bins": 2048})
    half = (site["n_key"] + 1) // 2
    expected = [whole["tile"][:, :half].max(), whole["tile"][:, half:].max()]
    small = arrays(client, told["id"], "tile", **place)["tile"]
    assert small.tolist() == [pytest.approx(expected, abs=1e-6)]
    halves = arrays(client, told["id"], "tile", dtype="float16", **place)["tile"]
    assert halves.dtype == np.float16
    assert halves[0].tolist() == pytest.approx(expected, abs=1e-3)
    coded = arrays(client, told["id"], "tile", dtype="uint8", **place)["tile"][0].astype(float)
    said = about(client, told["id"], "tile", dtype="uint8", **place)
    low, high = float(said["low"]), float(said["high"])
    read = low + (coded - 1) / 254 * (high - low)
    assert read.tolist() == pytest.approx(expected, abs=(high - low) / 254)


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


def test_thumbnails_of_all_heads_come_in_one_answer(client, ask):
    told = ask()
    found = arrays(client, told["id"], "thumbnails", size=4)
    assert set(found) == {site["path"] for site in told["sites"]}
    site = next(one for one in told["sites"] if one["path"] == SITE)
    span = {"row_start": 0, "row_stop": site["n_query"]}
    span |= {"column_start": 0, "column_stop": site["n_key"]}
    whole = arrays(client, told["id"], "tile", site=SITE, head=1, **span)["tile"]
    # bands of the picture are those of the tiles: band i begins at ⌈i · n / 4⌉
    bands = [-(-i * site["n_query"] // 4) for i in range(5)]
    columns = [-(-i * site["n_key"] // 4) for i in range(5)]
    cell = whole[bands[0] : bands[1], columns[2] : columns[3]].mean()
    assert (found[SITE][1, 0, 2] / 255) ** 2 == pytest.approx(cell, abs=0.01)
    one = arrays(client, told["id"], "thumbnails", size=4, site=SITE)
    assert list(one) == [SITE]
    assert (one[SITE] == found[SITE]).all()


@pytest.mark.parametrize("name", ["transformer", "seq2seq", "decoder"])
def test_vectors_give_the_weights_again(client, ask, folders, name):
    told = ask(name)
    path = told["sites"][-1]["path"]
    found = arrays(client, told["id"], "vectors", site=path, head=0)
    target = {"target": told["answer"]["ids"]} if "ids" in told["answer"] else {}
    model = load_model(folders[name])
    start = [] if not target else [model.target_tokenizer.start_id]
    written = [[*start, *target["target"]]] if target else []
    site = model.trace("the dog is sleeping", *written)[path]
    query, key = (torch.from_numpy(found[x]) for x in ("query", "key"))
    if "compare_weight" in found:
        pair = [torch.from_numpy(found[f"compare_{x}"]) for x in ("query", "key")]
        terms = torch.tanh(pair[0][:, None] + pair[1])
        scores = (terms * torch.from_numpy(found["compare_weight"])).sum(-1)
    else:
        scores = query @ key.T
    scores = scores * told["sites"][-1]["scale"]
    if told["sites"][-1]["mask"]["kind"] == "causal":
        scores = scores.masked_fill(~torch.ones_like(scores).tril().bool(), -torch.inf)
    assert_close(scores.softmax(-1), site.weights(0 if site.lead else None), atol=1e-5, rtol=0)


def test_a_mask_that_an_edit_has_made_comes_as_bits(client, ask):
    edit = {"kind": "forbid", "site": "encoder.layers.0.self", "head": 1, "query": 0, "key": 1}
    told = ask("encoder", edits=[edit])
    site = told["sites"][0]
    assert site["mask"]["kind"] == "bits"
    n = site["n_query"]
    first, second = (
        np.unpackbits(arrays(client, told["id"], "vectors", site=site["path"], head=h)["allowed"])
        for h in (0, 1)
    )
    assert first[: n * n].all()
    assert second[: n * n].reshape(n, n).tolist() == [
        [int((i, j) != (0, 1)) for j in range(n)] for i in range(n)
    ]


def test_steps_lead_from_the_inputs_to_the_weight(client, ask):
    told = ask("encoder")
    place = {"site": "encoder.layers.0.self", "head": 1}
    found = arrays(client, told["id"], "steps", **place, query=1, key=2)
    said = about(client, told["id"], "steps", **place, query=1, key=2)
    weights = arrays(client, told["id"], "projections", **place)
    query = weights["query.weight"] @ found["query_input"] + weights["query.bias"]
    assert query == pytest.approx(found["query"], abs=1e-4)
    assert found["terms"].sum() == pytest.approx(float(said["compared"]), abs=1e-4)
    assert float(said["compared"]) * float(said["scale"]) == pytest.approx(
        float(said["score"]), abs=1e-4
    )
    output = weights["output.weight"] @ found["joined"] + weights["output.bias"]
    assert output == pytest.approx(found["output"], abs=1e-4)


def test_arrows_lead_from_the_points_before_to_those_after(client, ask):
    told = ask("encoder")
    found = arrays(client, told["id"], "space", site="encoder.layers.1.self", axes=3)
    assert found["before"].shape[1] == 3
    total = found["before"] + found["arrows"].sum(0) + found["rest"]
    assert total == pytest.approx(found["after"], abs=1e-4)


def test_a_trace_without_a_model_has_no_matrices_and_says_so_in_a_file_that_can_be_read(client):
    example = client.get("/api/models").json()["example"]
    place = {"site": "encoder.layers.0.self", "head": 0}
    assert arrays(client, example, "projections", **place) == {}


def test_a_rollout_is_pythons_and_edits_go_into_it(client, ask, service):
    path = "encoder.layers.1.self"
    told = ask("encoder")
    found = arrays(client, told["id"], "rollout", site=path)["rollout"]
    expected = rollout(service.kept(told["id"]).trace, path)
    assert found == pytest.approx(expected.numpy(), abs=1e-6)
    changed = ask("encoder", edits=[{"kind": "temperature", "site": "*", "value": 1e9}])
    even = arrays(client, changed["id"], "rollout", site=path)["rollout"]
    n = len(even)
    assert even == pytest.approx(0.25 * np.eye(n) + 0.75 / n, abs=1e-3)


def test_exact_attention_is_not_compared_with_itself(client, ask):
    told = ask("encoder")
    answer = client.get(f"/api/trace/{told['id']}/exact?site=encoder.layers.0.self")
    assert answer.status_code == 422
    assert "nothing to compare" in answer.json()["error"]


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
