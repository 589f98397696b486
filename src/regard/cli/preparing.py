"""The commands before training: check a corpus, get one, clean the cache, and count a model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from regard import counting
from regard.cli import options, tables
from regard.cli.options import argument, examples, flag, option
from regard.errors import ConfigError
from regard.results import Table

Format = Literal["tsv", "jsonl", "tmx", "xliff", "po", "text"]
Lengths = Literal["natural", "uniform"]
Hardware = Literal["h200", "h100", "a100", "l4", "v100", "t4", "rtx4090", "rtx3090", "cpu"]


@examples("regard check train.en train.fr", "regard check corpus.tmx --languages en,fr --report check.html")
def check(
    source: options.Source,
    target: options.Target = None,
    valid: Annotated[options.Pair, option("SOURCE TARGET", "Validation files.")] = None,
    test: Annotated[options.Pair, option("SOURCE TARGET", "Test files.")] = None,
    languages: options.Languages = None,
    fields: options.Fields = None,
    format: Annotated[Format | None, option(None, "The format, if the file name does not show it.")] = None,  # noqa: A002
    report: options.Page = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Check whether data is fit to train on: verdict, findings with examples, fixes. Exits 1 if it is unfit."""
    arguments = options.without(locals(), "report", "force", "as_json")
    from regard.documents.formats import left_out
    from regard.preflight.check import check as check_data

    options.check_output(report, source, target, *(valid or ()), *(test or ()), force=force)
    with tables.working("reading"):
        result = check_data(**arguments)
    if result.skipped:
        tables.say(left_out(result.skipped))
    tables.show(result, as_json=as_json, page=report, force=force)
    raise typer.Exit(1 if result.verdict == "unfit" else 0)


@examples("regard count bert-base", "regard count transformer-big --hardware h200 --tokens 1e9")
def count(
    model: Annotated[str, argument("PRESET, RECIPE or FOLDER", "The model to count.")],
    *,
    values: options.Values = [],  # noqa: B006 - typer copies it
    source: Annotated[int | None, option("N", "Source tokens per sentence. By default 32.", min=1, max=10**6)] = None,
    target: Annotated[
        int | None, option("N", "Target tokens per sentence. By default 32, or the context.", min=1, max=10**6)
    ] = None,
    batch: Annotated[int, option("N", "Sentences in a batch.", min=1, max=10**9)] = counting.BATCH_SENTENCES,
    precision: Annotated[Literal["fp32", "bf16"] | None, option(None, "By default bf16; fp32 on a CPU.")] = None,
    hardware: Annotated[Hardware | None, option(None, "Estimate the time on it; cpu is this machine.")] = None,
    tokens: Annotated[float, option("N", "Target tokens to train on.", min=1)] = counting.TRAINING_TOKENS,
    devices: Annotated[int, option("N", "The number of devices.", min=1, max=10**6)] = 1,
    price: Annotated[float | None, option("PRICE", "The price of one device per hour.", min=0)] = None,
    as_json: options.Json = False,
) -> None:
    """Count parameters by part, FLOPs, memory and training time; no weights are allocated."""
    tables.show(counting.count(**options.without(locals(), "as_json")), as_json=as_json)


def _builtin(text: str, metavar: str | None = "N", **settings: Any) -> Any:
    """An option for the built-in corpus only."""
    return option(metavar, text, rich_help_panel="Options for builtin", **settings)


data = typer.Typer(no_args_is_help=True, help="List and get corpora: the built-in and public ones. Clean the cache.")


@data.command("list")
@examples("regard data list", "regard data list --json")
def data_list(as_json: options.Json = False) -> None:
    """List the named corpora with their sources."""
    from regard.corpora import catalog

    corpora = catalog.table()
    columns = ["name", "languages", "where", "size", "checksum", "licence"]
    table = Table(columns, [[row[name] for name in columns] for row in corpora], left=True)
    tables.answer({"corpora": corpora}, table, as_json=as_json)


@data.command("get")
@examples("regard data get builtin -o corpus --train 100000", "regard data get multi30k -o corpora/multi30k")
def data_get(
    name: Annotated[str, argument("NAME", "A name that `regard data list` prints.")],
    out: options.OutFolder,
    *,
    force: options.Force = False,
    train: Annotated[int | None, _builtin("Training pairs; 50,000 by default.", min=1)] = None,
    valid: Annotated[int | None, _builtin("Validation pairs; 1,000 by default.", min=1)] = None,
    test: Annotated[int | None, _builtin("Test pairs; 1,000 by default.", min=1)] = None,
    seed: Annotated[int | None, _builtin("The random seed; 1 by default.")] = None,
    min_length: Annotated[int | None, _builtin("Minimum words in a sentence; 2 by default.", min=2, max=80)] = None,
    max_length: Annotated[int | None, _builtin("Maximum words in a sentence; 80 by default.", min=2, max=80)] = None,
    lengths: Annotated[Lengths | None, _builtin("Sentence lengths: as in text, or uniform.", None)] = None,
    as_json: options.Json = False,
) -> None:
    """Write a corpus as plain text files. It is looked up in REGARD_DATA, then in the cache, then downloaded."""
    settings = options.without(locals(), "name", "out", "force", "as_json")
    from regard.corpora import catalog

    entry = catalog.find(name)
    given = {name: value for name, value in settings.items() if value is not None}
    if name == "builtin":
        sizes = {part: given.pop(part, size) for part, size in catalog.BUILTIN_SIZES.items()}
        with tables.working("writing builtin"):
            paths = catalog.write_builtin(out, sizes=sizes, force=force, **given)
    elif given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise ConfigError(f"{name} is a finished corpus: {flags} can be used with builtin only")
    else:
        with tables.progress_bars(downloads=True) as progress:
            paths = catalog.get(name, out, force=force, progress=progress)
    tables.say(f"licence: {entry.licence}; source: {entry.source}")
    files = list(map(str, paths))
    tables.answer({"name": name, "files": files}, "\n".join(files), as_json=as_json)


@data.command("clean")
@examples("regard data clean --dry-run", "regard data clean")
def data_clean(
    dry_run: Annotated[bool, flag("--dry-run", "List files and sizes, delete nothing.")] = False,
    as_json: options.Json = False,
) -> None:
    """Delete prepared corpora, downloads and converted models from the cache; they are made again when needed."""
    from regard.corpora.cache import clean_cache

    tables.show(clean_cache(dry_run=dry_run), as_json=as_json)
