"""Recipes: each loads, says in its header what it needs, costs and gives, and trains on data of its kind."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import pytest
import torch

import regard
from regard.config import Config, find_config
from regard.counting import count
from regard.devices import find_device
from regard.models import build
from regard.training.data import Files, make_tokenizers, prepare
from regard.training.distributed import Runtime
from regard.training.events import UpdateEvent
from regard.training.loop import Training
from tests.training.runs import no_validation, write_corpus

RECIPES = sorted((Path(regard.__file__).parent / "recipes").glob("*.toml"))
NAMES = [path.stem for path in RECIPES]
RACE = ["builtin-transformer", *(name for name in NAMES if name.startswith("builtin-rnn"))]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_loads_by_its_name_and_is_a_sound_model(name: str) -> None:
    assert count(find_config(name)).total > 0


@pytest.mark.parametrize("path", RECIPES, ids=NAMES)
def test_a_recipe_says_what_it_needs_costs_and_gives(path: Path) -> None:
    header = [line.split()[1] for line in path.read_text().splitlines() if line.startswith("# ")]
    assert header == ["data", "hardware", "score", "command"]
    assert re.search(
        rf"^# command   regard (?:train|distill) .* --recipe {path.stem} --out runs/{path.stem}$",
        path.read_text(),
        re.M,
    )


def learned(name: str) -> Config:
    """A recipe whose model has the vocabulary that its text will have."""
    config = find_config(name)
    return dataclasses.replace(config, model=dataclasses.replace(config.model, vocabulary=config.text.vocabulary))


def test_those_that_race_are_of_one_size() -> None:
    sizes = {name: count(learned(name)).total for name in RACE}
    assert len(sizes) == 6
    assert max(sizes.values()) <= 1.1 * min(sizes.values()), sizes


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_trains(name: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(corpus / "cache"))
    config = find_config(name).with_values(["train.updates=2", "train.batch_tokens=256", "text.context_length=32"])
    single = config.model.family in ("gpt", "bert")
    files = [Files(corpus / "a.txt", None if single else corpus / "b.txt", single, continuous=config.text.continuous)]
    sides = make_tokenizers(files, config.text, lambda _: None)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocabulary=sides.source.size))
    data = prepare(files, None, config, sides, lambda _: None)
    torch.manual_seed(1)
    training = Training(tmp_path / "run", build(config.model), config, data, Runtime(find_device("cpu"), 0, 1))
    losses = []
    training.run(no_validation, lambda event: losses.append(event.loss) if isinstance(event, UpdateEvent) else None)
    assert len(losses) == 2
    assert all(map(math.isfinite, losses))
