"""A command called in the tests' own process; what it raises comes out as it is."""

from click.testing import Result
from typer.testing import CliRunner

from regard.cli.main import app


def call(*given, input: bytes | None = None) -> Result:
    found = CliRunner().invoke(app, [str(one) for one in given], input=input)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found
