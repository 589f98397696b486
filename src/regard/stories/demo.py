"""The demo: make a corpus, train a translator, score it and explain some sentences, in minutes, with one web page."""

from __future__ import annotations

import dataclasses
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from regard import folders
from regard.corpora import catalog
from regard.counting import count
from regard.evaluation.evaluate import Evaluation, evaluate
from regard.evaluation.pages import by_length, marked_words
from regard.inspection import charts, inspector, pages
from regard.inspection.attribution import attention
from regard.inspection.drawing import series, smooth
from regard.inspection.trace import Trace
from regard.models.folder import MODEL
from regard.results import counted, format_duration
from regard.training.checkpoint import PROGRESS, latest_checkpoint
from regard.training.events import Observer, Say
from regard.training.train import train
from regard.translation.explain import explain
from regard.translation.loading import load

RECIPE = "builtin-demo"
SIZES = {"train": 50_000, "valid": 300, "test": 500}
SENTENCES = {  # with their references
    # from Bahdanau et al. (2015)
    "The agreement on the European Economic Area was signed in August 1992.": (
        "L'accord sur la zone économique européenne a été signé en août 1992."
    ),
    "The small green house is near the old river.": "La petite maison verte est près de la vieille rivière.",
    "Sophie's old uncle will not sell the small white horses.": (
        "Le vieil oncle de Sophie ne vendra pas les petits chevaux blancs."
    ),
}
PAGES = ("index.html", "evaluation.html", *(f"sentence-{number}.html" for number in range(1, 1 + len(SENTENCES))))
FACTS = "demo.json"
LANGUAGES = "en", "fr"
SMOOTH_POINTS = 30  # of the training curve


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
    checksum = folders.read_checksums(model)[MODEL]
    results: dict[str, Any] = folders.read_json(out / FACTS, optional=True)
    if results and results["model"] == checksum and all((out / name).is_file() for name in PAGES):
        say("the demo was finished before")
        return results
    path, _ = latest_checkpoint(model)
    assert path is not None
    entries, training_end = trained.history, time.perf_counter()
    training_seconds = float(folders.read_json(path / PROGRESS)["seconds"])
    training_seconds += sum(float(entry["seconds"]) for entry in entries if entry["kind"] == "validation")
    say("3  score it on sentences it has not seen")
    source, reference, text = data / "test.en", data / "test.fr", data / "train.fr"
    scores = evaluate(model, source=source, reference=reference, train=text, device=device)
    assert isinstance(scores, Evaluation)
    scores.save(out / "evaluation.html", force=True)
    say("4  explain three sentences by its attention")
    translator = load(model, device)
    explanations = [explain(translator, sentence) for sentence in SENTENCES]
    for number, explanation in enumerate(explanations, 1):
        titled = dataclasses.replace(explanation, title=explanation.trace.target.text, languages=LANGUAGES)
        titled.save(out / f"sentence-{number}.html", force=True)
    results = {
        "model": checksum,
        "finished": True,
        "bleu": scores.to_dict()["bleu"],
        "sentences": len(scores.sentences),
        "parameters": count(model).total,
        "training_seconds": training_seconds,
        "seconds": max(time.perf_counter() - start, training_seconds + time.perf_counter() - training_end),
        "translations": [
            {"source": source, "text": explanation.trace.target.text, "reference": reference}
            for (source, reference), explanation in zip(SENTENCES.items(), explanations, strict=True)
        ],
    }
    for name in PAGES[1:]:
        html = (out / name).read_text(encoding="utf-8")
        link = '<p class="kind"><a href="index.html">← the demo</a> · '
        folders.write_file(out / name, html.replace('<p class="kind">', link, 1), force=True)
    traces = [explanation.trace for explanation in explanations]
    folders.write_file(out / "index.html", _page(results, scores.to_dict(), traces, entries, out), force=True)
    folders.write_file(out / FACTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n", force=True)
    return results


# The page


def _page(
    results: Mapping[str, Any],
    scores: Mapping[str, Any],
    traces: Sequence[Trace],
    entries: Sequence[dict[str, Any]],
    out: Path,
) -> str:
    bleu, seconds = results["bleu"], format_duration(results["training_seconds"])
    title = f"BLEU {bleu['score']:.1f} on new sentences after {seconds} of training"
    about = (
        f"A small Transformer learned English to French on this machine, from {SIZES['train']:,} sentence pairs. The "
        "corpus is synthetic and easy: a grammar wrote it, and on real text the same model would score far lower."
    )
    interval = (
        f"BLEU {bleu['score']:.1f}, 95 % bootstrap interval {bleu['low']:.1f} to {bleu['high']:.1f}, on "
        f"{counted(results['sentences'], 'sentence')} that it has not seen."
    )
    size = (
        f"{results['parameters']:,} parameters from random weights; {seconds} of training, "
        f"{format_duration(results['seconds'])} in all."
    )
    curves = {
        "training": zip(*smooth(series(entries, "update", "loss"), SMOOTH_POINTS), strict=True),
        "validation": zip(*series(entries, "validation", "valid_loss"), strict=True),
    }
    losses = {name: list(points) for name, points in curves.items()}
    first, *others = results["translations"]
    note = "Attention: how much each word it wrote (rows) draws on each it read (columns)."
    heatmap = pages.heatmap(attention(traces[0], "cross"), LANGUAGES, note)
    parts = [
        pages.card("A sentence, and where the model looked", "", _sentence(first, traces[0], PAGES[2]), heatmap),
        pages.card("Two more sentences", "", *map(_sentence, others, traces[1:], PAGES[3:])),
        by_length(scores["by_length"], note=interval),
        '<p><a href="evaluation.html">All scores, and every sentence of the test set</a></p>',
        pages.card("Training", size, charts.curve_chart(losses, "loss, nats per token", "update")),
        pages.card("Use it", "", *map(pages.command, next_commands(out))),
    ]
    return pages.page(title, parts, kind="demo", about=about)


def _sentence(pair: Mapping[str, str], trace: Trace, page: str) -> str:
    """A sentence with its translation, whose errors are marked, and what the model was least certain of."""
    texts = [
        ("English", escape(pair["source"]), "en"),
        ("French, by the model", marked_words(pair["text"], pair["reference"], "odd"), "fr"),
    ]
    if pair["text"] != pair["reference"]:
        texts.append(("reference", marked_words(pair["reference"], pair["text"], "missed"), "fr"))
    lines = "".join(pages.text("p", f'<b lang="en">{name}</b>{text}', code) for name, text, code in texts)
    link = f'<a href="{page}">Every word, layer and head</a>'
    return f'<div class="shown">{lines}<p class="soft doubt">{escape(inspector.summary(trace))} {link}</p></div>'


def next_commands(out: Path) -> list[str]:
    """Commands to try after the demo."""
    model, sentence = shlex.quote(str(out / "model")), "The old teacher sees a small bird."
    test = shlex.quote(str(out / "data" / "test"))
    return [
        f'echo "{sentence}" | regard translate {model}',
        f'regard explain {model} "{sentence}" --out bird.html',
        f"regard evaluate {model} --source {test}.en --reference {test}.fr",
        f"regard serve {model}",
    ]
