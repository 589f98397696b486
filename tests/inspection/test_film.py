"""The film of a training: frames as they were seen, taken back on resume, and one page that needs nothing else."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from regard.decoding import Hypothesis
from regard.errors import ConfigError
from regard.inspection import film
from regard.inspection.trace import trace
from regard.models import build
from regard.training.data import Data
from tests.training.runs import make_config, make_data, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("files"))


@pytest.fixture(autouse=True)
def _cached(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(corpus / "cache"))


def filmed(folder: Path, corpus: Path, family: str, *updates: int, resumed: int = 0) -> tuple[Data, torch.nn.Module]:
    config, data = make_data(corpus, make_config(family))
    torch.manual_seed(1)
    model = build(config.model)
    film.delete_later_frames(folder, resumed)
    for update in updates:
        film.record_frame(folder, update, model, data.valid, data.tokenizers, sentences=2)
    return data, model


@pytest.mark.parametrize("family", ["transformer", "rnn-input", "rnn-output"])
def test_a_frame_is_the_cross_attention_of_the_model(family: str, corpus: Path, tmp_path: Path) -> None:
    data, model = filmed(tmp_path, corpus, family, 10)
    assert model.training
    source, target = (ids.tolist() for ids in data.valid.pair(film.choose(data.valid, 2)[1]))
    model.eval()
    told = [Hypothesis(target[:-1], 0.0, 0.0, True, [])]
    weights = trace(model, [source], told, data.tokenizers)[0].split_punctuation().by_word("cross")  # type: ignore[arg-type]
    kept = load_file(film.frames(tmp_path)[10])["1"]
    assert kept.shape == weights.shape
    assert float((kept / 255 - weights).abs().max()) < 1 / 255


def test_a_resumed_run_deletes_later_frames(corpus: Path, tmp_path: Path) -> None:
    filmed(tmp_path, corpus, "transformer", 10, 20, 30)
    filmed(tmp_path, corpus, "transformer", resumed=20)
    assert list(film.frames(tmp_path)) == [10, 20]


def test_the_page_has_every_frame_and_is_self_contained(corpus: Path, tmp_path: Path) -> None:
    filmed(tmp_path, corpus, "transformer", 10, 20)
    page = film.page(tmp_path, {20: "BLEU 3.0"}, title="a <b> & c")
    found = re.findall(r'<div class="inspector"><script type="application/json">(.*?)</script>', page, re.DOTALL)
    for number, sentence in enumerate(map(json.loads, found)):
        assert sentence["frames"] == ["update 10", "update 20 · BLEU 3.0"]
        kept = load_file(film.frames(tmp_path)[20])[str(number)]
        shown = np.frombuffer(base64.b64decode(sentence["maps"][0]["values"]), np.uint8)
        layers, heads, rows, columns = kept.shape
        assert (rows, columns) == (len(sentence["target"]["words"]), len(sentence["source"]["words"]))
        shown = shown.reshape(2, layers, heads + 1, rows, columns)[1, :, :heads]
        assert (shown == kept.numpy()).all()
    assert len(found) == 2
    assert "a &lt;b&gt; &amp; c" in page
    assert not re.search(r"""(src|href)=|https?://(?!www\.w3\.org)|@import|url\(""", page)


def test_a_long_film_is_thinned_out_and_keeps_its_ends(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(film, "MAX_FRAMES", 3)
    filmed(tmp_path, corpus, "transformer", *range(1, 10))
    assert '"frames":["update 1","update 5","update 9"]' in film.page(tmp_path, {}, title="")


@pytest.mark.parametrize("family", ["gpt", "bert", "rnn-none"])
def test_a_model_without_cross_attention_cannot_be_filmed(family: str) -> None:
    with pytest.raises(ConfigError, match=r"train\.film"):
        make_config(family, film=2)
