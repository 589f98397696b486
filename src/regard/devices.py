"""Devices: choose the CPU or GPU to compute on, and the number of CPU threads."""

from __future__ import annotations

import torch

from regard.errors import ConfigError


def find_device(name: str) -> torch.device:
    """Return the device called auto, cpu, cuda or mps; auto takes the first GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name not in available:
        raise ConfigError(f"--device ({name}) must be one of auto, cpu, cuda, mps")
    if not available[name]:
        raise ConfigError(f"--device {name} is not on this machine; use --device auto or cpu")
    if name == "cuda":  # cuDNN's attention is planned again for every shape, which takes longer than a small update
        torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device(name)


def use_threads(number: int | None) -> None:
    """Use this many CPU threads; None keeps PyTorch's default."""
    if number:
        torch.set_num_threads(number)
