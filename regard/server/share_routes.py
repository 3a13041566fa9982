"""Routes that turn a trace into a file to send to others: an HTML page or a figure."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import NonNegativeInt

from regard.figures.formats import FORMATS
from regard.figures.kinds import trace_figure
from regard.hardware import limit_threads
from regard.server.error_codes import ApiError
from regard.server.html_export import as_html
from regard.server.jobs import Job
from regard.server.service import Context, Stored
from regard.server.settings import LIMITS
from regard.server.trace_routes import count_products

router = APIRouter(prefix="/api")
_MEDIA_TYPES = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
_BINARY = {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}
State = Annotated[str, Query(max_length=LIMITS.text_characters)]


@router.get("/trace/{id}/html", response_class=Response, responses={200: _BINARY})
async def html_file(stored: Stored, context: Context, state: State = "") -> Response:
    """Return the explorer with this trace as one HTML file; it opens with the given selection."""

    def work(job: Job) -> Response:
        with limit_threads(count_products(stored.trace)):
            page = as_html(stored.trace, title=stored.request.get("model", ""), state=state)
        return _download(page, "text/html; charset=utf-8", "regard.html")

    return await context.wait(work)


@router.get("/trace/{id}/figure", response_class=Response, responses={200: _BINARY})
async def figure(
    stored: Stored,
    context: Context,
    kind: Literal["pattern", "lines", "heads", "lens", "attribution"],
    site: str,
    head: NonNegativeInt = 0,
    query: NonNegativeInt = 0,
    language: Literal["en", "ko"] = "en",
    format: Literal["svg", "png", "pdf"] = "pdf",
) -> Response:
    """Return a figure of one head, or of the answer at one position, as a file."""
    found = stored.trace[site]
    if head >= found.n_heads:
        raise ApiError("unknown_head", site=site, head=head, count=found.n_heads)

    def work(job: Job) -> Response:
        row = query if kind in ("lens", "attribution") else None
        drawn = trace_figure(stored.trace, kind, site=site, head=head, query=row, language=language)
        data = FORMATS[f".{format}"](drawn.drawing)
        return _download(data, _MEDIA_TYPES[format], f"regard-{kind}.{format}")

    return await context.wait(work)


def _download(content: str | bytes, media_type: str, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=media_type, headers=headers)
