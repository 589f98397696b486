"""The serve command."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from regard.cli import tables
from regard.cli.options import Device, Threads, examples, option
from regard.errors import ConfigError


@examples("regard serve runs/en-fr", "regard serve en-fr=runs/a fr-en=runs/b --port 8000")
def serve(
    folders: Annotated[
        list[str],
        typer.Argument(metavar="FOLDER ...", help="Model folders; en-fr=FOLDER if its card names no languages."),
    ],
    host: Annotated[str, option("ADDRESS", "The address to listen on. By default only this machine.")] = "127.0.0.1",
    port: Annotated[int, option("N", "The port to listen on.", min=1, max=65535)] = 5000,
    grace: Annotated[int, option("SECONDS", "After SIGTERM, wait this long for running requests.", min=1)] = 30,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Serve translation models over HTTP, with the API of LibreTranslate."""
    from regard.devices import use_threads

    try:
        import uvicorn

        from regard.server.app import serve as make_app
    except ImportError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'regard[serve]'") from error

    use_threads(threads)
    app = make_app(*folders, device=device)
    for message in app.state.models.failed.values():
        tables.say(f"regard: not served: {message}")
    pairs = ", ".join(f"{model.source}-{model.target}" for model in app.state.models.served)
    tables.say(f"serving {pairs} at http://{host}:{port} (Ctrl-C stops)")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn stops by itself, and raises the signal again at its end
    uvicorn.run(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=grace)
