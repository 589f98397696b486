"""Recipes: each loads, and says in its header what it needs, costs and gives."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard
from regard.accounting import count
from regard.config import find_config

RECIPES = sorted((Path(regard.__file__).parent / "recipes").glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_loads_by_its_name_and_is_a_sound_model(path: Path) -> None:
    assert count(find_config(path.stem)).total > 0


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_says_what_it_needs_costs_and_gives(path: Path) -> None:
    header = [line.split()[1] for line in path.read_text().splitlines() if line.startswith("# ")]
    assert header == ["data", "hardware", "score", "command"]
    assert f"--recipe {path.stem}" in path.read_text()
