"""The demo: make a corpus, train a translator, score it and explain some sentences, in minutes, with one web page."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from regard import folders
from regard.corpora import catalog
from regard.counting import count
from regard.evaluation.evaluate import Evaluation, evaluate
from regard.inspection import charts, report
from regard.inspection.attribution import attention
from regard.models.folder import MODEL
from regard.training import journal
from regard.training.checkpoint import PROGRESS, latest_checkpoint
from regard.training.events import Observer
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

Say = Callable[[str], None]


def run(out: Path, *, updates: int | None, device: str, say: Say, observe: Observer) -> dict[str, Any]:
    """Run the demo in a folder and return its results; the same call again resumes and does only what is missing."""
    start, seconds_before = time.perf_counter(), _training_seconds(out)
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
    say("3  score it on sentences it has not seen")
    scores = evaluate(model, source=data / "test.en", reference=data / "test.fr", device=device)
    assert isinstance(scores, Evaluation)
    scores.save(out / "evaluation.html", force=True)
    say("4  explain three sentences by its attention")
    explanations = _explain(model, out, device)
    results = {
        "model": folders.read_checksums(model)[MODEL],
        "finished": True,
        "bleu": scores.to_dict()["bleu"],
        "sentences": len(scores.sentences),
        "parameters": count(model).total,
        "training_seconds": _training_seconds(out),
        "seconds": time.perf_counter() - start + seconds_before,
        "translations": [
            {"source": source, "text": explanation.trace.target.text}
            for source, explanation in zip(SENTENCES, explanations, strict=True)
        ],
    }
    page = _page(results, scores.to_dict(), explanations, model / "training.svg")
    folders.write_file(out / "index.html", page, force=True)
    folders.write_file(out / FACTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n", force=True)
    return results


def _training_seconds(out: Path) -> float:
    """The seconds of updates and validations up to the last checkpoint."""
    path, _ = latest_checkpoint(out / "model")
    if path is None:
        return 0.0
    progress = json.loads((path / PROGRESS).read_bytes())
    validations = (
        entry["seconds"]
        for entry in journal.read(out / "model" / journal.FILE)
        if entry["kind"] == "validation" and entry["update"] <= progress["update"]
    )
    return float(progress["seconds"] + sum(validations))


def _saved_results(out: Path) -> dict[str, Any] | None:
    """The results of an earlier call, if they are of this model and all pages are there."""
    if not all((out / name).is_file() for name in (FACTS, *PAGES)):
        return None
    try:
        results = json.loads((out / FACTS).read_bytes())
        return results if results["model"] == folders.read_checksums(out / "model")[MODEL] else None
    except (ValueError, KeyError, TypeError):
        return None


def _explain(model: Path, out: Path, device: str) -> list[Explanation]:
    """Explain the sentences, and write a page for each."""
    translator = load(model, device)
    explanations = [explain(translator, sentence) for sentence in SENTENCES]
    for number, explanation in enumerate(explanations, 1):
        titled = dataclasses.replace(explanation, title=explanation.trace.target.text)
        titled.save(out / f"sentence-{number}.html", force=True)
    return explanations


# The page


def _page(
    results: Mapping[str, Any], scores: Mapping[str, Any], explanations: Sequence[Explanation], curves: Path
) -> str:
    bleu = results["bleu"]
    traces = [explanation.trace for explanation in explanations]
    rows = [
        report.Row(number, "shown", source, [], [report.Output("translation", trace.target.text, {}, trace=trace)])
        for number, (source, trace) in enumerate(zip(SENTENCES, traces, strict=True), 1)
    ]
    interval = f"95 % interval {bleu['low']:.1f} to {bleu['high']:.1f}, {results['sentences']:,} unseen sentences"
    cards = [
        ("BLEU", f"{bleu['score']:.1f}", interval),
        ("training", _time(results["training_seconds"]), f"{results['parameters']:,} parameters, from random weights"),
        ("in all", _time(results["seconds"]), "corpus, training, scores, pages"),
    ]
    parts = [
        '<div class="cards">' + "".join(map(_card, cards)) + "</div>",
        charts.heatmaps(
            "Attention",
            "Rows: the words it wrote; columns: the words it read. Stronger colour: more attention; mean of all heads.",
            {trace.target.text: attention(trace, "cross") for trace in traces},
        ),
        _links(),
        report.by_length(scores["by_length"]),
    ]
    if curves.exists():
        svg = curves.read_text(encoding="utf-8")
        parts.append(charts.figure("Training", "From the journal of the run.", svg[svg.index("<svg") :]))
    about = "English to French, trained on this machine with sentences of a grammar. All numbers were measured here."
    return report.page("What a small Transformer learned in minutes", about, parts, rows)


def _card(card: tuple[str, str, str]) -> str:
    name, value, note = map(escape, card)
    return (
        f'<section class="card score"><h2>{name}</h2><p class="big">{value}</p><p class="interval">{note}</p></section>'
    )


def _links() -> str:
    evaluation = ("Evaluation", "scores with intervals, by length and word frequency, and fifty sentences")
    texts = [evaluation, *((sentence, "every layer and head") for sentence in SENTENCES)]
    items = "".join(
        f'<li><a href="{name}">{escape(title)}</a> <span class="soft">{escape(note)}</span></li>'
        for name, (title, note) in zip(PAGES[1:], texts, strict=True)
    )
    return f'<section class="card"><h2>More pages</h2><ul>{items}</ul></section>'


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{int(seconds) // 60} min {int(seconds) % 60:02} s"
