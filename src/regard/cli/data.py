"""The data commands: check a corpus, list named corpora, get one, clean the cache."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, Literal

import typer

from regard.cli.options import (
    Fields,
    Force,
    Json,
    Languages,
    OutFolder,
    Page,
    Source,
    Target,
    check_page,
    examples,
    two,
)
from regard.errors import ConfigError


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
        typer.Option(help="The file format, if the file name does not show it."),
    ] = None,
    report: Page = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Check whether data is fit to train on: verdict, findings with examples, fixes. Exits 1 if it is unfit."""
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


def _builtin(text: str, metavar: str | None = "N", low: int | None = None, high: int | None = None) -> Any:
    """An option for the built-in corpus only."""
    return typer.Option(metavar=metavar, min=low, max=high, help=text, rich_help_panel="Options for builtin")


data = typer.Typer(no_args_is_help=True, help="The built-in corpus and named public ones, with checksum and licence.")


@data.command("list")
@examples("regard data list", "regard data list --json")
def data_list(as_json: Json = False) -> None:
    """List the named corpora with their sources."""
    from regard.corpora import catalog

    if as_json:
        return print(json.dumps({"corpora": catalog.table()}, indent=2, ensure_ascii=False))
    from rich.console import Console

    from regard.cli import tables

    return Console(highlight=False).print(tables.corpora_table(catalog.table()))


@data.command("get")
@examples("regard data get builtin -o corpus --train 100000", "regard data get multi30k -o corpora/multi30k")
def data_get(
    name: Annotated[str, typer.Argument(help="A name that `regard data list` prints.")],
    out: OutFolder,
    force: Force = False,
    train: Annotated[int | None, _builtin("Training pairs; 50,000 by default.", low=1)] = None,
    valid: Annotated[int | None, _builtin("Validation pairs; 1,000 by default.", low=1)] = None,
    test: Annotated[int | None, _builtin("Test pairs; 1,000 by default.", low=1)] = None,
    seed: Annotated[int | None, _builtin("The random seed; 1 by default.")] = None,
    min_length: Annotated[int | None, _builtin("Minimum words in a sentence; 2 by default.", low=2, high=80)] = None,
    max_length: Annotated[int | None, _builtin("Maximum words in a sentence; 80 by default.", low=2, high=80)] = None,
    lengths: Annotated[
        Literal["natural", "uniform"] | None,
        _builtin("Sentence lengths as in ordinary text, or uniformly distributed.", None),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a corpus as plain text files. It is looked up in REGARD_DATA, then in the cache, then downloaded."""
    from regard.cli import tables
    from regard.corpora import catalog

    entry = catalog.find(name)
    parts = {"train": train, "valid": valid, "test": test}
    sizes = {part: size for part, size in parts.items() if size is not None}
    sampling = {"seed": seed, "min_length": min_length, "max_length": max_length, "lengths": lengths}
    options = {option: value for option, value in sampling.items() if value is not None}
    if name == "builtin":
        with tables.working("writing builtin"):
            paths = catalog.write_builtin(out, sizes=catalog.BUILTIN_SIZES | sizes, force=force, **options)
    elif sizes or options:
        flags = ", ".join("--" + option.replace("_", "-") for option in (*sizes, *options))
        raise ConfigError(f"{name} is a finished corpus: {flags} can be used with builtin only")
    else:
        with tables.download_bar() as progress:
            paths = catalog.get(name, out, force=force, progress=progress)
    print(f"licence: {entry.licence}; source: {entry.source}", file=sys.stderr)
    if as_json:
        return print(json.dumps({"name": name, "files": [str(path) for path in paths]}, indent=2))
    return print(*paths, sep="\n")


@data.command("clean")
@examples("regard data clean --dry-run", "regard data clean")
def data_clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List files and sizes, delete nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Delete prepared corpora, downloads and converted models from the cache; they are made again when needed."""
    from regard.corpora.cache import clean_cache

    report = clean_cache(dry_run=dry_run)
    print(report.to_json() if as_json else report)
