"""The commands that train: train, distill, demo and lineage."""

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
from regard.config import Config, find_config, load_config, parse_assignments, run_values
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.training.train import Run

STOPPED = "stopped; the same command resumes"
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
    arguments["config"] = fields_set = parse_assignments(config)
    if not start_from:  # a wrong value is reported before torch is imported
        base = find_config(recipe) if recipe else Config()
        base.with_values(run_values(fields_set, updates=updates, minutes=minutes, seed=seed))
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
    arguments["config"] = fields_set = parse_assignments(config)
    find_config(recipe).with_values(run_values(fields_set, updates=updates, minutes=minutes, seed=seed))
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


@examples("regard demo", "regard demo --out /tmp/demo --updates 500")
def demo(
    out: options.OutFolder = Path("demo"),
    updates: Annotated[int | None, option("N", "Updates to train for. By default those of the recipe.", min=1)] = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Train, score and explain an English-French translator in minutes, on the built-in corpus."""
    from regard.cli.live import viewing
    from regard.devices import use_threads
    from regard.stories.demo import next_commands, run

    use_threads(threads)
    with viewing(quiet=False) as view:
        results = run(out, updates=updates, device=device, say=view.say, observe=view.observe)
    if not results["finished"]:
        tables.say(STOPPED)
        raise typer.Exit(128 + results["signal"])
    score, sentences, seconds = results["bleu"]["score"], results["sentences"], results["seconds"]
    lines = [f"BLEU {score:.1f} on {sentences:,} unseen sentences, after {seconds:.0f} s in all"]
    lines += [f"    {pair[key]}" for pair in results["translations"] for key in ("source", "text")]
    lines += ["", f"Open {out / 'index.html'} in a browser. Then try:"]
    lines += [f"    {command}" for command in next_commands(out)]
    tables.answer(results, "\n".join(lines), as_json=as_json)


@examples("regard lineage --out race --minutes 40", "regard lineage --out race --updates 4000 --device cuda")
def lineage(
    out: options.OutFolder,
    minutes: Annotated[float | None, option("M", "Minutes for all models together.", min=0.1)] = None,
    updates: Annotated[int | None, option("N", "Updates per model. By default 4,000.", min=1)] = None,
    pairs: Annotated[int | None, option("N", "Sentence pairs to train on. By default 60,000.", min=1)] = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Train RNNs without and with attention and a Transformer, and compare their BLEU by sentence length."""
    from regard.devices import find_device
    from regard.stories.lineage import SIZES, run

    if updates and minutes:
        raise ConfigError("--updates and --minutes both say how long to train: give one of them")
    settings: dict[str, Any] = {"device": find_device(device), "sizes": {**SIZES, "train": pairs or SIZES["train"]}}
    try:
        with tables.counting_bar("training") as progress:
            results = run(out, minutes=minutes, updates=updates, **settings, say=tables.say, progress=progress)
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C and SIGTERM
        tables.say(STOPPED)
        raise
    lines = []
    for verdict in results["verdicts"]:
        claim = "as the papers say" if verdict["holds"] else "not as the papers say"
        scores = f"BLEU {verdict['first']:.1f} on short, {verdict['last']:.1f} on long sentences"
        lines.append(f"{verdict['name']:>13}: {scores} ({claim})")
    tables.answer(results, "\n".join([*lines, f"open {out / 'index.html'} in a browser"]), as_json=as_json)
