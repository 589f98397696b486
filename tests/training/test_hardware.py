"""The description of the machine."""

from __future__ import annotations

import pytest
import torch

from regard.config import TrainConfig
from regard.training import hardware
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
def test_the_peak_flops_of_a_known_gpu_are_found_by_its_name(
    name: str, precision: str, peak: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    monkeypatch.setattr(hardware, "precision", lambda *_: precision)
    runtime = Runtime(torch.device("cuda"), 0, 2)
    assert hardware.peak_flops(TrainConfig(), runtime) == pytest.approx(2 * peak)
    assert hardware.describe(runtime) == f"2 × {name}"


def test_a_cpu_is_described_by_its_cores_and_has_no_known_peak() -> None:
    runtime = Runtime(torch.device("cpu"), 0, 1)
    assert hardware.describe(runtime).endswith(f"{hardware.cores()} cores")
    assert hardware.peak_flops(TrainConfig(), runtime) == 0
    assert hardware.gpu_memory(runtime) is None
    assert hardware.precision(TrainConfig(precision="bf16"), runtime) == "bf16"
