"""Options that several commands share, and checks of their values before any long work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from regard.config import find_values, load_config, split_folders
from regard.errors import ConfigError, DataError, FolderError
from regard.folders import check_free
from regard.results import check_page

Command = TypeVar("Command", bound=Callable[..., Any])
ONE_TEXT = ' For one text give FILE "".'  # ends a message about an option that takes the two sides of pairs


def examples(*lines: str) -> Callable[[Command], Command]:
    """Decorate a command with examples for the end of its help."""

    def decorate(command: Command) -> Command:
        command.__dict__["examples"] = lines
        return command

    return decorate


def argument(metavar: str, text: str) -> Any:
    """A positional argument; `text` is its help. If its metavar is in CHECKS, its value is checked."""
    return typer.Argument(metavar=metavar, help=text, callback=_check(metavar))


def option(metavar: str | None, text: str, *names: str, **settings: Any) -> Any:
    """An option with a value; `text` is its help. If its metavar is in CHECKS, its value is checked."""
    return typer.Option(*names, metavar=metavar, help=text, callback=_check(metavar), **settings)


def flag(name: str, text: str) -> Any:
    """An option without a value; `text` is its help."""
    return typer.Option(name, help=text)


def output(metavar: str, text: str, **settings: Any) -> Any:
    """The option --out. An empty value, which would mean the current folder, is an error."""
    return typer.Option("--out", "-o", parser=_parse_path, metavar=metavar, help=text, **settings)


def without(arguments: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The arguments of a command other than these, to pass to the function that it calls."""
    return {name: value for name, value in arguments.items() if name not in names}


def _check(metavar: str | None) -> Callable[[typer.CallbackParam, Any], Any] | None:
    """A callback that checks the paths of a value before the command imports torch, which takes seconds."""
    if metavar not in CHECKS:
        return None

    def check_all(param: typer.CallbackParam, value: Any) -> Any:
        if isinstance(value, tuple) and any(str(path).startswith("--") for path in value):
            advice = ONE_TEXT if len(value) == 2 else ""
            raise ConfigError(f"Option '{param.opts[0]}' requires {len(value)} arguments.{advice}")
        for path in value if isinstance(value, list | tuple) else [value]:
            if path not in (None, ""):  # the command decides what an empty name means
                CHECKS[metavar](path)
        return tuple(path or None for path in value) if isinstance(value, tuple) else value

    return check_all


def _check_file(name: str | Path) -> None:
    from regard.text.files import list_files

    list_files(name)


def _check_text(name: str | Path) -> None:
    _check_file(name)
    if str(name).lower().endswith(".json"):
        raise DataError(f"{name}: .json is not supported. Give one JSON object per line, in a file that ends in .jsonl")


def _check_corpus(corpus: tuple[str, str | None, float, str]) -> None:
    for name in filter(None, corpus[:2]):
        _check_file(name)


def _check_lines(name: str) -> None:
    if os.path.isdir(name):
        raise DataError(f"{name} is a folder; a file is needed here")
    if name != "-" and not os.path.exists(name) and not Path(name).suffix:
        example = 'echo "The old house." | regard translate FOLDER'
        raise DataError(f"There is no file {name!r}. Sentences are read from a file or standard input: {example}")
    _check_file(name)


def _check_model(name: str | Path) -> None:
    for folder in split_folders(name):
        load_config(folder)


def _check_system(name: str) -> None:
    is_model = any(map(os.path.isdir, split_folders(name)))
    (_check_model if is_model else _check_file)(name)


CHECKS: dict[str | None, Callable[[Any], object]] = {
    **dict.fromkeys(("FILE", "TSV", "SOURCE TARGET GOLD"), _check_file),
    **dict.fromkeys(("SOURCE", "TARGET", "SOURCE TARGET"), _check_text),
    "FILE or -": _check_lines,
    "SOURCE,TARGET,WEIGHT[,TAG]": _check_corpus,
    **dict.fromkeys(("FOLDER", "TEACHER"), _check_model),
    "A B ...": _check_system,
    "NAME or FILE": find_values,
    "FILE.html": check_page,
}
"""Functions by metavar that raise an error if a path is missing or of the wrong kind."""


def _parse_path(text: str) -> Path:
    if not text:
        raise typer.BadParameter("its name is empty.")
    return Path(text)


def _parse_two(text: str) -> tuple[str, str]:
    words = [word.strip() for word in text.split(",")]
    if len(words) != 2 or not all(words):
        raise typer.BadParameter(f"{text} must be two words separated by a comma, such as en,fr.")
    return words[0], words[1]


def parse_corpus(text: str) -> tuple[str, str | None, float, str]:
    try:
        source, target, weight, *rest = text.split(",")
        (tag,) = rest or [""]
        return source, target or None, float(weight), tag
    except ValueError:
        raise typer.BadParameter(f"{text} must be SOURCE,TARGET,WEIGHT, such as back.en,back.fr,0.5.") from None


Device = Annotated[Literal["auto", "cpu", "cuda", "mps"], option(None, "The device; auto uses a GPU if there is one.")]
Threads = Annotated[int | None, option("N", "CPU threads. By default all cores.", min=1, max=1024)]
Engines = Literal["auto", "torch", "ctranslate2"]
Precisions = Literal["auto", "fp32", "bf16", "int8"]
Engine = Annotated[Engines, option(None, "auto is torch; ctranslate2 is faster on a CPU.")]
Precision = Annotated[Precisions, option(None, "int8 needs ctranslate2, where it is the default on a CPU.")]
Beams = Annotated[int | None, option("N", "Beam size. By default that of the folder's config.", min=1, max=100)]
Values = Annotated[list[str], option("SECTION.FIELD=VALUE", "Set a field of the config; may be repeated.", "--set")]
Seed = Annotated[int | None, option("N", "The random seed.", min=0)]
Tag = Annotated[str, option("<2fr>", "A tag to put before every source sentence, as in training.")]

Folder = Annotated[str, argument("FOLDER", "A model folder, or an ensemble of several joined by +.")]
OneFolder = Annotated[str, argument("FOLDER", "A model folder.")]
Lines = Annotated[str, argument("FILE or -", "One text per line.")]
Source = Annotated[str, argument("SOURCE", "A text file, a file with both sides, a folder, or - for standard input.")]
Target = Annotated[str | None, argument("TARGET", "The target side: one line for each line of SOURCE.")]
Pair = tuple[str, str] | None
Valid = Annotated[Pair, option("SOURCE TARGET", "Validation files; the best checkpoint is chosen on them.")]
Languages = Annotated[Any, option("EN,FR", "The two languages to read from a file with both sides.", parser=_parse_two)]
Fields = Annotated[Any, option("A,B", "The two fields to read from a JSONL file.", parser=_parse_two)]

OutFolder = Annotated[Path, output("FOLDER", "The folder to write.")]
OutFile = Annotated[
    Path | None,
    output("FILE", "The output file; - is standard output.", callback=lambda out: None if str(out) == "-" else out),
]
Page = Annotated[Path | None, option("FILE.html", "Write the report as a web page.", "--report")]
Force = Annotated[bool, flag("--force", "Overwrite existing files.")]
Json = Annotated[bool, flag("--json", "Print one JSON object on standard output and nothing else.")]


def check_output(out: Path | None, *inputs: str | Path | None, force: bool) -> None:
    """Raise a FolderError if an output file exists and --force is not given, or if it is an input file."""
    if out is None or not out.exists():
        return
    if any(name and os.path.exists(name) and out.samefile(name) for name in inputs):
        raise FolderError(f"{out} is an input file: choose another output file")
    if not force:
        check_free(out)
