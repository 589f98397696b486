"""Demo: train its recipe with several seeds; BLEU on unseen sentences, on the longest ones, and agreement across words.

Settings are tried with `--settings "model.size=192 train.updates=2200" --test false`, which scores other sentences than
those of the test set.
"""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path

import regard
from benchmarks.measure import report
from regard.config import parse_assignments
from regard.corpora import catalog
from regard.corpora.builtin.corpus import Pair, sentences
from regard.evaluation.evaluate import Evaluation
from regard.stories import demo

ACROSS = re.compile(  # a subject, another noun, and a participle that agrees with the subject
    r"(?:The|A|An|This|That) (?:\w+ ){1,3}(?:on|about) (?:[\w']+ ){1,4}"
    r"(?:was|were|is|are|has been|have been|will be) \w+ed\b"
)
MIN_SENTENCES = 30  # of the longest bucket that is judged


def main(seeds: int = 5, first: int = 11, settings: str = "", test: bool = True) -> bool:
    """Train the demo's recipe once for each seed."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        catalog.write_builtin(data, sizes=demo.SIZES)
        seen = set((data / "train.en").read_text(encoding="utf-8").splitlines())
        across = [
            pair
            for pair in sentences(150_000, seed=7, max_length=14)
            if ACROSS.match(pair.source) and pair.source not in seen
        ]
        if not test:
            write(data / "test", list(sentences(1500, seed=2, part="valid")))
        runs = [
            train_once(data, Path(folder, str(seed)), seed, settings, across) for seed in range(first, first + seeds)
        ]
    enough = [
        report("seeds with three right translations", sum(run[0] for run in runs) / seeds, at_least=0.8),
        report("lowest BLEU on unseen sentences", min(run[1] for run in runs), at_least=95.0),
        report("lowest BLEU of the longest sentences", min(run[2] for run in runs), at_least=80.0),
    ]
    return all(enough)


def write(stem: Path, pairs: list[Pair]) -> None:
    stem.with_suffix(".en").write_text("".join(f"{pair.source}\n" for pair in pairs), encoding="utf-8")
    stem.with_suffix(".fr").write_text("".join(f"{pair.target}\n" for pair in pairs), encoding="utf-8")


def train_once(data: Path, out: Path, seed: int, settings: str, across: list[Pair]) -> tuple[bool, float, float]:
    """Whether the demo's sentences are right, BLEU, and BLEU of the longest bucket with enough sentences."""
    config = parse_assignments(settings.split())
    valid = (data / "valid.en", data / "valid.fr")
    start = time.perf_counter()
    regard.train(
        data / "train.en",
        data / "train.fr",
        out=out,
        valid=valid,
        recipe=demo.RECIPE,
        seed=seed,
        device="cpu",
        config=config,
    )
    seconds = time.perf_counter() - start
    scores = regard.evaluate(out, source=data / "test.en", reference=data / "test.fr", device="cpu")
    assert isinstance(scores, Evaluation)
    result = scores.to_dict()
    longest = [bucket["bleu"] for bucket in result["by_length"] if bucket["sentences"] >= MIN_SENTENCES][-1]
    translator = regard.load(out, device="cpu")
    texts = [result.text for result in translator.translate(demo.SENTENCES)]
    agree = [result.text for result in translator.translate([pair.source for pair in across])]
    share = sum(text == pair.target for text, pair in zip(agree, across, strict=True)) / len(across)
    bleu = float(result["bleu"]["score"])
    print(
        f"seed {seed}: {seconds:.0f} s, BLEU {bleu:.1f}, longest {longest:.1f}, agreement {share:.0%}",
        *texts,
        sep="\n  ",
    )
    return texts == list(demo.SENTENCES.values()), bleu, float(longest)
