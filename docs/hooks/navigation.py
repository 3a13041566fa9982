"""Patterns in the navigation: `learn/*.md` lists the pages that are there, by file name."""

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig

TRANSLATIONS = (".ko.md",)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each pattern by the pages that it matches and that are not listed by name."""
    listed = set(pages(config.nav or []))
    config.nav = expand(config.nav or [], Path(config.docs_dir), listed)
    return config


def pages(nav: list[Any]) -> list[str]:
    """Return every path and pattern of a navigation."""
    found = []
    for item in nav:
        for value in item.values() if isinstance(item, dict) else [item]:
            found += pages(value) if isinstance(value, list) else [value]
    return found


def expand(nav: list[Any], folder: Path, listed: set[str]) -> list[Any]:
    """Return the navigation without patterns."""
    expanded = []
    for item in nav:
        if isinstance(item, dict):
            entries = {
                title: expand(value, folder, listed) if isinstance(value, list) else value
                for title, value in item.items()
            }
            expanded.append(entries)
        elif "*" in item:
            found = (path.relative_to(folder).as_posix() for path in folder.glob(item))
            expanded += sorted(
                path for path in found if path not in listed and not path.endswith(TRANSLATIONS)
            )
        else:
            expanded.append(item)
    return expanded
