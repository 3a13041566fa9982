"""The models that come with regard do what their cards say."""

import re
from pathlib import Path

import pytest
from PIL import Image

import regard
from regard.analysis.heads import selection_between
from regard.interop.model_names import ZOO, bundled
from regard.model_folder import read_card, translated_paragraph
from regard.server.catalog import Catalog, bundled_examples

NAMES = sorted(bundled())


def test_all_of_them_together_stay_under_70_megabytes():
    assert sum(file.stat().st_size for file in ZOO.rglob("*") if file.is_file()) <= 70e6


@pytest.mark.parametrize("name", NAMES)
def test_a_card_says_data_license_score_recipe_and_limits(name):
    card = read_card(bundled()[name])
    facts = card.facts()
    assert all(facts[fact] for fact in ("data", "license", "score", "size", "date", "recipe"))
    assert facts["recipe"] == f"recipes/{name}.toml"  # regard train NAME makes regard.load(NAME)
    assert (Path(regard.__file__).parent / facts["recipe"]).is_file()
    assert "## Limits" in card.text


@pytest.mark.parametrize("name", NAMES)
def test_a_card_is_korean_for_korean_readers(name):
    for paragraph in read_card(bundled()[name]).text.split("\n\n"):
        head = translated_paragraph(paragraph, "ko").splitlines()[0]
        assert re.search("[가-힣]", head), paragraph


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_the_explorer_are_answered_right(name):
    model, folder = regard.load(name), bundled()[name] / "examples"
    for one in bundled_examples()[name]:
        if "image" in one:
            found = model.classify(folder / one["image"])[0].text
        elif model.task == "language":
            given, wanted = one["text"], one["text"] + one["answer"]
            found = model.generate(given, temperature=0.0, max_tokens=40).text[: len(wanted)]
            assert found == wanted
            continue
        elif model.task == "masked":
            found = model.fill(one["text"])[0][0].text
        else:
            found = model.translate(one["text"], beam=4).text
        assert found == one["answer"], one


@pytest.mark.long
@pytest.mark.parametrize("name", ["en-de", "en-ko"])
def test_a_head_shows_what_an_example_is_chosen_to_show(name):
    model = regard.load(name)
    for one in Catalog()[name].examples():
        if one.looks:
            trace = model.trace(one.text)
            found = selection_between(trace, *one.looks)
            weight = trace[found.site].weights(found.head)[found.query, found.key]
            assert weight > 0.4, one


def test_translators_have_an_example_of_each_phenomenon():
    for name in ("en-de", "en-ko"):
        examples = Catalog()[name].examples()
        assert examples[0].shows is None  # the one that the page opens with
        shown = [one.shows for one in examples if one.shows]
        assert shown == ["negation", "reordering", "distance", "antecedent"]
        assert all(one.looks for one in examples if one.shows)


@pytest.mark.parametrize("name", ["dates", "dates-transformer"])
@pytest.mark.parametrize(
    ("written", "iso"),
    [("3. Oktober 1990", "1990-10-03"), ("Friday, July 4, 2025", "2025-07-04")],
)
def test_dates_become_iso_dates(name, written, iso):
    (found,) = regard.load(name).translate([written])
    assert found.text == iso


def test_digits_of_no_training_picture_are_told_apart():
    model = regard.load("digits")
    pictures = sorted((bundled()["digits"] / "examples").glob("*.png"))
    assert len(pictures) == 10
    right = 0
    for picture in pictures:
        with Image.open(picture) as image:
            best = model.classify([image])[0][0]
        right += best.text == picture.stem
    assert right >= 9


def test_clothes_of_no_training_picture_are_told_apart():
    model = regard.load("fashion")
    pictures = sorted((bundled()["fashion"] / "examples").glob("*.png"))
    assert len(pictures) == 10
    found = []
    for picture in pictures:
        with Image.open(picture) as image:
            found.append(model.classify([image])[0][0].text.lower().replace(" ", "-"))
    assert sum(name == picture.stem for name, picture in zip(found, pictures, strict=True)) >= 7


@pytest.mark.parametrize(
    ("english", "german"),
    [
        ("The dog is sleeping in the garden.", "Der Hund schläft im Garten."),
        ("Where is the station?", "Wo ist der Bahnhof?"),
    ],
)
def test_everyday_english_becomes_german(english, german):
    (found,) = regard.load("en-de").translate([english], beam=4)
    assert found.text == german


def test_the_translator_aligns_words_with_what_they_translate():
    (found,) = regard.load("en-de").translate(["The dog is sleeping in the garden."], trace=True)
    weights = [
        found.trace[f"decoder.layers.{layer}.cross"].weights(head=head)
        for layer in range(3)
        for head in range(6)
    ]
    # Hund, the second piece, looks at dog; the source has a start token in front
    assert max(float(table[1, 2]) for table in weights) > 0.9


def test_texts_of_an_interface_become_korean():
    (found,) = regard.load("en-ko").translate(["Delete the selected file."], beam=4)
    assert found.text == "선택한 파일을 삭제합니다."
