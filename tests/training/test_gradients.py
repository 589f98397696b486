"""Gradients are the same eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.config import Config
from regard.models import build
from regard.text.batching import collate
from regard.training import gradients
from regard.training.events import UpdateEvent
from regard.training.gradients import uses_compile
from regard.training.losses import batch_loss
from tests.models.families import GENERATORS
from tests.training.runs import ignore, make_config, make_training, no_validation, write_corpus


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler traces and differentiates, and leaves the making of kernels out."""
    whole: Callable[..., Any] = torch.compile
    monkeypatch.setattr(torch, "compile", lambda part, **options: whole(part, backend="aot_eager", **options))


def losses(folder: Path, corpus: Path, config: Config) -> list[float]:
    found: list[float] = []
    training = make_training(folder, corpus, config)
    training.run(no_validation, lambda event: found.append(event.loss) if isinstance(event, UpdateEvent) else None)
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize(("family", "lora_rank"), [("transformer", 2), ("gpt", 0), ("bert", 0)])
def test_a_compiled_model_trains_as_an_eager_one(family: str, lora_rank: int, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    config = make_config(family, updates=4, lora_rank=lora_rank).with_values(
        ["model.dropout=0", "model.decoder_layers=2"]
    )
    plain = losses(tmp_path / "plain", corpus, config)
    torch._dynamo.utils.counters.clear()
    assert losses(tmp_path / "compiled", corpus, config.with_values(["train.compile=yes"])) == pytest.approx(plain)
    counted = torch._dynamo.utils.counters
    assert counted["stats"]["unique_graphs"] <= (6 if lora_rank else 5), "the layers share their programs"
    assert not counted["graph_break"]


@pytest.mark.usefixtures("without_kernels")
def test_a_compiled_model_decodes_and_records_as_before() -> None:
    model = build(GENERATORS["transformer"]).eval()
    source, target = torch.randint(5, 11, (2, 6)), torch.randint(5, 11, (2, 4))

    @torch.no_grad()
    def said() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        record: dict[str, torch.Tensor] = {}
        return model.step(target, model.start(source, record=record), record)[0], record

    before, before_record = said()
    gradients.compile_blocks(model, dynamic=True)
    after, after_record = said()
    assert torch.equal(before, after)
    assert before_record.keys() == after_record.keys()


def test_a_packed_batch_has_the_loss_and_gradients_of_a_padded_one(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    config = make_config("transformer", packed=True).with_values(["model.dropout=0"])
    training = make_training(tmp_path / "run", corpus, config)
    packed = next(training.batches)
    padded = collate(training.data.train[0], packed.examples, shape=None)
    found = []
    for batch in (packed, padded):
        training.model.zero_grad()
        loss, nll = batch_loss(training.model, batch, training.config.train)
        loss.backward()
        found.append([loss, nll, *(weight.grad for weight in training.model.parameters())])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_packed_batches_have_one_shape(tmp_path: Path) -> None:
    training = make_training(tmp_path / "run", write_corpus(tmp_path), make_config("transformer", packed=True))
    assert len({next(training.batches).target_out.shape for _ in range(30)}) == 1
    assert training.run(no_validation, ignore).update == 12


@pytest.mark.parametrize("family", ["transformer", "rnn-input"])
def test_batches_of_few_shapes_are_trained_on(family: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    training = make_training(tmp_path / "run", corpus, make_config(family, batch_shapes=3, updates=20))
    shapes = set()
    for _ in range(30):
        shapes.add(tuple(next(training.batches).target_out.shape))
    assert 1 < len(shapes) <= 3
    assert training.run(no_validation, ignore).update == 20


@pytest.mark.parametrize(
    ("values", "device", "expected"),
    [
        ({"train": {"compile": "yes"}}, "cpu", True),
        ({"train": {"compile": "no", "updates": 10**6}}, "cuda", False),
        ({"train": {"updates": 10**6}}, "cpu", False),
        ({"train": {"updates": 10}}, "cuda", False),
        ({"model": {"family": "rnn"}, "train": {"updates": 10**6}}, "cuda", False),
        ({"train": {"updates": 10**6, "precision": "bf16"}}, "cuda", True),
        ({"train": {"updates": 10**6, "precision": "bf16", "packed": True}}, "cuda", True),
        ({"train": {"updates": 10**6, "precision": "fp32", "packed": True}}, "cuda", False),
    ],
)
def test_compiling_is_for_long_runs_on_a_gpu(
    values: dict[str, Any], device: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.kernels.is_available", lambda: True)
    assert uses_compile(Config.read(values), torch.device(device)) is expected
