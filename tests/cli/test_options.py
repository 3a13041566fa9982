from dataclasses import dataclass
from typing import Annotated

import typer
from typer.core import TyperCommand
from typer.testing import CliRunner

from regard.cli.options import QuickCommand, grouped


@dataclass(frozen=True)
class Size:
    """Sizes."""

    height: Annotated[int, typer.Option("--height", "-t", help="How tall.")]
    width: Annotated[int, typer.Option(help="How wide.")] = 2


def test_the_fields_of_a_dataclass_are_options():
    seen = []
    app = typer.Typer()

    @app.command()
    @grouped
    def draw(what: str, size: Size, loud: bool = False) -> None:
        """Draw something."""
        seen.append((what, size, loud))

    def run(*words):
        return CliRunner().invoke(app, list(words))

    assert run("box", "-t", "3").exit_code == 0
    assert run("--width", "9", "box", "--height", "1", "--loud").exit_code == 0
    assert seen == [("box", Size(3), False), ("box", Size(1, 9), True)]
    assert run("box").exit_code == 2  # a field without a default must be given
    printed = run("--help").output
    assert "How tall." in printed
    assert "Draw something." in printed
    assert "Sizes" in printed  # the heading of the group


def test_values_are_converted_and_refused_as_by_typer():
    seen = []
    apps = {}
    for cls in (TyperCommand, QuickCommand):
        apps[cls] = typer.Typer()

        @apps[cls].command(cls=cls)
        def command(
            name: str,
            count: int = 3,
            share: float | None = None,
            small: int = typer.Option(1, max=2),
            tag: list[str] | None = typer.Option(None),
        ) -> None:
            seen.append((name, count, share, small, tag))

    for words in (
        ["7"],
        ["a", "--count", "12", "--share", "1e-3", "--small", "2", "--tag", "b", "--tag", "c"],
        ["a", "--count", "-4"],
        ["a", "--count", "1.5"],
        ["a", "--share", "x"],
        ["a", "--small", "3"],
        [],
    ):
        codes = [CliRunner().invoke(app, words).exit_code for app in apps.values()]
        assert codes[0] == codes[1]
        assert len(seen) % 2 == 0
        assert seen[-2:][:1] == seen[-1:] or codes[0] == 2
    assert len(seen) == 2 * 3
