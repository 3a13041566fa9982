import json
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.cli.main import app
from regard.errors import InputError
from regard.generation import fastest_engine, text_generation
from regard.generation.search import SamplingOptions
from regard.generation.text_generation import open_generator
from regard.generation.text_stream import TextStream
from regard.model import Model, load

GREEDY = {"temperature": 0.0, "max_tokens": 40}
ENGINES = ("numpy", "ctranslate2", "torch")


@pytest.fixture(scope="module")
def model():
    return load("shakespeare")


def generated(model, **options):
    return model.generate("ROMEO:", **options)


def test_all_engines_generate_the_same_without_sampling(model):
    found = [generated(model, engine=engine, **GREEDY) for engine in ENGINES]
    assert [one.engine for one in found] == list(ENGINES)
    assert len({one.written for one in found}) == 1
    assert [one.log_prob for one in found] == [pytest.approx(found[2].log_prob, abs=1e-3)] * 3
    int8 = generated(model, precision="int8", **GREEDY)
    assert (int8.engine, int8.precision) == ("ctranslate2", "int8")


@pytest.mark.parametrize("engine", ENGINES)
def test_ids_without_a_token_are_never_written(engine, tmp_path):
    # the model has two ids more than its tokenizer, as padded checkpoints have, and prefers them
    small = load("shakespeare")
    module = small.module
    n_vocab = module.config.n_vocab
    settings = {**module.config.to_dict(), "n_vocab": n_vocab + 2}
    wide = regard.build(settings).eval()
    rows = 3 * module.tokens.weight.detach()[small.tokenizer.encode("e", specials=False) * 2]
    state = {
        k: torch.cat([v, rows]) if len(v) == n_vocab else v for k, v in module.state_dict().items()
    }
    wide.load_state_dict(state)
    model = Model(module=wide, task=small.task, tokenizer=small.tokenizer)
    model.save(tmp_path / "wide")
    found = generated(load(tmp_path / "wide"), engine=engine, **GREEDY)
    assert found.written == generated(small, **GREEDY).written


@pytest.mark.parametrize("engine", ENGINES)
def test_an_error_of_the_listener_reaches_the_caller(model, engine):
    def listen(text):
        raise KeyError(text)

    with pytest.raises(KeyError):
        generated(model, engine=engine, on_text=listen, **GREEDY)


def test_a_seed_determines_the_text(model):
    for engine in ENGINES:
        options = {"max_tokens": 20, "engine": engine}
        one, two, other = (generated(model, seed=seed, **options) for seed in (1, 1, 2))
        assert one == two
        assert one.written != other.written


def test_torch_and_numpy_draw_the_same_tokens_with_every_option(model):
    options = {"max_tokens": 30, "seed": 5, "repetition_penalty": 1.3, "no_repeat": 3}
    more = {"temperature": 0.8, "top_k": 30, "top_p": 0.9}
    fast, plain = (generated(model, engine=e, **options, **more) for e in ("numpy", "torch"))
    assert fast.written == plain.written
    with pytest.raises(InputError, match="repetition options in another way"):
        generated(model, engine="ctranslate2", **options)


def test_prompts_in_a_batch_are_continued_as_by_themselves(model):
    prompts = ["ROMEO:", "First Citizen:\nWe", "O", "KING HENRY VI:"]
    options = {"max_tokens": 12, "seed": 3}
    for more in ({}, {"temperature": 0.0}, {"temperature": 0.0, "engine": "ctranslate2"}):
        chosen = {**options, **more, "stop": ["e"]}
        together = model.generate([*prompts, 20 * "long "], **chosen)
        alone = [model.generate(one.prompt, **chosen) for one in together]
        assert [one.text for one in together] == [one.text for one in alone]


def test_the_fastest_writer_is_measured_once_and_only_for_texts_that_are_not_drawn(
    model, tmp_path, monkeypatch
):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    asked = []

    def measure(calls):
        asked.append(list(calls))
        for call in calls.values():
            call()
        return "ctranslate2"

    monkeypatch.setattr(text_generation, "measured_fastest", measure)
    monkeypatch.setattr(fastest_engine, "idle_cpus", lambda: 2)
    own = load(model.folder)
    many, greedy = ["O"] * 100, {"temperature": 0.0, "max_tokens": 10}
    assert own.generate(many[:2], **greedy)[0].engine == "numpy"  # little to write
    assert own.generate(many, max_tokens=10)[0].engine == "numpy"  # drawn
    assert not asked
    found = own.generate(many, **greedy)
    assert asked == [["numpy", "ctranslate2", "torch"]]
    assert {one.engine for one in found} == {"ctranslate2"}
    assert own.generate(many[:2], **greedy)[0].engine == "ctranslate2"
    assert own.generate("O", **greedy).engine == "numpy"  # alone is another question
    assert own.generate(many[:2], max_tokens=10)[0].engine == "numpy"  # a seed keeps its text
    assert {key[1] for key in own.open_engines} == {"numpy", "ctranslate2"}
    options = SamplingOptions(**greedy)
    opened = open_generator(model.folder, options=options, n_prompts=100)
    assert opened.writer.name == "ctranslate2"
    assert asked[1:] == [["numpy", "ctranslate2"]]


def test_a_text_ends_in_front_of_a_stop_text(model):
    whole = generated(model, **GREEDY)
    stop = whole.written[9:13]
    parts = []
    cut = generated(model, **GREEDY, stop=["never to be found", stop], on_text=parts.append)
    assert cut.written == whole.written[: whole.written.index(stop)]
    assert cut.finished
    assert "".join(parts) == cut.written
    for wrong, message in (("x", "stop is a string"), ([""], "a stop text is empty")):
        with pytest.raises(InputError, match=message):
            SamplingOptions(stop=wrong)


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_the_engine_stays_open_until_weights_change(model, engine):
    folder = model.folder
    own = load(folder)
    first = own.generate("ROMEO:", engine=engine, **GREEDY)
    opened = dict(own.open_engines)
    assert not own.changed  # weights in another layout are the same
    assert own.generate("ROMEO:", engine=engine, **GREEDY) == first
    assert own.open_engines == opened
    with torch.no_grad():
        own.module.tokens.weight.mul_(-1.0)
    assert own.generate("ROMEO:", engine=engine, **GREEDY).written != first.written
    assert len(own.open_engines) == 1
    with pytest.raises(InputError, match="weights that were changed after loading"):
        own.generate("ROMEO:", engine="ctranslate2", **GREEDY)


def test_streams_hold_back_what_could_become_a_stop_text(model):
    parts, ids = [], model.tokenizer.encode("to be or not", specials=False)
    stream = TextStream(model.tokenizer, ids[:1], parts.append, ["not to"])
    assert [stream.add(id) for id in ids[1:]] == [False] * (len(ids) - 1)
    seen = "".join(parts)
    stream.close()
    assert not seen.endswith("not")
    assert "".join(parts).endswith("not")


def test_only_decoders_are_run(model, toy_folder):
    with pytest.raises(InputError, match="only one of the family decoder"):
        open_generator(toy_folder)
    with pytest.raises(InputError, match="generate fewer"):
        generated(model, max_tokens=10**6)


def test_the_command_prints_the_same_text_in_both_formats_without_torch(tmp_path):
    # the tokenizer has no token for the first letter
    words = ["generate", "shakespeare", "é ROMEO:", "--max-tokens", "8", "--seed", "4"]
    code = (
        "import sys; from regard.cli.main import app;"
        f"app({words!r}, standalone_mode=False); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert done.stdout == found["text"] + "\n"
    assert found["log_prob"] < 0
    (tmp_path / "prompts.txt").write_text("é ROMEO:\n" * 2, "utf-8")
    lines = ["generate", "shakespeare", "--file", str(tmp_path / "prompts.txt"), *words[3:]]
    assert CliRunner().invoke(app, lines).stdout == 2 * done.stdout
    for wrong in (["--int8", "--precision", "auto"], ["--file", "x"], ["--precision", "half"]):
        assert isinstance(CliRunner().invoke(app, [*words, *wrong]).exception, InputError)
