"""The card of a model: where it comes from and what it is worth, in a file that people read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime

_FENCE = "---"


@dataclass(frozen=True, kw_only=True)
class Card:
    """What people should know about a model before they use it."""

    data: str = ""
    """What it was trained on, and whom to credit for that."""
    licence: str = ""
    score: str = ""
    size: str = ""
    date: str = ""
    text: str = ""
    """Everything else, in Markdown."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Lines that somebody has added to those above."""

    def filled(self, *, size: str) -> "Card":
        """The card of a model of this size, with today's date if it has none."""
        return replace(self, size=size, date=self.date or datetime.now(UTC).date().isoformat())

    def facts(self) -> dict[str, str]:
        """The lines at the top: what is known, by name."""
        known = {name: getattr(self, name) for name in _FACTS}
        return {name: " ".join(fact.split()) for name, fact in (known | dict(self.others)).items()}

    def __str__(self) -> str:
        lines = [f"{name}: {fact}".rstrip() for name, fact in self.facts().items()]
        text = f"\n{self.text.strip()}\n" if self.text.strip() else ""
        return "\n".join([_FENCE, *lines, _FENCE, text])


_FACTS = tuple(f.name for f in fields(Card) if f.name not in ("text", "others"))


def read_card(text: str) -> Card:
    """The card that `str(card)` wrote, or one of mere text."""
    head, lines = {}, text.strip().splitlines()
    if lines[:1] == [_FENCE] and _FENCE in lines[1:]:
        end = lines.index(_FENCE, 1)
        parts = (line.partition(":") for line in lines[1:end])
        head = {name.strip(): fact.strip() for name, colon, fact in parts if colon}
        lines = lines[end + 1 :]
    facts = {name: head.pop(name) for name in _FACTS if name in head}
    return Card(**facts, others=head, text="\n".join(lines).strip())
