"""Import and export: random models of every architecture through both sides, and time and memory for a model of 110 M.

python -m benchmarks interop --seeds 20            # --kind llama: the random models of one architecture alone
python -m benchmarks interop --lines 2000          # the ids of tokenizers alone, on the corpora of REGARD_DATA
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import transformers
from tests.interop.published import MODELS, publish
from tests.interop.tokenizers import TOKENIZERS, seven_languages

from regard.evaluation.importing import import_model
from regard.interop.exporting import export

MAX_SECONDS = 20.0
MAX_MEMORY = 2.0  # times the weights
PROGRAM = """
import re, sys, time
import regard
from regard.evaluation import importing
from regard.interop import exporting
def peak(): return int(re.search("VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
before = peak()
start = time.perf_counter()
getattr(regard, sys.argv[1])(sys.argv[2], sys.argv[3], sentences=0)
print(time.perf_counter() - start, peak() - before)
"""


def main(*, seeds: int = 20, kind: str = "", lines: int = 0) -> bool:
    """Print what was compared; whether all of it held."""
    if lines:
        return _tokenizers(lines)
    if kind:
        return _random_models([kind], seeds)
    same = _random_models(list(MODELS), seeds)
    return _large() and same


def _random_models(kinds: list[str], seeds: int) -> bool:
    failed = 0
    for kind in kinds:
        verifications, bit_identical = [], 0
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as place:
                theirs, ours, out = (Path(place) / name for name in ("theirs", "ours", "out"))
                publish(kind, seed, theirs)
                try:
                    imported, exported = import_model(theirs, ours, sentences=5), export(ours, out, sentences=5)
                except Exception as error:
                    print(f"{kind} {seed}: {error}")
                    failed += 1
                    continue
                import_model(out, Path(place) / "again", sentences=0)
                one, two = (Path(place, name, "model.safetensors").read_bytes() for name in ("ours", "again"))
                failed += one != two
                bit_identical += one == two
                verifications += [imported.verification, exported.verification]
        difference = max(verification.difference / max(verification.largest, 1.0) for verification in verifications)
        identical = {
            "greedy": [verification.greedy for verification in verifications],
            "beam": [verification.beam for verification in verifications],
        }
        counts = [f"{name} {sum(found)}" for name, found in identical.items() if None not in found]
        of = (
            f", {' and '.join(counts)} of {sum(verification.sentences for verification in verifications)} identical"
            if counts
            else ""
        )
        print(
            f"{kind:16} {seeds} models in and out, {bit_identical} after a round trip equal to the bit: largest "
            f"difference {difference:.1e} of the largest logit{of}"
        )
    return not failed


def _tokenizers(count: int) -> bool:
    """Compare the ids of tokenizers on lines of seven languages, at most `count` of each."""
    texts, same = seven_languages(count), True
    for name, both in TOKENIZERS.items():
        with tempfile.TemporaryDirectory() as place:
            sides = both(texts, Path(place))
        counts = [sum(one == two for one, two in zip(ours, theirs, strict=True)) for ours, theirs in sides]
        totals = [len(ours) for ours, _ in sides]
        same &= counts == totals
        print(f"{name:16} the ids of {sum(counts):,} of {sum(totals):,} lines are those of the original", flush=True)
    return same


def _large() -> bool:
    """Time and memory for a BERT base, each in a process of its own; the memory is that beyond the libraries."""
    with tempfile.TemporaryDirectory() as place:
        theirs, ours, out = (Path(place) / name for name in ("theirs", "ours", "out"))
        publish("bert", 0, theirs)  # its tokenizer
        model = transformers.BertForPreTraining(transformers.BertConfig())
        model.save_pretrained(theirs)
        weights = (theirs / "model.safetensors").stat().st_size
        held = True
        for verb, source, target in (("import_model", theirs, ours), ("export", ours, out)):
            command = [sys.executable, "-c", PROGRAM, verb, str(source), str(target)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds, kilobytes = map(float, done.stdout.split())
            share = kilobytes * 1024 / weights
            held &= seconds < MAX_SECONDS and share < MAX_MEMORY
            print(f"{verb} of {model.num_parameters():,} parameters: {seconds:.1f} s, {share:.2f} times the weights")
    return held
