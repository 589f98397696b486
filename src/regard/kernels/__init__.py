"""Kernels of our own for GPUs, written in Triton; where there is none, torch's do the same with more steps."""

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


def able() -> bool:
    """Whether a GPU's kernels can be made here: with Triton, which needs a C compiler and the headers of Python."""
    if not torch.version.cuda or not importlib.util.find_spec("triton"):
        return False
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")  # where Triton looks for them too
    return bool(compiler) and Path(sysconfig.get_path("include", scheme), "Python.h").is_file()


def find(name: str) -> Any:
    """The module of these kernels, or None where they could not run."""
    return importlib.import_module(f"regard.kernels.{name}") if able() else None


def dense(x: Tensor) -> Tensor:
    """With the numbers of a vector side by side, as kernels read them."""
    return x if x.stride(-1) == 1 else x.contiguous()
