"""The files of a recipe, and their division into training, validation and test data."""

import re
from collections import Counter
from pathlib import Path

import pytest

from regard.data.dates import LOCALES
from regard.data.readers import parallel_text
from regard.errors import FileError, InputError, UnknownNameError
from regard.training.data_sources import (
    HeldOutRows,
    TextSources,
    find_data,
    normalize_source,
)
from regard.training.recipe import RECIPES, load_recipe


def recipe(task="translation", **data):
    return load_recipe({"task": task, "data": data, "training": {"steps": 1}})


def first_fields(rows):
    return [row.fields[0].decode() for row in rows]


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    # every source occurs twice, with different targets
    path.write_text("".join(f"source {n % 500}\ttarget {n}\n" for n in range(1000)))
    return path


def test_data_is_found_in_root_regard_data_or_the_current_folder(tmp_path, monkeypatch):
    named, here = tmp_path / "named", tmp_path / "work" / "here"
    for folder in (named, here):
        folder.mkdir(parents=True)
        (folder / "both.txt").write_text("x")
    (named / "only.txt").write_text("x")
    monkeypatch.chdir(here)
    monkeypatch.delenv("REGARD_DATA", raising=False)
    assert find_data("both.txt").absolute() == here / "both.txt"
    monkeypatch.setenv("REGARD_DATA", str(named))
    assert find_data("both.txt") == named / "both.txt"
    assert find_data("both.txt", str(here)) == here / "both.txt"
    assert find_data(str(named / "only.txt")) == named / "only.txt"


def test_the_bundled_phrases_are_found_and_hold_none_of_the_sixty_sentences():
    name = "phrases.en-ko.tsv.gz"
    assert find_data(name) == find_data(name, "/nowhere") == RECIPES / name
    rows = [row.fields for row in parallel_text(RECIPES / name, columns=(1, 2))]
    english = {normalize_source(source) for source, _ in rows}
    assert len(english) == len(rows) > 11_000
    assert all(re.search("[가-힣]", korean.decode()) for _, korean in rows)
    sixty = (Path(__file__).parents[1] / "data" / "everyday.en-ko.tsv").read_bytes().splitlines()
    assert not english & {normalize_source(line.split(b"\t")[0]) for line in sixty}


def test_missing_data_error_names_the_searched_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    with pytest.raises(FileError, match=r"the data file no\.tsv is not in .* nor in .*REGARD_DATA"):
        find_data("no.tsv")
    with pytest.raises(FileError, match=r"--set data\.root=FOLDER"):
        find_data("no.tsv", "/nowhere")


def test_held_out_splits_are_disjoint_complete_and_share_no_source(pairs):
    sources = TextSources(recipe(train=str(pairs), validation=0.2, test=0.1))
    parts = {part: first_fields(sources.rows(part)) for part in ("train", "validation", "test")}
    assert sum(map(len, parts.values())) == 1000
    assert sum(len(set(part)) for part in parts.values()) == 500  # of 500 sources, each in one
    assert len(parts["validation"]) / 1000 == pytest.approx(0.2, abs=0.06)
    assert len(parts["test"]) / 1000 == pytest.approx(0.1, abs=0.05)
    assert all(texts.count(texts[0]) == 2 for texts in parts.values())


def test_the_test_split_does_not_depend_on_the_validation_share(pairs):
    some, more = (
        first_fields(TextSources(recipe(train=str(pairs), validation=v, test=0.1)).rows("test"))
        for v in (0.1, 0.5)
    )
    assert some == more


def test_a_malformed_line_is_in_one_split_and_can_be_dropped(tmp_path):
    path = tmp_path / "labeled.tsv"
    path.write_text("".join(f"a\ttext {n}\n" for n in range(50)) + "no label\n")
    data = {"train": str(path), "validation": 0.5}
    sources = TextSources(recipe("classification", **data, checks={"malformed": "drop"}))
    faults = [[row.fault for row in sources.rows(part)] for part in ("train", "validation")]
    assert sorted(sum(map(bool, part)) for part in faults) == [0, 1]
    assert len(sources.examples("train")) + len(sources.examples("validation")) == 50


def test_held_out_rows_have_a_separate_fingerprint(pairs):
    rows = TextSources(recipe(train=str(pairs))).all_rows()
    halves = [HeldOutRows(rows, 0.0, 0.5), HeldOutRows(rows, 0.5, 1.0)]
    assert len({half.fingerprint() for half in halves} | {rows.fingerprint()}) == 3
    assert halves[0].fingerprint() == HeldOutRows(rows, 0.0, 0.5).fingerprint()
    assert halves[0].names == rows.names


def test_shares_that_leave_nothing_are_refused(pairs):
    with pytest.raises(InputError, match="hold out all data"):
        TextSources(recipe(train=str(pairs), validation=0.6, test=0.4)).rows("train")


def test_several_files_can_be_joined_and_swapped(tmp_path, pairs):
    for name, lines in (("a.en", "x\ny\n"), ("a.de", "u\nv\n")):
        (tmp_path / name).write_text(lines)
    files = {"source": str(tmp_path / "a.en"), "target": str(tmp_path / "a.de")}
    together = TextSources(recipe(train=[files, str(pairs)], validation=files))
    assert first_fields(together.rows("train"))[:3] == ["x", "y", "source 0"]
    assert first_fields(together.rows("validation")) == ["x", "y"]
    assert together.rows("test") is None
    turned = TextSources(recipe(train=files, validation=str(pairs), swap=True))
    assert first_fields(turned.rows("train")) == ["u", "v"]
    assert first_fields(turned.rows("validation"))[0] == "target 0"
    assert turned.examples("train", 1) == [("u", "x")]
    assert len(turned.examples("train")) == 2


def test_json_lines_use_the_keys_of_the_recipe_and_can_be_swapped(tmp_path):
    path, usual = tmp_path / "p.jsonl", tmp_path / "q.jsonl"
    path.write_text('{"en": "one", "de": "eins"}\n')
    usual.write_text('{"source": "two", "target": "zwei", "label": "n", "text": "3"}\n')

    def read(path, task="translation", **data):
        return TextSources(recipe(task, train=str(path), validation=0.0, **data)).examples("train")

    assert read(path, keys=["en", "de"]) == [("one", "eins")]
    assert read(path, keys=["en", "de"], swap=True) == [("eins", "one")]
    assert read(usual, swap=True) == [("zwei", "two")]
    assert read(usual, "classification") == [("n", "3")]
    assert read(path, "classification", keys=["de", "en"]) == [("eins", "one")]
    with pytest.raises(InputError, match=r"data\.keys"):
        recipe(train=str(path), keys=["en"])


def test_tokenizer_texts_are_the_training_texts_of_a_field(tmp_path):
    (tmp_path / "p.tsv").write_text("a\tb\nc\td\n")
    sources = TextSources(recipe(train=str(tmp_path / "p.tsv"), validation=0.0))
    assert list(sources.texts()) == ["a", "b", "c", "d"]
    assert list(sources.texts(fields=[1])) == ["b", "d"]
    (tmp_path / "song.txt").write_text("one\ntwo\n")
    running = TextSources(recipe("language", train=str(tmp_path / "song.txt"), validation=0.5))
    assert list(running.texts()) == ["one\n", "two\n"]  # the whole, ends of lines with it


def test_generated_dates_are_disjoint_between_splits():
    sources = TextSources(recipe(generate="dates", count=300, locales=["en", "ko"]))
    train = {row.fields for row in sources.rows("train")}
    held = {row.fields for row in sources.rows("validation")}
    assert len(held) > 1000
    assert not {fields[1] for fields in train} & {fields[1] for fields in held}
    assert {"en", "ko"} <= set(LOCALES)


def test_checks_of_running_text_are_lenient_and_unknown_ones_are_refused(pairs, tmp_path):
    assert TextSources(recipe("language", train=str(pairs))).checks.duplicate == "keep"
    changed = TextSources(recipe(train=str(pairs), checks={"duplicate": "drop"})).checks
    assert changed.duplicate == "drop"
    with pytest.raises(UnknownNameError, match=r"unknown key data\.checks\.duplicat; the nearest"):
        _ = TextSources(recipe(train=str(pairs), checks={"duplicat": "drop"})).checks


def test_weights_repeat_or_leave_out_training_rows_and_nothing_else(tmp_path):
    (tmp_path / "a.tsv").write_text("".join(f"a{n}\tA{n}\n" for n in range(400)))
    (tmp_path / "b.tsv").write_text("".join(f"b{n}\tB{n}\n" for n in range(400)))
    files = [{"file": "a.tsv", "weight": 2.5, "domain": "a"}, {"file": "b.tsv", "weight": 0.25}]
    sources = TextSources(recipe(root=str(tmp_path), train=files, test=0.25, validation=0.25))
    train = [texts[0] for texts in sources.examples("train")]
    counts = Counter(train)
    of_a = [counts[f"a{n}"] for n in range(400) if f"a{n}" in counts]
    assert {min(of_a), max(of_a)} == {2, 3}
    assert abs(sum(of_a) / len(of_a) - 2.5) < 0.1
    assert {counts[f"b{n}"] for n in range(400)} == {0, 1}
    assert 20 < sum(name.startswith("b") for name in train) < 80  # a quarter of about 200
    tests = {domain: sources.examples("test", domain=domain) for domain in sources.domains()}
    assert set(tests) == {"a", ""}
    assert all(pair[0].startswith("a") for pair in tests["a"])
    assert not {pair[0] for pairs in tests.values() for pair in pairs} & set(train)
    assert len(sources.examples("test")) == sum(map(len, tests.values()))


def test_sources_that_differ_in_case_and_punctuation_are_in_the_same_split(tmp_path):
    lines = [
        f"{text}\tx{text}\n" for n in range(50) for text in (f"Go {n}!", f"go, {n}", f"GO {n}.")
    ]
    (tmp_path / "a.tsv").write_text("".join(lines))
    sources = TextSources(recipe(root=str(tmp_path), train="a.tsv", validation=0.5))
    train, held_out = (
        {pair[0].lower().strip("!.").replace(",", "") for pair in sources.examples(split)}
        for split in ("train", "validation")
    )
    assert train
    assert held_out
    assert not train & held_out


def test_tags_mark_the_sources_of_matching_targets_in_training_only(tmp_path):
    lines = [f"Come {n}.\t{'Kommen Sie' if n % 2 else 'Komm'} {n}.\n" for n in range(40)]
    (tmp_path / "a.tsv").write_text("".join(lines))
    tags = {"<formal>": r"\bSie\b"}
    sources = TextSources(recipe(root=str(tmp_path), train="a.tsv", validation=0.3, tags=tags))
    for source, target in sources.examples("train"):
        assert source.startswith("<formal> ") == ("Sie" in target)
    assert not any(source.startswith("<") for source, _ in sources.examples("validation"))


def test_without_test_data_no_domain_has_any(pairs):
    sources = TextSources(recipe(train=str(pairs)))
    assert sources.domains() == [""]
    assert sources.examples("test", domain="") == []
    dates = TextSources(recipe(generate="dates", count=10))
    assert dates.examples("test", 3, domain="") == dates.examples("test", 3) != []
