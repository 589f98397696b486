"""What every test starts from: the same random numbers, and the corpora where they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels of our own run on a CPU too, and show what they compute
torch.set_num_threads(1)  # the models are small, and tests run side by side


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real corpora, or a visible skip."""
    folder = os.environ.get("REGARD_DATA")
    if not folder:
        pytest.skip("REGARD_DATA is not set: real corpora are not here")
    return Path(folder)
