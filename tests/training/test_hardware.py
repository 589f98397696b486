"""What is said of a machine is what its maker says."""

from __future__ import annotations

import pytest
import torch

from regard.config import TrainConfig
from regard.training import hardware as machine
from regard.training.distributed import Runtime


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("NVIDIA H200", "bf16", 989e12),
        ("NVIDIA H200", "fp32", 67e12),
        ("NVIDIA H100 80GB HBM3", "bf16", 989e12),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312e12),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2e12),
        ("NVIDIA L4", "bf16", 121e12),
        ("NVIDIA L40S", "bf16", 0.0),
    ],
)
def test_the_peak_of_a_known_card_is_found_by_its_name(
    name: str, precision: str, peak: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    monkeypatch.setattr(machine, "numbers", lambda *_: precision)
    runtime = Runtime(torch.device("cuda"), 0, 2)
    assert machine.peak(TrainConfig(), runtime) == pytest.approx(2 * peak)
    assert machine.describe(runtime) == f"2 × {name}"


def test_of_a_cpu_the_cores_are_said_and_no_peak_is_known() -> None:
    runtime = Runtime(torch.device("cpu"), 0, 1)
    assert machine.describe(runtime).endswith(f"{machine.cores()} cores")
    assert machine.peak(TrainConfig(), runtime) == 0
    assert machine.memory(runtime) is None
    assert machine.numbers(TrainConfig(precision="bf16"), runtime) == "bf16"
