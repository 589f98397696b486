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


def record_frame(
    root: Path | None, update: int, model: nn.Module, dataset: Dataset, tokenizers: Tokenizers, *, sentences: int
) -> None:
    """Record one frame: the cross-attention of a teacher-forced pass over some sentences of a dataset.

    Without a folder (in processes other than the main one) the model runs, and nothing is written.
    """
    pairs = [dataset.pair(example) for example in choose(dataset, sentences)]
    sources = [source.tolist() for source, _ in pairs]
    hypotheses = [Hypothesis(target[:-1].tolist(), 0.0, 0.0, True, []) for _, target in pairs]
    training = model.training
    model.eval()
    traces = [traced.split_punctuation() for traced in trace(model, sources, hypotheses, tokenizers, top=0)]
    model.train(training)
    if root is not None:
        sides = [{"source": x.source._asdict(), "target": x.target._asdict()} for x in traces]
        folders.write_file(root / FILM / SENTENCES, json.dumps(sides, ensure_ascii=False, indent=1) + "\n", force=True)
        shares = {str(number): x.by_word("cross").contiguous() for number, x in enumerate(traces)}
        frame = {number: (255 * weights).round().to(torch.uint8) for number, weights in shares.items()}
        folders.write_file(root / FILM / f"update-{update:08d}.safetensors", save(frame), force=True)


def delete_later_frames(root: Path, update: int) -> None:
    """Delete the frames after the update at which a run resumes."""
    for number, path in frames(root).items():
        if number > update:
            folders.delete(path)


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
