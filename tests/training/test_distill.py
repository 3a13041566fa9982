"""Distillation: a student learns the translations of its teacher."""

import pytest

import regard
from regard.data.dates import Dates
from regard.errors import FileError, InputError
from regard.interop.model_names import find_model
from regard.model_folder import read_card
from regard.training.distill import DISTILLED, distill
from tests.cli.called import call

pytestmark = pytest.mark.long

DATES = [row.fields[0].decode() for row in Dates(40, seed=3)]
FEW_STEPS = {
    "training.steps": 3,
    "training.threads": 1,
    "training.batch_tokens": 400,
    "data.validation": 0.2,
}


@pytest.fixture
def sources(tmp_path):
    """Twenty dates as lines, and twenty as the first column of a table."""
    lines, table = tmp_path / "lines.txt", tmp_path / "table.tsv"
    lines.write_text("\n".join(DATES[:20]) + "\n\n", encoding="utf-8")
    table.write_text("".join(f"{date}\tunused\n" for date in DATES[20:]), encoding="utf-8")
    return [str(lines), str(table)]


def test_a_student_learns_what_the_teacher_wrote(sources, tmp_path):
    teacher, folder = find_model("dates-transformer"), tmp_path / "student"
    result = distill(teacher, sources, folder, overrides=FEW_STEPS)
    rows = [row.split("\t") for row in result.pairs.read_text(encoding="utf-8").splitlines()]
    assert [row[0] for row in rows] == DATES
    expected = regard.load("dates-transformer").translate(DATES)
    assert [row[1] for row in rows] == [one.text for one in expected]
    student = result.training.model
    assert student.config.n_decoder_layers == 1
    assert student.config.n_encoder_layers == regard.load(teacher).config.n_encoder_layers
    assert read_card(folder).facts()["data"].startswith("Translations by dates-transformer.")
    full, short = result.shortlist_bleu
    assert 0 <= short <= 100
    assert full > 20  # it starts from the teacher's weights
    assert (folder / "shortlist.json").is_file()


def test_an_interrupted_translation_continues_where_it_stopped(sources, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    command = ("distill", "dates-transformer", "--data", sources[0], "--data", sources[1])
    few = [word for key, value in FEW_STEPS.items() for word in ("--set", f"{key}={value}")]
    said = call(*command, *few, "-o", str(whole)).stdout
    assert "BLEU against the teacher" in said
    (cut / "training").mkdir(parents=True)
    text = (whole / "training" / DISTILLED).read_bytes()
    (cut / "training" / DISTILLED).write_bytes(text[: len(text) // 2])
    with pytest.raises(InputError, match="continue with --resume"):
        call(*command, *few, "-o", str(cut))
    call(*command, *few, "-o", str(cut), "--resume")
    assert (cut / "training" / DISTILLED).read_bytes() == text
    one, other = ((folder / "model.safetensors").read_bytes() for folder in (whole, cut))
    assert one == other


@pytest.mark.parametrize(
    ("teacher", "data", "error", "sentence"),
    [
        ("dates", "lines.txt", InputError, "is a seq2seq for translation: give a Transformer"),
        ("shakespeare", "lines.txt", InputError, "is a decoder for language"),
        ("dates-transformer", "missing.txt", FileError, "missing.txt"),
        ("dates-transformer", "empty.txt", InputError, "no sentence to translate"),
    ],
)
def test_what_cannot_be_distilled_is_refused(teacher, data, error, sentence, tmp_path, sources):
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(error, match=sentence):
        distill(find_model(teacher), [tmp_path / data], tmp_path / "student")
    assert not (tmp_path / "student" / "model.safetensors").exists()
