"""`regard show` (a head in the terminal), `regard trace` (a file), `regard serve` (a browser)."""

import json
import sys
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote, urlencode

import typer
from typer import Argument, Option

from regard.cli.options import (
    EngineOption,
    LanguageFlags,
    ModelArgument,
    PrecisionOption,
    complete_models,
    complete_sites,
    grouped,
    load_for,
)
from regard.cli.output import print_json, say, terminal_width, warn, wrapped
from regard.errors import InputError, translate

LogFormat = Literal["text", "json"]
TEXT = Argument(help="Text to run the model on; for vision models, path of an image.")
TARGET = Option(help="Use this target instead of translating the text.")


@grouped
def show_command(
    model: ModelArgument,
    text: Annotated[str, TEXT],
    languages: LanguageFlags,
    target: Annotated[str | None, TARGET] = None,
    site: str | None = Option(
        None, help="Show this attention site.", autocompletion=complete_sites
    ),
    head: int | None = Option(None, help="Show this head, counted from 0."),
    as_json: bool = Option(False, "--json", help="Print the weights as JSON."),
) -> None:
    """Show the attention weights of one head; by default, of a head that is easy to read.

    Example: regard show en-de "The dog is sleeping." --site decoder.layers.2.cross --head 3
    """
    from regard.figures.captions import ASCII_SHADES, SHADES, text_pattern
    from regard.figures.head_view import HeadView

    trace = load_for(model, text, languages).trace(text, target)
    view = HeadView(trace, site, head)
    path, number, weights = view.site.path, view.head_index, view.weights().tolist()
    queries, keys = view.labels()
    if as_json:
        about = {"site": path, "head": number, "queries": queries, "keys": keys, "weights": weights}
        print_json(about)
        return
    is_ascii = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
    shades, width = ASCII_SHADES if is_ascii else SHADES, terminal_width()
    picture = text_pattern(weights, queries, keys, shades=shades, width=width)
    rows = "rows are queries (tokens that are written)" if view.writes else "rows are queries"
    heading = translate(f"{path}, head {number}: {rows}, columns are keys")
    legend = translate(f"{picture.legend}; on the right each row's largest weight")
    lines = [*wrapped(heading, width), "", *picture.lines, "", *wrapped(legend, width)]
    if getattr(trace.output, "text", ""):
        answer = f"{text} {'->' if is_ascii else '→'} {trace.output.text}"
        lines = [*wrapped(answer, width), "", *lines]
    shown = "\n".join(lines)
    if is_ascii:  # a question mark is better than bytes that the terminal cannot show
        shown = shown.replace("␣", "_").encode("ascii", "replace").decode()
    typer.echo(shown)


@grouped
def trace_command(
    model: ModelArgument,
    text: Annotated[str, TEXT],
    languages: LanguageFlags,
    output: Path = Option(..., "-o", "--output", help="File: .safetensors, .html or .json."),
    megabytes: float | None = Option(
        None, help="Size limit of an .html file; numbers are rounded."
    ),
    target: Annotated[str | None, TARGET] = None,
    engine: EngineOption = "auto",
    precision: PrecisionOption = "float32",
) -> None:
    """Save everything that a model computes: all sites, all heads, every inner value.

    A .safetensors file is opened with regard.Trace.load, an .html file with a browser, and a .json
    file (weights of all heads) with any program. With --precision int8 or bfloat16, the trace is
    of that answer, and `differs` of its output lists the tokens that float32 would not have chosen.

    Example: regard trace en-de "The dog is sleeping." -o dog.html
    """
    from regard.analysis.site_json import plain
    from regard.files import write_atomic

    if output.suffix not in (".safetensors", ".html", ".json"):
        raise InputError(f"{output} must end in .safetensors, .html or .json.")
    opened = load_for(model, text, languages)
    trace = opened.trace(text, target, engine=engine, precision=precision)
    if output.suffix == ".safetensors":
        trace.save(output)
    elif output.suffix == ".html":
        trace.html(output, megabytes=megabytes)
    else:
        sites = {path: {"weights": trace[path].weights().tolist()} for path in trace}
        about = {"tokens": trace.tokens, "output": plain(trace.output), "sites": sites}
        write_atomic(output, json.dumps(about, ensure_ascii=False))


def serve_command(
    models: list[str] | None = Argument(
        None,
        help="Names of bundled models, or model folders.",
        autocompletion=complete_models,
    ),
    runs: list[Path] | None = Option(None, "--run", help="Run to replay; can be repeated."),
    host: str = Option("127.0.0.1", help="Address to listen on; by default only this machine."),
    port: int = Option(8765, help="Port to listen on, or the next free one; 0 takes any."),
    token: str | None = Option(
        None, help="Secret of the address; made up if others can reach it, '' for none."
    ),
    allow_host: list[str] | None = Option(
        None, help="Also answer under this host name, as behind a proxy; can be repeated."
    ),
    log_format: LogFormat | None = Option(None, help="Log one line for each request to stderr."),
    open_page: bool = Option(False, "--open", help="Open the page in a browser."),
) -> None:
    """Serve the explorer: type a sentence, inspect every number of the model, and edit it.

    Without names, all bundled models and a bundled training run are served. With --run, a training
    run is replayed checkpoint by checkpoint, even while it is in progress. /api/openapi.json
    describes the API.

    Example: regard serve en-de --open
    """
    from secrets import token_urlsafe as secret_token

    import regard
    from regard.interop.model_names import bundled_replays
    from regard.server import app as web
    from regard.server.catalog import Catalog, Runs, is_run
    from regard.server.connections import log_to_stderr, run
    from regard.server.service import Service

    replays = [*(runs or ()), *(path for one in models or () if is_run(path := Path(one)))]
    replayed = Runs(replays if models or runs else bundled_replays())
    trained = [str(path) for path in runs or () if (path / "config.json").is_file()]
    catalog = Catalog([*(models or ()), *trained])
    bound = web.bind(host, port)
    address, used_port = web.address_of(bound, host), bound.getsockname()[1]
    if port not in (0, used_port):
        warn(f"port {port} is in use; using port {used_port} instead.")
    token = secret_token() if token is None and not web.is_local(host) else token or ""
    if not web.is_local(host):
        _warn_of_others(host, token)
    if not catalog.entries:
        warn("no model was found, so the page has only examples; run regard serve FOLDER.")
    app = web.make_app(
        Service(catalog, replayed),
        hosts=web.names_of_server(host, token=token, more=allow_host or ()),
        version=regard.__version__,
        token=token,
        log=log_to_stderr(log_format) if log_format else None,
    )
    query = {"run": next(iter(replayed.runs))} if runs else {}
    query |= {"token": token} if token else {}
    address += f"/?{urlencode(query, quote_via=quote)}" if query else ""
    say(f"regard is at {address} (press Ctrl-C to stop)")
    if open_page and not web.open_browser(address):
        warn("no browser was found; open the address manually.")
    run(app, bound, log_format)


def _warn_of_others(host: str, token: str) -> None:
    protection = "with the token in the address" if token else "without a password"
    warn(f"anyone who can reach {host} can use these models {protection}.")
