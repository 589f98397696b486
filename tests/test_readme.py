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


SMALL = {"model.size": 16, "model.heads": 2, "text.vocabulary": 500}
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the README names."""
    from regard.corpora import catalog

    catalog.write_builtin(tmp_path, sizes={"train": 300, "test": 20})
    (tmp_path / "letters.en").write_text((tmp_path / "test.en").read_text())
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=["verbs", "blocks"])
def test_the_python_of_the_readme_runs(program: str, folder: Path) -> None:
    program = program.replace("minutes=10", f"updates=3, config={SMALL}")
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`regard (\w+(?: (?:list|get))?)", README))))
def test_every_command_of_the_readme_exists(command: str) -> None:
    done = subprocess.run([sys.executable, "-m", "regard", *command.split(), "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_commands_of_the_quick_start_run_one_after_the_other(folder: Path) -> None:
    (block,) = (
        block for block in re.findall(r"```sh\n(.*?)```", README, re.S) if block.startswith("regard check train.en")
    )
    small = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    for line in block.strip().splitlines():
        line = line.partition("  #")[0].replace("--minutes 10", f"--updates 3 {shlex.join(small)}")
        command = [sys.executable, "-m", "regard", *shlex.split(line)[1:]]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert all((folder / name).stat().st_size for name in ("scores.html", "why.html", "letters.fr"))


def test_the_readme_fits_on_a_page() -> None:
    assert len(README.splitlines()) <= 120


PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    here = ROOT / page
    for link in re.findall(r"\]\(([^)#:]+)\)", here.read_text()):
        assert (here.parent / link).exists(), link
