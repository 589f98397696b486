"""Options that several commands share, and checks of their values before any long work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from regard.errors import ConfigError, FolderError

Command = TypeVar("Command", bound=Callable[..., Any])


def examples(*lines: str) -> Callable[[Command], Command]:
    """Decorate a command with examples for the end of its help."""

    def decorate(command: Command) -> Command:
        command.__dict__["examples"] = lines
        return command

    return decorate


def parse_path(text: str) -> Path:
    """Parse a path; an empty one would be the current folder."""
    if not text:
        raise typer.BadParameter("its name is empty.")
    return Path(text)


Device = Annotated[
    Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="The device; auto uses a GPU if there is one.")
]
Threads = Annotated[int | None, typer.Option(metavar="N", min=1, max=1024, help="CPU threads. By default all cores.")]
Beams = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=100, help="Beam size. By default that of the folder's config.")
]
Seed = Annotated[int | None, typer.Option(metavar="N", min=0, help="The random seed.")]
Values = Annotated[
    list[str],
    typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="Set a field of the config; may be repeated."),
]

Source = Annotated[
    str,
    typer.Argument(metavar="SOURCE", help="A text file, a file with both sides, a folder, or - for standard input."),
]
Target = Annotated[
    str | None, typer.Argument(metavar="TARGET", help="The target side: one line for each line of SOURCE.")
]
Languages = Annotated[
    str | None, typer.Option(metavar="EN,FR", help="The two languages to read from a file with both sides.")
]
Fields = Annotated[str | None, typer.Option(metavar="A,B", help="The two fields to read from a JSONL file.")]

OutFolder = Annotated[
    Path, typer.Option("--out", "-o", parser=parse_path, metavar="FOLDER", help="The folder to write.")
]
OutFile = Annotated[
    Path | None,
    typer.Option("--out", "-o", parser=parse_path, metavar="FILE", help="The file to write to."),
]
Page = Annotated[Path | None, typer.Option("--report", metavar="FILE.html", help="Write the report as a web page.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")]


def check_output(out: Path | None, *inputs: str, force: bool) -> None:
    """Raise a FolderError if an output file exists and --force is not given, or if it is an input file."""
    if out is None:
        return
    for name in inputs:
        if name not in ("", "-") and out.exists() and Path(name).exists() and out.samefile(name):
            raise FolderError(f"{out} is an input file: choose another output file")
    if out.exists() and not force:
        raise FolderError(f"{out} already exists: choose another name, or replace it with --force")


def check_page(page: Path | None, *inputs: str, force: bool) -> None:
    """Check the output file of a web page."""
    check_output(page, *inputs, force=force)
    if page is not None and page.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--report ({page}) is a web page: give it a name that ends in .html")


def numbers(flag: str, text: str, example: str) -> list[int]:
    """Parse comma-separated whole numbers, such as 8,64,512."""
    try:
        return [int(word) for word in text.split(",") if text]
    except ValueError:
        raise ConfigError(f"{flag} ({text}) must be whole numbers separated by commas, such as {example}") from None


def two(flag: str, text: str | None, noun: str, example: str) -> tuple[str, str] | None:
    """Parse two comma-separated words, such as en,fr."""
    if not text:
        return None
    words = [word.strip() for word in text.split(",")]
    if len(words) != 2 or not all(words):
        raise ConfigError(f"{flag} ({text}) must be two {noun} separated by a comma, such as {example}")
    return words[0], words[1]
