import json
from statistics import median

import pytest
from typer.testing import CliRunner

from regard.bench import translation as translate
from regard.bench.timing import alternate
from regard.bench.translation import (
    BEST,
    DEFAULT,
    OURS,
    Figure,
    Measured,
    Plan,
    measure,
    sentences,
    speeds,
)
from regard.bench.translation_contenders import Setting
from regard.cli.main import app
from regard.errors import InputError
from tests.generation.toy import pairs, toy


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))


def test_contenders_take_turns_and_medians_are_compared():
    now, order = 0.0, []

    def contender(name, seconds):
        def call():
            nonlocal now
            order.append(name)
            now += seconds

        return call

    calls = {"a": contender("a", 2.0), "b": contender("b", 6.0)}
    taken = alternate(calls, rounds=3, clock=lambda: now)
    assert taken == {"a": median([2.0] * 3), "b": 6.0}
    assert order[4:] == ["b", "a", "a", "b", "b", "a"]


def test_ratios_by_hand():
    setting = Setting(beam=4, together=True, text=True)
    figures = [Figure(OURS, 300.0, 90), Figure(BEST, 200.0, 80), Figure(DEFAULT, 100.0, 70)]
    one = Measured("small", "int8", setting, figures)
    assert [(x["peer"], x["ratio"]) for x in one.against()] == [(BEST, 1.5), (DEFAULT, 3.0)]
    assert one.title == "small, int8, beam 4, batches, text to text"
    assert "| 300, 90 MB | 200 (×1.50), 80 MB |" in speeds([one])


def test_a_model_is_measured_beside_the_engine_by_itself():
    lines = [source for source, _ in pairs(10, seed=-1)]
    plan = Plan(lines, rounds=1, beams=(1,), precisions=("float32",), peers=False)
    found = measure(str(toy()), plan)
    assert [(one.setting.together, one.setting.text) for one in found] == [
        (True, True),
        (True, False),
        (False, True),
        (False, False),
    ]
    for one in found:
        assert [figure.name for figure in one.figures] == [OURS, BEST, DEFAULT]
        assert all(figure.tokens_per_second > 0 for figure in one.figures)
        assert all(10 < figure.peak < 4000 for figure in one.figures)


def test_contenders_write_the_same():
    from regard.bench.translation_contenders import Bare, Ours

    lines = [source for source, _ in pairs(10, seed=-1)]
    ours = Ours(toy(), engine="ctranslate2")
    bare = Bare(toy(), int8=False, best=True)
    for together in (True, False):
        setting = Setting(beam=4, together=together, text=True)
        assert ours.run(lines, setting) == bare.run(lines, setting)
        ids = Setting(beam=4, together=together, text=False)
        assert ours.run(lines, ids) == ours.run(lines, setting)


def test_sentences_are_made_up_where_there_are_none(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REGARD_DATA", raising=False)
    lines, origin = sentences(30)
    assert (len(set(lines)), origin) == (30, "made up")
    assert sentences(30)[0] == lines


@pytest.mark.parametrize("what", ["attention", "complexity"])
def test_the_command_tells_ratios_as_json(what):
    result = CliRunner().invoke(app, ["bench", what, "--quick", "--json", "--length", "64"])
    assert result.exit_code == 0, result.output
    against = json.loads(result.stdout)["against"]
    assert {one["length"] for one in against} == {64}
    assert all(one["peer"] and one["ratio"] > 0 for one in against)


def test_what_cannot_be_measured_is_refused(monkeypatch):
    def refused(*words):
        return CliRunner().invoke(app, ["bench", *words]).exception

    assert "int4" in str(refused("translate", "--precision", "int4"))
    assert "16 positions or more" in str(refused("attention", "--length", "3"))
    assert "count is 0" in str(refused("translate", "--count", "0"))
    monkeypatch.setattr(translate, "texts_to_learn_from", lambda: sentences(200)[0])
    with pytest.raises(InputError, match="gpt2 is no translator"):
        translate.untrained("gpt2")
