"""A small run in one process or in several, as torchrun starts them; `main` is what each of them does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent


def start(folder: Path, corpus: Path, processes: int, **asked: Any) -> subprocess.CompletedProcess[str]:
    """Train in `folder`: `family`, `model` (fields of it), `stop` (all are asked to there), `die` (process 1 is killed
    there once), `restarts`, `rows` (the memory of process 1 holds so many), and fields of `train`."""
    folder.mkdir(exist_ok=True, parents=True)
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    launch = [*launch, f"--max-restarts={asked.pop('restarts', 0)}"] if processes > 1 else []
    return subprocess.run(
        [
            sys.executable,
            *launch,
            "-m",
            __name__,
            str(folder),
            str(corpus),
            json.dumps(asked),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "REGARD_CACHE": str(corpus / "cache"), "OMP_NUM_THREADS": "1"},
    )


def run(folder: Path, corpus: Path, processes: int, **asked: Any) -> list[float]:
    """The losses of the updates of a run that ends well."""
    done = start(folder, corpus, processes, **asked)
    assert done.returncode == 0, done.stderr
    losses: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
    return losses


def main(folder: Path, corpus: Path, asked: dict[str, Any]) -> None:
    import torch

    from regard.training import gradients
    from regard.training.distributed import init_runtime
    from regard.training.events import Event, UpdateEvent
    from tests.training.runs import make_config, make_training, no_validation, out_of_memory_above

    torch.set_num_threads(1)
    family, model, stop, die = (asked.pop(name, None) for name in ("family", "model", "stop", "die"))
    rows = asked.pop("rows", None)
    losses: list[float] = []
    with init_runtime("cpu") as runtime:

        def observe(event: Event) -> None:
            if isinstance(event, UpdateEvent):
                losses.append(event.loss)
                if event.update == stop:
                    os.kill(os.getpid(), signal.SIGTERM)
                if event.update == die and runtime.rank == 1 and not (folder / "died").exists():
                    (folder / "died").touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        if rows is not None and runtime.rank == 1:
            gradients.batch_loss = out_of_memory_above(rows, gradients.batch_loss)
        config = make_config(family or "transformer", **{"save_every": 1000, "validate_every": 1000, **asked})
        shape = {"model": {**config.values()["model"], "dropout": 0.0, **(model or {})}}
        training = make_training(folder, corpus, type(config).read({**config.values(), **shape}), runtime)
        training.resume()
        training.run(no_validation, observe)
        if runtime.is_main:
            print(json.dumps(losses))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
