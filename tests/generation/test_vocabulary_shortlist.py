import json
import shutil

import pytest
import torch
from typer.testing import CliRunner

from regard.cli.main import app
from regard.errors import FileError, InputError
from regard.evaluation.alignment import Lexicon, learn_shortlist
from regard.generation.ctranslate2_engine import SHORTLIST, Shortlist, read_shortlist
from regard.generation.search import SearchOptions
from regard.generation.stepper import TranslationStepper
from regard.generation.translator import open_translator
from regard.model import load
from regard.model_folder import read_description, read_tokenizers
from tests.generation.toy import pairs, tokenizer

SENTENCES = [source for source, _ in pairs(60, seed=-8)]


@pytest.fixture(scope="module")
def folder(toy_folder, tmp_path_factory):
    """The toy translator with a shortlist, learned by the command."""
    place = tmp_path_factory.mktemp("narrow")
    copied = place / "toy"
    shutil.copytree(toy_folder, copied)
    for i, name in enumerate(("in.txt", "out.txt")):
        lines = "".join(f"{pair[i]}\n" for pair in pairs(400, seed=-20))
        (place / name).write_text(lines)
    words = [str(copied), str(place / "in.txt"), str(place / "out.txt")]
    sizes = ["--per-token", "8", "--frequent", "1"]
    result = CliRunner().invoke(app, ["shortlist", *words, *sizes])
    assert result.exit_code == 0, result.output
    return copied


def test_candidates_by_hand():
    shortlist = Shortlist((1, 9), {4: (7, 8), 5: (8, 2)})
    assert shortlist.candidates([[4, 6], [4]]) == [1, 7, 8, 9]
    assert shortlist.candidates([[4], [5]]) == [1, 2, 7, 8, 9]
    assert shortlist.candidates([]) == [1, 9]
    names = [str(id) for id in range(10)]
    assert shortlist.vocabulary_map(names, names) == "\t1 9\n4\t7 8\n5\t8 2\n"
    names[4] = names[2] = "a space"  # which cannot stand in a list that spaces separate
    assert shortlist.vocabulary_map(names, names) == "\t1 9\n5\t8\n"


def test_the_likeliest_words_come_first():
    book = [(["das", "haus"], ["the", "house"]), (["das", "buch"], ["the", "book"])]
    likely = Lexicon(book).learn(20).likely(2)
    assert {word: found[0] for word, found in likely.items()} == {
        "das": "the",
        "haus": "house",
        "buch": "book",
    }
    assert all(len(found) <= 2 for found in likely.values())
    assert Lexicon([]).learn().likely(3) == {}


def test_the_end_may_always_be_written():
    learned = learn_shortlist(pairs(50, seed=1), tokenizer(), tokenizer(), per_token=3, frequent=2)
    assert tokenizer().end_id in learned.always
    assert all(len(ids) <= 3 for ids in learned.words.values())


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_good_shortlist_changes_no_translation(folder, engine, beam):
    options = SearchOptions(beam=beam)
    whole, narrow = (
        list(open_translator(folder, engine=engine, shortlist=on).translate(SENTENCES, options))
        for on in (False, True)
    )
    same = sum(one.text == other.text for one, other in zip(whole, narrow, strict=True))
    assert same >= 0.98 * len(SENTENCES)
    scores = [(one.score, other.score) for one, other in zip(whole, narrow, strict=True)]
    assert any(one != other for one, other in scores)  # fewer tokens share the probability


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
def test_only_what_is_on_the_list_is_written(folder, tmp_path, engine):
    copied = tmp_path / "few"
    shutil.copytree(folder, copied)
    words, _ = read_tokenizers(copied, read_description(copied))
    allowed = sorted({words.end_id, *words.encode("eins zwei", specials=False)})
    Shortlist(tuple(allowed), {}).save(copied, words, words)
    translator = open_translator(copied, engine=engine, shortlist=True)
    found = list(translator.translate(["three four five", "one two"], SearchOptions(beam=2)))
    assert {id for one in found for id in one.parts[0].ids} <= set(allowed)
    assert found[1].text == "zwei eins"


def test_words_that_must_appear_need_not_be_on_the_list(folder, tmp_path):
    copied = tmp_path / "few"
    shutil.copytree(folder, copied)
    words, _ = read_tokenizers(copied, read_description(copied))
    allowed = sorted({words.end_id, *words.encode("eins zwei", specials=False)})
    Shortlist(tuple(allowed), {}).save(copied, words, words)
    translator = open_translator(copied, engine="torch", shortlist=True)
    (found,) = translator.translate(["one two"], SearchOptions(beam=4, must=("drei",)))
    assert "drei" in found.text


@torch.no_grad()
def test_a_narrow_stepper_is_the_wide_one_among_its_candidates(folder):
    module = load(folder).module
    ids, lengths = torch.tensor([[2, 9, 11, 3]]), torch.tensor([4])
    few = torch.tensor([3, 7, 20, 41])
    wide = TranslationStepper(module, ids, lengths).step(torch.tensor([[2]]))
    narrow = TranslationStepper(module, ids, lengths, candidates=few).step(torch.tensor([[2]]))
    torch.testing.assert_close(narrow[:, few], wide[:, few].log_softmax(dim=-1))
    assert int(narrow.isfinite().sum()) == len(few)


def test_without_a_shortlist_or_with_a_foreign_one_it_is_refused(toy_folder, folder, tmp_path):
    words = tokenizer()
    with pytest.raises(InputError, match="has no shortlist: learn one with `regard shortlist"):
        open_translator(toy_folder, shortlist=True)
    stored = json.loads((folder / SHORTLIST).read_text())
    (tmp_path / SHORTLIST).write_text(json.dumps({**stored, "tokenizers": ["x", "y"]}))
    with pytest.raises(InputError, match="learned with other tokenizers"):
        read_shortlist(tmp_path, words, words)
    (tmp_path / SHORTLIST).write_text("{")
    with pytest.raises(FileError, match="is damaged"):
        read_shortlist(tmp_path, words, words)


def test_the_command_refuses_files_that_do_not_belong_together(folder, tmp_path):
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("eins\n")
    run = CliRunner().invoke
    result = run(app, ["shortlist", str(folder), str(tmp_path / "a"), str(tmp_path / "b")])
    assert "different numbers of lines" in str(result.exception)
    result = run(app, ["translate", str(folder), "--shortlist"], input="one two\n")
    assert result.stdout == "zwei eins\n"
