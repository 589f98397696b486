"""The data commands: check a corpus, list the known ones, get one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.options import (
    Fields,
    Force,
    Json,
    Languages,
    Page,
    Source,
    Target,
    check_page,
    examples,
    parse_path,
    two,
)


@examples("regard check train.en train.fr", "regard check corpus.tmx --languages en,fr --report check.html")
def check(
    source: Source,
    target: Target = None,
    valid: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SOURCE TARGET", help="Validation files; the best checkpoint is chosen on them."),
    ] = None,
    test: Annotated[tuple[str, str] | None, typer.Option(metavar="SOURCE TARGET", help="Test files.")] = None,
    languages: Languages = None,
    fields: Fields = None,
    format: Annotated[  # noqa: A002 - the word of the field
        Literal["tsv", "jsonl", "tmx", "xliff", "po", "text"] | None,
        typer.Option(help="The file format, where the name of the file does not tell it."),
    ] = None,
    report: Page = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Check whether data is fit to train on: a verdict, findings with examples, and fixes. Exits 1 when it is unfit."""
    from regard.cli import tables
    from regard.documents.formats import left_out
    from regard.preflight.check import check as check_data

    check_page(report, source, target or "", *(valid or ()), *(test or ()), force=force)
    with tables.working("reading"):
        result = check_data(
            source,
            target,
            valid=valid and (valid[0], valid[1] or None),
            test=test and (test[0], test[1] or None),
            languages=two("--languages", languages, "codes", "en,fr"),
            fields=two("--fields", fields, "names", "english,french"),
            format=format,
        )
    if report is not None:
        result.save(report, force=force)
    if result.skipped:
        print(left_out(result.skipped), file=sys.stderr)
    print(result.to_json() if as_json else result)
    raise typer.Exit(1 if result.verdict == "unfit" else 0)


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
