"""Options: what several commands take, said once, and what is checked of it before anything takes long."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.errors import ConfigError, FolderError

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, and nothing else there.")]
Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A text file, one that holds both sides, a folder, or -.")
]
Target = Annotated[str | None, typer.Argument(metavar="TARGET", help="The other side, line for line.")]
Languages = Annotated[str, typer.Option(metavar="EN,FR", help="The two languages of a file with both sides.")]
Fields = Annotated[str, typer.Option(metavar="A,B", help="The two fields of a JSONL file.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Threads = Annotated[int, typer.Option(min=0, max=1024, help="CPU threads; 0: all cores.")]
Values = Annotated[
    list[str], typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="Change a field of the config.")
]
Beams = Annotated[int, typer.Option(min=0, max=100, help="Hypotheses side by side; 0: as the folder's config says.")]


def a_path(text: str) -> Path:
    """A path that was given: an empty one would be the folder at hand."""
    if not text:
        raise typer.BadParameter("its name is empty.")
    return Path(text)


def free(out: Path | None, *inputs: str, force: bool) -> None:
    """Refuse to write over what is there, and over what is read whatever is forced."""
    if out is None:
        return
    for given in inputs:
        if given not in ("", "-") and out.exists() and Path(given).exists() and out.samefile(given):
            raise FolderError(f"{out} is what is read: choose another name to write to")
    if out.exists() and not force:
        raise FolderError(f"{out} is already there: choose another name, or replace it with --force")


def free_page(report: Path | None, *inputs: str, force: bool) -> None:
    """The same of a report, which is a page whatever it is called."""
    free(report, *inputs, force=force)
    if report is not None and report.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--report ({report}) is a page: give it a name that ends in .html")


def numbers(flag: str, text: str, example: str) -> list[int]:
    """`8,64,512` as numbers."""
    try:
        return [int(word) for word in text.split(",") if text]
    except ValueError:
        raise ConfigError(f"{flag} ({text}) must be whole numbers with commas between, such as {example}") from None


def two(flag: str, text: str, what: str, example: str) -> tuple[str, str] | None:
    """`en,fr` as two codes, or two of what else a flag may name."""
    if not text:
        return None
    found = [part.strip() for part in text.split(",")]
    if len(found) != 2 or not all(found):
        raise ConfigError(f"{flag} ({text}) must be two {what} with a comma between, such as {example}")
    return found[0], found[1]
