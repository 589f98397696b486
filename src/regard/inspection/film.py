"""Film: record the cross-attention on a few fixed sentences at every validation, and show it as an animated page.

FOLDER/film/   sentences.json   update-00000100.safetensors (a matrix of bytes for each sentence)

F frames, L layers, H heads, T target words, S source words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import nn

from regard import folders
from regard.decoding import Hypothesis
from regard.inspection import inspector, pages
from regard.inspection.attribution import Map, default_layer
from regard.inspection.trace import Side, trace
from regard.results import counted
from regard.text.dataset import Dataset
from regard.text.tokenizer import Tokenizers

FILM = "film"  # the folder in a run's folder
SENTENCES = "sentences.json"
MIN_TOKENS, MAX_TOKENS = 6, 24  # of a filmed sentence
MAX_FRAMES = 60  # of a page; a longer film is thinned out evenly


class Film:
    """Writes frames into a run's folder; a resumed run deletes the frames after the update it resumes at."""

    def __init__(
        self, root: Path | None, dataset: Dataset, tokenizers: Tokenizers, *, sentences: int, update: int
    ) -> None:
        """Without a folder (in processes other than the main one) nothing is written."""
        pairs = [dataset.pair(example) for example in choose(dataset, sentences)]
        self._sources, self._targets = ([ids.tolist() for ids in side] for side in zip(*pairs, strict=True))
        self._tokenizers, self._root = tokenizers, root
        for number, path in frames(root).items() if root is not None else ():
            if number > update:
                folders.delete(path)

    def record_frame(self, model: nn.Module, update: int) -> None:
        """Record one frame: the cross-attention of a teacher-forced pass over the sentences."""
        training = model.training
        model.eval()
        hypotheses = [Hypothesis(target[:-1], 0.0, 0.0, True, []) for target in self._targets]
        traces = trace(model, self._sources, hypotheses, self._tokenizers, top=0)
        model.train(training)
        traces = [traced.split_punctuation() for traced in traces]
        if self._root is not None:
            folder = self._root / FILM
            sides = [{"source": x.source._asdict(), "target": x.target._asdict()} for x in traces]
            text = json.dumps(sides, ensure_ascii=False, indent=1) + "\n"
            folders.write_file(folder / SENTENCES, text, force=True)
            frame = {str(n): (255 * x.by_word("cross")).round().to(torch.uint8) for n, x in enumerate(traces)}
            frame = {name: weights.contiguous() for name, weights in frame.items()}
            folders.write_file(folder / f"update-{update:08d}.safetensors", save(frame), force=True)


def choose(dataset: Dataset, number: int) -> list[int]:
    """The first sentences of medium length; if there are too few, those closest to it."""
    lengths = np.stack([dataset.source.lengths, dataset.target.lengths])
    outside = np.abs(lengths - lengths.clip(MIN_TOKENS, MAX_TOKENS)).sum(0)
    return [int(example) for example in np.sort(np.argsort(outside, kind="stable")[:number])]


def frames(root: Path) -> dict[int, Path]:
    """The frames of a run by update, in order."""
    paths = (root / FILM).glob("update-*.safetensors")
    return dict(sorted((int(path.stem.removeprefix("update-")), path) for path in paths))


def page(root: Path, scores: Mapping[int, str], *, title: str, languages: tuple[str, str] = ("", "")) -> str:
    """The film as one self-contained HTML page; `scores` are shown beside their updates, the last one is its title."""
    paths = frames(root)
    chosen = np.unique(np.linspace(0, len(paths) - 1, MAX_FRAMES).round().astype(int))
    updates = [list(paths)[index] for index in chosen]
    frame_weights = [load_file(paths[update]) for update in updates]
    sentences: list[dict[str, Any]] = folders.read_json(root / FILM / SENTENCES)
    parts = []
    for number, sentence in enumerate(sentences):
        source, target = Side(**sentence["source"]), Side(**sentence["target"])
        weights = torch.stack([frame[str(number)] for frame in frame_weights]).float() / 255  # (F, L, H, T, S)
        shown = Map("attention", "cross", target, source, weights, weights.mean(2))
        data = {
            "family": "film",
            "source": pages.words(source, languages[0]),
            "target": pages.words(target, languages[1]),
            "maps": [inspector.to_values(shown, bits=8, languages=languages)],
            "layer": default_layer(weights.shape[1]),
            "head": -1,
            "frames": [" · ".join(filter(None, (f"update {update:,}", scores.get(update)))) for update in updates],
        }
        summary = f"<summary>{escape(source.text)}</summary>"
        parts.append(f"<details{' open' * (not number)}>{summary}{pages.drawn('inspector', data)}</details>")
    score, update = scores.get(updates[-1]), counted(updates[-1], "update")
    about = f"{title}: attention to the source for every word of the reference, at every validation."
    headline = f"{score} after {update}" if score else f"Attention after {update}"
    return pages.page(headline, parts, kind="film", about=about)
