"""The serve command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli import tables
from regard.cli.options import Device, Engine, Precision, Threads, examples, flag, option
from regard.errors import ConfigError


@examples("regard serve runs/en-fr", "regard serve en-fr=runs/a fr-en=runs/b --port 8000 --keys keys.txt")
def serve(
    folders: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FOLDER ...", help="Model folders. NAME=FOLDER sets the name and languages: en-fr=FOLDER."
        ),
    ] = None,
    host: Annotated[
        str, option("ADDRESS", "The address to listen on; by default reachable only from this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, option("N", "The port to listen on.", min=1, max=65535)] = 5000,
    workers: Annotated[int, option("N", "Processes; each loads the models.", min=1)] = 1,
    keys: Annotated[Path | None, option("KEYS", "A file of API keys; requests then need a key.")] = None,
    new_key: Annotated[str, option("NAME", "Make an API key, add its hash to --keys, print it and exit.")] = "",
    allow_origin: Annotated[
        list[str] | None, option("URL", "Allow web pages of this origin to use the API (CORS).")
    ] = None,
    log_texts: Annotated[bool, flag("--log-texts", "Log the texts of requests.")] = False,
    quiet: Annotated[bool, flag("--quiet", "Log no requests.")] = False,
    grace: Annotated[int, option("SECONDS", "After SIGTERM, wait this long for running requests.", min=1)] = 30,
    engine: Engine = "auto",
    precision: Precision = "auto",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Serve models over HTTP: a page, and the APIs of LibreTranslate and OpenAI."""
    if new_key:
        if keys is None:
            raise ConfigError("--new-key needs --keys FILE, where the hash of the key is added")
        from regard.server.keys import new_key as make_key

        tables.write(make_key(keys, new_key))
        return
    if not folders:
        raise ConfigError("give at least one model folder: regard serve runs/en-fr")
    try:
        from regard.server.run import run
    except ImportError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'regard[serve]'") from error

    run(
        folders=folders,
        host=host,
        port=port,
        workers=workers,
        keys=None if keys is None else str(keys),
        allow_origins=allow_origin or [],
        log_texts=log_texts,
        quiet=quiet,
        grace=grace,
        engine=engine,
        precision=precision,
        device=device,
        threads=threads,
        say=tables.say,
    )
