"""The serve command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from regard.cli import tables
from regard.cli.options import Device, Engine, Precision, Threads, argument, examples, flag, option, without
from regard.errors import ConfigError


@examples("regard serve runs/en-fr", "regard serve en-fr=runs/a fr-en=runs/b --port 8000 --keys keys.txt")
def serve(
    folders: Annotated[
        list[str] | None,
        argument("FOLDER ...", "Model folders. NAME=FOLDER sets the name and languages: en-fr=FOLDER."),
    ] = None,
    *,
    host: Annotated[
        str, option("ADDRESS", "The address to listen on; by default only for this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, option("N", "The port to listen on.", min=1, max=65535)] = 5000,
    workers: Annotated[int, option("N", "Processes; each loads the models.", min=1)] = 1,
    keys: Annotated[str | None, option("KEYS", "A file of API keys; requests then need a key.")] = None,
    new_key: Annotated[str, option("NAME", "Make an API key, add its hash to --keys, print it and exit.")] = "",
    allow_origins: Annotated[
        list[str], option("URL", "Allow web pages of this origin to use the API (CORS).", "--allow-origin")
    ] = [],  # noqa: B006 - typer copies it
    log_texts: Annotated[bool, flag("--log-texts", "Log the texts of requests.")] = False,
    quiet: Annotated[bool, flag("--quiet", "Log no requests.")] = False,
    grace: Annotated[int, option("SECONDS", "After SIGTERM, wait this long for running requests.", min=1)] = 30,
    engine: Engine = "auto",
    precision: Precision = "auto",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Serve models over HTTP: a page, and the APIs of LibreTranslate and OpenAI."""
    arguments = without(locals(), "new_key")
    if new_key:
        if keys is None:
            raise ConfigError("--new-key needs --keys FILE, where the hash of the key is added")
        from regard.server.keys import new_key as make_key

        return tables.write(make_key(Path(keys), new_key))
    if not folders:
        raise ConfigError("give at least one model folder: regard serve runs/en-fr")
    try:
        from regard.server.run import run
    except ImportError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'regard[serve]'") from error

    return run(**arguments, say=tables.say)
