"""The commands train and distill."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import options, tables
from regard.cli.options import argument, examples, flag, option
from regard.config import Config, find_config, load_config, parse_assignments, run_values

if TYPE_CHECKING:
    from regard.cli.live import View
    from regard.training.train import Run


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
    also: options.Also = [],  # noqa: B006 - typer copies it
    tag: options.Tag = "",
    start_from: Annotated[
        list[Path], option("FOLDER", "Fine-tune a finished model, or build a translator from two berts.", "--from")
    ] = [],  # noqa: B006 - typer copies it
    alignments: Annotated[
        Path | None, option("FILE", "Word alignments (i-j) of SOURCE and TARGET, for train.guided_alignment.")
    ] = None,
    recipe: Annotated[
        str | None,
        option("NAME or FILE", "A tested config. By default the size is chosen from data and hardware."),
    ] = None,
    updates: Annotated[int | None, option("N", "Train for N updates.", min=1)] = None,
    minutes: Annotated[float | None, option("M", "Train for M minutes, preparation and scoring included.")] = None,
    languages: options.Languages = None,
    fields: options.Fields = None,
    fresh: Annotated[bool, flag("--fresh", "Discard the run in the folder and start over.")] = False,
    values: options.Values = [],  # noqa: B006 - typer copies it
    device: options.Device = "auto",
    seed: Annotated[int | None, option("N", "The random seed.", min=0)] = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Train a model: two text files in, a model folder out. The same command again resumes."""
    start = time.perf_counter()  # the minutes include the imports
    config = parse_assignments(values)
    if not start_from:  # a wrong value is reported before torch is imported
        base = find_config(recipe) if recipe else Config()
        base.with_values(run_values(config, updates=updates, minutes=minutes, seed=seed))
    with tables.working("starting"):
        from regard.cli.live import viewing
        from regard.training.train import train as train_model

    is_main = os.environ.get("RANK", "0") == "0"
    is_restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"  # by torchrun: it resumes
    with viewing(quiet=not is_main) as view:
        run = train_model(
            source,
            target,
            out=out,
            valid=valid,
            also=also,
            tag=tag,
            alignments=alignments,
            start_from=start_from,
            recipe=recipe,
            updates=updates,
            minutes=minutes,
            config=config,
            languages=languages,
            fields=fields,
            device=device,
            seed=seed,
            threads=threads,
            fresh=fresh and not is_restarted,
            say=view.say,
            observe=view.observe,
            call="regard " + shlex.join(sys.argv[1:]),
            start=start,
        )
    if is_main:
        _report(run, out, view, as_json=as_json)


@examples(
    "regard distill runs/en-fr train.en train.fr --valid valid.en valid.fr --out runs/fast",
    "regard distill runs/en-fr news.en --out runs/fast --minutes 30",
)
def distill(
    teacher: Annotated[str, argument("TEACHER", "A model folder, or an ensemble of several joined by +.")],
    source: Annotated[str, argument("SOURCE", "The text to translate, or a file with both sides.")],
    target: options.Target = None,
    *,
    out: options.OutFolder,
    valid: options.Valid = None,
    recipe: Annotated[str, option("NAME or FILE", "The config of the student.")] = "fast",
    updates: Annotated[int | None, option("N", "Train the student for N updates.", min=1)] = None,
    minutes: Annotated[float | None, option("M", "Train the student for M minutes.")] = None,
    beams: Annotated[
        int | None, option("N", "Beam size of the teacher. By default that of its config.", min=1, max=100)
    ] = None,
    precision: options.Precision = "auto",
    languages: options.Languages = None,
    fields: options.Fields = None,
    fresh: Annotated[
        bool, flag("--fresh", "Delete the translations and the run in the folder, and start over.")
    ] = False,
    values: options.Values = [],  # noqa: B006 - typer copies it
    device: options.Device = "auto",
    seed: Annotated[int | None, option("N", "The random seed.", min=0)] = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Train a small fast model on the translations of a large one. The same command again resumes.

    With TARGET, each sentence gets the hypothesis of the teacher's beam that is closest to its reference.
    """
    config = parse_assignments(values)
    find_config(recipe).with_values(run_values(config, updates=updates, minutes=minutes, seed=seed))
    from regard.cli.live import viewing
    from regard.training.distill import distill as distill_model

    with viewing(quiet=False) as view:
        run = distill_model(
            teacher,
            source,
            target,
            out=out,
            valid=valid,
            recipe=recipe,
            updates=updates,
            minutes=minutes,
            config=config,
            languages=languages,
            fields=fields,
            beams=beams,
            precision=precision,
            device=device,
            seed=seed,
            threads=threads,
            fresh=fresh,
            say=view.say,
            observe=view.observe,
            call="regard " + shlex.join(sys.argv[1:]),
        )
    _report(run, out, view, as_json=as_json)


def _report(run: Run, out: Path, view: View, *, as_json: bool) -> None:
    """Print what a run came to; the exit code of one that was interrupted is that of its signal."""
    if as_json:
        tables.print_json(run.to_dict())
    elif not run.finished:
        view.say(f"stopped at update {run.update:,}; the same command resumes")
    elif run.is_new:
        view.say(f"{out} is ready: {tables.scores_line(run.scores)}")
    else:
        more = "--minutes" if load_config(out).train.minutes else "--updates"
        rest = f"there is nothing left to do; a larger {more} continues it"
        view.say(f"{out} was finished at update {run.update:,}: {rest}")
    if not run.finished:
        raise typer.Exit(128 + run.signal)
