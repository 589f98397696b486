"""Fuzzing: damaged folders, random strings, real documents, simultaneous starts and kills, with a table of failures.

The cases run in worker processes, so that a crash or a hang is a failure like any other. A case is a number: the same
number of the same seed is always the same case.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from benchmarks import survive
from benchmarks.measure import report

SECONDS_PER_CASE = 60.0  # of CPU time; a case that takes longer hangs
SDISTS = ("django==5.2.19", "translate-toolkit==3.13.0")  # later versions of the toolkit have no documents
FAMILIES = ("rnn", "transformer", "bert", "gpt")
UPDATES = 4
WORKERS = 2
SMALL = {
    "model.size": 16,
    "model.heads": 2,
    "model.feed_forward_size": 32,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
    "text.vocabulary": 400,
    "text.context_length": 32,
    "train.batch_tokens": 600,
    "train.save_every": 2,
    "train.validate_every": 4,
    "decode.beams": 2,
    "decode.max_length_ratio": 1.0,
    "decode.max_length_extra": 5,
}

Check = Callable[[random.Random, int], Iterator[str]]
"""Takes a case's random numbers and its number; yields a sentence for each failure."""


class Failure(NamedTuple):
    case: str
    reason: str


def main(
    folders: int = 2000,
    strings: int = 50_000,
    documents: bool = True,
    starts: int = 40,
    kills: int = 100,
    seed: int = 0,
) -> bool:
    """Run every part and print a table of cases and failures; a part with 0 cases is left out."""
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    rows: dict[str, tuple[int, list[Failure]]] = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        found = fetch_documents(work / "documents") if documents else 0
        train_models(work)
        parts = {"folders": folders, "strings": strings // STRINGS_PER_CASE, "documents": found}
        for part, cases in parts.items():
            rows[part] = cases, run_cases(part, work, cases, seed)
        rows["strings"] = strings, rows["strings"][1]
        rows["starts"] = starts, simultaneous_starts(work, starts)
    rows["kills"] = kills, [] if not kills or survive.main(kills=kills, seed=seed) else [Failure("kills", "see above")]
    for part, (_, failures) in rows.items():
        for failure in failures:
            print(f"{part}: {failure.case}: {failure.reason}", file=sys.stderr)
    print(f"{'part':12}{'cases':>10}{'failures':>10}")
    for part, (cases, failures) in rows.items():
        print(f"{part:12}{cases:10,}{len(failures):10,}")
    failed = sum(len(failures) for _, failures in rows.values())
    return report(
        "fuzzing", float(failed), at_most=0.0, seed=seed, **{part: cases for part, (cases, _) in rows.items()}
    )


def train_models(work: Path) -> None:
    """A small model of every family, and the corpus they were trained on."""
    from regard.corpora import catalog

    os.environ["REGARD_CACHE"] = str(work / "cache")
    catalog.write_builtin(work, sizes={"train": 400, "test": 20})
    for family in FAMILIES:
        train(work, family, work / family)


def train(work: Path, family: str, out: Path) -> None:
    """Train a model, or resume its training."""
    import regard

    files = ["train.en", "train.fr"][: 1 if family in ("bert", "gpt") else 2]
    regard.train(
        *(work / file for file in files),
        out=out,
        updates=UPDATES,
        config=SMALL | {"model.family": family},
        device="cpu",
        threads=1,
        say=lambda line: None,
    )


# Worker processes


def run_cases(part: str, work: Path, cases: int, seed: int) -> list[Failure]:
    """The failures of all cases of a part."""
    start, share = time.perf_counter(), -(-cases // WORKERS)
    with ThreadPoolExecutor(WORKERS) as pool:
        ranges = [range(first, min(first + share, cases)) for first in range(0, cases, share or 1)]
        failures = [
            failure for found in pool.map(lambda each: run_range(part, work, each, seed), ranges) for failure in found
        ]
    print(f"{part}: {cases:,} in {time.perf_counter() - start:.0f} s, {len(failures)} failures", file=sys.stderr)
    return failures


def run_range(part: str, work: Path, cases: range, seed: int) -> list[Failure]:
    """The failures of some cases; a process that dies is replaced by one that begins after its case."""
    failures: list[Failure] = []
    while cases:
        command = [
            sys.executable,
            "-m",
            "benchmarks.fuzz",
            part,
            str(work),
            str(cases.start),
            str(cases.stop),
            str(seed),
        ]
        process = subprocess.run(command, capture_output=True, text=True, errors="replace")
        lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith('{"number"')]
        failures += [Failure(f"{part} {line['number']}", line["failure"]) for line in lines if "failure" in line]
        last = max((line["number"] for line in lines), default=cases.start)
        if process.returncode == 0:
            break
        failures.append(Failure(f"{part} {last}", f"the process died: {process.stderr[-1500:]}"))
        cases = range(last + 1, cases.stop)
    return failures


def work_on(part: str, work: Path, first: int, last: int, seed: int) -> None:
    """Run the cases of a worker process, with a line before each and one for each failure."""
    check = PARTS[part](work)
    faulthandler.register(signal.SIGPROF, chain=True)  # prints where it is, then ends the process
    for number in range(first, last):
        signal.setitimer(signal.ITIMER_PROF, SECONDS_PER_CASE)
        faulthandler.dump_traceback_later(20 * SECONDS_PER_CASE, exit=True)  # waits for something
        print(json.dumps({"number": number}), flush=True)
        try:
            for failure in check(random.Random(f"{part} {seed} {number}"), number):
                print(json.dumps({"number": number, "failure": failure[:500]}), flush=True)
        except BaseException as error:  # Rust panics are no Exceptions
            line = f"{type(error).__name__}: {error}"[:500]
            print(json.dumps({"number": number, "failure": line}), flush=True)
    faulthandler.cancel_dump_traceback_later()


# Damaged folders


def folder_cases(work: Path) -> Check:
    """Damage a file of a model folder and use the folder: it works, or a RegardError names it."""
    import regard
    from regard.errors import RegardError
    from regard.folders import checksum, read_checksums, write_checksums
    from regard.models.folder import MODEL
    from regard.training import train as training

    training.draw = lambda *_: None  # curves take most of the time of a small run
    copy = Path(tempfile.mkdtemp(dir=work)) / "model"
    weights = {family: checksum(work / family / MODEL) for family in FAMILIES}

    def check(chance: random.Random, number: int) -> Iterator[str]:
        family, resume = chance.choice(FAMILIES), chance.random() < 0.2
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(work / family, copy, ignore=None if resume else shutil.ignore_patterns("checkpoints"))
        if resume:  # a run that has not ended
            (copy / MODEL).unlink()
        names = [str(path.relative_to(copy)) for path in copy.rglob("*") if path.suffix in SUFFIXES and path.is_file()]
        name = chance.choice(sorted(names))
        path = copy / name
        before, other = path.read_bytes(), work / chance.choice(FAMILIES) / name
        damage(path, chance, other.read_bytes() if other.exists() else b"")
        case = f"{name} of {family}{' resumed' * resume}"
        stranger = chance.random() < 0.7  # a stranger's folder has right checksums
        if stranger and (path.parent / "checksums.json").exists() and path.name != "checksums.json":
            listed = read_checksums(path.parent)
            write_checksums(path.parent, exclude={file.name for file in path.parent.iterdir()} - set(listed))
        try:
            if resume:
                train(work, family, copy)
            else:
                use(regard.load(copy, device="cpu"))
        except RegardError as error:
            if str(copy) not in str(error):
                yield f"{case}: the message does not name the folder: {str(error)[:200]!r}"
            return
        unchanged = path.exists() and path.read_bytes() == before
        if not resume and not stranger and name == MODEL and not unchanged:
            yield f"{case}: damaged weights were used"
        if resume and not stranger and name.startswith("checkpoints") and checksum(copy / MODEL) != weights[family]:
            yield f"{case}: the run ended with other weights"

    return check


def use(model: Any) -> None:
    """Translate, write or fill in a few words."""
    if hasattr(model, "translate"):
        model.translate(["The small house.", "A red bird sees 2 %s."], align=True)
    elif hasattr(model, "generate"):
        model.generate("The small", tokens=3)
    else:
        model.fill("The [MASK] house.", top=2)


SUFFIXES = (".json", ".jsonl", ".safetensors", ".txt", ".tsv")
STRANGE_VALUES: tuple[Any, ...] = (
    *(10**18, 10**400, 2**31, -1, 0, 1, 0.5, 1e308, float("nan"), float("inf"), None, True, "", [], {}),
    *("x" * 100_000, [[]] * 1000, "\x1b[31m[red]\n", "../../etc/passwd", {"a": {"a": {"a": 1}}}, "🙂" * 50, "\ud800"),
)


def damage(path: Path, chance: random.Random, other: bytes) -> None:
    """Change a file in one of several ways."""
    data = path.read_bytes()
    kinds: list[Callable[[], Any]] = [
        lambda: path.write_bytes(data[: chance.randrange(len(data) + 1)]),
        lambda: path.write_bytes(flip(data, chance)),
        path.unlink,
        lambda: path.write_bytes(chance.randbytes(chance.randrange(300))),
        lambda: path.write_bytes(other),
        lambda: path.write_bytes(b'{"a":' * 100_000),
    ]
    if path.suffix == ".json":
        kinds += [lambda: path.write_bytes(change_json(data, chance))] * 14
    elif path.suffix == ".safetensors":
        kinds += [lambda: path.write_bytes(change_header(data, chance))] * 7
    chance.choice(kinds)()


def flip(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 3, 30)) if data else 0):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def change_json(data: bytes, chance: random.Random) -> bytes:
    """Replace, delete or add a value at a random place."""
    value = [json.loads(data)]
    place: Any = value
    key: Any = 0
    while isinstance(place[key], dict | list) and place[key] and chance.random() > 0.1:
        place = place[key]
        key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
    if place is not value and chance.random() < 0.15:
        del place[key]
    elif isinstance(place, dict) and chance.random() < 0.15:
        place[chance.choice(("unknown", "__class__", "x" * 5000))] = chance.choice(STRANGE_VALUES)
    else:
        place[key] = chance.choice(STRANGE_VALUES)
    return json.dumps(value[0]).encode()


def change_header(data: bytes, chance: random.Random) -> bytes:
    """Change a name, a shape, a type or an offset in the header of a safetensors file."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    name = chance.choice([name for name in header if name != "__metadata__"])
    entry = header[name]
    changes: list[Callable[[], Any]] = [
        lambda: entry.update(dtype=chance.choice(("F16", "I64", "BOOL", "X"))),
        lambda: entry.update(shape=[chance.choice((0, 1, 10**12, -1)), *entry["shape"][1:]]),
        lambda: entry.update(shape=entry["shape"][::-1]),
        lambda: entry.update(data_offsets=[chance.choice((0, 10**15)), chance.choice((1, 10**18))]),
        lambda: header.pop(name),
        lambda: header.update({name + "x": header.pop(name)}),
    ]
    chance.choice(changes)()
    text = json.dumps(header).encode()
    return chance.choice((len(text), len(text), 10**15)).to_bytes(8, "little") + text + data[8 + length :]


# Random strings

STRINGS_PER_CASE = 250
WORDS = ("the", "small", "house", "sees", "a", "red", "bird", "1,234.5", "2024", "Mr.", "U.S.", "(see", "it)", "—")
INLINE = (
    *("%s", "%d", "%ds", "%.3fs", "%(name)s", "%(order.number)s", "%1$s", "%F", "%%", "{0}", "{name}", "${HOME}"),
    *("%{count}", "<b>", "</b>", "<br/>", '<a href="x">', "</a>", "<https://demo.org/>", "{x}:", "-{x}"),
)
TRICKY = (
    *("\u200b", "\u200d", "\ufeff", "\u202e", "\u0301", "\0", "\x1b[31m", "[red]", "\u2028", "\x85", "\t", "\u3000"),
    *("🙂", "👩‍👩‍👧", "مرحبا", "日本語", "ไทย", "<s>", "</s>", "<pad>", "▁", "\ud800", "&lt;", "<", ">", "{", "}", "%"),
)


def random_text(chance: random.Random) -> str:
    words = []
    for _ in range(chance.choice((0, 1, 2, 4, 8, 8, 16)) * chance.choice((1,) * 20 + (4,))):
        kind = chance.random()
        if kind < 0.6:
            words.append(chance.choice(WORDS))
        elif kind < 0.75:
            words.append(chance.choice(INLINE))
        elif kind < 0.9:
            words.append(chance.choice(TRICKY))
        else:
            words.append("".join(chr(chance.randrange(1, 0x2FFF)) for _ in range(chance.randrange(1, 12))))
    return ("" if chance.random() < 0.1 else " ").join(words)


def string_cases(work: Path) -> Check:
    """Tokenize, translate and check random strings: tokenizers give them back, and every placeholder is kept."""
    import regard
    from regard.config import EXACT_TOKENIZERS
    from regard.documents.outcome import Outcome
    from regard.documents.translate import translate_lines
    from regard.text import tokenizer
    from regard.text.files import one_line
    from regard.text.sentences import text_problem

    corpus = (work / "train.en").read_text(encoding="utf-8").splitlines()
    exact: Any = EXACT_TOKENIZERS  # mypy knows only the names of all kinds
    tokenizers = {kind: tokenizer.train(corpus, kind=kind, vocabulary=400) for kind in exact if kind != "characters"}
    translator: Any = regard.load(work / "transformer", device="cpu")
    folder = Path(tempfile.mkdtemp(dir=work))
    source, target = folder / "random.en", folder / "random.fr"

    def check(chance: random.Random, number: int) -> Iterator[str]:
        texts = [random_text(chance) for _ in range(STRINGS_PER_CASE - len(INLINE))]
        readable = [text for text in texts if not text_problem(text)]
        for kind, engine in tokenizers.items():
            for text, ids in zip(readable, engine.encode_batch(readable), strict=True):
                if engine.decode(ids) != text:
                    yield f"{kind} decodes {text!r} as {engine.decode(ids)!r}"
        texts += [f"The dog{' ' * (piece[0] != '-')}{piece} sees a bird." for piece in INLINE]
        outcome = Outcome()
        results = list(
            translate_lines(translator.translate, texts, model_tags=(), outcome=outcome, always=False, beams=1)
        )
        if len(results) != len(texts):
            yield f"{len(results)} results of {len(texts)} texts"
        for text, result in zip(texts, results, strict=True):
            if text.startswith("The dog") and text[7:].removesuffix(" sees a bird.").strip() not in result.text:
                yield f"a placeholder is lost: {text!r} became {result.text!r}"
            if bool(text_problem(text)) != any(warning.kind == "input" for warning in result.warnings):
                yield f"{text!r} has the warnings {result.warnings}"
        for path, lines in ((source, readable), (target, [result.text for result in results])):
            path.write_text("".join(f"{one_line(line)}\n" for line in lines[: len(readable)]), encoding="utf-8")
        if regard.check(source, target).verdict not in ("fit", "care", "unfit"):
            yield "check has no verdict"

    return check


# Documents

DOCUMENT_SUFFIXES = (".po", ".pot", ".xlf", ".xliff", ".tmx")
FUZZY = re.compile(rb"(?m)^#, fuzzy\r?\n|, fuzzy\b|\bfuzzy, ")
PLACEHOLDER = re.compile(r'%\([\w.]+\)[sd]|%[sd]|\{\w*\}|</?\w+(?: [\w-]+="[^"<>]*")*/?>')


def fetch_documents(folder: Path) -> int:
    """Unpack the documents of two source distributions, downloaded once; returns their number."""
    from regard.folders import cache

    archives = cache("sdists")
    folder.mkdir()
    number = 0
    for sdist in SDISTS:
        name, _, version = sdist.partition("==")
        pattern = f"{name.replace('-', '[-_]')}-{version}.tar.gz"
        if not any(archives.glob(pattern)):
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
            if subprocess.run([*pip, "-d", str(archives), sdist], capture_output=True).returncode:
                print(f"{sdist} cannot be downloaded: its documents are skipped", file=sys.stderr)
                continue
        (archive,) = archives.glob(pattern)
        with tarfile.open(archive) as tar:
            for member in tar:
                suffix = Path(member.name).suffix
                if suffix in DOCUMENT_SUFFIXES and (file := tar.extractfile(member)):
                    (folder / f"{number}{suffix}").write_bytes(file.read())
                    number += 1
    return number


def document_cases(work: Path) -> Check:
    """Translate a document with a translator that reverses the words: placeholders stay, and nothing is left to do."""
    from regard.documents.formats import read_pairs
    from regard.documents.languages import Languages
    from regard.documents.translate import translate_file
    from regard.errors import RegardError
    from regard.translation.translator import Result

    folder = Path(tempfile.mkdtemp(dir=work))

    def reverse(texts: Sequence[str], **options: bool) -> list[Result]:
        results = []
        for words in (text.split() for text in texts):
            alignment = [(place, len(words) - 1 - place) for place in range(len(words))]
            results.append(Result(text=" ".join(reversed(words)), alignment=alignment))
        return results

    def check(chance: random.Random, number: int) -> Iterator[str]:
        (path,) = (work / "documents").glob(f"{number}.*")
        out, again = (folder / f"{name}{path.suffix}" for name in ("translated", "again"))
        languages: Languages | None = ("en", "fr") if path.suffix == ".tmx" else None
        everything = chance.random() < 0.5
        try:
            translate_file(path, out, reverse, languages=languages, everything=everything, force=True)
        except RegardError as error:
            if path.suffix == ".po" and accepts(path):
                yield f"{path.name} is refused: {error}"
            return
        translate_file(out, again, reverse, languages=languages, force=True)
        if again.read_bytes() != out.read_bytes():
            yield f"{path.name}: translating the translated document changes it"
        if path.suffix in (".po", ".pot"):
            if accepts(path) and not accepts(out):
                yield f"{path.name}: msgfmt -c refuses the translated document"
        else:
            before, after = (len(list(ElementTree.parse(file).iter())) for file in (path, out))
            if after < before:
                yield f"{path.name} has {after} elements, and had {before}"
        if everything:
            out.write_bytes(FUZZY.sub(b"", out.read_bytes()))  # what is fuzzy is not read
            for pair in read_pairs(out, languages=languages):
                placeholders = [sorted(PLACEHOLDER.findall(text)) for text in (pair.source, pair.target)]
                if placeholders[0] != placeholders[1]:
                    yield f"{path.name}: {pair.source!r} became {pair.target!r}"

    return check


def accepts(path: Path) -> bool:
    """Whether gettext accepts a PO file."""
    if not shutil.which("msgfmt"):
        return True
    command = ["msgfmt", "-c", "-o", os.devnull, str(path)]
    return subprocess.run(command, capture_output=True).returncode == 0


PARTS: dict[str, Callable[[Path], Check]] = {
    "folders": folder_cases,
    "strings": string_cases,
    "documents": document_cases,
}


# Simultaneous starts


def simultaneous_starts(work: Path, starts: int) -> list[Failure]:
    """Start runs on one folder at once: one trains, and the others say that the folder is in use or finished."""
    from regard.folders import checksum
    from regard.models.folder import MODEL

    failures: list[Failure] = []
    out = work / "shared"
    words = [sys.executable, "-m", "regard", "train", "train.en", "train.fr", "--out", str(out), "--device", "cpu"]
    words += ["--threads", "1", "--updates", str(UPDATES)]
    words += [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    processes = [
        subprocess.Popen(words, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(starts)
    ]
    trained = 0
    for number, process in enumerate(processes):
        lines = process.communicate()[1].strip().splitlines()
        if process.returncode == 2 and len(lines) == 1 and "another run is writing to" in lines[0]:
            continue
        if process.returncode == 0 and any("was finished at update" in line for line in lines):
            continue
        trained += process.returncode == 0
        if process.returncode:
            failures.append(Failure(f"start {number}", f"exit {process.returncode}: {' | '.join(lines)}"[:500]))
    if starts and trained != 1:
        failures.append(Failure("starts", f"{trained} runs trained"))
    if starts and checksum(out / MODEL) != checksum(work / "transformer" / MODEL):
        failures.append(Failure("starts", "the weights differ from those of a run alone"))
    return failures


if __name__ == "__main__":
    part, work, *numbers = sys.argv[1:]
    work_on(part, Path(work), *map(int, numbers))
