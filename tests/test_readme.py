"""The README does what it says: its Python runs, its commands exist, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_python_of_the_readme_runs_and_prints_what_it_says() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.S)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    promised = [line.split("# ")[-1].strip() for line in program.splitlines() if line.startswith("print(")]
    assert done.stdout.splitlines() == promised


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`regard (\w+(?: (?:list|get))?)", README))))
def test_every_command_of_the_readme_exists(command: str) -> None:
    done = subprocess.run([sys.executable, "-m", "regard", *command.split(), "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


SHORT = ["--updates", "3", "--set", "model.size=16", "--set", "model.heads=2", "--set", "text.vocabulary=500"]


@pytest.mark.slow
def test_the_commands_for_files_of_your_own_run_one_after_the_other(tmp_path: Path) -> None:
    from regard.corpora import catalog

    catalog.write_builtin(tmp_path, sizes={"train": 300, "test": 20})
    (tmp_path / "letters.en").write_text((tmp_path / "test.en").read_text())
    (block,) = (block for block in re.findall(r"```\n(.*?)```", README, re.S) if "regard check train.en" in block)
    for line in block.strip().splitlines():
        _, name, *words = shlex.split(line.partition("  #")[0])
        words += SHORT if name == "train" else []
        done = subprocess.run(
            [sys.executable, "-m", "regard", name, *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert all((tmp_path / left).stat().st_size for left in ("scores.html", "why.html", "letters.fr"))


def test_what_the_readme_shows_of_count_is_what_count_prints() -> None:
    shown = re.search(r"\$ regard count bert-base\n(.*?)```", README, re.S)
    printed = subprocess.run([sys.executable, "-m", "regard", "count", "bert-base"], capture_output=True, text=True)
    lines = {line.rstrip() for line in printed.stdout.splitlines()}
    assert [line for line in shown[1].splitlines() if line.strip() != "..." and line not in lines] == []


PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    here = ROOT / page
    for link in re.findall(r"\]\(([^)#:]+)\)", here.read_text()):
        assert (here.parent / link).exists(), link
