"""LibreTranslate's routes, called by its client and by hand."""

import json
from urllib.error import HTTPError

import pytest
from fastapi.testclient import TestClient
from libretranslatepy import LibreTranslateAPI

from regard.model import load
from regard.server.app import make_app
from regard.server.catalog import Catalog
from regard.server.service import Service
from tests.interop.test_any_model import BART, LANGUAGES, SENTENCE, make_tokenizer, save
from tests.server.conftest import serving

DOG, STATION = "The dog is sleeping.", "Where is the station?"


def test_the_client_of_libretranslate_gets_what_the_model_translates(service):
    with serving(make_app(service)) as address:
        client = LibreTranslateAPI(address)
        assert client.translate(DOG, "en", "de") == load("en-de").translate(DOG).text
        listed = {one["code"]: one for one in client.languages()}
        with pytest.raises(HTTPError) as refused:
            client.translate(DOG, "auto", "de")
    assert listed["en"] == {"code": "en", "name": "English", "targets": ["de", "ko"]}
    assert listed["de"] == {"code": "de", "name": "German", "targets": []}
    assert set(listed) == {"en", "de", "ko"}  # other translators do not name their languages
    assert refused.value.code == 400
    assert "from 'auto' to 'de'; it translates from en to de" in json.load(refused.value)["error"]


def test_texts_are_given_as_json_or_as_a_form(client):
    texts = [one.text for one in load("en-de").translate([DOG, STATION])]
    fields = {"q": [DOG, STATION], "source": "en", "target": "de", "api_key": "ignored"}
    for given in ({"json": fields}, {"data": fields}):
        assert client.post("/translate", **given).json() == {"translatedText": texts}
    one = client.post("/translate", json={**fields, "q": [DOG]})
    assert one.json() == {"translatedText": texts[:1]}  # a list of one text stays a list
    assert client.post("/translate", json={**fields, "q": []}).json() == {"translatedText": []}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"json": {"q": DOG, "source": "de", "target": "en"}}, "from 'de' to 'en'"),
        ({"json": {"q": DOG, "source": "en"}}, "needs the field target"),
        ({"json": {"q": 5, "source": "en", "target": "de"}}, "q is 5"),
        ({"data": {"source": "en", "target": "de"}}, "needs the field q"),
        (
            {"json": {"q": DOG, "source": "en", "target": "de", "format": "html"}},
            "format is \"html\"; it must be 'text'",
        ),
        ({"json": [DOG]}, "must be a JSON object"),
        ({"content": b'{"q": '}, "not valid JSON"),
        ({"content": b"\xff", "headers": {"content-type": "application/json"}}, "not valid JSON"),
    ],
)
def test_what_cannot_be_translated_is_refused_in_a_sentence(client, given, problem):
    answer = client.post("/translate", **given)
    assert answer.status_code == 400
    assert problem in answer.json()["error"]


def test_a_model_of_many_languages_offers_each_pair(tmp_path):
    tokenizer = make_tokenizer(front=("__en__",), words=LANGUAGES)
    save(tmp_path, "M2M100ForConditionalGeneration", BART, tokenizer)
    service = Service(Catalog([tmp_path]))
    client = TestClient(make_app(service), base_url="http://127.0.0.1")
    listed = {one["code"]: one["targets"] for one in client.get("/languages").json()}
    assert listed["de"] == ["en"]
    answer = client.post("/translate", json={"q": SENTENCE, "source": "de", "target": "en"})
    pair = {"source_language": "de", "target_language": "en"}
    assert answer.json()["translatedText"] == load(tmp_path).translate(SENTENCE, **pair).text
    service.close()
