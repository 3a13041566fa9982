import re

import pytest

from regard.server import html_export as link
from regard.server.html_export import PAGE, joined_script, joined_style


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A page of two modules."""
    (tmp_path / "js" / "views").mkdir(parents=True)
    (tmp_path / "js/one.js").write_text(
        "// a module\n/** @type {number} */\nexport const ONE = 1;\n"
        "export function twice(/** @type {number} */ x) {\n  return 2 * x;\n}\n"
    )
    (tmp_path / "js/views/two.js").write_text(
        'import { ONE, twice as double } from "../one.js";\n'
        "export const FOUR = double(ONE + ONE);\n"
    )
    monkeypatch.setattr(link, "PAGE", tmp_path)
    joined_script.cache_clear()
    yield tmp_path
    joined_script.cache_clear()


def test_two_modules_become_two_functions_in_the_order_of_need(folder):
    assert joined_script("js/views/two.js") == (
        "const $one = (() => {\nconst ONE = 1;\nfunction twice(x) {\n  return 2 * x;\n}\n"
        "return { ONE, twice };\n})();\n"
        "const $views_two = (() => {\nconst { ONE, twice: double } = $one;\n"
        "const FOUR = double(ONE + ONE);\nreturn { FOUR };\n})();"
    )


def test_comments_stay_behind(folder):
    script = joined_script("js/views/two.js")
    assert "//" not in script
    assert "/*" not in script


def test_modules_that_import_each_other_are_found(folder):
    (folder / "js/one.js").write_text(
        'import { FOUR } from "./views/two.js";\nexport const ONE = 1;\n'
    )
    with pytest.raises(AssertionError, match=r"two\.js → one\.js → two\.js"):
        joined_script("js/views/two.js")


@pytest.mark.parametrize(
    "line", ["export default 3;", 'import x from "./one.js";', "export { x };"]
)
def test_what_cannot_be_joined_is_found(folder, line):
    (folder / "js/one.js").write_text(f"{line}\n")
    with pytest.raises(AssertionError, match="cannot be joined"):
        joined_script("js/one.js")


def test_the_page_itself_joins_into_a_script_without_imports():
    script = joined_script()
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    assert "startFromPage" in script
    names = re.findall(r"^const (\$\w+) = \(\(\) =>", script, re.MULTILINE)
    assert len(names) == len(set(names)) == len(_reached(PAGE / "js/offline.js"))


def _reached(path, seen=None):
    seen = set() if seen is None else seen
    seen.add(path.resolve())
    pattern = re.compile(r'^import \{[^}]*\} from "(\.[^"]+)"', re.MULTILINE)
    for place in pattern.findall(path.read_text("utf-8")):
        if (found := (path.parent / place).resolve()) not in seen:
            _reached(found, seen)
    return seen


def test_every_module_of_the_page_is_used_small_and_well_named():
    modules = {path.resolve() for path in (PAGE / "js").rglob("*.js")}
    assert _reached(PAGE / "js/offline.js") <= modules
    for path in modules:
        assert len(path.read_text("utf-8").splitlines()) <= 400, path.name
        assert path.stem not in {"utils", "util", "helpers", "common", "base", "manager"}


def test_all_style_sheets_of_the_page_are_there():
    style = joined_style()
    assert ".regard .panes" in style
    assert "@import" not in style
    assert "url(" not in style
