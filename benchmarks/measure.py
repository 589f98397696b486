"""How a measurement is taken: what is compared takes turns, and each is judged by its fastest turn."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from typing import Any

import torch


def hardware(device: str) -> str:
    """The machine, in words."""
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{model}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def in_turn(runs: dict[str, Callable[[], Any]], *, rounds: int, warm: int = 1) -> dict[str, float]:
    """Seconds of each run's fastest turn: what it takes when nothing else disturbs the machine."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(warm + rounds):
        for name, run in runs.items():
            begun = time.perf_counter()
            run()
            if number >= warm:
                seconds[name].append(time.perf_counter() - begun)
    return {name: min(values) for name, values in seconds.items()}


def matrix_flops(device: str, dtype: torch.dtype, size: int = 2048, rounds: int = 10) -> float:
    """FLOP/s of the fastest product of two square matrices: no training is faster."""
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))

    def multiply() -> None:
        torch.mm(left, right)
        if device == "cuda":
            torch.cuda.synchronize()

    return 2 * size**3 / in_turn({"product": multiply}, rounds=rounds)["product"]


def report(
    name: str,
    ratio: float,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    ceiling: float | None = None,
    device: str = "cpu",
    **facts: Any,
) -> bool:
    """Print one line; whether the ratio is where it should be. `ceiling` is the share of what the hardware can do."""
    good = (at_least is None or ratio >= at_least) and (at_most is None or ratio <= at_most)
    line = {"name": name, "ratio": round(ratio, 4), "at_least": at_least, "at_most": at_most, "ceiling": ceiling}
    line["good"] = good
    rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in facts.items()}
    print(
        json.dumps({k: v for k, v in line.items() if v is not None} | rounded | {"hardware": hardware(device)}),
        flush=True,
    )
    return good
