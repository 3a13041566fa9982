from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from regard.cli.options import grouped


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
