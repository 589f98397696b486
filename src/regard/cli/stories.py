"""The demonstrations: demo and lineage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli import options, tables
from regard.cli.options import examples, option
from regard.errors import ConfigError

STOPPED = "stopped; the same command resumes"


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
