"""A safety net for refactoring: what every family learns in 20 updates and what every command reports, by value.

`python -m benchmarks net --write true` records `benchmarks/net.json`; `python -m benchmarks net` compares with it. Only
values are kept, not names, so that renames pass: losses, hashes of weights, texts, and the numbers of each JSON report.
Numbers depend on the CPU; on another kind of CPU than the recorded one only the shape of the results is compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

RECORD = Path(__file__).with_name("net.json")
SMALL = [
    "model.size=32",
    "model.heads=4",
    "model.feed_forward_size=64",
    "model.encoder_layers=2",
    "model.decoder_layers=2",
]
TRAIN = [
    "text.vocabulary=600",
    "train.updates=20",
    "train.batch_tokens=1024",
    "train.warmup=5",
    "train.validate_every=10",
]
TRAIN += ["train.save_every=10", "train.seed=3"]
RUNS = {
    "rnn": ["model.family=rnn"],
    "rnn-lstm-dot": ["model.family=rnn", "model.cell=lstm", "model.score=dot", "model.feed=output"],
    "rnn-none": ["model.family=rnn", "model.score=none"],
    "transformer": ["model.family=transformer"],
    "transformer-options": [
        "model.family=transformer",
        "model.norm_placement=pre",
        "model.positions=rotary",
        "model.activation=swiglu",
        "train.r_drop=1.0",
        "train.ema_decay=0.9",
        "train.schedule=cosine",
        "train.gradient_accumulation=2",
        "text.bpe_dropout=0.1",
        "text.bpe_dropout_variants=2",
    ],
    "gpt": ["model.family=gpt", "text.context_length=64"],
    "bert": ["model.family=bert", "model.max_positions=64", "text.context_length=64", "text.max_length=60"],
}
SENTENCE = "The agreement on the European Economic Area was signed."
COUNTED = ["transformer-base", "bert-base", "gpt2", "builtin-rnn"]


def main(write: bool = False) -> bool:
    """Record the net, or compare with the record and print what differs."""
    with tempfile.TemporaryDirectory() as folder:
        values = collect(Path(folder))
    if write:
        RECORD.write_text(json.dumps({"cpu": cpu(), "values": values}, indent=0) + "\n", encoding="utf-8")
        print(f"recorded {len(values)} entries in {RECORD.name}")
        return True
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    same_cpu = record["cpu"] == cpu()
    if not same_cpu:
        print(f"recorded on {record['cpu']}, this is {cpu()}: only the number of values is compared", file=sys.stderr)
    different = [name for name in record["values"] if not equal(record["values"][name], values.get(name), same_cpu)]
    for name in different:
        print(f"{name}\n  recorded {str(record['values'][name])[:2000]}\n  now      {str(values.get(name))[:2000]}")
    print(f"{len(record['values']) - len(different)} of {len(record['values'])} entries are as recorded")
    return not different


def cpu() -> str:
    """What the results of float arithmetic depend on."""
    return f"{torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def equal(recorded: Any, now: Any, same_cpu: bool) -> bool:
    """The same values; on another kind of CPU, as many of them."""
    return recorded == now if same_cpu else now is not None and len(recorded) == len(now)


def collect(root: Path) -> dict[str, Any]:
    """Every entry of the net, by name."""
    data, values = root / "data", {}
    sizes = ["--train", "600", "--valid", "40", "--test", "30"]
    values["data get"] = numbers(regard(root, "data", "get", "builtin", "--out", "data", *sizes, "--json"))
    values["data"] = [digest(path.read_bytes()) for path in sorted(data.iterdir()) if path.suffix in (".en", ".fr")]
    for name, settings in RUNS.items():
        alone = name in ("gpt", "bert")
        files = ["data/train.en"] if alone else ["data/train.en", "data/train.fr"]
        valid = ["--valid", "data/valid.en", "" if alone else "data/valid.fr"]
        values[f"train {name}"] = trained(root, name, *files, *valid, settings=settings)
    pairs = ["data/train.en", "data/train.fr", "--valid", "data/valid.en", "data/valid.fr"]
    values["train warm"] = trained(root, "warm", *pairs, "--from", "bert", "--from", "bert", settings=[], shape=[])
    values["train lora"] = trained(
        root, "lora", *pairs, "--from", "transformer", settings=["train.lora_rank=4"], shape=[]
    )
    test = ["--source", "data/test.en", "--reference", "data/test.fr"]
    for name in ("rnn", "rnn-none", "transformer", "warm", "lora"):
        for beams in ("1", "5"):
            values[f"translate {name} {beams}"] = regard(root, "translate", name, "data/test.en", "--beams", beams)
    rich = "score,confidence,warnings,alignment"
    (root / "in.jsonl").write_text(json.dumps({"text": SENTENCE}) + "\n", encoding="utf-8")
    values["translate jsonl"] = numbers(regard(root, "translate", "transformer", "in.jsonl", "--jsonl", "--add", rich))
    values["translate sample"] = regard(root, "translate", "transformer", "data/test.en", "--sample", "--seed", "1")
    for name in ("rnn", "transformer"):
        regard(root, "explain", name, SENTENCE, "--out", f"{name}.json")
        values[f"trace {name}"] = numbers((root / f"{name}.json").read_text(encoding="utf-8"))
        values[f"align {name}"] = regard(root, "align", name, "data/test.en", "data/test.fr")
    values["explain"] = numbers(regard(root, "explain", "transformer", SENTENCE, "--out", "x.html", "--json"))
    values["generate"] = regard(root, "generate", "gpt", "The", "--tokens", "20", "--greedy")
    values["fill"] = numbers(regard(root, "fill", "bert", "The [MASK] is here.", "--json"))
    values["embed"] = numbers(regard(root, "embed", "bert", "data/test.en", "--out", "x.npy", "--json"))
    values["evaluate"] = numbers(regard(root, "evaluate", "transformer", *test, "--json"))
    values["evaluate gpt"] = numbers(regard(root, "evaluate", "gpt", "--source", "data/test.en", "--json"))
    values["compare"] = numbers(regard(root, "compare", "rnn", "transformer", *test, "--json"))
    values["check"] = numbers(regard(root, "check", *pairs, "--json"))
    for name in COUNTED:
        values[f"count {name}"] = numbers(regard(root, "count", name, "--json"))
    return values


def trained(root: Path, name: str, *words: str, settings: list[str], shape: list[str] | None = None) -> list[Any]:
    """Losses of every update, scores of every validation, and the weights that were kept."""
    chosen = [*(SMALL if shape is None else shape), *TRAIN, *settings]
    assignments = [word for setting in chosen for word in ("--set", setting)]
    regard(root, "train", *words, "--out", name, *assignments, "--json")
    journal = [json.loads(line) for line in (root / name / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [value for entry in journal for key, value in entry.items() if key in ("loss", "bleu", "chrf")]
    weights = load_file(root / name / "model.safetensors")
    return [losses, sorted(digest(tensor.contiguous().numpy().tobytes()) for tensor in weights.values())]


def regard(root: Path, *words: str) -> str:
    """Standard output of a command."""
    environment = os.environ | {"XDG_CACHE_HOME": str(root / "cache"), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    threads = ["--threads", "1"] if words[0] in ("train", "translate", "evaluate", "compare") else []
    command = [sys.executable, "-m", "regard", *words, *threads]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed with exit {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def numbers(text: str) -> list[Any]:
    """Every number in a JSON report, in order, times left out; of a long report the first ones and a hash of all."""

    def leaves(value: Any, key: str = "") -> list[Any]:
        if isinstance(value, dict):
            return [leaf for name, item in value.items() for leaf in leaves(item, name)]
        if isinstance(value, list):
            return [leaf for item in value for leaf in leaves(item, key)]
        timed = "second" in key or "minute" in key or key in ("time", "milliseconds", "speed")
        return [] if timed or value is None or isinstance(value, str) else [round(value, 5)]

    values = leaves(json.loads(text))
    return values if len(values) <= 100 else [*values[:20], len(values), digest(json.dumps(values).encode())]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
