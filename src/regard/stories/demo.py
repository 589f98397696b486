"""The demo: make a corpus, train a translator, score it and explain some sentences, in minutes, with one web page."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from regard import folders
from regard.corpora import catalog
from regard.counting import count
from regard.evaluation.evaluate import Evaluation, evaluate
from regard.evaluation.pages import Output, Row, by_length
from regard.evaluation.pages import page as report_page
from regard.inspection import charts, pages
from regard.inspection.attribution import attention
from regard.inspection.drawing import series, smooth
from regard.models.folder import MODEL
from regard.training import journal
from regard.training.checkpoint import PROGRESS, latest_checkpoint
from regard.training.clock import format_duration
from regard.training.events import Observer, Say
from regard.training.train import train
from regard.translation.explain import Explanation, explain
from regard.translation.loading import load

RECIPE = "builtin-transformer"
SIZES = {"train": 50_000, "valid": 300, "test": 500}
SENTENCES = (
    "The agreement on the European Economic Area was signed in August 1992.",  # from Bahdanau et al. (2015)
    "The small green house is near the old river.",
    "Sophie's old uncle will not sell the small white horses.",
)
PAGES = ("index.html", "evaluation.html", *(f"sentence-{number}.html" for number in range(1, 1 + len(SENTENCES))))
FACTS = "demo.json"


def run(out: Path, *, updates: int | None, device: str, say: Say, observe: Observer) -> dict[str, Any]:
    """Run the demo in a folder and return its results; the same call again resumes and does only what is missing."""
    start = time.perf_counter()
    with folders.clear_os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    model, data = out / "model", out / "data"
    say("1  make the built-in English-French corpus from a grammar")
    if not (data / "test.fr").exists():
        catalog.write_builtin(data, force=True, sizes=SIZES)
    say("2  train a small Transformer from random weights")
    valid = data / "valid.en", data / "valid.fr"
    options: dict[str, Any] = {"recipe": RECIPE, "updates": updates, "device": device, "call": "regard demo"}
    trained = train(data / "train.en", data / "train.fr", out=model, valid=valid, say=say, observe=observe, **options)
    if not trained.finished:
        return {"finished": False, "signal": trained.signal}
    if results := _saved_results(out):
        say("the demo was finished before")
        return results
    training_seconds, training_end = _training_seconds(model), time.perf_counter()
    say("3  score it on sentences it has not seen")
    scores = evaluate(model, source=data / "test.en", reference=data / "test.fr", device=device)
    assert isinstance(scores, Evaluation)
    scores.save(out / "evaluation.html", force=True)
    say("4  explain three sentences by its attention")
    translator = load(model, device)
    explanations = [explain(translator, sentence) for sentence in SENTENCES]
    for number, explanation in enumerate(explanations, 1):
        titled = dataclasses.replace(explanation, title=explanation.trace.target.text)
        titled.save(out / f"sentence-{number}.html", force=True)
    results = {
        "model": folders.read_checksums(model)[MODEL],
        "finished": True,
        "bleu": scores.to_dict()["bleu"],
        "sentences": len(scores.sentences),
        "parameters": count(model).total,
        "training_seconds": training_seconds,
        "seconds": max(time.perf_counter() - start, training_seconds + time.perf_counter() - training_end),
        "translations": [
            {"source": source, "text": explanation.trace.target.text}
            for source, explanation in zip(SENTENCES, explanations, strict=True)
        ],
    }
    page = _page(results, scores.to_dict(), explanations, journal.read(model / journal.FILE))
    folders.write_file(out / "index.html", page, force=True)
    folders.write_file(out / FACTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n", force=True)
    return results


def _training_seconds(model: Path) -> float:
    """The seconds of all updates and validations of a finished run."""
    path, _ = latest_checkpoint(model)
    assert path is not None
    updates = float(folders.read_json(path / PROGRESS)["seconds"])
    return updates + sum(
        float(line["seconds"]) for line in journal.read(model / journal.FILE) if line["kind"] == "validation"
    )


def _saved_results(out: Path) -> dict[str, Any] | None:
    """The results of an earlier call, if they are of this model and all pages are there."""
    if not all((out / name).is_file() for name in (FACTS, *PAGES)):
        return None
    results: dict[str, Any] = folders.read_json(out / FACTS)
    return results if results["model"] == folders.read_checksums(out / "model")[MODEL] else None


# The page


def _page(
    results: Mapping[str, Any],
    scores: Mapping[str, Any],
    explanations: Sequence[Explanation],
    entries: Sequence[dict[str, Any]],
) -> str:
    bleu, traces = results["bleu"], [explanation.trace for explanation in explanations]
    rows = [
        Row(number, "shown", source, [], [Output("translation", trace.target.text, {}, trace=trace)])
        for number, (source, trace) in enumerate(zip(SENTENCES, traces, strict=True), 1)
    ]
    interval = f"95 % interval {bleu['low']:.1f} to {bleu['high']:.1f}, {results['sentences']:,} unseen sentences"
    size = f"{results['parameters']:,} parameters, from random weights"
    evaluation = ("Evaluation", "scores with intervals, by length and word frequency, and fifty sentences")
    texts = [evaluation, *((sentence, "every layer and head") for sentence in SENTENCES)]
    items = "".join(
        f'<li><a href="{name}">{escape(title)}</a> <span class="soft">{escape(note)}</span></li>'
        for name, (title, note) in zip(PAGES[1:], texts, strict=True)
    )
    curves = {
        "training": zip(*smooth(series(entries, "update", "loss")), strict=True),
        "validation": zip(*series(entries, "validation", "valid_loss"), strict=True),
    }
    losses = {name: list(points) for name, points in curves.items()}
    parts = [
        pages.score_cards(
            [
                ("BLEU", f"{bleu['score']:.1f}", interval),
                ("training", format_duration(results["training_seconds"]), size),
                ("in all", format_duration(results["seconds"]), "corpus, training, scores, pages"),
            ]
        ),
        pages.heatmaps(
            "Attention",
            "Rows: the words it wrote; columns: the words it read. Stronger colour: more attention; mean of all heads.",
            {trace.target.text: attention(trace, "cross") for trace in traces},
        ),
        pages.card("More pages", "", f"<ul>{items}</ul>"),
        by_length(scores["by_length"]),
        pages.card("Training", "From the journal of the run.", charts.curve_chart(losses, "loss", "updates")),
    ]
    about = "English to French, trained on this machine with sentences of a grammar. All numbers were measured here."
    return report_page("What a small Transformer learned in minutes", about, parts, rows, kind="demo")
