"""Small runs: a corpus of a few hundred lines and a model of each family, trained for a few updates."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from regard.config import Config
from regard.devices import find_device
from regard.models import build
from regard.text.batching import Batch
from regard.text.tokenizer import Tokenizer, Tokenizers, train
from regard.training.checkpoint import CheckpointWriter, checkpoints, load_tensors
from regard.training.data import Data, Files, prepare
from regard.training.distributed import Runtime
from regard.training.events import ActivityEvent, Event
from regard.training.loop import Training
from regard.training.start_from import set_trained
from regard.training.validation import Validation

WORDS = """the a small old green house tree river bird child sees hears loves finds under near behind with""".split()  # noqa: SIM905

SHAPE: dict[str, Any] = {
    "size": 16,
    "heads": 2,
    "feed_forward_size": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_positions": 64,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "transformer": {},
    "rnn-input": {"family": "rnn"},
    "rnn-output": {"family": "rnn", "feed": "output", "score": "dot", "cell": "lstm"},
    "rnn-none": {"family": "rnn", "score": "none"},
    "gpt": {"family": "gpt", "positions": "learned", "norm_placement": "pre", "scale_embeddings": False},
    "bert": {"family": "bert", "activation": "gelu"},
}


def write_corpus(folder: Path, lines: int = 400) -> Path:
    """Sentences, and the same words backwards: enough order to learn, and none by heart."""
    import random

    chance = random.Random(7)
    sources = [" ".join(chance.choice(WORDS) for _ in range(chance.randint(2, 9))) for _ in range(lines)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in sources))
    (folder / "b.txt").write_text("".join(f"{' '.join(reversed(line.split()))}\n" for line in sources))
    return folder


def make_config(family: str, **train_values: Any) -> Config:
    values = {
        "updates": 12,
        "batch_tokens": 400,
        "warmup": 4,
        "learning_rate": 0.01,
        "validate_every": 6,
        "save_every": 4,
        **train_values,
    }
    return Config.read({
        "model": {**SHAPE, **FAMILIES[family]},
        "text": {"vocabulary": 300, "context_length": 24},
        "train": values,
    })  # fmt: skip


@functools.cache
def learned(corpus: Path) -> Tokenizer:
    text = (corpus / "a.txt").read_text() + (corpus / "b.txt").read_text()
    return train(text.splitlines(), kind="bpe", vocabulary=300)


def make_data(corpus: Path, config: Config) -> tuple[Config, Data]:
    single = config.model.family in ("gpt", "bert")
    files = Files(corpus / "a.txt", None if single else corpus / "b.txt", single)
    tokenizer = learned(corpus)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocabulary=tokenizer.size))
    data = prepare([files], None, config, Tokenizers(tokenizer, tokenizer), lambda _: None)
    return config, data


def make_training(folder: Path, corpus: Path, config: Config, runtime: Runtime | None = None) -> Training:
    import torch

    config, data = make_data(corpus, config)

    torch.manual_seed(config.train.seed)
    model = build(config.model)
    set_trained(model, config, ())
    return Training(folder, model, config, data, runtime or Runtime(find_device("cpu"), 0, 1))


def ignore(event: Event) -> None:
    """An observer that does nothing."""


def no_validation(model: nn.Module) -> Validation:
    return Validation(0.0, 0.0)


def out_of_memory_above(rows: int, batch_loss: Callable[..., Any]) -> Callable[..., Any]:
    """The loss on a device whose memory holds so many rows, or ten times as many packed tokens."""
    import torch

    def limited(model: nn.Module, batch: Batch, *rest: Any) -> Any:
        needed = len(batch.target_out) if batch.target_starts is None else batch.target_out.shape[1] / 10
        if needed > rows:
            raise torch.cuda.OutOfMemoryError("as if a GPU were full")
        return batch_loss(model, batch, *rest)

    return limited


def copy_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is saved is copied when the next step is already there."""
    copy = CheckpointWriter._copy

    def late(saver: CheckpointWriter, *args: Any) -> Any:
        time.sleep(0.1)
        return copy(saver, *args)

    monkeypatch.setattr(CheckpointWriter, "_copy", late)


def compare_saves(training: Training) -> None:
    """Every checkpoint of a run has what was there when it was saved."""
    import torch

    states = {}

    def observe(event: Event) -> None:
        if isinstance(event, ActivityEvent) and event.activity == "saving":
            state = training.state()
            states[event.update] = {g: {n: t.clone() for n, t in named.items()} for g, named in state.items()}

    training.run(no_validation, observe)
    for path, state in zip(checkpoints(training.folder), states.values(), strict=True):
        saved = load_tensors(path)
        for group, named in state.items():
            for name, tensor in named.items():
                assert torch.equal(saved[group][name], tensor.cpu()), f"{path.name}, {group}: {name}"
