"""Growth: CPU time per pair in preparation and per token in training as a corpus grows; memory as a translation grows.

CPU time is that of all processes, so that other programs on the machine change it little.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import regard
from benchmarks.text import BATCH_TOKENS, peak_memory, prepared_in, read
from regard.corpora.builtin.corpus import Pair, sentences
from regard.text.batching import pairs
from regard.text.dataset import Dataset
from regard.text.ordering import plan_batches
from regard.text.tokenizer import Tokenizers, train

DISTINCT = 10_000  # pairs of the built-in corpus; each further ten thousand repeats them with a number
SMALL = {"model.size": 64, "model.heads": 2, "model.encoder_layers": 1, "model.decoder_layers": 1}
UPDATES = 5  # that are timed
SHORT = 5  # words at most in a line of the translated file


def main(smallest: int = 10_000, largest: int = 10_000_000, lines: int = 1_000_000, rounds: int = 5) -> bool:
    """Two sizes of a corpus; a file of `lines` lines and one of a hundredth of them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return all([*corpora(folder, smallest, largest, rounds), translation(folder, lines)])


def write(folder: Path, distinct: Sequence[Pair], size: int) -> Path:
    folder.mkdir()
    with (
        open(folder / "source", "w", encoding="utf-8") as source,
        open(folder / "target", "w", encoding="utf-8") as target,
    ):
        for number in range(size):
            turn, place = divmod(number, len(distinct))
            ending = f" {turn}" if turn else ""
            source.write(f"{distinct[place].source}{ending}\n")
            target.write(f"{distinct[place].target}{ending}\n")
    return folder


def corpora(folder: Path, smallest: int, largest: int, rounds: int) -> list[bool]:
    """What a pair costs in preparation, and a token in training: an update of a small model, and batching."""
    from benchmarks.measure import report  # not above: it imports torch, whose memory would be measured too

    distinct = list(sentences(DISTINCT))
    small_corpus, large_corpus = (write(folder / str(size), distinct, size) for size in (smallest, largest))
    tokenizer = train(chain.from_iterable(read(small_corpus)), kind="bpe", vocabulary=8000)
    Tokenizers(tokenizer, tokenizer).save(folder)
    turns = [measure("data", small_corpus) for _ in range(rounds)]
    small = {name: min(turn[name] for turn in turns) for name in turns[0]}
    large = measure("data", large_corpus)
    update = measure("update", small_corpus)["update"]
    sizes = f"{largest:,} pairs against {smallest:,}"
    return [
        report(
            f"CPU time per pair in preparation, {sizes}",
            large["prepare"] / small["prepare"],
            at_most=1.1,
            microseconds=large["prepare"] * 1e6,
            megabytes=large["megabytes"],
        ),
        report(
            f"CPU time per token in training, {sizes}",
            (update + large["batch"]) / (update + small["batch"]),
            at_most=1.1,
            update_microseconds=update * 1e6,
            batch_microseconds=large["batch"] * 1e6,
            batch_microseconds_smallest=small["batch"] * 1e6,
        ),
    ]


def translation(folder: Path, lines: int) -> bool:
    """Peak memory of `regard translate`."""
    from benchmarks.measure import report

    distinct = list(sentences(DISTINCT, max_length=SHORT))
    few, many = (write(folder / f"{size} lines", distinct, size) for size in (lines // 100, lines))
    files = few / "source", few / "target"
    regard.train(*files, out=folder / "model", valid=files, updates=400, config=SMALL, device="cpu")
    small, large = measure("translate", few), measure("translate", many)
    return report(
        f"memory of translating {lines:,} lines against {lines // 100:,}",
        large["megabytes"] / small["megabytes"],
        at_most=1.1,
        megabytes=large["megabytes"],
        lines_per_cpu_second=lines / large["seconds"],
    )


def measure(work: str, folder: Path) -> dict[str, float]:
    """A measurement in a new process, so that its memory is its own."""
    command = [sys.executable, "-m", "benchmarks.growth", work, str(folder)]
    return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))


def data(folder: Path) -> dict[str, float]:
    """Prepare a corpus, then collate one epoch of it."""
    with tempfile.TemporaryDirectory(dir=folder) as cache, peak_memory() as peaks:
        begun = cpu_seconds()
        dataset = Dataset.open(prepared_in(Path(cache), folder, "growth"))
        prepared = cpu_seconds()
        lengths = dataset.source.lengths, dataset.target.lengths
        plan = plan_batches(*lengths, batch_tokens=BATCH_TOKENS, seed=1, epoch=0)
        make = pairs(dataset, plan, rank=0, world_size=1)
        tokens = sum(make(number).target_tokens for number in range(len(plan)))
        ended = cpu_seconds()
    return {
        "prepare": (prepared - begun) / len(dataset),
        "batch": (ended - prepared) / tokens,
        "megabytes": sum(peaks.values()) / 1024,
    }


def update(folder: Path) -> dict[str, float]:
    """CPU seconds per target token of an update of a small transformer."""
    import torch

    from regard.config import ModelConfig
    from regard.models import build
    from regard.training.losses import cross_entropy

    model = build(ModelConfig(size=256, heads=4, encoder_layers=3, decoder_layers=3, vocabulary=8000))
    ids = torch.randint(5, 8000, (128, 32))
    optimizer = torch.optim.AdamW(model.parameters())
    begun = cpu_seconds()
    for _ in range(UPDATES):
        logits, _ = model.step(ids, model.start(ids))
        (cross_entropy(logits, ids, 0.0)[0] / ids.numel()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"update": (cpu_seconds() - begun) / (UPDATES * ids.numel())}


def translate(folder: Path) -> dict[str, float]:
    """Translate a file with the command line, greedily."""
    command = ["translate", str(folder.parent / "model"), str(folder / "source"), "--out", str(folder / "out")]
    with peak_memory() as peaks:
        begun = cpu_seconds()
        subprocess.run([sys.executable, "-m", "regard", *command, "--beams", "1", "--device", "cpu"], check=True)
        seconds = cpu_seconds() - begun
    return {"seconds": seconds, "megabytes": max(peaks.values()) / 1024}


def cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in usage)


WORK = {"data": data, "update": update, "translate": translate}

if __name__ == "__main__":
    print(json.dumps(WORK[sys.argv[1]](Path(sys.argv[2]))))
