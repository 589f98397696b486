"""The demo: the whole story on the built-in corpus in minutes, and everything it says is measured as it is said."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import torch

from regard import folders
from regard.config import find_config
from regard.corpora import catalog
from regard.counting import count
from regard.evaluation.evaluate import Evaluation, evaluate
from regard.inspection import charts, inspector, report
from regard.inspection.attribution import attention, explain_all
from regard.models.folder import MODEL
from regard.training.checkpoint import PROGRESS, latest_checkpoint
from regard.training.distributed import Runtime
from regard.training.events import Observer
from regard.training.journal import read
from regard.training.train import train
from regard.translation.translator import Result, Translator

RECIPE = "builtin-transformer"
SIZES = {"train": 50_000, "valid": 300, "test": 500}
SENTENCES = (
    "The agreement on the European Economic Area was signed in August 1992.",
    "The small green house is near the old river.",
    "Sophie's old uncle will not sell the small white horses.",
)
"""The first is Bahdanau's: its adjectives come in another order in French."""

PAGES = ("index.html", "evaluation.html", *(f"sentence-{number}.html" for number in range(1, 1 + len(SENTENCES))))
FACTS = "demo.json"  # what was found, and of which model

Say = Callable[[str], None]


def corpus(out: Path) -> Path:
    """The built-in sentences, written once."""
    folder = out / "data"
    if not (folder / "test.fr").exists():
        catalog.write_builtin(folder, force=True, sizes=SIZES)
    return folder


def run(out: Path, updates: int, runtime: Runtime, say: Say, observe: Observer) -> dict[str, Any]:
    """Make, train, score, look: what was found. The same again goes on, and does again only what was not done."""
    begun, before = time.perf_counter(), _trained(out)
    with folders.clear_os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    say("1  the built-in corpus, English and French, made by a grammar")
    data = corpus(out)
    say("2  a small transformer, from nothing")
    outcome = train(
        data / "train.en",
        data / "train.fr",
        valid=(data / "valid.en", data / "valid.fr"),
        out=out / "model",
        recipe=RECIPE,
        updates=updates or None,
        device=runtime.device.type,
        say=say,
        observe=observe,
        call="regard demo",
    )
    if not outcome.finished:
        return {"finished": False, "signal": outcome.signal}
    if found := _known(out):
        say("it was finished before, and nothing is done again")
        return found
    say("3  sentences it has never seen")
    scored = _scored(out, data, runtime.device)
    say("4  what it looked at")
    looked = _looked(out, runtime.device)
    facts = {
        "model": folders.read_checksums(out / "model")[MODEL],
        "finished": True,
        "bleu": scored["bleu"],
        "sentences": scored["sentences"],
        "parameters": count(find_config(str(out / "model"))).total,
        "training_seconds": _trained(out),
        "seconds": time.perf_counter() - begun + before,
        "translations": [
            {"source": source, "text": result.text} for source, result in zip(SENTENCES, looked, strict=True)
        ],
    }
    folders.write_file(out / PAGES[0], _page(facts, scored, looked, out), force=True)
    folders.write_file(out / FACTS, json.dumps(facts, indent=2, ensure_ascii=False) + "\n", force=True)
    return facts


def _trained(out: Path) -> float:
    """Seconds of updates and validations until the last save, whenever they were."""
    path, _ = latest_checkpoint(out / "model")
    if path is None:
        return 0.0
    done = json.loads((path / PROGRESS).read_bytes())
    lines = read(out / "model" / "journal.jsonl")
    validations = [line for line in lines if line["kind"] == "validation" and line["update"] <= done["update"]]
    return float(done["seconds"] + sum(line["seconds"] for line in validations))


def _known(out: Path) -> dict[str, Any] | None:
    """What was found before of this very model, where all that came of it is there."""
    if not all((out / name).is_file() for name in (FACTS, *PAGES)):
        return None
    try:
        found: dict[str, Any] = json.loads((out / FACTS).read_bytes())
    except ValueError:
        return None
    return (
        found
        if isinstance(found, dict) and found.get("model") == folders.read_checksums(out / "model")[MODEL]
        else None
    )


def _scored(out: Path, data: Path, device: torch.device) -> dict[str, Any]:
    """The test set, translated and scored, with its report."""
    scored = evaluate(out / "model", source=data / "test.en", reference=data / "test.fr", device=device)
    assert isinstance(scored, Evaluation)
    scored.save(out / "evaluation.html", force=True)
    return scored.to_dict()


def _looked(out: Path, device: torch.device) -> list[Result]:
    """The sentences with all there is to see of them, each as a page too."""
    translator = Translator.load(out / "model", device)
    results = translator.translate(SENTENCES, trace=True)
    for number, result in enumerate(results, 1):
        assert result.trace is not None
        maps = explain_all(result.trace, translator.model)
        page = inspector.page(result.trace, maps, title=result.text, warned=result.warnings)
        folders.write_file(out / f"sentence-{number}.html", page, force=True)
    return results


# The page


def _page(facts: Mapping[str, Any], found: Mapping[str, Any], looked: Sequence[Result], out: Path) -> str:
    """Where a person begins to click."""
    bleu = facts["bleu"]
    rows = [
        report.Row(number, "shown", source, [], [report.Output("translation", result.text, {}, trace=result.trace)])
        for number, (source, result) in enumerate(zip(SENTENCES, looked, strict=True), 1)
    ]
    parts = [
        _cards(
            (
                "BLEU",
                f"{bleu['score']:.1f}",
                f"{bleu['low']:.1f} to {bleu['high']:.1f}, {facts['sentences']:,} unseen sentences",
            ),
            ("to train", _time(facts["training_seconds"]), f"{facts['parameters']:,} parameters, from nothing"),
            ("in all", _time(facts["seconds"]), "corpus, training, scores, pictures"),
        ),
        charts.heatmaps(
            "What it looked at",
            "Rows: the words it wrote; columns: the words it read. The stronger the colour, the more it looked there,"
            " all heads together.",
            {result.text: attention(result.trace, "cross") for result in looked if result.trace is not None},
        ),
        _links(),
        report.by_length(found["by_length"]),
        _curves(out / "model" / "training.svg"),
    ]
    about = (
        "From English to French, trained on this machine on sentences a grammar wrote; all figures were measured then."
    )
    return report.page("What a small Transformer learned in minutes", about, parts, rows)


def _cards(*cards: tuple[str, str, str]) -> str:
    return '<div class="cards">' + "".join(
        f'<section class="card score"><h2>{escape(name)}</h2><p class="big">{escape(value)}</p>'
        f'<p class="interval">{escape(note)}</p></section>'
        for name, value, note in cards
    ) + "</div>"  # fmt: skip


def _links() -> str:
    pages = [
        (
            "evaluation.html",
            "The evaluation",
            "scores with intervals, by length and frequency, and fifty telling sentences",
        ),
        *(
            (f"sentence-{number}.html", sentence, "every head, every step")
            for number, sentence in enumerate(SENTENCES, 1)
        ),
    ]
    items = "".join(
        f'<li><a href="{name}">{escape(title)}</a> <span class="soft">{escape(note)}</span></li>'
        for name, title, note in pages
    )
    return f'<section class="card"><h2>Look further</h2><ul>{items}</ul></section>'


def _curves(path: Path) -> str:
    """How the training went, as the run drew it."""
    if not path.exists():
        return ""
    drawn = path.read_text(encoding="utf-8")
    return charts.figure("How it learned", "From the journal of the run.", drawn[drawn.index("<svg") :])


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{int(seconds) // 60} min {int(seconds) % 60:02} s"
