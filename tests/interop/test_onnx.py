"""ONNX graphs in onnxruntime compute what the model does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.config import Config, ModelConfig
from regard.errors import ConfigError, FolderError
from regard.interop import onnx as interop
from regard.interop.exporting import export
from regard.models import build
from regard.models.folder import load_model, save_model
from regard.text.tokenizer import train
from regard.translation.translator import Translator

pytest.importorskip("onnxruntime")

PAGE = Path(__file__).parents[2] / "docs" / "interop.md"
TOKENIZER = train(["the cat sat on the mat and saw a dog", "le chat noir"], kind="bpe", vocabulary=300)
OPTIONS: dict[str, dict[str, Any]] = {
    "the paper's": {"output_bias": True},
    "another": {
        "positions": "learned", "norm": "rms", "norm_placement": "pre", "activation": "swiglu", "bias": False,
        "key_value_heads": 2, "tie_embeddings": "none", "score": "additive", "embedding_norm": True,
    },
}  # fmt: skip


def random_folder(folder: Path, **options: Any) -> Path:
    torch.manual_seed(0)
    shape = {"vocabulary": TOKENIZER.size, "size": 16, "heads": 4, "feed_forward_size": 24, "max_positions": 64}
    config = ModelConfig(**{**shape, "encoder_layers": 1, "decoder_layers": 2, **options})
    model = build(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    save_model(folder, model, Config(model=config), {"tokenizer.json": TOKENIZER.text}, force=False)
    return folder


@pytest.fixture(scope="module", params=OPTIONS)
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model folder and its export."""
    place = tmp_path_factory.mktemp("onnx")
    folder = random_folder(place / "model", **OPTIONS[request.param])
    assert export(folder, place / "out", to="onnx", sentences=3).verification.greedy == 3
    return folder, place / "out"


@pytest.mark.slow
def test_graphs_give_the_logits_of_the_model_for_any_number_of_rows_and_tokens(folders: tuple[Path, Path]) -> None:
    model, runtime = load_model(folders[0])[0], interop.Runtime(folders[1])
    for rows, sources, steps in ((1, 1, [1, 1]), (3, 9, [4, 1, 2])):
        source, tokens = (torch.randint(5, TOKENIZER.size, (rows, count)) for count in (sources, sum(steps)))
        mask = torch.ones_like(source)
        mask[1:, -2:] = 0
        with torch.inference_mode():
            expected, _ = model.step(tokens, model.start(source, mask.bool()))
        cross, past, found = runtime.encode(source.numpy(), mask.numpy()), runtime.empty(rows), []
        for part in tokens.split(steps, dim=1):
            logits, past = runtime.decode(part.numpy(), cross, past)
            found.append(logits)
        np.testing.assert_allclose(np.concatenate(found, 1), expected.numpy(), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_the_greedy_search_of_the_page_translates_as_regard_does(folders: tuple[Path, Path]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    names: dict[str, Any] = {}
    exec(program.replace('"out"', repr(str(folders[1]))), names)
    names["settings"]["max_new_tokens"] = 9
    translator = Translator.load(folders[0], "cpu", ["decode.max_length_ratio=0", "decode.max_length_extra=9"])
    texts = ["the cat sat on the mat", "a dog", "noir"]
    ours = [result.text for result in translator.translate(texts, beams=1)]
    assert [names["translate"](text) for text in texts] == ours


@pytest.mark.slow
def test_graphs_do_not_say_where_they_were_made(folders: tuple[Path, Path]) -> None:
    for name in (interop.ENCODER, interop.DECODER):
        assert b".py" not in (folders[1] / name).read_bytes()


def test_other_families_are_refused(tmp_path: Path) -> None:
    folder = random_folder(tmp_path / "model", family="rnn")
    with pytest.raises(FolderError, match="holds a rnn, which is not exported to ONNX"):
        export(folder, tmp_path / "out", to="onnx")


def test_a_missing_library_is_named_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interop.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs onnx and onnxscript: pip install regard\[onnx\]"):
        export(random_folder(tmp_path / "model"), tmp_path / "out", to="onnx")
    assert not (tmp_path / "out").exists()
