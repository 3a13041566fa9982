"""`regard serve`: the explorer in the browser, and its API."""

from pathlib import Path
from urllib.parse import quote, urlencode

import typer
from typer import Argument, Option

from regard.cli.output import warn


def serve_command(
    models: list[str] | None = Argument(None, help="Names of bundled models, or model folders."),
    runs: list[Path] | None = Option(None, "--run", help="Run to replay; can be repeated."),
    host: str = Option("127.0.0.1", help="Address to listen on; by default only this machine."),
    port: int = Option(8765, help="Port to listen on, or the next free one; 0 takes any."),
    token: str | None = Option(
        None, help="Secret of the address; made up if others can reach it, '' for none."
    ),
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
        protection = "with the token in the address" if token else "without a password"
        warn(f"anyone who can reach {host} can use these models {protection}.")
    if not catalog.entries:
        warn("no model was found, so the page has only examples; run regard serve FOLDER.")
    hosts = [*dict.fromkeys((*web.LOCAL_HOSTS, host))] if web.is_local(host) else None
    app = web.make_app(
        Service(catalog, replayed), hosts=hosts, version=regard.__version__, token=token
    )
    query = {"run": next(iter(replayed.runs))} if runs else {}
    query |= {"token": token} if token else {}
    address += f"/?{urlencode(query, quote_via=quote)}" if query else ""
    typer.echo(f"regard is at {address} (press Ctrl-C to stop)")
    if open_page and not web.open_browser(address):
        warn("no browser was found; open the address manually.")
    web.run(app, bound)
