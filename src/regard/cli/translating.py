"""The commands that use a model: translate, generate, fill, embed and serve."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard import __version__
from regard.cli import options, tables
from regard.cli.options import argument, examples, flag, option, output
from regard.config import Config, split_folders
from regard.errors import ConfigError
from regard.folders import atomic_file, checksum, read_checksums
from regard.results import counted

if TYPE_CHECKING:
    from regard.documents.outcome import Outcome
    from regard.translation.cluster import TranslatePart
    from regard.translation.lines import Line, LineJob
    from regard.translation.translator import Translator

Tags = Literal["auto", "on", "off"]
ADDABLE_FIELDS = ("score", "confidence", "warnings", "alignment")  # of --add


def _parse_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := set(names).difference(ADDABLE_FIELDS):
        raise typer.BadParameter(f"there is no {min(unknown)}; the fields are {', '.join(ADDABLE_FIELDS)}")
    return names


@examples("regard translate runs/en-fr text.en -o text.fr", "echo 'Hello.' | regard translate runs/en-fr --beams 5")
def translate(
    folder: options.Folder,
    file: options.Lines = "-",
    out: options.OutFile = None,
    beams: options.Beams = None,
    alternatives: Annotated[int, option("N", "Write N more translations of each line, after tabs.", min=0, max=99)] = 0,
    sample: Annotated[bool, flag("--sample", "Sample instead of beam search, with decode.temperature.")] = False,
    seed: Annotated[int, option("N", "The seed of --sample.", min=0)] = 1,
    prefix: Annotated[str, option("TEXT", "Start every translation with this text.")] = "",
    tag: options.Tag = "",
    to: Annotated[str, option("TOKEN", "Start every translation with this language code, such as fra_Latn.")] = "",
    jsonl: Annotated[bool, flag("--jsonl", "Read JSON objects and add their translations.")] = False,
    field: Annotated[str, option("NAME", "With --jsonl: the field with the text.")] = "text",
    add: Annotated[
        Any, option("NAMES", "With --jsonl: add score,confidence,warnings,alignment.", parser=_parse_names)
    ] = "",
    glossary: Annotated[Path | None, option("TSV", "Source terms and, after tabs or |, their target terms.")] = None,
    keep: Annotated[Path | None, option("FILE", "Words and /regular expressions/ to copy, one per line.")] = None,
    ignore_case: Annotated[bool, flag("--ignore-case", "Ignore case in --glossary.")] = False,
    tags: Annotated[Tags, option(None, "Keep <tags> and {placeholders}; auto: in lines with tags.")] = "auto",
    languages: options.Languages = None,
    everything: Annotated[bool, flag("--all", "In TMX, XLIFF and PO files, also replace translations.")] = False,
    trace: Annotated[Path | None, option("FIGURE", "Draw the attention of the first line (.html, .png, .svg).")] = None,
    engine: options.Engine = "auto",
    precision: options.Precision = "auto",
    values: options.Values = [],  # noqa: B006 - typer copies it
    cluster: Annotated[int | None, option("N", "Translate with N Ray actors, here or at RAY_ADDRESS.", min=1)] = None,
    force: options.Force = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Translate a text line by line, or a TMX, XLIFF or PO file in place.

    Every input line gives one output line. Exits 1 if a line could not be read; its translation is empty.
    """
    if add and not jsonl:
        raise ConfigError("--add writes into the objects of --jsonl: give --jsonl too")
    document = _is_document(file, jsonl=jsonl)
    if document and (out is None or alternatives or trace is not None):
        raise ConfigError(f"{file} is a document: it needs --out FILE, without --alternatives and --trace")
    if cluster and (document or trace is not None or file == "-" or out is None):
        raise ConfigError("--cluster translates the lines of a file, not a document, with --out and without --trace")
    if as_json and out is None:
        raise ConfigError("--json reports on standard output, where the translations go: give --out FILE too")
    options.check_output(out, file, force=force)
    options.check_output(trace, file, force=force)
    if trace is not None and trace == out:
        raise ConfigError(f"--out and --trace are both {out}: choose another name for one of them")
    Config().with_values(values)  # a wrong field is reported before torch is imported
    from regard.decoding.glossary import Glossary
    from regard.devices import find_device
    from regard.documents.translate import translate_file
    from regard.inspection.drawing import check_suffix
    from regard.translation.lines import LineJob

    if trace is not None:
        check_suffix(trace)
    search: dict[str, Any] = {"beams": beams, "alternatives": alternatives, "prefix": prefix, "tag": tag, "to": to}
    search |= {"seed": seed if sample else None, "align": "alignment" in add, "warn": "warnings" in add}
    search["glossary"] = Glossary.read(glossary, keep, ignore_case=ignore_case) if glossary or keep else None
    load = partial(_load, folder, device, values, engine, precision, threads=threads, token_scores="confidence" in add)
    if document and out is not None:
        how: dict[str, Any] = {"languages": languages, "everything": everything, "force": force}
        with tables.progress_bars(downloads=True) as progress:
            outcome = translate_file(file, out, partial(load().translate, **search), **how, progress=progress)
        report = _report(outcome, file, out)
    else:
        names = [*add, "alternatives"] if jsonl and alternatives else add
        job = LineJob(file, jsonl=jsonl, field=field, names=names, tags=tags, search=search)
        if cluster and out is not None:
            inputs = [*split_folders(folder), *filter(None, (glossary, keep))]
            checksums = [read_checksums(path) if path.is_dir() else checksum(path) for path in inputs]
            choices = [engine, precision, values, jsonl, field, names, tags, ignore_case, {**search, "glossary": None}]
            identity = json.dumps([__version__, checksums, choices])  # differs where translations may differ
            resources = {"num_cpus": threads or 1, "num_gpus": int(find_device(device).type == "cuda")}
            _translate_on_cluster(job, load, out, identity=identity, workers=cluster, resources=resources, force=force)
        else:
            _translate_lines(job, load(), out, trace=trace, force=force)
        outcome, report = job.outcome, _report(job.outcome, file, out, lines=job.lines)
    tables.answer(report, as_json=as_json)
    if outcome.failures:
        raise typer.Exit(1)


def _load(
    folder: str, device: str, values: Sequence[str], engine: str, precision: str, *, threads: int | None, **options: Any
) -> Translator:
    """Load a translator with its engine."""
    with tables.working("loading"):
        from regard.devices import use_threads
        from regard.evaluation.precision import use_engine
        from regard.translation.translator import Translator

        use_threads(threads)
        translator = Translator.load(folder, device, values)
    with tables.progress_bars() as bars:
        progress = partial(bars, "measuring int8")
        use_engine(translator, engine, precision, folder, **options, say=tables.say, progress=progress)
    return translator


def _is_document(file: str, *, jsonl: bool) -> bool:
    """Whether a file is a document that is translated in place."""
    from regard.documents.formats import DOCUMENTS, UNSUPPORTED, format_of

    suffix = Path(file).suffix.lower()
    if format_of(file) in DOCUMENTS:
        if jsonl:
            raise ConfigError(f"{file} is a document, and --jsonl reads JSON objects: leave out --jsonl")
        return True
    if suffix in UNSUPPORTED and not jsonl:
        raise ConfigError(
            f"{file}: {suffix} is not supported, because its markup would be translated as text. For one JSON object "
            "per line use --jsonl; convert other files to XLIFF or PO, or give plain text"
        )
    return False


def _translate_lines(
    job: LineJob, translator: Translator, out: Path | None, *, trace: Path | None, force: bool
) -> None:
    """Translate a file in windows of constant memory; with `trace`, draw the attention of the first translation."""
    from regard.text.files import open_text

    window = {"lines": 1} if job.file == "-" and sys.stdin.isatty() else {}  # translate each line as it is typed
    with open_text(job.file) as stream, tables.output_lines(out, "translating", force=force) as (write, progress):
        total = _count_lines(job.file)
        for text in job.translate(job.read(stream), translator, **window):
            write(text)
            progress(job.lines, total)
    if trace is not None and job.first_text:
        (result,) = job.results([job.first_text], translator, trace=True)
        next(iter(result.parts), result).draw(trace, force=force)
    elif trace is not None:
        tables.say(f"regard: no line was translated, so there is nothing to draw in {trace}")


def _translate_on_cluster(job: LineJob, load: Callable[[], Translator], out: Path, **settings: Any) -> None:
    """Translate a file in parts by the actors of a Ray cluster."""
    from regard.text.files import open_text
    from regard.translation.cluster import translate_parts

    total = _count_lines(job.file)
    with open_text(job.file) as stream, tables.counting_bar("translating") as bar:

        def progress(lines: int) -> None:
            job.lines = lines
            bar(lines, total)

        start = partial(_start_actor, load, job)
        job.outcome = translate_parts(job.read(stream), out, start=start, progress=progress, **settings)


def _start_actor(load: Callable[[], Translator], job: LineJob) -> TranslatePart:
    """Load the model in an actor; the result translates one part of the file after another."""
    from regard.documents.outcome import Outcome

    translator = load()

    def translate(before: int, lines: list[Line]) -> tuple[list[str], Outcome]:
        part = replace(job, outcome=Outcome(), lines=before)
        return list(part.translate(lines, translator)), part.outcome

    return translate


def _count_lines(file: str) -> int | None:
    """The number of lines of a file for a progress bar; None without a terminal and for standard input."""
    from regard.text.files import open_text

    if file == "-" or not sys.stderr.isatty():
        return None
    with open_text(file) as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def _report(outcome: Outcome, file: str, out: Path | None, *, lines: int | None = None) -> dict[str, Any]:
    """Print what needs attention on standard error; return the report for --json. A document has no `lines`."""
    place, consequence = ("", "it is left as it was") if lines is None else ("line ", "its translation is empty")
    failures = _report_failed(outcome, file, consequence)
    if outcome.split:
        tables.say(f"{counted(outcome.split, 'line')} had a sentence that was too long for the model and was split")
    for where, term in outcome.missing:
        tables.say(f"regard: glossary: term {term} not placed in {place}{where}")
    if total := outcome.terms.total():
        counts = ", ".join(f"{count:,} {status}" for status, count in outcome.terms.items())
        tables.say(f"glossary: {counted(total, 'term')}: {counts}")
    if outcome.unaligned:
        tags = f"in {counted(outcome.unaligned, 'text')} tags are placed in proportion to the length"
        tables.say(f"regard: this model has no attention to align words by: {tags}; check them")
    if lines is not None:
        return {"out": str(out), "lines": lines, **failures, "terms": dict(outcome.terms)}
    from regard.documents.formats import left_out

    kept = f"; kept {outcome.kept:,} that had a translation" if outcome.kept else ""
    skipped = f"; {left_out(outcome.skipped)}" if outcome.skipped else ""
    tables.say(f"{out}: translated {outcome.translated:,}{kept}{skipped}")
    entries = {"translated": outcome.translated, "kept": outcome.kept, "left_out": dict(outcome.skipped)}
    return {"out": str(out), **entries, "unaligned": outcome.unaligned, **failures, "terms": dict(outcome.terms)}


def _report_failed(outcome: Outcome, file: str, consequence: str) -> dict[str, Any]:
    """Print the first lines that failed, and return their number and the first of them for --json."""
    from regard.text.files import display_name

    for line, problem in outcome.failed:
        tables.say(f"regard: {display_name(file)}:{line}: {problem}; {consequence}")
    if more := outcome.failures - len(outcome.failed):
        tables.say(f"regard: and {counted(more, 'more such line')}")
    failed = [{"line": line, "problem": problem} for line, problem in outcome.failed]
    return {"failures": outcome.failures, "failed": failed}


@examples('regard generate runs/gpt "Once upon a time" --tokens 100', 'regard generate runs/gpt "The house" --greedy')
def generate(
    folder: options.Folder,
    prompt: Annotated[str, argument("PROMPT", "The beginning of the text; may be empty.")] = "",
    tokens: Annotated[int, option("N", "The maximum number of tokens.", min=1)] = 200,
    greedy: Annotated[bool, flag("--greedy/--sample", "Take the most probable token every time.")] = False,
    temperature: Annotated[float | None, option("T", "Sampling temperature, else the config's.", min=0)] = None,
    top_p: Annotated[float | None, option("P", "Nucleus sampling with probability P.", min=0, max=1)] = None,
    seed: Annotated[int, option("N", "The random seed.", min=0)] = 1,
    stop: Annotated[list[str], option("TEXT", "End before this text; may be repeated.")] = [],  # noqa: B006
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Generate text with a gpt: print the prompt and its continuation as it is generated."""
    settings = options.without(locals(), "folder", "greedy", "device", "threads", "as_json")
    from regard.devices import use_threads
    from regard.translation.writer import Writer

    use_threads(threads)
    writer = Writer.load(folder, device)
    if greedy:
        settings["temperature"] = 0.0
    if as_json:
        values = {"prompt": prompt, **writer.generate(**settings)._asdict(), "seed": seed}
        return tables.answer(values, as_json=True)
    stream = writer.stream(**settings)
    tables.write(prompt, end="")
    for token in stream:
        tables.write(token.text, end="")
    return tables.write("")


@examples(
    'regard fill runs/bert "Paris is the [MASK] of France."', 'regard fill runs/bert "The [MASK] sees it." --json'
)
def fill(
    folder: options.OneFolder,
    text: Annotated[str, argument("TEXT", 'Such as "Paris is the [MASK] of France."')],
    top: Annotated[int, option("N", "The number of guesses for each [MASK].", min=1, max=1000)] = 5,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Fill every [MASK] of a text with a bert: print its best guesses."""
    from regard.translation.reader import Reader

    filled = Reader.load(folder, device).fill(text, top=top)
    lines = [filled.text]
    for number, guesses in enumerate(filled.gaps, 1):
        lines.append(f"\ngap {number}" if len(filled.gaps) > 1 else "")
        lines += [f"{guess.probability:7.1%}  {guess.text}" for guess in guesses]
    gaps = [[guess._asdict() for guess in guesses] for guesses in filled.gaps]
    tables.answer({"text": filled.text, "gaps": gaps}, "\n".join(lines), as_json=as_json)


@examples("regard embed runs/bert lines.txt -o lines.npy", "regard embed runs/bert lines.txt -o lines.npy --pool first")
def embed(
    folder: options.OneFolder,
    file: options.Lines = "-",
    *,
    out: Annotated[Path, output("X.npy", "The output file: a float32 array of shape (lines, size).")],
    pool: Annotated[Literal["mean", "first"], option(None, "The mean of all tokens, or the first token.")] = "mean",
    force: options.Force = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Embed every line of a file with a bert; an empty line gives zeros. Exits 1 if a line could not be read."""
    if out.suffix.lower() != ".npy":
        raise ConfigError(f"--out {out}: embeddings are a NumPy array; choose a name that ends in .npy")
    options.check_output(out, file, force=force)
    import numpy as np

    from regard.devices import use_threads
    from regard.documents.outcome import Outcome
    from regard.text.files import open_text
    from regard.translation.lines import read_lines
    from regard.translation.reader import Reader

    use_threads(threads)
    reader, outcome = Reader.load(folder, device), Outcome()
    with open_text(file) as stream:
        lines = list(read_lines(stream, file))
    for number, line in enumerate(lines, 1):
        if line.problem:
            outcome.fail(number, line.problem)
    size, done = reader.model.config.size, 0
    embeddings = np.zeros((len(lines), size), np.float32)
    with atomic_file(out, force=force) as saved, tables.counting_bar("embedding") as progress:
        for window in reader.stream((line.text for line in lines), pool=pool):
            embeddings[done : done + len(window)] = window
            done += len(window)
            progress(done, len(lines))
        np.save(saved, embeddings)
    failures = _report_failed(outcome, file, "its embedding is zero")
    tables.answer({"out": str(out), "lines": len(lines), "size": size, **failures}, as_json=as_json)
    if outcome.failures:
        raise typer.Exit(1)


@examples("regard serve runs/en-fr", "regard serve en-fr=runs/a fr-en=runs/b --port 8000 --keys keys.txt")
def serve(
    folders: Annotated[list[str], argument("FOLDER ...", "Models; en-fr=FOLDER sets name and languages.")] = [],  # noqa: B006
    *,
    host: Annotated[str, option("ADDRESS", "The address; by default only for this machine.")] = "127.0.0.1",
    port: Annotated[int, option("N", "The port to listen on.", min=1, max=65535)] = 5000,
    workers: Annotated[int, option("N", "Processes; each loads the models.", min=1)] = 1,
    keys: Annotated[str | None, option("KEYS", "A file of API keys; requests then need a key.")] = None,
    new_key: Annotated[str, option("NAME", "Make an API key, add its hash to --keys, print it and exit.")] = "",
    allow_origins: Annotated[list[str], option("URL", "Allow web pages of this origin (CORS).", "--allow-origin")] = [],  # noqa: B006 - typer copies it
    log_texts: Annotated[bool, flag("--log-texts", "Log the texts of requests.")] = False,
    quiet: Annotated[bool, flag("--quiet", "Log no requests.")] = False,
    grace: Annotated[int, option("SECONDS", "After SIGTERM, wait this long for running requests.", min=1)] = 30,
    engine: options.Engine = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    threads: options.Threads = None,
) -> None:
    """Serve models over HTTP: a page, and the APIs of LibreTranslate and OpenAI."""
    arguments = options.without(locals(), "new_key")
    if new_key:
        if keys is None:
            raise ConfigError("--new-key needs --keys FILE, where the hash of the key is added")
        from regard.server.keys import new_key as make_key

        return tables.write(make_key(Path(keys), new_key))
    try:
        from regard.server.run import run
    except ImportError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'regard[serve]'") from error

    return run(**arguments, say=tables.say)
