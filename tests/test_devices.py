"""CPUs without bf16 instructions: fp32 by default, a warning for bf16, and no crash. A warning on a busy machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.devices import bf16_warning, busy_warning, supports_bf16, use_threads
from regard.errors import ConfigError

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")

PROGRAM = """
import torch
import regard
from regard.config import ModelConfig
from regard.devices import bf16_warning, supports_bf16
from regard.models import build
assert not supports_bf16("cpu")
assert "much slower than fp32" in bf16_warning("cpu")
config = ModelConfig(family="rnn", cell="lstm", size=16, vocabulary=20, decoder_layers=2, encoder_layers=2)
model, tokens = build(config), torch.randint(3, 20, (2, 5))
with torch.autocast("cpu", torch.bfloat16):
    logits, _ = model.step(tokens, model.start(tokens))
logits.float().sum().backward()
with torch.inference_mode():
    model.bfloat16().eval().step(tokens, model.start(tokens))
config = {"model.family": "rnn", "model.cell": "lstm", "model.size": 16, "text.tokenizer": "words", "text.held_out": 4,
          "train.precision": "bf16", "train.batch_tokens": 256}
regard.train("a", "b", out="run", updates=2, config=config, device="cpu", say=print, observe=lambda event: None)
"""


def test_an_lstm_trains_and_decodes_in_bf16_with_one_warning_on_a_cpu_without_bf16(tmp_path: Path) -> None:
    """As if the CPU had no AVX-512."""
    (tmp_path / "a").write_text("".join(f"a b c {number}\n" for number in range(80)))
    (tmp_path / "b").write_text("".join(f"d e f {number}\n" for number in range(80)))
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("bf16 is much slower") == 1


@pytest.mark.parametrize("number", ["x", 0, -1, 1.5, True])
def test_a_wrong_number_of_threads_is_refused(number: object) -> None:
    with pytest.raises(ConfigError, match=r"--threads \(.*\) must be a whole number above 0"):
        use_threads(number)


def test_no_warning_where_bf16_is_fast() -> None:
    assert bf16_warning("cuda") == ""
    assert bool(bf16_warning("cpu")) != supports_bf16("cpu")


@pytest.mark.parametrize(("load", "threads", "device", "warns"), [
    (1.5, 2, "cpu", True), (0.5, 2, "cpu", False), (1.5, 1, "cpu", False), (1.5, 2, "cuda", False),
])  # fmt: skip
def test_several_threads_on_a_busy_machine_give_a_warning_with_the_load(
    load: float, threads: int, device: str, warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    said = "the load of this machine is 1.5 on 2 cores: if other programs use them, --threads 1 may be faster"
    assert busy_warning(device) == (said if warns else "")
