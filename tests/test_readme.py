"""The README's Python is run, and its output is what the README prints."""

import re
from pathlib import Path

README = (Path(__file__).resolve().parents[1] / "README.md").read_text("utf-8")


def test_the_readme_shows_the_output_its_code_has(capsys):
    ((code, shown),) = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == shown


def test_the_readme_links_only_to_files_that_exist():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (Path(__file__).parents[1] / link).exists()] == []
