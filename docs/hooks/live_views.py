"""What pages show of models: live views in a frame, and the figures of their commands."""

import re

import figure_gallery

import regard
from docs.hooks.page_blocks import LIVE, figure_tag
from regard.interop.model_names import bundled
from regard.server.html_export import as_html

COMMANDS = re.compile(r"^```sh\n(?P<code>(?:regard [^\n]*\n)+)```$", re.MULTILINE)
FIGURE = re.compile(
    r"^regard figure (?P<kind>\S+) (?P<arguments>.*?) ?-o \S+\.(?P<format>svg|gif)$"
)
WORDS = {
    "view": {"en": "Live view of {model}: {text}", "ko": "{model} 직접 보기: {text}"},
    "open": {"en": "Open this view in its own tab", "ko": "새 탭에서 크게 보기"},
    "figure": {"en": "Figure: {kind}", "ko": "그림: {kind}"},
    "notebook": {"en": "This page as a notebook", "ko": "이 페이지의 노트북"},
}
files: dict[str, bytes] = {}  # by path in the site


def embed(markdown: str, page: str, language: str) -> str:
    """Replace the live views of a page by frames, and add the figures of its commands."""
    up = "../" * page.count("/")
    markdown = LIVE.sub(lambda match: frame(match, up, language), markdown)
    return COMMANDS.sub(lambda match: match[0] + drawings(match["code"], up, language), markdown)


def frame(match: re.Match, up: str, language: str) -> str:
    """Return a frame with the explorer; views of one trace share a file."""
    model, text, state = match["model"], match["text"], match["state"] or ""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name = f"live/{model}-{slug}.html"
    if name not in files:
        shown = bundled()[model] / "examples" / text if text.endswith(".png") else text
        trace = regard.load(model).trace(shown)
        files[name] = as_html(trace, title=model, megabytes=1).encode()
    address = f"{up}{name}#{state}&language={language}".replace("&", "&amp;")
    title = WORDS["view"][language].format(model=model, text=text)
    return (
        f'<iframe class="live" loading="lazy" title="{title}" src="{address}"></iframe>\n\n'
        f'<a class="live-link" href="{address}" target="_blank">{WORDS["open"][language]}</a>'
    )


def drawings(code: str, up: str, language: str) -> str:
    """Return the figures that commands draw."""
    images = []
    for match in filter(None, map(FIGURE.match, code.splitlines())):
        kind, arguments = match["kind"], match["arguments"]
        name = f"figures/{figure_gallery.file_name(kind, arguments)}.{match['format']}"
        if name not in files:
            files[name] = figure_gallery.drawn(kind, arguments, match["format"])
        title = WORDS["figure"][language].format(kind=kind)
        images.append(figure_tag(f"{up}{name}", title))
    return "".join(f"\n\n{image}" for image in images)


def notebook_link(name: str, up: str, language: str) -> str:
    """Return a link to the notebook of a page."""
    title = WORDS["notebook"][language]
    return f'<a class="notebook" href="{up}notebooks/{name}.ipynb" download>{title}</a>'
