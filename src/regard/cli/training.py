"""The commands that train a model: train and distill."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import options, tables
from regard.cli.options import argument, examples, flag, option
from regard.config import Config, find_config, load_config, run_values

if TYPE_CHECKING:
    from regard.training.train import Run

Also = Annotated[
    list[Any],
    option("SOURCE,TARGET,WEIGHT[,TAG]", "More files, seen WEIGHT times per epoch.", parser=options.parse_corpus),
]
Recipe = Annotated[str | None, option("NAME or FILE", "A tested config. By default one that fits data and machine.")]


@examples(
    "regard train train.en train.fr --out runs/en-fr",
    "regard train train.en train.fr --valid valid.en valid.fr --minutes 30 --out runs/en-fr",
    "regard train text.txt --set model.family=gpt --out runs/gpt",
)
def train(
    source: Annotated[str, argument("SOURCE", "A text file, a file with both sides, or a folder of them.")],
    target: options.Target = None,
    *,
    out: options.OutFolder,
    valid: options.Valid = None,
    also: Also = [],  # noqa: B006 - typer copies it
    tag: options.Tag = "",
    start_from: Annotated[
        list[Path], option("FOLDER", "Fine-tune a model, or two berts as a translator.", "--from")
    ] = [],  # noqa: B006 - typer copies it
    alignments: Annotated[Path | None, option("FILE", "Word alignments (i-j) for train.guided_alignment.")] = None,
    recipe: Recipe = None,
    updates: Annotated[int | None, option("N", "Train for N updates.", min=1)] = None,
    minutes: Annotated[float | None, option("M", "Train for M minutes, preparation and scoring included.")] = None,
    languages: options.Languages = None,
    fields: options.Fields = None,
    fresh: Annotated[bool, flag("--fresh", "Discard the run in the folder and start over.")] = False,
    config: options.Values = [],  # noqa: B006 - typer copies it
    device: options.Device = "auto",
    seed: options.Seed = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Train a model: two text files in, a model folder out. The same command again resumes."""
    arguments, start = options.without(locals(), "as_json"), time.perf_counter()  # the minutes include the imports
    values = run_values(config, updates=updates, minutes=minutes, seed=seed)
    if not start_from:  # a wrong value is reported before torch is imported
        (find_config(recipe) if recipe else Config()).with_values(values)
    with tables.working("starting"):
        from regard.training.train import train as train_model

    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":  # torchrun started it again: it resumes
        arguments["fresh"] = False
    _run(train_model, {**arguments, "start": start}, as_json=as_json)


@examples(
    "regard distill runs/en-fr train.en train.fr --out runs/fast", "regard distill runs/en-fr news.en --out runs/fast"
)
def distill(
    teacher: Annotated[str, argument("TEACHER", "A model folder, or an ensemble of several joined by +.")],
    source: Annotated[str, argument("SOURCE", "The text to translate, or a file with both sides.")],
    target: options.Target = None,
    *,
    out: options.OutFolder,
    valid: options.Valid = None,
    also: Annotated[list[Path], option("FILE", "More text in the source language.")] = [],  # noqa: B006 - typer copies it
    recipe: Annotated[str, option("NAME or FILE", "The config of the student.")] = "fast",
    updates: Annotated[int | None, option("N", "Train the student for N updates.", min=1)] = None,
    minutes: Annotated[float | None, option("M", "Train the student for M minutes.")] = None,
    beams: Annotated[int | None, option("N", "Beam size of the teacher.", min=1, max=100)] = None,
    precision: options.Precision = "auto",
    languages: options.Languages = None,
    fields: options.Fields = None,
    fresh: Annotated[bool, flag("--fresh", "Discard the translations and the run in the folder.")] = False,
    config: options.Values = [],  # noqa: B006 - typer copies it
    device: options.Device = "auto",
    seed: options.Seed = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Train a small fast model on the translations of a large one. The same command again resumes.

    With TARGET, each sentence gets the hypothesis of the teacher's beam that is closest to its reference.
    """
    arguments = options.without(locals(), "as_json")
    find_config(recipe).with_values(run_values(config, updates=updates, minutes=minutes, seed=seed))
    from regard.training.distill import distill as distill_model

    _run(distill_model, arguments, as_json=as_json)


def _run(verb: Callable[..., Run], arguments: dict[str, Any], *, as_json: bool) -> None:
    """Train with a live view and print the result; the exit code of an interrupted run is that of its signal."""
    from regard.cli.live import viewing

    is_main = os.environ.get("RANK", "0") == "0"
    arguments["call"] = "regard " + shlex.join(sys.argv[1:])
    with viewing(quiet=not is_main) as view:
        run = verb(**arguments, say=view.say, observe=view.observe)
    if not is_main:
        return
    if run.finished and not run.is_new:
        more = "--minutes" if load_config(run.folder).train.minutes else "--updates"
        rest = f"there is nothing left to do; a larger {more} continues it"
        tables.say(f"{run.folder} was finished at update {run.update:,}: {rest}")
    if run.finished or as_json:
        tables.show(run, as_json=as_json)
    if not run.finished:
        tables.say(f"stopped at update {run.update:,}; the same command resumes")
        raise typer.Exit(128 + run.signal)
