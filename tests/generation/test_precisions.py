"""Other precisions: named with the answer, and explained by what float32 would have chosen."""

import json

import pytest
import torch
from typer.testing import CliRunner

from regard.cli.main import app
from regard.errors import InputError
from regard.generation.search import SearchOptions
from regard.generation.translator import mark_differences, open_translator
from regard.model import load
from regard.trace.edits import ablate
from tests.generation.toy import pairs

pytestmark = pytest.mark.long

SENTENCES = [source for source, _ in pairs(12, seed=-9)]
GREEDY = {"temperature": 0.0, "max_tokens": 60}


def first_difference(one, other):
    pairs = enumerate(zip([*one, None], [*other, None], strict=False))
    return next((i for i, (a, b) in pairs if a != b), None)


@pytest.fixture(scope="module")
def rough_folder(make_folder):
    """A translator of so few numbers that int8 changes most of its answers."""
    return make_folder(d_model=16)


@pytest.fixture(scope="module")
def language_model():
    return load("shakespeare")


@pytest.mark.parametrize("beam", [1, 3])
def test_the_first_mark_is_where_the_translation_leaves_that_of_float32(rough_folder, beam):
    options = SearchOptions(beam=beam)
    exact, rough = (open_translator(rough_folder, precision=p) for p in ("float32", "int8"))
    right, other = (list(one.translate(SENTENCES, options)) for one in (exact, rough))
    assert {(one.engine, one.precision) for one in other} == {("ctranslate2", "int8")}
    marked = mark_differences(other, exact.engine, options)
    firsts = [first_difference(a.tokens, b.tokens) for a, b in zip(other, right, strict=True)]
    assert any(first is not None for first in firsts)  # int8 changes this model's answers
    assert [one.differs[0] if one.differs else None for one in marked] == firsts
    torch_engine = open_translator(rough_folder, engine="torch").engine
    same = mark_differences(other, torch_engine, options)
    assert [one.differs for one in same] == [one.differs for one in marked]
    assert all(one.differs == () for one in mark_differences(right, exact.engine, options))


def test_after_a_mark_float32_continues_the_translation_itself(rough_folder):
    # By definition: with the answer's own tokens before it, greedy float32 takes another one.
    options, model = SearchOptions(beam=1), load(rough_folder)
    rough = open_translator(rough_folder, precision="int8")
    found = mark_differences(
        list(rough.translate(SENTENCES, options)), model.translator(options).engine, options
    )
    one = max(found, key=lambda one: len(one.differs))
    assert one.differs
    trace = model.trace(one.parts[0].source, [model.target_tokenizer.start_id, *one.parts[0].ids])
    best = trace.values["output.logits"][0].argmax(dim=-1).tolist()
    steps = [i for i, id in enumerate(one.parts[0].ids) if best[i] != id]
    assert [step for step in one.differs if step < len(one.parts[0].ids)] == steps


def test_a_trace_explains_the_answer_of_int8_and_marks_it(rough_folder):
    model = load(rough_folder)
    found = model.translate(SENTENCES, precision="int8", trace=True, beam=4)
    changed = next(one for one in found if one.differs)
    trace = model.trace(changed.parts[0].source, precision="int8")
    for output in (trace.output, changed.trace.output):
        assert output.text == changed.text
        assert (output.engine, output.precision) == ("ctranslate2", "int8")
        assert output.differs == changed.differs
    plain = model.trace(changed.parts[0].source).output
    assert (plain.engine, plain.precision, plain.differs) == ("ctranslate2", "float32", ())
    with pytest.raises(InputError, match="nothing is searched here"):
        model.trace("one two", "two", precision="int8")
    with pytest.raises(InputError, match="int8 cannot be combined with edits"):
        model.trace("one two", precision="int8", edits=[ablate("*", head=0)])


def test_the_command_names_the_engine_and_marks_tokens(rough_folder, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(SENTENCES) + "\n")
    words = ["translate", str(rough_folder), str(file), "--json", "--precision", "int8"]
    done = CliRunner().invoke(app, [*words, "--differences"])
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(one["engine"], one["precision"]) for one in records} == {("ctranslate2", "int8")}
    assert any(one["differs"] for one in records)
    plain = json.loads(CliRunner().invoke(app, words).stdout.splitlines()[0])
    assert "differs" not in plain
    for wrong in (["translate", str(rough_folder), "one", "--differences"], [*words, "--int4"]):
        assert CliRunner().invoke(app, wrong).exit_code != 0


def test_a_generated_text_is_marked_where_float32_would_have_gone_on_otherwise(language_model):
    prompts = ["ROMEO:", "First Citizen:\nWe", "KING HENRY VI:\nThe", "O"]
    exact = language_model.generate(prompts, **GREEDY)
    rough = language_model.generate(prompts, precision="int8", trace=True, **GREEDY)
    for one, right in zip(rough, exact, strict=True):
        n_prompt = len(language_model.tokenizer.encode_prompt(one.prompt))
        first = first_difference(one.ids, right.ids)
        assert one.trace.output.differs == one.differs
        assert (one.differs[0] if one.differs else None) == (
            None if first is None else n_prompt + first
        )
    assert any(one.differs for one in rough)
    assert language_model.generate("O", trace=True, **GREEDY).differs == ()


def test_bfloat16_is_written_by_torch_and_says_so(language_model, toy_folder):
    found = language_model.generate("ROMEO:", precision="bfloat16", trace=True, **GREEDY)
    assert (found.engine, found.precision) == ("torch", "bfloat16")
    assert found.differs is not None
    half = load("shakespeare", dtype="bfloat16")
    assert half.generate("ROMEO:", **GREEDY).written == found.written
    assert half.generate("ROMEO:", **GREEDY).precision == "bfloat16"
    model = load(toy_folder)
    one = model.translate("one two three", precision="bfloat16")
    assert (one.engine, one.precision) == ("torch", "bfloat16")
    assert one.text == model.translate("one two three").text
    with pytest.raises(InputError, match="computes in float32 or int8, not in bfloat16"):
        model.translate("one", engine="ctranslate2", precision="bfloat16")
    with pytest.raises(InputError, match="dtype is 'int4'"):
        load(toy_folder, dtype="int4")


def test_weights_are_mapped_and_the_file_stays_as_it_is(language_model, tmp_path):
    folder = tmp_path / "model"
    load("shakespeare").save(folder, dtype="float32")
    before = (folder / "model.safetensors").read_bytes()
    model, other = load(folder), load(folder)
    text = model.generate("ROMEO:", engine="numpy", **GREEDY).written
    assert model.generate("ROMEO:", engine="torch", **GREEDY).written == text
    # The NumPy engine and the module share their memory, so both see this change.
    model.module.decoder.layers[0].feed_forward.inner.to_hidden.weight.data.zero_()
    changed = [model.generate("ROMEO:", engine=e, **GREEDY).written for e in ("numpy", "torch")]
    assert changed[0] == changed[1] != text
    assert (folder / "model.safetensors").read_bytes() == before
    assert other.generate("ROMEO:", **GREEDY).written == text
    model.save(folder)  # over the file that is mapped
    assert load(folder).generate("ROMEO:", **GREEDY).written == changed[0]
    assert other.generate("ROMEO:", engine="torch", **GREEDY).written == text
    stored = tmp_path / "half"
    language_model.save(stored, dtype="bfloat16")
    assert {p.dtype for p in load(stored, dtype="stored").module.parameters()} == {torch.bfloat16}
