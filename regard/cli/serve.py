"""`regard serve`: the explorer in the browser, and its API for scripts."""

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer


def serve_command(
    models: Annotated[
        list[str] | None, typer.Argument(help="Bundled models' names, or model folders.")
    ] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option("--run", help="The folder of a training run to replay; may be repeated."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; by default only this machine can ask.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(help="The next free one if it is in use.")] = 8765,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Open the explorer: type a sentence, see every number inside, change it.

    Without a name it serves all bundled models. With --run it replays a training run, checkpoint
    by checkpoint, also one that is still going on. The API is described at /api/openapi.json.

    Example: regard serve en-de --open
    """
    import regard
    from regard.server.app import LOCAL, address_of, bind, is_local, make_app, open_browser, run
    from regard.server.catalog import Catalog
    from regard.server.replay import Runs, is_run
    from regard.server.service import Service

    replayed = Runs([*(runs or ()), *(path for one in models or () if is_run(path := Path(one)))])
    trained = [str(path) for path in runs or () if (path / "config.json").is_file()]
    catalog = Catalog([*(models or ()), *trained])
    bound = bind(host, port)
    address, taken = address_of(bound, host), bound.getsockname()[1]
    if port not in (0, taken):
        _warn(f"port {port} is in use; this is port {taken} instead.")
    if not is_local(host):
        _warn(f"everybody who can reach {host} can use these models; there is no password.")
    if not catalog.entries:
        _warn(
            "there is no model yet, so the page opens on the worked example; with a model it is "
            "regard serve FOLDER."
        )
    hosts = {*LOCAL, host} if is_local(host) else None
    app = make_app(Service(catalog), runs=replayed, hosts=hosts, version=regard.__version__)
    if runs:
        address += f"/?run={quote(next(iter(replayed.runs)))}"
    typer.echo(f"regard is at {address} (Ctrl-C ends it)")
    if open_page and not open_browser(address):
        _warn("no browser was found; open the address yourself.")
    run(app, bound)


def _warn(text: str) -> None:
    typer.echo(f"regard: {text}", err=True)
