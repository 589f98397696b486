"""The race: every family is trained and scored once, and the papers' claim is checked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.config import find_config
from regard.counting import count
from regard.errors import FolderError, RunError
from regard.inspection.attribution import attention
from regard.stories import lineage
from tests.inspection.traces import made

SMALL = {"train": 200, "valid": 20, "test": 20}


def racer(name: str, *scores: float) -> dict[str, Any]:
    buckets = [
        {"from": 1 + 10 * place, "to": 10 + 10 * place, "sentences": 50, "bleu": score, "low": score - 1,
         "high": score + 1, "small": False}
        for place, score in enumerate(scores)
    ]  # fmt: skip
    facts = {"bleu": scores[0], "signature": "nrefs:1", "parameters": 10, "curve": [(1, 5.0), (2, 1.0)]}
    return {"name": name, "by_length": buckets, **facts}


def raced(*racers: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"racers": list(racers), "updates": 7, "seconds": 3.0, "device": "cpu", "sentences": 100}
    return found | {"verdicts": lineage.verdicts(found)}


@pytest.mark.parametrize(
    ("name", "scores", "holds"),
    [
        ("no attention", (40.0, 19.0), True),
        ("no attention", (40.0, 21.0), False),
        ("no attention", (20.0, 1.0), False),  # it never learned: its fall means nothing
        ("additive", (90.0, 82.0), True),
        ("additive", (90.0, 80.0), False),
        ("additive", (0.1, 0.2), False),  # nor does what it kept
    ],
)
def test_a_claim_holds_as_its_figures_say(name: str, scores: tuple[float, ...], holds: bool) -> None:
    (verdict,) = lineage.verdicts({"racers": [racer(name, *scores)]})
    assert verdict["holds"] is holds


def test_a_bucket_of_few_sentences_is_ignored() -> None:
    without = racer("no attention", 40.0, 10.0, 39.0)
    without["by_length"][-1]["small"] = True
    (verdict,) = lineage.verdicts({"racers": [without]})
    assert verdict["last"] == 10.0


def test_the_page_shows_every_racer_and_escapes_their_names() -> None:
    page = lineage.page(raced(racer("no attention", 40.0, 10.0), racer("<b>", 90.0, 88.0)), {"no attention": "le chat"})
    assert "no attention" in page
    assert "&lt;b&gt;" in page
    assert "<b>:" not in page
    assert not re.search(r"https?://(?!www\.w3\.org)", page)


# The page.

MAP = attention(made("one two", "un deux", [[1.0, 0.0, 0.0]] * 3), "cross")


def drawn(**more: Any) -> str:
    racers = [racer("no attention", 40.0, 10.0), racer("dot", 90.0, 50.0)]
    for entry in racers:
        entry["curve"] = ((2.0, 5.0), (9.0, 1.0))
    return lineage.page(raced(*racers) | more, {"no attention": "le chat", "dot": MAP})


def test_each_model_stands_beside_its_claim() -> None:
    table = drawn().partition("<tbody>")[2].partition("</tbody>")[0]
    found = re.findall(r"</svg>(no attention|dot).*?(falls|stays)", table)
    assert found == [("no attention", "falls"), ("dot", "stays")]


def test_a_verdict_says_whether_it_holds_and_by_how_much() -> None:
    page = drawn()
    assert re.findall(r"✓ holds|✗ fails", page) == ["✓ holds", "✗ fails"]
    assert "40.0 → 10.0</td><td>−75%" in page


def test_without_verdicts_there_are_no_claims() -> None:
    assert "The claims" not in drawn(verdicts=[])


def test_every_racer_is_named_in_the_legends() -> None:
    legends = re.findall(r'<ul class="legend">(.*?)</ul>', drawn())
    assert [re.findall(r"no attention|dot", legend) for legend in legends] == [["no attention", "dot"]] * 2


def test_a_model_without_attention_shows_its_translation() -> None:
    assert "le chat" in drawn()


def test_all_models_have_about_the_same_number_of_parameters() -> None:
    totals = [count(find_config(recipe)).total for recipe in lineage.RECIPES.values()]
    assert max(totals) <= 1.1 * min(totals)


@pytest.mark.slow
def test_a_race_is_trained_scored_and_drawn_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    racers = {name: lineage.RECIPES[name] for name in ("no attention", "transformer")}
    monkeypatch.setattr(lineage, "RECIPES", racers)
    told: list[str] = []

    def run() -> dict[str, Any]:
        return lineage.run(
            tmp_path, minutes=None, updates=4, device=torch.device("cpu"), sizes=SMALL, say=told.append,
            progress=lambda *_: None,
        )  # fmt: skip

    found = run()
    assert [racer["name"] for racer in found["racers"]] == list(racers)
    assert {"transformer: running", "transformer: finished"} <= set(told)
    assert json.loads((tmp_path / "race.json").read_text())["updates"] == 4
    assert "The lineage race" in (tmp_path / "index.html").read_text()
    told.clear()
    assert run() == json.loads(json.dumps(found))
    assert not told


@pytest.mark.parametrize("changed", [{"updates": 5}, {"sizes": {**SMALL, "train": 300}}])
def test_a_folder_with_another_race_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"minutes": None, "updates": 4, "sizes": SMALL}
    race = lineage.Race(tmp_path, torch.device("cpu"), lambda _: None)
    assert race.plan(**settings) == race.plan(**settings | {"updates": None}) == 4
    with pytest.raises(FolderError, match="holds a race of 4 updates on 200 pairs"):
        race.plan(**settings | changed)


@pytest.mark.slow
def test_a_model_that_fails_is_reported_with_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "RECIPES", {"transformer": lineage.RECIPES["transformer"]})
    race = lineage.Race(tmp_path, torch.device("cpu"), lambda _: None)
    with pytest.raises(RunError, match=r"transformer did not finish: .*does not exist"):
        race.train(4, lambda *_: None)


def test_on_a_gpu_all_models_use_larger_batches_of_few_shapes(tmp_path: Path) -> None:
    race = lineage.Race(tmp_path, torch.device("cuda"), lambda _: None)
    commands = [" ".join(race.command(name, 100)) for name in lineage.RECIPES]
    assert all("train.batch_tokens=3072" in command and "train.batch_shapes=24" in command for command in commands)


# Headlines.


@pytest.mark.parametrize(
    ("racers", "kept"),
    [
        ([racer("dot", 90.0, 86.0)], "1 of 1"),
        ([racer("dot", 90.0, 86.0), racer("cosine", 90.0, 60.0)], "1 of 2"),
        ([racer("dot", 90.0, 20.0)], "0 of 1"),
    ],
)
def test_the_headline_says_what_attention_does(racers: list[dict[str, Any]], kept: str) -> None:
    results = raced(racer("no attention", 74.0, 11.0), *racers)
    start = "Without attention BLEU goes from 74 to 11 on long sentences"
    assert lineage.headline(results["verdicts"]) == f"{start}; {kept} models with attention stay within a tenth"
