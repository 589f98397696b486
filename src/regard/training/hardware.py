"""The machine: its name, cores, GPU memory and peak speed."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import torch

from regard.config import Config, TrainConfig
from regard.counting import HARDWARE, count_flops
from regard.training.data import Data
from regard.training.distributed import Runtime
from regard.training.gradients import autocast


def describe(runtime: Runtime) -> str:
    """`NVIDIA H200`, `2 × NVIDIA H200` or `AMD EPYC 7R13, 2 cores`."""
    if runtime.device.type == "cuda":
        name = torch.cuda.get_device_name(runtime.device)
        return f"{runtime.world_size} × {name}" if runtime.world_size > 1 else name
    return f"{_processor()}, {cores()} cores" + (" (Metal)" if runtime.device.type == "mps" else "")


def cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def precision(settings: TrainConfig, runtime: Runtime) -> str:
    """bf16 or fp32: the precision of matrix products."""
    return "bf16" if autocast(settings, runtime.device)._enabled else "fp32"


def peak_flops(settings: TrainConfig, runtime: Runtime) -> float:
    """FLOPs per second of all processes, from the manufacturer's data sheet; 0 if unknown."""
    if runtime.device.type != "cuda":
        return 0.0
    words = re.split(r"[\s-]+", torch.cuda.get_device_name(runtime.device).lower().replace("rtx ", "rtx"))
    gpu = next((HARDWARE[word] for word in words if word in HARDWARE), None)  # whole words: an L40S is not an L4
    return 0.0 if gpu is None else float(getattr(gpu, precision(settings, runtime))) * 1e12 * runtime.world_size


def gpu_memory(runtime: Runtime) -> tuple[int, int] | None:
    """The reserved and the total bytes of the GPU."""
    if runtime.device.type != "cuda":
        return None
    return torch.cuda.memory_reserved(runtime.device), torch.cuda.get_device_properties(runtime.device).total_memory


def available_gpu_memory(runtime: Runtime) -> int:
    """The bytes of the GPU that no other program holds; 0 if unknown."""
    if runtime.device.type != "cuda":
        return 0
    return torch.cuda.mem_get_info(runtime.device)[0] + torch.cuda.memory_reserved(runtime.device)


def flops_per_token(config: Config, data: Data) -> float:
    """FLOPs of training on one target token, at the mean lengths of the data."""
    passes = 2 if config.train.r_drop else 1
    if config.model.family in ("rnn", "transformer"):
        store = data.train[0]
        source, target = (max(1, round(float(side.mean()))) for side in (store.source_lengths, store.target_lengths))
        return passes * count_flops(config.model, source, target).training / target
    window = min(config.text.context_length, config.model.max_positions)
    labels = window * (config.text.mask_probability if config.model.family == "bert" else 1.0)
    return passes * count_flops(config.model, 0, window).training / labels


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
