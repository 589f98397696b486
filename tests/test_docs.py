"""The documentation does what it says: its examples run, its quotations are true, its links lead somewhere."""

from __future__ import annotations

import ast
import doctest
import math
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.inspection.browsing import Opened

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FORMULAS = sorted(path for path in (DOCS / "formulas").glob("*.md") if path.stem != "index")
SECTIONS = ["The formula", "In the code", "By hand", "Checked by", "Where the notes slip"]
QUOTED = re.compile(r"\]\((?P<file>[./]*src/[\w/]+\.py)\)[^\]]*?\n\n```python\n(?P<lines>.*?)```", re.S)
EXAMPLE = re.compile(r"```pycon\n(.*?)```", re.S)
NAMED = re.compile(r"\[`(?P<test>test_\w+)`\]\((?P<file>[./]*tests/[\w/]+\.py)\)")
NUMBER = re.compile(r"\d[\d_]*(?:\.\d+)?")
TELLING = re.compile(r"\d+\.\d+|\d{1,3}(?:,\d{3})+")  # small whole numbers are sizes and speak for themselves


def the(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("page", FORMULAS, ids=the)
def test_every_formula_has_the_same_sections(page: Path) -> None:
    assert re.findall(r"^## (.+)", page.read_text(), re.M) == SECTIONS


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_examples_print_what_the_page_shows(page: Path) -> None:
    blocks = EXAMPLE.findall(page.read_text())
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.stem, str(page), 0)
    told: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=told.append)
    assert not told, "".join(told)


@pytest.mark.parametrize("page", FORMULAS, ids=the)
def test_every_formula_has_an_example_of_what_our_code_computes(page: Path) -> None:
    assert any("from regard" in block for block in EXAMPLE.findall(page.read_text()))


@pytest.mark.parametrize("page", FORMULAS, ids=the)
def test_every_number_told_is_a_number_computed(page: Path) -> None:
    text = page.read_text().split("## Where the notes slip")[0]
    computed = {_value(number) for block in EXAMPLE.findall(page.read_text()) for number in NUMBER.findall(block)}
    told = TELLING.findall(re.sub(r"```.*?```", "", text, flags=re.S))
    assert [number for number in told if _value(number) not in computed] == []


def _value(number: str) -> float:
    return float(number.replace(",", "").replace("_", ""))


def test_the_sinusoids_of_the_page_are_those_a_hand_computes() -> None:
    rows = re.findall(r"^\| ([123]) \| (.+) \|$", (DOCS / "formulas" / "sinusoids.md").read_text(), re.M)
    assert len(rows) == 3
    told = [[number.replace("−", "-") for number in values.split(" | ")] for _, values in rows]
    angles = [(float(place), float(place) / 100) for place, _ in rows]
    assert told == [[f"{turn(angle):.5f}" for angle in pair for turn in (math.sin, math.cos)] for pair in angles]


@pytest.mark.parametrize("page", FORMULAS, ids=the)
def test_quoted_lines_are_in_the_file_they_are_from(page: Path) -> None:
    text = page.read_text()
    found = list(QUOTED.finditer(text))
    assert len(found) == text.count("```python\n") > 0, "every quotation has a link to its file before it"
    for match in found:
        lines = (page.parent / match["file"]).read_text().splitlines()
        for quoted in match["lines"].split("...\n"):
            count = len(quoted.splitlines())
            stretches = (textwrap.dedent("\n".join(lines[i : i + count])) for i in range(len(lines)))
            assert quoted.rstrip("\n") in stretches, f"{match['file']} no longer has\n{quoted}"


@pytest.mark.parametrize("page", FORMULAS, ids=the)
def test_the_tests_a_page_names_exist(page: Path) -> None:
    named = NAMED.findall(page.read_text())
    assert named
    for test, file in named:
        tree = ast.parse((page.parent / file).read_text())
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file} has no {test}"


def test_the_drawings_are_what_the_script_draws() -> None:
    drawn = {f"{name}.svg": draw() for name, draw in runpy.run_path(str(DOCS / "figures.py"))["DRAWINGS"].items()}
    kept = {path.name: path.read_text() for path in (DOCS / "figures").glob("*.svg")}
    assert drawn == kept, "run python docs/figures.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a link to a page, a heading or a line that is not there fails."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_without_a_broken_link_and_fetches_nothing(site: Path) -> None:
    fetched = re.compile(r"""<(?:script|img|iframe)[^>]+src=["']?(?:https?:)?//|<link[^>]+href=["']?(?:https?:)?//""")
    imported = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")
    pages, styles = sorted(site.rglob("*.html")), sorted(site.rglob("*.css"))
    assert len(pages) > len(FORMULAS)
    assert [page.name for page in pages if fetched.search(page.read_text())] == []
    assert [style.name for style in styles if imported.search(style.read_text())] == []


@pytest.mark.slow
def test_formulas_are_set_and_drawings_are_in_the_page(site: Path) -> None:
    for page in FORMULAS:
        built = (site / "formulas" / f"{page.stem}.html").read_text()
        assert "arithmatex" not in built
        assert built.count("<svg") == page.read_text().count("../figures/")


@pytest.mark.slow
def test_a_reader_chooses_dark_and_no_script_fails(site: Path, browser: Any) -> None:
    page = site / "formulas" / "sinusoids.html"
    with Opened(
        browser, page, page.read_text(), color_scheme="light", viewport={"width": 1280, "height": 800}
    ) as opened:
        opened.page.locator("#theme-menu").click()
        opened.page.locator("[data-bs-theme-value=dark]").click()
        assert opened.page.locator("html").get_attribute("data-bs-theme") == "dark"
