"""The commands that tell the story: demo and lineage."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Json, Threads, parse_path
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.stories.lineage import Entry

STOPPED = "stopped; the same command goes on from there"


def demo(
    out: Annotated[
        Path, typer.Option(parser=parse_path, metavar="FOLDER", help="The folder of everything it makes.")
    ] = Path("demo"),
    updates: Annotated[int, typer.Option(min=0, help="Train for so many; 0: as the recipe says.")] = 0,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """The whole story on the built-in corpus in minutes: train, evaluate, explain."""
    from regard.cli.live import viewing
    from regard.devices import use_threads
    from regard.stories.demo import run
    from regard.training.distributed import init_runtime

    use_threads(threads)
    with init_runtime(device) as runtime, viewing(quiet=False) as view:
        found = run(out, updates, runtime, view.say, view.observe)
    if not found["finished"]:
        view.say(STOPPED)
        raise typer.Exit(128 + found["signal"])
    if as_json:
        return print(json.dumps(found, indent=2, ensure_ascii=False))
    bleu = found["bleu"]
    view.say(
        f"BLEU {bleu['score']:.1f} on {found['sentences']:,} unseen sentences, after {found['seconds']:.0f} s in all"
    )
    for pair in found["translations"]:
        view.say(f"    {pair['source']}\n    {pair['text']}")
    view.say(f"\nOpen {out / 'index.html'} in a browser. Then try:")
    for line in next_commands(out):
        view.say(f"    {line}")
    return None


def next_commands(out: Path) -> list[str]:
    """What to do after the demo."""
    model = out / "model"
    return [
        f'echo "The old teacher sees a small bird." | regard translate {model}',
        f'regard explain {model} "The old teacher sees a small bird." --out bird.html',
        f"regard evaluate {model} --source {out}/data/test.en --reference {out}/data/test.fr",
    ]


def lineage(
    out: Annotated[Path, typer.Option(parser=parse_path, metavar="FOLDER", help="The folder of the race.")],
    minutes: Annotated[float, typer.Option(min=0, help="Plan the whole race for this long.")] = 0.0,
    updates: Annotated[int, typer.Option(min=0, help="Of every model; 0: 4,000, or what --minutes allows.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=20, help="Race so many times, for bands.")] = 1,
    pairs: Annotated[int, typer.Option(min=0, help="Sentence pairs to train on; 0: 60,000.")] = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """The race of the families: BLEU against sentence length, without attention and with each kind of it."""
    from regard.cli import tables
    from regard.devices import find_device
    from regard.stories.lineage import SIZES, run

    if updates and minutes:
        raise ConfigError("--updates and --minutes both say how long to train: give one of them")
    sizes = {**SIZES, "train": pairs} if pairs else SIZES

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    asked: dict[str, Any] = {"minutes": minutes, "updates": updates, "seeds": seeds, "sizes": sizes}
    try:
        with tables.racing() as show:
            found = run(out, **asked, device=find_device(device), say=say, show=_standings(show))
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C and SIGTERM
        say(STOPPED)
        raise
    if as_json:
        return print(json.dumps(found, indent=2))
    for each in found["verdicts"]:
        mark = "as the notes say" if each["holds"] else "not as the notes say"
        say(f"{each['name']:>13}: BLEU {each['first']:.1f} on short, {each['last']:.1f} on long sentences ({mark})")
    return say(f"open {out / 'index.html'} in a browser")


def _standings(show: Any) -> Any:
    """What a terminal shows of the racers: name, seed, where each stands and how far it has come."""

    def told(entries: Sequence[tuple[Entry, str]], updates: int) -> None:
        show([(f"{entry.name} {entry.seed}", state, entry.update) for entry, state in entries], updates)

    return told
