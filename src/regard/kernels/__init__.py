"""Kernels of our own for GPUs, written in Triton; where there is none, torch's do the same with more steps."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import torch


def find(name: str) -> Any:
    """The module of these kernels, or None where they could not run."""
    if torch.version.cuda and importlib.util.find_spec("triton"):
        return importlib.import_module(f"regard.kernels.{name}")
    return None
