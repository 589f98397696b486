"""The train command."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import (
    Device,
    Fields,
    Json,
    Languages,
    Target,
    Threads,
    Values,
    parse_path,
    two,
)
from regard.errors import ConfigError


def train(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A text file, one with both sides, or a folder.")],
    target: Target = None,
    *,
    out: Annotated[Path, typer.Option(parser=parse_path, metavar="FOLDER", help="The model folder.")],
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
    languages: Languages = None,
    fields: Fields = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever run is in the folder.")] = False,
    values: Values = [],  # noqa: B006 - typer copies it
    device: Device = "auto",
    seed: Annotated[int, typer.Option(min=0, help="As --set train.seed; 0: the recipe's.")] = 0,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Two text files in, a model folder out; the same command again continues."""
    begun = time.perf_counter()
    from regard.cli import tables
    from regard.cli.live import viewing
    from regard.config import find_config
    from regard.devices import use_threads
    from regard.training.distributed import init_runtime
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
        "init_runtime": config.text.continuous,
    }
    request = Request(
        corpora=(
            _files(source, target, tag=tag, alignments=alignments, **how),
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
    with init_runtime(device) as runtime, viewing(quiet=not runtime.is_main) as view:
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
    for path in map(Path, filter(None, (source, target, how.get("alignments")))):
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
