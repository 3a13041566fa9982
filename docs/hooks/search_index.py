"""One search index for each language: a reader of Korean pages finds Korean pages."""

import json
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.pages import Page

LANGUAGES = {"ko": ["en", "ko"]}  # Korean pages hold English words, too


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Let Korean pages load the index in ko/search."""
    for language in LANGUAGES:
        if page.file.dest_uri.startswith(f"{language}/"):
            up = "../" * page.file.dest_uri.count("/")
            base = up.rstrip("/")
            output = output.replace(f'"base": "{base}"', f'"base": "{up}{language}/"')
    return output


@event_priority(-200)
def on_post_build(config: MkDocsConfig):
    """Divide the index that the plugins have written."""
    site = Path(config.site_dir)
    whole = site / "search" / "search_index.json"
    if not whole.exists():
        return
    index = json.loads(whole.read_text("utf-8"))
    entries = index["docs"]
    for language, words in LANGUAGES.items():
        prefix = f"{language}/"
        own = [
            {**entry, "location": entry["location"].removeprefix(prefix)}
            for entry in entries
            if entry["location"].startswith(prefix)
        ]
        entries = [entry for entry in entries if not entry["location"].startswith(prefix)]
        if own:
            settings = {**index["config"], "lang": words}
            write(site / language / "search", {**index, "config": settings, "docs": own})
    write(whole.parent, {**index, "docs": entries})


def write(folder: Path, index: dict):
    """Write an index for pages that are served, and for pages that are opened as files."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    (folder / "search_index.json").write_text(text, "utf-8")
    (folder / "search_index.js").write_text(f"var __index = {text}", "utf-8")
