import pytest

from regard.bench import translation
from regard.bench.translation import (
    BEST,
    DEFAULT,
    OURS,
    SettingResult,
    TranslationPlan,
    TranslationSpeed,
    benchmark_sentences,
    measure_translation,
    random_translator,
    report,
)
from regard.bench.translation_contenders import (
    CTranslate2Contender,
    OurContender,
    TranslationSetting,
)
from regard.errors import InputError
from tests.generation.toy import pairs, toy

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def test_ratios_by_hand():
    setting = TranslationSetting(beam=4, batched=True, text=True)
    speeds = [
        TranslationSpeed(OURS, 300.0, 90),
        TranslationSpeed(BEST, 200.0, 80),
        TranslationSpeed(DEFAULT, 100.0, 70),
    ]
    result = SettingResult("small", "int8", setting, speeds)
    assert [(x["peer"], x["ratio"]) for x in result.ratios()] == [(BEST, 1.5), (DEFAULT, 3.0)]
    row = "| small int8, beam 4, batches | 300, 90 MB | – | 200 (×1.50), 80 MB |"
    assert row in report([result])


def test_a_model_is_measured_in_every_setting():
    lines = [source for source, _ in pairs(10, seed=-1)]
    plan = TranslationPlan(lines, rounds=1, beams=(1,), precisions=("float32",), peers=False)
    found = measure_translation(str(toy()), plan)
    assert [(one.setting.batched, one.setting.text) for one in found] == [
        (True, True),
        (True, False),
        (False, True),
        (False, False),
    ]
    for one in found:
        assert [speed.name for speed in one.speeds] == [OURS, BEST, DEFAULT]
        assert all(speed.tokens_per_second > 0 for speed in one.speeds)
        assert all(10 < speed.peak < 4000 for speed in one.speeds)


def test_contenders_give_the_same_translations():
    lines = [source for source, _ in pairs(10, seed=-1)]
    ours = OurContender(toy(), engine="ctranslate2")
    peer = CTranslate2Contender(toy(), int8=False, best=True)
    text, ids = (TranslationSetting(beam=4, batched=True, text=text) for text in (True, False))
    assert (
        ours.translate(lines, text)
        == peer.translate(lines, text)
        == ours.translate(ours.encode(lines), ids)
    )


def test_sentences_are_generated_without_data(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REGARD_DATA", raising=False)
    lines, origin = benchmark_sentences(30)
    assert (len(set(lines)), origin) == (30, "generated")
    assert benchmark_sentences(30)[0] == lines


def test_presets_that_do_not_translate_are_refused(monkeypatch):
    monkeypatch.setattr(translation, "training_texts", lambda: benchmark_sentences(200)[0])
    with pytest.raises(InputError, match="gpt2 is not a translator"):
        random_translator("gpt2")
