"""The command line: one function per command; each reads a config, calls one function and prints its result."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import sys
import time
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, cast

import typer

from regard.cli import aligning, evaluating, explaining, stories, translating
from regard.cli.options import (
    Device,
    Fields,
    Force,
    Json,
    Languages,
    Source,
    Target,
    Threads,
    Values,
    a_path,
    free_page,
    numbers,
    two,
)
from regard.errors import ConfigError, FolderError, RegardError, RunError

app = typer.Typer(
    name="regard",
    help="Train your own sequence models: check the data, count the parameters, train, translate.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

FULL = "out of GPU memory: end what else holds it, or use --device cpu"
USAGE: Any = typer.BadParameter.__bases__[
    0
]  # whatever is wrong with the words of a command; typer may bring its own click


def _version(asked: bool) -> None:
    if asked:
        from regard import __version__

        print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    """Train your own sequence models: check the data, count the parameters, train, translate."""


@app.command()
def count(
    model: Annotated[str, typer.Argument(metavar="PRESET, RECIPE or FOLDER", help="What to count.")],
    values: Values = [],  # noqa: B006 - typer copies it
    source: Annotated[int, typer.Option(min=1, max=10**6, help="Source tokens of a sentence.")] = 32,
    target: Annotated[
        int, typer.Option(min=0, help="Target tokens; 0: 32, or the whole context of a bert or gpt.")
    ] = 0,
    batch: Annotated[int, typer.Option(min=1, max=10**9, help="Sentences in a batch.")] = 32,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "bf16",
    hardware: Annotated[str, typer.Option(help="Time on this: h200, h100, a100, l4, v100, t4, rtx4090, rtx3090.")] = "",
    tokens: Annotated[float, typer.Option(min=1, help="Target tokens to train on.")] = 1e9,
    utilisation: Annotated[float, typer.Option(help="Share of the hardware's peak that is reached.")] = 0.3,
    devices: Annotated[int, typer.Option(min=1, max=10**9, help="How many of them.")] = 1,
    price: Annotated[float, typer.Option(min=0, help="What one costs an hour, for the cost.")] = 0.0,
    gpus: Annotated[
        str, typer.Option(metavar="8,64,512", help="An update on so many, weights whole on each or divided.")
    ] = "",
    link: Annotated[float, typer.Option(help="Of --gpus: the GB/s each can send to the others.")] = 50.0,
    build: Annotated[bool, typer.Option("--build", help="Build it too, nothing allocated, and compare.")] = False,
    as_json: Json = False,
) -> None:
    """Parameters by part, operations, memory and time, before anything is built."""
    from regard import counting
    from regard.config import find_config, is_folder

    config = find_config(model).with_values(values)
    shape = config.model
    counted = counting.Count(model, shape, counting.count(config).tree)
    on_disk = counting.stored(Path(model)) if is_folder(Path(model)) else None
    if on_disk is not None and not values and on_disk != counted.total:
        raise FolderError(
            f"{model}/model.safetensors holds {on_disk:,} parameters and its config.json describes {counted.total:,}: "
            "one of the two is not of this model"
        )
    length = target or (shape.max_positions if shape.family in ("bert", "gpt") else 32)
    longest = max(length, source if shape.family == "transformer" else 0)
    if shape.has_table and longest > shape.max_positions:
        raise ConfigError(f"a sentence of {longest} tokens is longer than model.max_positions ({shape.max_positions})")
    done = counting.work(shape, source, length)
    needed = counting.memory(shape, counted.total, batch, done.source, length, precision)
    took = None
    if price and not hardware:
        raise ConfigError("--price needs --hardware NAME, to know how long it would take")
    if hardware:
        took = counting.duration(
            done,
            hardware=hardware,
            tokens=tokens,
            utilisation=utilisation,
            precision=precision,
            devices=devices,
            price=price,
        )
    scales = []
    if gpus and not hardware:
        raise ConfigError("--gpus needs --hardware NAME, to know how fast one is")
    for devices, sharded in itertools.product(numbers("--gpus", gpus, "8,64,512"), (False, True)):
        rates: dict[str, Any] = {"precision": precision, "utilisation": utilisation, "link": link}
        machines: dict[str, Any] = {"devices": devices, "sharded": sharded, "hardware": hardware, "batch": batch}
        scales.append(counting.scale(counted, done, needed, **machines, **rates))
    built = _built(counted) if build else None
    if as_json:
        answer: dict[str, Any] = {"name": model, "parameters": counted.as_dict(), "flops": done.as_dict()}
        answer["memory"] = {"precision": precision, "batch": batch, **needed.as_dict()}
        answer |= {"time": took.as_dict()} if took else {}
        answer |= {"scale": [each.as_dict() for each in scales]} if scales else {}
        answer |= {"built": {"total": sum(built.values()), "parts": built}} if built is not None else {}
        answer |= {"stored": on_disk} if on_disk is not None else {}
        return print(json.dumps(answer, indent=2, allow_nan=False))
    from rich.console import Console

    from regard.cli import tables

    console = Console(highlight=False)
    console.print(tables.count_table(counted, built))
    for remark in counted.remarks:
        console.print(f"[dim]•[/dim] {remark}")
    console.print()
    console.print(tables.cost_table(done, needed, took, batch=batch, precision=precision))
    if scales:
        console.print()
        console.print(tables.scale_table(scales, hardware=hardware, batch=batch, link=link))
    return None


def _built(counted: Any) -> dict[str, int]:
    """Parameters of the model built on the meta device, under the names of the formula's parts."""
    from regard.models import build

    try:
        sizes = {name: p.numel() for name, p in build(counted.config, "meta").named_parameters()}
    except RuntimeError as error:
        raise ConfigError(f"a model of these sizes cannot be built: {str(error).splitlines()[0]}") from error
    built = {part.name: sum(n for name, n in sizes.items() if name.startswith(part.where)) for part in counted.tree}
    if built != counted.parts or sum(sizes.values()) != counted.total:
        raise RunError(f"the built model has {sum(sizes.values()):,} parameters: the formula is wrong, please tell us")
    return built


@app.command()
def train(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A text file, one with both sides, or a folder.")],
    target: Target = None,
    *,
    out: Annotated[Path, typer.Option(parser=a_path, metavar="FOLDER", help="The model folder.")],
    valid: Annotated[tuple[str, str], typer.Option(metavar="SOURCE TARGET", help="What models are chosen by.")] = (
        "",
        "",
    ),
    also: Annotated[
        list[str],
        typer.Option(
            metavar="SOURCE,TARGET,WEIGHT[,TAG]", help="More to train on, so many times an epoch; may be repeated."
        ),
    ] = [],  # noqa: B006 - typer copies it
    tag: Annotated[str, typer.Option(metavar="<2fr>", help="One token put before every SOURCE line.")] = "",
    origins: Annotated[
        list[Path], typer.Option("--from", metavar="FOLDER", help="Start from a finished model, or from two berts.")
    ] = [],  # noqa: B006 - typer copies it
    alignments: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Links i-j of SOURCE and TARGET for train.guided_alignment.")
    ] = None,
    recipe: Annotated[str, typer.Option(metavar="NAME or FILE", help="A known-good run to start from.")] = "",
    updates: Annotated[int, typer.Option(min=0, help="How many; as --set train.updates.")] = 0,
    minutes: Annotated[float, typer.Option(min=0, help="Plan the run for this long.")] = 0.0,
    languages: Languages = "",
    fields: Fields = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever run is in the folder.")] = False,
    values: Values = [],  # noqa: B006 - typer copies it
    device: Device = "auto",
    seed: Annotated[int, typer.Option(min=0, help="As --set train.seed; 0: the recipe's.")] = 0,
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """Two text files in, a model folder out; the same command again continues."""
    begun = time.perf_counter()
    from regard.cli import tables
    from regard.cli.live import viewing
    from regard.config import find_config
    from regard.training.distributed import running, use_threads
    from regard.training.sizing import left_open
    from regard.training.start_from import base_config
    from regard.training.train import Request, run

    if minutes and (updates or any(value.partition("=")[0].strip() == "train.updates" for value in values)):
        raise ConfigError("--updates and --minutes both say how long to train: give one of them")
    config = base_config(origins)
    config = find_config(recipe, config) if recipe else config
    shortcuts = [f"train.updates={updates}"] * bool(updates) + [f"train.seed={seed}"] * bool(seed)
    asked = [*values, *shortcuts]
    tags = [tag, *(word for words in also for word in words.split(",")[3:])]
    config = _with_tags(config.with_values(asked), tags)
    how: dict[str, Any] = {
        "family": config.model.family,
        "languages": two("--languages", languages, "codes", "en,fr"),
        "fields": two("--fields", fields, "names", "english,french"),
        "running": config.text.continuous,
    }
    request = Request(
        corpora=(
            _files(source, target, tag=tag, links=alignments, **how),
            *(_more_files(words, **how) for words in also),
        ),
        valid=_files(valid[0], valid[1] or None, tag=tag, **how) if any(valid) else None,
        out=out,
        config=config,
        fresh=fresh and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0",  # a worker started again goes on
        minutes=minutes,
        command="regard " + " ".join(shlex.quote(word) for word in sys.argv[1:]),
        origins=tuple(origins),
        left_open=left_open(asked, recipe=bool(recipe), started=bool(origins), minutes=bool(minutes)),
        begun=begun,
    )
    use_threads(threads)
    with running(device) as runtime, viewing(quiet=not runtime.is_main) as view:
        outcome = run(request, runtime, view.say, view.watch)
    if not runtime.is_main:
        return
    if as_json:
        facts = {"update": outcome.progress.update, "finished": outcome.finished, "scores": outcome.scores}
        print(json.dumps({"out": str(out), **facts}, indent=2))
    elif outcome.finished and not outcome.scores:
        view.say(f"{out} was finished at update {outcome.progress.update:,}: there is nothing left to do")
    elif outcome.finished:
        view.say(f"{out} is ready: {tables.scores_line(outcome.scores)}")
    else:
        view.say(f"stopped at update {outcome.progress.update:,}; the same command goes on from there")
    if not outcome.finished:
        raise typer.Exit(128 + outcome.signal)


def _files(source: str, target: str | None, weight: float = 1.0, *, family: str, **how: Any) -> Any:
    """Two files, one that holds both sides, or one text for a language model."""
    from regard.documents.formats import format_of
    from regard.training.data import Files

    if not source:
        raise ConfigError("the name of a text file is empty")
    for path in map(Path, filter(None, (source, target, how.get("links")))):
        if str(path) == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
            raise ConfigError(f"{path} can be read only once, and training reads its text several times: save it first")
    single = target is None and (format_of(source) is None or family in ("gpt", "bert"))
    if not 0 < weight <= 1000:
        raise ConfigError(f"the weight of {source} ({weight}) must be above 0 and at most 1000")
    if single and how.get("tag"):
        raise ConfigError(f"a tag ({how['tag']}) is put before the source of a pair, and {source} is one text")
    return Files(Path(source), Path(target) if target else None, single, weight, **how)


def _more_files(words: str, **how: Any) -> Any:
    """`SOURCE,TARGET,WEIGHT` and perhaps a tag; the target is empty where one file holds both sides."""
    parts = words.split(",")
    try:
        source, target, weight = parts[0], parts[1], float(parts[2])
    except (IndexError, ValueError):
        source = ""
    if not source or len(parts) not in (3, 4):
        raise ConfigError(f"--also ({words}) must be SOURCE,TARGET,WEIGHT, such as back.en,back.fr,0.5")
    return _files(source, target or None, weight, tag=parts[3] if parts[3:] else "", **how)


def _with_tags(config: Any, tags: list[str]) -> Any:
    """The config whose text.tags has the tags of the corpora, so that each is one token."""
    known = config.text.tags.split()
    return config.over({"text": {"tags": " ".join(dict.fromkeys([*known, *filter(None, tags)]))}})


for command in (
    *(translating.translate, translating.generate, translating.fill, translating.embed),
    *(aligning.align, explaining.explain, evaluating.evaluate, evaluating.compare, stories.demo, stories.lineage),
):
    app.command()(command)


@app.command()
def check(
    source: Source,
    target: Target = None,
    valid: Annotated[tuple[str, str], typer.Option(metavar="SOURCE TARGET", help="What models are chosen by.")] = (
        "",
        "",
    ),
    test: Annotated[tuple[str, str], typer.Option(metavar="SOURCE TARGET", help="What is reported.")] = ("", ""),
    languages: Languages = "",
    fields: Fields = "",
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

    free_page(report, source, target or "", *valid, *test, force=force)
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
app.add_typer(data, name="data")


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
    out: Annotated[Path, typer.Option(parser=a_path, metavar="FOLDER", help="The folder to write into.")],
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


def _out_of_memory(error: RuntimeError) -> bool:
    if "torch" not in sys.modules:
        return False
    from regard.memory import is_full

    return is_full(error)


heard: list[int] = []
"""The signals that asked the program to stop."""


def stop(number: int, frame: FrameType | None) -> None:
    """What SIGTERM and Ctrl-C do: what is half-written goes, and the program ends.

    At once where a module is being loaded, of which nothing is written: libraries that are interrupted there swallow
    it, and go on half made.
    """
    heard.append(number)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(128 + number)
        frame = frame.f_back
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def _answer() -> int | None:
    try:
        return cast(int | None, app(standalone_mode=False))
    except Exception as error:
        # Python's own locks, and libraries, make errors of their own of a signal that finds them
        if heard or isinstance(error.__context__, KeyboardInterrupt):
            raise SystemExit(128 + (heard or [signal.SIGINT])[0]) from None
        raise


def main() -> None:
    """The program: errors we raise become one line and their exit code; `REGARD_DEBUG=1` shows the traceback."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as of what a shell runs in the background
            signal.signal(number, stop)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # as all text that is read, in any locale
    try:
        sys.exit(_answer())
    except (typer.Abort, KeyboardInterrupt):
        raise SystemExit(130) from None
    except USAGE as error:
        if message := error.format_message():  # nothing where the help was shown
            print(f"regard: {message}", file=sys.stderr)
        raise SystemExit(2) from None
    except RegardError as error:
        if os.environ.get("REGARD_DEBUG"):
            raise
        print(f"regard: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except RuntimeError as error:
        if os.environ.get("REGARD_DEBUG") or not _out_of_memory(error):
            raise
        print(f"regard: {FULL}", file=sys.stderr)
        raise SystemExit(1) from None
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


if __name__ == "__main__":
    main()
