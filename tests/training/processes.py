"""Small runs one after the other, in this process or in several that torchrun starts once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard.devices import find_device
from regard.errors import RegardError
from regard.training.distributed import Runtime, init_runtime
from regard.training.events import Event, UpdateEvent
from tests.training.runs import make_config, make_training, no_validation

ROOT = Path(__file__).parent.parent.parent
Outcome = list[float] | str
"""The losses of the updates of a run, or the error that ended it."""


def train(folder: Path, corpus: Path, runtime: Runtime | None = None, **asked: Any) -> Outcome:
    """Train in `folder`. Beside fields of `train`: `family`, `model` (fields of it), `stop` (all are asked to there),
    `die` (process 1 is killed there once)."""
    runtime = runtime or Runtime(find_device("cpu"), 0, 1)
    family, model, stop, die = (asked.pop(name, None) for name in ("family", "model", "stop", "die"))
    config = make_config(family or "transformer", **{"save_every": 1000, "validate_every": 1000, **asked})
    shape = {"model": {**config.values()["model"], "dropout": 0.0, **(model or {})}}
    losses: list[float] = []

    def observe(event: Event) -> None:
        if isinstance(event, UpdateEvent):
            losses.append(event.loss)
            if event.update == stop:
                os.kill(os.getpid(), signal.SIGTERM)
            if event.update == die and runtime.rank == 1 and not (folder / "died").exists():
                (folder / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        training = make_training(folder, corpus, type(config).read({**config.values(), **shape}), runtime)
        training.resume()
        training.run(no_validation, observe)
    except RegardError as error:
        return f"{type(error).__name__}: {error}"
    return losses


def launch(root: Path, corpus: Path, runs: list[Mapping[str, Any]], *, restarts: int = 0) -> tuple[list[Any], str]:
    """The outcomes of runs in two processes, of both, and what these wrote to stderr; each run names its `folder`."""
    options = ["--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", __name__]
    done = subprocess.run(
        [*command, str(root), str(corpus), json.dumps(runs)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "REGARD_CACHE": str(corpus / "cache"), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((root / f"{rank}.json").read_text()) for rank in range(2)], done.stderr


def main(root: Path, corpus: Path, runs: list[dict[str, Any]]) -> None:
    torch.set_num_threads(1)
    with init_runtime("cpu") as runtime:
        outcomes = []
        for asked in runs:
            folder = root / asked.pop("folder")
            folder.mkdir(exist_ok=True)
            runtime.barrier()
            outcomes.append(train(folder, corpus, runtime, **asked))
        (root / f"{runtime.rank}.json").write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
