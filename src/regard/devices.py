"""Devices: choose the CPU or GPU and the number of CPU threads; warn if they are slow; measure a CPU."""

from __future__ import annotations

import os
import timeit
from functools import partial
from typing import NamedTuple

import torch

from regard.errors import ConfigError


def find_device(name: torch.device | str) -> torch.device:
    """Return the device called auto, cpu, cuda or mps; auto takes the first GPU if there is one."""
    if isinstance(name, torch.device):
        return name
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
    if number is None:
        return
    if type(number) is not int or number < 1:
        raise ConfigError(f"--threads ({number}) must be a whole number above 0")
    torch.set_num_threads(number)


def busy_warning(device_type: str) -> str:
    """A warning if several CPU threads are used on a busy machine, else an empty string."""
    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if device_type != "cpu" or threads == 1 or load < cores / 2:
        return ""
    busy = f"the load of this machine is {load:.1f} on {cores} cores"
    return f"{busy}: if other programs use them, --threads 1 may be faster"


def supports_bf16(device_type: str) -> bool:
    """Whether a device of this type, such as cpu or cuda, computes bf16 faster than fp32.

    CPUs without AVX512-BF16 or AMX emulate bf16, many times slower than fp32, and oneDNN has no bf16 LSTM for them.
    """
    if device_type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device_type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    in_hardware = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return bool(in_hardware and torch.ops.mkldnn._is_mkldnn_bf16_supported())  # the latter obeys ONEDNN_MAX_CPU_ISA


def bf16_warning(device_type: str) -> str:
    """A line for users who ask for bf16 on a CPU that emulates it; empty elsewhere."""
    if device_type != "cpu" or supports_bf16("cpu"):
        return ""
    return "bf16 is much slower than fp32 on this CPU, which has no bf16 instructions (AVX512-BF16 or AMX): use fp32"


class CPUSpeed(NamedTuple):
    """The speed of this machine's CPU with the threads that PyTorch uses."""

    fp32: float  # FLOP/s of a large matrix product
    bandwidth: float  # bytes per second of a large copy, read and written
    threads: int


def measure_cpu(rows: int = 2048, numbers: int = 32_000_000, rounds: int = 6) -> CPUSpeed:
    """Measure matrix products of `rows` x `rows` and a copy of `numbers`; the fastest of several rounds counts."""
    square, values = torch.ones(rows, rows), torch.ones(numbers)
    copy = torch.empty_like(values)
    product_seconds = min(timeit.repeat(partial(torch.mm, square, square), number=1, repeat=rounds))
    copy_seconds = min(timeit.repeat(partial(copy.copy_, values), number=1, repeat=rounds))
    return CPUSpeed(2 * rows**3 / product_seconds, 8 * numbers / copy_seconds, torch.get_num_threads())
