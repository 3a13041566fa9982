"""How BPE and WordPiece split words into pieces, a row for each step."""

from collections.abc import Sequence

from regard.errors import InputError
from regard.figures.captions import caption, show_spaces, text_width
from regard.figures.colors import FAINT, HAIRLINE, ROLES
from regard.figures.drawing import Box, Drawing, Text, add_frame
from regard.text.merge_steps import WordSplit

_ROW, _MAX_STEPS = 30, 60


def draw_merges(words: Sequence[WordSplit], *, language: str = "en") -> Drawing:
    """Draw the pieces of each word after each merge (BPE) or cut (WordPiece)."""
    if not words or sum(len(word.steps) for word in words) > _MAX_STEPS:
        raise InputError(
            f"merges shows words of together at most {_MAX_STEPS} steps: give one or a few words."
        )
    whole, kind = Drawing(0, 0), words[0].kind
    for word in words:
        part = Drawing(0, 22 + _ROW * len(word.steps))
        part.add(Text(0, 14, show_spaces(word.word), 13, bold=True))
        for i, step in enumerate(word.steps):
            x, y = 90.0, 22 + _ROW * i
            label = caption("merge start", language) if not i else f"{i}"
            part.add(Text(80, y + 18, label, 11, "end", color=FAINT))
            for piece in step.pieces:
                text, new = show_spaces(piece), piece == step.joined
                width = text_width(text) + 16
                fill, stroke = ("#FBEFD8", ROLES["key"]) if new else ("#FFFFFF", HAIRLINE)
                rank = "" if step.rank is None else f" {step.rank}"
                part.add(
                    Box(x, y, width, 24, fill, stroke, 4, f"{i}{rank if new else ''}: {piece}")
                )
                part.add(Text(x + width / 2, y + 17, text, 13, "middle", bold=new))
                x += width + 6
            if step.rank is not None:
                note = caption("merge rank", language).format(rank=f"{step.rank:,}")
                part.add(Text(x + 10, y + 17, note, 11, color=FAINT))
                x += text_width(note, 11) + 10
            part.width = max(part.width, x)
        whole.place_below(part, gap=16 if whole.height else 0)
    title = caption("merges", language).format(kind=kind)
    return add_frame(whole, title, [caption(f"merges {kind}", language)], language)
