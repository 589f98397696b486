"""Film: record the cross-attention on a few fixed sentences at every validation, and show it as an animated page.

FOLDER/film/   sentences.json   update-00000100.safetensors (a matrix of bytes for each sentence)

F frames, L layers, H heads, T target tokens, S source tokens.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from regard import folders
from regard.errors import FolderError
from regard.inspection import inspector
from regard.models import Generator
from regard.models.contract import Record
from regard.text.dataset import Dataset
from regard.text.tokenizer import END, SPECIALS, START, Tokenizer, Tokenizers

FILM = "film"  # the folder in a run's folder
SENTENCES = "sentences.json"
MIN_TOKENS, MAX_TOKENS = 6, 24  # of a filmed sentence
MAX_FRAMES = 60  # of a page; a longer film is thinned out evenly
_FRAME = re.compile(r"update-(\d{8,})\.safetensors")


class Film:
    """Writes frames into a run's folder; a resumed run deletes the frames after the update it resumes at."""

    def __init__(
        self, root: Path | None, dataset: Dataset, tokenizers: Tokenizers, *, sentences: int, update: int
    ) -> None:
        """Without a folder (in processes other than the main one) nothing is written."""
        self._pairs = [_pair(dataset, example) for example in choose(dataset, sentences)]
        self._folder = None if root is None else root / FILM
        if root is None or self._folder is None:
            return
        for number, path in frames(root).items():
            if number > update:
                folders.delete(path)
        listed = [
            {"source": words(tokenizers.source, source), "target": words(tokenizers.target, target)}
            for source, target in self._pairs
        ]
        folders.write_file(
            self._folder / SENTENCES, json.dumps(listed, ensure_ascii=False, indent=1) + "\n", force=True
        )

    @torch.no_grad()
    def record_frame(self, model: nn.Module, update: int) -> None:
        """Record one frame: the cross-attention of a teacher-forced pass over the sentences."""
        writer, device = cast(Generator, model), next(model.parameters()).device
        frame: dict[str, Tensor] = {}
        training = model.training
        model.eval()
        for number, (source, target) in enumerate(self._pairs):
            record: Record = {}
            state = writer.start(torch.tensor([source], device=device))
            writer.step(torch.tensor([[START, *target[:-1]]], device=device), state, record)
            names = [name for name in record if name.endswith(".cross")]
            names.sort(key=lambda name: int(name.split(".")[1]))
            weights = torch.cat([record[name] for name in names]).float()  # (L, H, T, S)
            frame[str(number)] = (weights * 255).round().to(torch.uint8).cpu()
        model.train(training)
        if self._folder is not None:
            folders.write_file(self._folder / f"update-{update:08d}.safetensors", save(frame), force=True)


def choose(dataset: Dataset, number: int) -> list[int]:
    """The first sentences of medium length; if there are too few, those closest to it."""
    outside = np.zeros(len(dataset), np.int64)
    for lengths in (dataset.source.lengths, dataset.target.lengths):
        outside += np.maximum(MIN_TOKENS - lengths, 0) + np.maximum(lengths - MAX_TOKENS, 0)
    return [int(example) for example in np.sort(np.argsort(outside, kind="stable")[:number])]


def words(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each token up to the end token; the continuation of a word begins with a dot."""
    texts, before = [], ""
    for number in range(1, len(ids)):
        text = tokenizer.decode(ids[:number]).rstrip("\ufffd")  # a character may have several tokens
        added = text[len(before) :]
        inside = number > 1 and added[:1].strip() != "" and before[-1:].strip() != ""
        texts.append("·" * inside + (added.strip() or "·"))
        before = text
    return [*texts, SPECIALS[END]]


def frames(root: Path) -> dict[int, Path]:
    """The frames of a run by update, in order."""
    paths = {int(name[1]): path for path in (root / FILM).glob("update-*") if (name := _FRAME.fullmatch(path.name))}
    return dict(sorted(paths.items()))


def page(root: Path, scores: Mapping[int, str], *, title: str) -> str:
    """The film as one self-contained HTML page; `scores` are shown beside their updates."""
    paths = frames(root)
    if not paths:
        raise FolderError(f"{root} has no film: train with --set train.film=4")
    chosen = list(paths)
    if len(chosen) > MAX_FRAMES:
        chosen = [chosen[round(i * (len(chosen) - 1) / (MAX_FRAMES - 1))] for i in range(MAX_FRAMES)]
    frame_weights = [_read(paths[update]) for update in chosen]
    with folders.clear_os_errors(root / FILM / SENTENCES, "read"):
        sentences: list[dict[str, Any]] = json.loads((root / FILM / SENTENCES).read_bytes())
    for number, sentence in enumerate(sentences):
        weights = np.stack([frame[str(number)] for frame in frame_weights])  # (F, L, H, T, S)
        sentence |= {"layers": weights.shape[1], "heads": weights.shape[2]}
        sentence["weights"] = base64.b64encode(np.ascontiguousarray(weights).tobytes()).decode()
    data = {"updates": chosen, "scores": [scores.get(update, "") for update in chosen], "sentences": sentences}
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")  # no word may end the script element
    template = files("regard.inspection").joinpath("page/film.html").read_text(encoding="utf-8")
    return Template(template).substitute(title=escape(title), colours=inspector.colours(), data=text)


def _pair(dataset: Dataset, example: int) -> tuple[list[int], list[int]]:
    source, target = dataset.pair(example)
    return source.tolist(), target.tolist()


def _read(path: Path) -> dict[str, NDArray[np.uint8]]:
    with folders.clear_os_errors(path, "read"):
        data = path.read_bytes()
    try:
        return {name: tensor.numpy() for name, tensor in load(data).items()}
    except SafetensorError as error:
        raise FolderError(f"{path} is damaged or truncated: {error}") from error
