"""`regard serve`: the explorer in the browser, and its API."""

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer


def serve_command(
    models: Annotated[
        list[str] | None, typer.Argument(help="Names of bundled models, or model folders.")
    ] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option("--run", help="Folder of a training run to replay; can be repeated."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default serves only this machine.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on, or the next free one; 0 takes any.")
    ] = 8765,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve the explorer: type a sentence, inspect every number of the model, and edit it.

    Without names, all bundled models are served. With --run, a training run is replayed
    checkpoint by checkpoint, even while it is in progress. /api/openapi.json describes the API.

    Example: regard serve en-de --open
    """
    import regard
    from regard.server import app as web
    from regard.server.catalog import Catalog, Runs, is_run
    from regard.server.service import Service

    replayed = Runs([*(runs or ()), *(path for one in models or () if is_run(path := Path(one)))])
    trained = [str(path) for path in runs or () if (path / "config.json").is_file()]
    catalog = Catalog([*(models or ()), *trained])
    bound = web.bind(host, port)
    address, used_port = web.address_of(bound, host), bound.getsockname()[1]
    if port not in (0, used_port):
        _warn(f"port {port} is in use; using port {used_port} instead.")
    if not web.is_local(host):
        _warn(f"anyone who can reach {host} can use these models without a password.")
    if not catalog.entries:
        _warn("no model was found, so the page has only examples; run regard serve FOLDER.")
    hosts = [*dict.fromkeys((*web.LOCAL_HOSTS, host))] if web.is_local(host) else None
    app = web.make_app(Service(catalog, replayed), hosts=hosts, version=regard.__version__)
    if runs:
        address += f"/?run={quote(next(iter(replayed.runs)))}"
    typer.echo(f"regard is at {address} (press Ctrl-C to stop)")
    if open_page and not web.open_browser(address):
        _warn("no browser was found; open the address manually.")
    web.run(app, bound)


def _warn(text: str) -> None:
    typer.echo(f"regard: {text}", err=True)
