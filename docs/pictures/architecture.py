"""Draw docs/pictures/architecture.svg: the packages of regard in the order of their imports."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from regard.figures.drawing import Box, Drawing, Text  # noqa: E402
from regard.figures.formats import to_svg  # noqa: E402
from tests.test_architecture import ROWS  # noqa: E402

NOTES = {
    "errors": "errors a user can fix; named inner values",
    "files": "atomic files; processors and memory",
    "text": "strings ⇄ ids; the definition of attention",
    "layers": "modules; files → batches",
    "models": "one family per file",
    "capabilities": "which engine runs which model",
    "model_folder": "files of a model folder",
    "model": "what regard.load returns",
    "trace": "what was computed",
    "interop": "models of other systems",
    "generation": "search, sampling, engines",
    "analysis": "facts about a trace",
    "evaluation": "scores, alignments",
    "figures": "pictures in English and Korean",
    "training": "regard.train",
    "server": "the page; proofs; speed",
    "cli": "the commands",
}
ROW_HEIGHT, BOX_WIDTH, GAP, NOTES_AT = 34, 150, 12, 540


def draw() -> str:
    """Return the diagram as SVG, bottom row first."""
    rows = [row for row in ROWS if row != ["__main__"]]
    drawing = Drawing(width=860, height=ROW_HEIGHT * len(rows) + 20, title="Packages of regard")
    for level, row in enumerate(rows):
        y = 10 + ROW_HEIGHT * (len(rows) - 1 - level)
        left = (NOTES_AT - len(row) * (BOX_WIDTH + GAP) + GAP) / 2
        for place, name in enumerate(row):
            x = left + place * (BOX_WIDTH + GAP)
            drawing.add(
                Box(x, y, BOX_WIDTH, ROW_HEIGHT - 8, fill="#F4F2FA", stroke="#5B4B8A", radius=4)
            )
            drawing.add(Text(x + BOX_WIDTH / 2, y + 17.5, name, anchor="middle"))
        drawing.add(Text(NOTES_AT, y + 17.5, NOTES.get(row[0], ""), size=12, color="#666666"))
    return to_svg(drawing)


if __name__ == "__main__":
    (HERE / "architecture.svg").write_text(draw(), encoding="utf-8")
