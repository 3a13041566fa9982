import pytest

from regard.errors import InputError
from regard.generation.search import SearchOptions
from regard.generation.translator import choose_engine, open_translator, max_positions
from regard.model_folder import read_description


def test_the_fastest_engine_that_can_run_a_model_is_chosen(make_folder):
    chosen = {
        "transformer": open_translator(make_folder()).engine.name,
        "rnn": open_translator(make_folder("seq2seq")).engine.name,
        "efficient": open_translator(make_folder(attention="efficient")).engine.name,
    }
    assert chosen == {"transformer": "ctranslate2", "rnn": "torch", "efficient": "torch"}


def test_every_engine_that_is_asked_for_is_used(toy_folder):
    assert open_translator(toy_folder, engine="torch").engine.name == "torch"
    assert open_translator(toy_folder, engine="ctranslate2").engine.name == "ctranslate2"


@pytest.mark.parametrize(
    ("family", "engine", "int8", "sentence"),
    [
        ("transformer", "tensorflow", False, "engine is 'tensorflow'; it can be auto, "),
        ("seq2seq", "ctranslate2", False, r"CTranslate2 cannot run this model \(seq2seq\)"),
        ("seq2seq", "auto", True, "int8 is for Transformers with exact attention"),
    ],
)
def test_an_engine_that_cannot_do_it_says_so(make_folder, family, engine, int8, sentence):
    described = read_description(make_folder(family))
    with pytest.raises(InputError, match=sentence):
        choose_engine(described, engine, int8=int8)


@pytest.mark.parametrize("settings", [{"positions": "rotary"}, {"n_heads": 2, "n_kv_heads": 1}])
def test_int8_that_the_engine_torch_does_not_have_is_refused(make_folder, settings):
    described = read_description(make_folder(**settings))
    assert choose_engine(described, "torch") == "torch"
    with pytest.raises(InputError, match="int8 is for Transformers with exact attention whose"):
        choose_engine(described, "torch", int8=True)


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
def test_learned_positions_are_never_overrun(make_folder, engine):
    folder = make_folder(positions="learned", max_positions=12)
    translator = open_translator(folder, engine=engine)
    assert max_positions(read_description(folder).model) == 12
    line = "one two three four five six seven eight " * 4
    (done,) = translator.translate([line], SearchOptions())
    assert len(done.parts) > 2
    assert max(len(part.source_ids) for part in done.parts) <= 12
    assert max(len(part.ids) for part in done.parts) <= 12
    assert "".join(part.source + part.seam for part in done.parts) == line.strip()
