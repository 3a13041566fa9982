import json
from math import inf

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import regard
from regard.analysis.heads import thumbnails, weights_to_bytes
from regard.analysis.site_json import payload, plain
from regard.attention.similarity import Alibi
from regard.models.vision import Vision, VisionConfig
from regard.trace.capture import trace_model


def of_attend(*, edits=(), heads=2, **options):
    """The payload of one call of attention, the site's description and the trace."""
    torch.manual_seed(1)
    query, key = torch.randn(1, heads, 3, 4), torch.randn(1, heads, 5, 4)
    with regard.watch(edits=edits) as trace:
        regard.attend(query, key, torch.randn(1, heads, 5, 6), site="s", **options)
    made = payload(trace)
    return made, made.about["sites"][0], trace


def test_a_site_by_hand():
    made, site, trace = of_attend(allowed=regard.window(1))
    assert (site["n_heads"], site["n_query"], site["n_key"]) == (2, 3, 5)
    assert (site["d_k"], site["d_v"], site["scale"]) == (4, 6, 0.5)
    assert site["temperature"] == [1.0, 1.0]
    assert site["mask"] == {"kind": "bits", "heads": 1, "array": "s.allowed", "text": "window(1)"}
    bits = np.unpackbits(made.arrays["s.allowed"])[:15].reshape(3, 5)
    assert bits.tolist() == [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0]]
    assert_close(torch.from_numpy(made.arrays["s.query"]), trace["s"].query[0])


def test_the_description_is_json(trace):
    again = json.loads(json.dumps(payload(trace, title="t").about))
    assert again["tokens"] == trace.tokens
    assert again["words"] == trace.words
    assert [site["path"] for site in again["sites"]] == list(trace)
    groups = {site["group"] for site in again["sites"]}
    assert groups == {
        f"{x}.layers.*.{y}"
        for x, y in (("encoder", "self"), ("decoder", "self"), ("decoder", "cross"))
    }


def test_every_named_array_exists(trace):
    made = payload(trace)
    mentioned = set()
    for site in made.about["sites"]:
        mentioned |= set(site["arrays"].values()) | set(site["streams"].values())
        mentioned.add(site["space"]["array"])
        for part in ("query", "key", "value", "output"):
            mentioned |= set(site["projections"][part].values())
    others = ("flow", "readout")
    assert mentioned == {name for name, kind in made.kinds.items() if kind not in others}
    assert set(made.kinds) == set(made.arrays)


def test_computable_tables_are_left_out(trace):
    made = payload(trace)
    assert "tables" not in made.kinds.values()
    largest = max(
        array.size for name, array in made.arrays.items() if made.kinds[name] == "vectors"
    )
    assert largest <= 24 * 12


@pytest.mark.parametrize(
    ("options", "tables"),
    [
        ({"similarity": "cosine"}, {"compare_query", "compare_key"}),
        ({"similarity": regard.General(4, 4)}, {"compare_query", "compare_key"}),
        (
            {"similarity": regard.Additive(4, 4, 7)},
            {"compare_query", "compare_key", "compare_weight"},
        ),
        ({"similarity": lambda q, k: (q @ k.mT).abs()}, {"scores"}),
        ({"edits": [regard.set_scores("s", 1.0, query=0)]}, {"scores"}),
        ({"edits": [regard.set_weights("s", 0.2, head=0)]}, {"weights"}),
        ({"edits": [regard.ablate("s", head=1)]}, {"context"}),
        ({"temperature": torch.rand(2, 3, 1)}, {"weights"}),
        ({"similarity": Alibi(2)}, set()),
        ({}, set()),
    ],
)
def test_tables_that_cannot_be_computed_are_included(options, tables):
    _, site, _ = of_attend(**options)
    assert set(site["arrays"]) - {"query", "key", "value"} == tables


def test_efficient_attention_includes_its_weights():
    with regard.watch() as trace:
        regard.efficient_attention(*torch.randn(3, 1, 2, 4, 3), site="s")
    made = payload(trace)
    assert made.about["sites"][0]["similarity"] == "efficient"
    assert_close(torch.from_numpy(made.arrays["s.weights"]), trace["s"].weights())


def test_masks_that_differ_by_head():
    made, site, _ = of_attend(edits=[regard.forbid("s", query=1, key=2, head=1)])
    assert site["mask"]["heads"] == 2
    bits = np.unpackbits(made.arrays["s.allowed"])[:30].reshape(2, 3, 5)
    assert bits.sum() == 29
    assert bits[1, 1, 2] == 0


def test_causal_masks_need_no_array_and_infinite_temperatures_are_json():
    made, site, _ = of_attend(allowed=regard.causal(), temperature=inf)
    assert site["mask"]["kind"] == "causal"
    assert site["temperature"] == ["inf", "inf"]
    assert "s.allowed" not in made.arrays


def test_one_sequence_of_a_padded_batch():
    lengths = [2, 5]
    query, key = torch.randn(2, 1, 3, 4), torch.randn(2, 1, 5, 4)
    with regard.watch() as trace:
        regard.attend(query, key, key, allowed=regard.padding(lengths), site="s")
    made = payload(trace, batch=0)
    assert np.unpackbits(made.arrays["s.allowed"])[:5].tolist() == [1, 1, 0, 0, 0]
    assert_close(torch.from_numpy(payload(trace, batch=1).arrays["s.key"]), key[1])


def test_long_texts_include_thumbnails():
    query = torch.randn(1, 4, 700, 256)
    with regard.watch() as trace:
        regard.attend(query, query, query, site="s")
    made = payload(trace)
    small = made.arrays[made.about["sites"][0]["arrays"]["thumbnails"]]
    assert small.shape == (4, 32, 32)
    assert (small == weights_to_bytes(thumbnails(trace["s"], 32)).numpy()).all()


def test_an_image_is_assembled_from_its_patches():
    config = VisionConfig(
        n_classes=2,
        image_size=6,
        patch_size=2,
        n_channels=3,
        d_model=8,
        n_heads=2,
        n_layers=1,
        d_ff=8,
    )
    model = regard.Model(module=Vision(config).eval(), task="classification")
    picture = torch.rand(3, 6, 4) * 2 - 1
    made = payload(trace_model(model, picture))
    about = made.about["image"]
    assert (about["n_rows"], about["n_columns"], about["first"]) == (3, 2, 1)
    pixels = (picture.permute(1, 2, 0) / 2 + 0.5) * 255
    assert_close(torch.from_numpy(made.arrays["image"]).float(), pixels.round(), rtol=0, atol=1.0)
    assert made.about["start"]["query"] == 0  # the class token


def test_outputs_become_json_or_none():
    assert plain({"a": [1, inf, "x"], "b": (2.5,)}) == {"a": [1, "inf", "x"], "b": [2.5]}
    assert plain(torch.zeros(2)) is None
