"""Options that several commands share: paths are checked while the command line is parsed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from regard.config import preset, to_json

RUN_WITHOUT_TORCH = """
import sys
from regard.cli.app import main
sys.argv[0] = "regard"
try:
    main()
finally:
    assert "torch" not in sys.modules
"""

MISTYPED = [
    "train typo text --out x",
    "train text typo --out x",
    "train text text --valid text typo --out x",
    "train text text --also text,typo,1 --out x",
    "train text text --alignments typo --out x",
    "train text text --recipe typo --out x",
    "train text text --from typo --out x",
    "translate --threads 2 typo text",
    "translate model typo",
    "translate model+typo text",
    "translate model text --glossary typo",
    "translate model text --keep typo",
    "evaluate typo --source text --reference text",
    "evaluate model --source typo --reference text",
    "evaluate model --source text --reference typo",
    "evaluate --hypothesis typo --reference text",
    "evaluate --hypothesis text --reference text --train typo",
    "compare model typo --source text --reference text",
    "explain typo sentence --out x.html",
    "align typo text text",
    "align model text typo",
    "align model text text --gold typo",
    "check text typo",
    "check text text --test text typo",
    "embed typo text --out x.npy",
    "generate typo prompt",
    "fill typo text",
    "count typo",
]


WRONG_VALUES = {
    "train text text --out x --set model.layers=4": "There is no option model.layers",
    "train text text --out x --set train.learning_rate=fast": "must be a number",
    "train text text --out x --set model.size=64 --set model.heads=3": "must be a multiple",
    "train text text --out x --updates 5 --minutes 5": "give one of them",
    "train text text --out x --minutes 0": "a number of minutes above 0",
    "train text text --out x --also text": "must be SOURCE,TARGET,WEIGHT",
    "translate model text --set decode.beamz=3": "Did you mean decode.beams?",
    "evaluate model --source text --reference text --set beams=3": "Did you mean decode.beams=3?",
    "compare model text --source text --reference text --set decode.beamz=3": "Did you mean decode.beams?",
}


@pytest.mark.parametrize("command", MISTYPED)
def test_a_mistyped_path_is_named_before_torch_is_imported(command: str, tmp_path: Path) -> None:
    done = run_without_torch(command, tmp_path)
    assert done.stderr.startswith(("regard: typo does not exist", "regard: There is no ")), done.stderr
    assert "typo" in done.stderr


@pytest.mark.parametrize("command", WRONG_VALUES)
def test_a_wrong_value_is_named_before_torch_is_imported(command: str, tmp_path: Path) -> None:
    assert WRONG_VALUES[command] in run_without_torch(command, tmp_path).stderr


def run_without_torch(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "text").write_text("one\n")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(to_json(preset("transformer-base")))
    program = [sys.executable, "-c", RUN_WITHOUT_TORCH, *command.split()]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done
