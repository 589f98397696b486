"""The data commands: check a corpus, list the known ones, get one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import (
    Fields,
    Force,
    Json,
    Languages,
    Source,
    Target,
    check_page,
    parse_path,
    two,
)


def check(
    source: Source,
    target: Target = None,
    valid: Annotated[tuple[str, str], typer.Option(metavar="SOURCE TARGET", help="What models are chosen by.")] = (
        "",
        "",
    ),
    test: Annotated[tuple[str, str], typer.Option(metavar="SOURCE TARGET", help="What is reported.")] = ("", ""),
    languages: Languages = None,
    fields: Fields = None,
    format: Annotated[  # noqa: A002 - the word of the field
        str, typer.Option(help="tsv, jsonl, tmx, xliff, po or text, where the name of the file does not say it.")
    ] = "",
    report: Annotated[Path | None, typer.Option(metavar="X.html", help="Write the report as a page.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Whether the data is fit to train on: a verdict, the evidence, and what to do. Exits 1 when it is not."""
    from collections import Counter

    from regard.cli import tables
    from regard.documents.formats import left_out, read_pairs
    from regard.folders import write_file
    from regard.preflight import check as preflight
    from regard.preflight import report as pages

    codes, names = two("--languages", languages, "codes", "en,fr"), two("--fields", fields, "names", "english,french")
    skipped: Counter[str] = Counter()

    def pairs(one: str, other: str | None, known: str) -> Any:
        return read_pairs(one, other, format=known or None, languages=codes, fields=names, skipped=skipped)

    check_page(report, source, target or "", *valid, *test, force=force)
    train = pairs(source, target, format)
    plain = "text" if format == "text" else ""  # a format that holds both sides is not said of two files
    held = [pairs(one, other or None, plain if other else format) if one else None for one, other in (valid, test)]
    with tables.working("reading"):
        found = preflight.inspect(train, *held, names=codes or ("source", "target"))
    if report is not None:
        write_file(report, pages.render_page(found), force=force)
    if skipped:
        print(left_out(skipped), file=sys.stderr)
    if as_json:
        print(json.dumps({**found.as_dict(), "skipped": dict(skipped)}, indent=2, ensure_ascii=False))
    else:
        from rich.console import Console

        Console(highlight=False).print(pages.render_terminal(found))
    raise typer.Exit(1 if found.verdict == "unfit" else 0)


data = typer.Typer(no_args_is_help=True, help="The built-in corpus and named public ones, with checksum and licence.")


@data.command("list")
def data_list(as_json: Json = False) -> None:
    """Every corpus there is a name for, and where it would come from."""
    from regard.corpora import catalog

    if as_json:
        return print(json.dumps({"corpora": catalog.table()}, indent=2, ensure_ascii=False))
    from rich.console import Console

    from regard.cli import tables

    return Console(highlight=False).print(tables.corpora_table(catalog.table()))


@data.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="As `regard data list` has it.")],
    out: Annotated[Path, typer.Option(parser=parse_path, metavar="FOLDER", help="The folder to write into.")],
    force: Force = False,
    train: Annotated[int, typer.Option(min=0, max=10**9, help="Of builtin: pairs to train on; 0: 50,000.")] = 0,
    valid: Annotated[int, typer.Option(min=0, max=10**9, help="Of builtin: pairs to choose by; 0: 1,000.")] = 0,
    test: Annotated[int, typer.Option(min=0, max=10**9, help="Of builtin: pairs to report; 0: 1,000.")] = 0,
    seed: Annotated[int, typer.Option(help="Of builtin: another corpus of the same kind.")] = 0,
    shortest: Annotated[int, typer.Option(min=0, help="Of builtin: words a sentence has at least; 0: 2.")] = 0,
    longest: Annotated[int, typer.Option(min=0, help="Of builtin: words a sentence has at most; 0: 80.")] = 0,
    lengths: Annotated[str, typer.Option(help="Of builtin: natural, or uniform over all lengths.")] = "",
    as_json: Json = False,
) -> None:
    """Write a corpus as plain text files: from REGARD_DATA, the cache or the network, in this order."""
    from regard.cli import tables
    from regard.corpora import catalog

    asked = {part: size for part, size in (("train", train), ("valid", valid), ("test", test)) if size}
    sizes = {**catalog.BUILTIN_SIZES, **asked} if name == "builtin" else asked or None
    told = {"seed": seed, "shortest": shortest, "longest": longest, "lengths": lengths}
    made = {option: value for option, value in told.items() if value}
    entry = catalog.find(name)
    with tables.working(f"writing {name}") if name == "builtin" else tables.download_bar() as progress:
        paths = catalog.get(name, out, force=force, sizes=sizes, made=made, progress=progress)
    print(f"licence: {entry.licence}; source: {entry.source}", file=sys.stderr)
    if as_json:
        return print(json.dumps({"name": name, "files": [str(path) for path in paths]}, indent=2))
    for path in paths:
        print(path)
    return None
