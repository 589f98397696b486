"""Every kind of page: axe-core finds nothing serious, and a phone shows all of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from regard.evaluation.compare import compare_translations
from regard.evaluation.evaluate import score_translations
from regard.evaluation.metrics import METRICS
from regard.evaluation.pages import Row, Sentence, comparison_parts, evaluation_parts, page
from regard.evaluation.systems import EvaluationSet
from regard.inspection import film, inspector
from regard.inspection.attribution import attention
from regard.inspection.quality import QualityWarning
from regard.preflight.check import check_pairs
from regard.stories import demo, lineage
from regard.text.files import Origin, Pair
from tests.evaluation.systems import lines, translations, worse
from tests.inspection.browsing import Opened
from tests.inspection.test_inspector import full
from tests.inspection.traces import made
from tests.stories.test_lineage import raced, racer

REFERENCE = lines(60, longest=24)
HYPOTHESIS = worse(REFERENCE, 0.3, 2)
SOURCE, TEXT, REFERENCE_TEXT = "the green house", "la maison vert", "la maison verte"


def trace() -> Any:
    return made(SOURCE, TEXT, torch.eye(4).tolist())


def rows(kind: str, outputs: int) -> list[Row]:
    warning = QualityWarning("length", "too short", [])
    scores = dict.fromkeys(METRICS, 100.0)
    sentences = [Sentence(line, SOURCE, [REFERENCE_TEXT], TEXT, scores, [warning], 0.5) for line in range(1, 15)]
    return [Row(kind, [(f"system {place}", x, trace()) for place in range(outputs)]) for x in sentences]


def evaluation_page() -> str:
    result = score_translations(translations(HYPOTHESIS), EvaluationSet([REFERENCE], REFERENCE)).to_dict()
    return page("BLEU 42.1", "60 sentences", evaluation_parts(result), rows("warned", 1), "evaluation", ("en", "fr"))


def comparison_page() -> str:
    systems = {"one": translations(HYPOTHESIS), "two": translations(worse(REFERENCE, 0.1, 4))}
    parts = comparison_parts(compare_translations(systems, EvaluationSet([REFERENCE])).to_dict())
    return page("two beats one", "60 sentences", parts, rows("better", 2), "comparison", ("en", "fr"))


def check_page() -> str:
    pairs = [Pair(f"line {n} of the text", f"ligne {n} du texte", Origin("train.en", n)) for n in range(1, 400)]
    same = [Pair(pair.source, pair.source, pair.origin) if pair.origin.line % 5 == 0 else pair for pair in pairs]
    return check_pairs([*same, *same[:99]], pairs[:50]).to_html()


def lineage_page() -> str:
    maps = {"no attention": TEXT, "dot": attention(trace(), "cross")}
    return lineage.page(raced(racer("no attention", 40.0, 10.0), racer("dot", 90.0, 50.0)), maps)


def demo_page() -> str:
    translations = [{"source": SOURCE, "text": TEXT, "reference": REFERENCE_TEXT}] * 3
    facts = {"bleu": {"score": 92.0, "low": 90.0, "high": 94.0}, "sentences": 1, "parameters": 10, "seconds": 9.0}
    buckets = racer("x", 97.0, 46.0)["by_length"]
    entries = [{"kind": "update", "update": n, "loss": 9.0 / n} for n in range(1, 99)]
    entries.append({"kind": "validation", "update": 98, "valid_loss": 0.2})
    results = {**facts, "training_seconds": 5.0, "translations": translations}
    return demo._page(results, {"by_length": buckets}, [trace()] * 3, entries, Path("demo"))


def inspector_page() -> str:
    return inspector.page(full(), title="en-fr")


def film_page() -> str:
    sides = {"source": trace().source._asdict(), "target": trace().target._asdict()}
    frames = {"0": torch.randint(256, (2, 3, 4, 4), dtype=torch.uint8)}
    with TemporaryDirectory() as folder:
        root = Path(folder)
        (root / film.FILM).mkdir()
        (root / film.FILM / film.SENTENCES).write_text(json.dumps([sides]))
        for update in (10, 20):
            save_file(frames, root / film.FILM / f"update-{update:08d}.safetensors")
        return film.page(root, {20: "BLEU 3.0"}, title="film")


PAGES: dict[str, Callable[[], str]] = {
    "inspector": inspector_page,
    "film": film_page,
    "evaluation": evaluation_page,
    "comparison": comparison_page,
    "check": check_page,
    "lineage": lineage_page,
    "demo": demo_page,
}
TOO_SMALL = """() => [...document.querySelectorAll("button, select, summary, input[type=search], .index a")]
  .filter(one => one.checkVisibility()).filter(one => {
    const box = one.getBoundingClientRect(), target = parseFloat(getComputedStyle(one, "::after").width) || 0;
    return Math.min(Math.max(box.width, target), box.height) < 24;
  }).map(one => one.textContent)"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", PAGES)
def test_axe_finds_nothing_serious(kind: str, scheme: str, browser: Any, tmp_path: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with Opened(browser, tmp_path / "x.html", PAGES[kind](), color_scheme=scheme) as opened:
        found = Axe().run(opened.page).response["violations"]
        serious = [
            {"rule": rule["id"], "where": [node["html"][:200] for node in rule["nodes"][:3]]}
            for rule in found
            if rule["impact"] in ("serious", "critical")
        ]
        assert not serious, json.dumps(serious, indent=2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAGES)
def test_a_phone_shows_the_whole_width_and_targets_that_a_finger_hits(kind: str, browser: Any, tmp_path: Path) -> None:
    with Opened(browser, tmp_path / "x.html", PAGES[kind](), viewport={"width": 390, "height": 800}) as opened:
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert opened.page.evaluate(TOO_SMALL) == []


@pytest.mark.slow
def test_a_command_is_copied_by_its_button(browser: Any, tmp_path: Path) -> None:
    with Opened(browser, tmp_path / "x.html", demo_page(), permissions=["clipboard-read", "clipboard-write"]) as opened:
        opened.page.get_by_role("button", name="copy the command").first.click()
        assert opened.page.evaluate("navigator.clipboard.readText()") == demo.next_commands(Path("demo"))[0]
