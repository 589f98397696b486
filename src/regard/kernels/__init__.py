"""Triton kernels for GPUs; without Triton, torch computes the same in more steps."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def is_available() -> bool:
    """Whether Triton can compile kernels here: it needs CUDA, a C compiler and Python's headers."""
    if not torch.version.cuda or not importlib.util.find_spec("triton"):
        return False
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")  # where Triton looks too
    return bool(compiler) and Path(sysconfig.get_path("include", scheme), "Python.h").is_file()


def find(name: str) -> Any:
    """The module of a kernel, or None where Triton cannot compile it."""
    return importlib.import_module(f"regard.kernels.{name}") if is_available() else None


def dense(x: Tensor) -> Tensor:
    """The tensor with its last axis contiguous, as the kernels expect."""
    return x if x.stride(-1) == 1 else x.contiguous()


def strides(*tensors: Tensor) -> list[int]:
    """The strides of the rows, heads and tokens of (B, H, T, D) tensors; the last axis is contiguous."""
    return [stride for tensor in tensors for stride in tensor.stride()[:3]]


def empty_by_token(x: Tensor) -> Tensor:
    """An empty tensor for a result of the shape (B, H, T, D), stored as (B, T, H, D), as projections read it."""
    return x.new_empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3])
