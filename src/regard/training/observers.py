"""Watching: who looks on at a run (the view, TensorBoard's files, the film), and what is drawn of it at the end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from torch import nn

from regard import folders
from regard.counting import count
from regard.inspection import curves, film
from regard.training import hardware as machine
from regard.training import journal
from regard.training.loop import Progress, Training, Validate, Validation, Watch
from regard.training.planning import pace
from regard.training.tensorboard import BOARD, Board, installed

LEFT = ("training.png", "training.svg", "film.html", film.FILM, BOARD)  # what a run leaves that was looked at


def watched(training: Training, validate: Validate, watch: Watch, say: Callable[[str], None]) -> Progress:
    """Train, and let everybody look on."""
    runtime, update = training.runtime, training.progress.update
    watch("begun", _begun(training))
    camera = _camera(training)
    if runtime.is_main and not installed():
        say("no TensorBoard files are written: pip install regard[tensorboard]")
    writes = runtime.is_main and installed()
    with Board(training.folder, update) if writes else nullcontext() as board:

        def tell(kind: str, facts: dict[str, Any]) -> None:
            watch(kind, facts)
            if kind == "split":
                say(f"out of GPU memory after update {facts['update']:,}: batches are taken in {facts['parts']} parts")
            if kind == "fell_back":
                say(f"no number came of many updates: back to update {facts['update']:,}, with half the rate")
                for remark in facts["remarks"]:
                    say(remark)
            if board is not None:
                board.watch(kind, facts)

        def look(model: nn.Module) -> Validation:
            if camera is not None:
                camera.take(model, training.progress.update)
            return validate(model)

        return training.run(look, tell)


def draw(training: Training) -> None:
    """The curves of a run, and its film where one was taken."""
    folder, config = training.folder, training.config
    lines = journal.read(folder / "journal.jsonl")
    title = f"{folder.resolve().name}: {config.model.family}, {count(config).total:,} parameters"
    best = 0 if config.train.average_checkpoints else training.progress.best_update  # a mean of several is none of them
    for name, data in curves.draw(lines, best=best, title=title).items():
        folders.write_file(folder / name, data, force=True)
    if film.frames(folder):
        found = [line for line in lines if line["kind"] == "validation"]
        names = {"bleu": "BLEU {:.1f}", "chrf": "chrF {:.1f}", "valid_loss": "loss {:.2f}"}
        scores = {
            line["update"]: text.format(line[key])
            for key, text in reversed(names.items())  # the metric has the last word
            for line in found
            if key in line
        }
        folders.write_file(folder / "film.html", film.page(folder, scores, title=title), force=True)


def _begun(training: Training) -> dict[str, Any]:
    """What does not change while a run is seen."""
    config, runtime, settings = training.config, training.runtime, training.config.train
    shape = f"{config.model.family}, {count(config).total:,} parameters"
    return {
        "name": str(training.folder),
        "what": f"{shape}, {machine.describe(runtime)}",
        "update": training.progress.update,
        "updates": settings.updates,
        "validate_every": settings.validate_every,
        "cores": machine.cores(),
        "memory": lambda: machine.memory(runtime),
        "operations": machine.operations(config, training.data),
        "peak": machine.peak(settings, runtime),
        "pace": pace(config, training.data, runtime),
    }


def _camera(training: Training) -> film.Film | None:
    """Every process looks, since the weights may be spread over all of them; the main one keeps what was seen."""
    settings, data = training.config.train, training.data
    if not settings.film:
        return None
    root = training.folder if training.runtime.is_main else None
    return film.Film(root, data.valid, data.tokenizers, sentences=settings.film, update=training.progress.update)
