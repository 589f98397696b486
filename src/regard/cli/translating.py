"""The commands that use a model: translate, generate, fill, embed."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.cli.options import (
    Beams,
    Device,
    Force,
    Json,
    Languages,
    OutFile,
    Threads,
    Values,
    check_output,
    examples,
    parse_path,
    two,
)
from regard.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from regard.documents.outcome import Outcome, Problems
    from regard.translation.lines import Line, LineJob
    from regard.translation.translator import Result, Translator

ADDABLE_FIELDS = ("score", "confidence", "warnings", "alignment")  # of --add

Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="A model folder, or an ensemble of several joined by +.")]
Lines = Annotated[str, typer.Argument(metavar="FILE or -", help="One text per line.")]


@examples(
    "regard translate runs/en-fr text.en -o text.fr",
    "echo 'The old house.' | regard translate runs/en-fr --glossary terms.tsv",
)
def translate(
    folder: Folder,
    file: Lines = "-",
    out: OutFile = None,
    beams: Beams = None,
    alternatives: Annotated[
        int, typer.Option(metavar="N", min=0, max=99, help="Write N more translations of each line, after tabs.")
    ] = 0,
    sample: Annotated[
        bool, typer.Option("--sample", help="Sample instead of beam search, with decode.temperature.")
    ] = False,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The seed of --sample.")] = 1,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Start every translation with this text.")] = "",
    tag: Annotated[str, typer.Option(metavar="<2fr>", help="Put this tag before every sentence, as in training.")] = "",
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Read JSON objects and add their translations.")] = False,
    field: Annotated[str, typer.Option(metavar="NAME", help="With --jsonl: the field with the text.")] = "text",
    add: Annotated[
        str, typer.Option(metavar="NAMES", help="With --jsonl: also add score,confidence,warnings,alignment.")
    ] = "",
    glossary: Annotated[
        Path | None, typer.Option(metavar="TSV", help="Source terms and, after tabs or |, their target terms.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Words and /regular expressions/ to copy, one per line.")
    ] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", help="Ignore case in --glossary.")] = False,
    tags: Annotated[
        Literal["auto", "on", "off"],
        typer.Option(help="Keep <tags> and {placeholders} in place; auto: in lines that have tags."),
    ] = "auto",
    languages: Languages = None,
    everything: Annotated[
        bool, typer.Option("--all", help="In TMX, XLIFF and PO files, also replace existing translations.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Draw the attention of the first line; or .png, .svg.")
    ] = None,
    engine: Annotated[
        Literal["auto", "torch", "ctranslate2"],
        typer.Option(help="auto is torch; ctranslate2 is faster on a CPU but supports only transformers."),
    ] = "auto",
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "int8"],
        typer.Option(help="int8 needs --engine ctranslate2, where it is the default on a CPU."),
    ] = "auto",
    values: Values = [],  # noqa: B006 - typer copies it
    force: Force = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Translate a text line by line, or a TMX, XLIFF or PO file in place.

    Every input line gives one output line. Exits 1 if a line could not be read; its translation is empty.
    """
    from regard.decoding.glossary import Glossary
    from regard.devices import bf16_warning, use_threads
    from regard.translation.lines import LineJob
    from regard.translation.translator import Translator

    names = _check_added(add, jsonl)
    document = not jsonl and _is_document(file, out, has_extras=bool(alternatives) or trace is not None)
    if as_json and out is None:
        raise ConfigError("--json reports on standard output, where the translations go: give --out FILE too")
    check_output(out, file, force=force)
    _check_trace(trace, file, str(out or ""), force=force)
    use_threads(threads)
    translator = Translator.load(folder, device, values)
    translator.use(engine, precision, folder, token_scores="confidence" in names)
    if precision == "bf16" and (slow := bf16_warning(translator.device.type)):
        print(f"regard: {slow}", file=sys.stderr)
    options: dict[str, Any] = {
        "beams": beams,
        "seed": seed if sample else None,
        "alternatives": alternatives,
        "prefix": prefix,
        "tag": tag,
        "align": "alignment" in names,
        "warn": "warnings" in names,
        "glossary": Glossary.read(glossary, keep, ignore_case=ignore_case) if glossary or keep else None,
    }
    if document and out is not None:
        codes = two("--languages", languages, "codes", "en,fr")
        report = _translate_document(
            translator, options, file, out, languages=codes, everything=everything, force=force
        )
    else:
        job = LineJob(file, jsonl, field, [*names, *["alternatives"] * bool(jsonl and alternatives)])
        _translate_lines(job, translator, options, out, tags=tags, trace=trace, force=force)
        report = {
            "out": str(out),
            "lines": job.lines,
            **_failures(job.outcome.failed),
            "terms": dict(job.outcome.terms),
        }
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    if report["failures"]:
        raise typer.Exit(1)


def _check_added(add: str, jsonl: bool) -> list[str]:
    names = [name.strip() for name in add.split(",") if name.strip()]
    for name in names:
        if name not in ADDABLE_FIELDS:
            raise ConfigError(f"--add has no {name}.{did_you_mean(name, ADDABLE_FIELDS)}")
    if names and not jsonl:
        raise ConfigError("--add writes into the objects of --jsonl: give --jsonl too")
    return names


def _check_trace(trace: Path | None, *others: str, force: bool) -> None:
    """Check the file of --trace before anything is translated."""
    check_output(trace, *others, force=force)
    if trace is not None:
        from regard.inspection.drawing import check_suffix

        check_suffix(trace)


def _is_document(file: str, out: Path | None, *, has_extras: bool) -> bool:
    """Whether a file is a document that is translated in place."""
    from regard.documents.formats import DOCUMENTS, format_of

    if format_of(file) not in DOCUMENTS:
        return False
    if out is None or has_extras:
        problem = "needs --out FILE" if out is None else "has no place for --alternatives or --trace"
        raise ConfigError(f"{file} is translated in place: it {problem}")
    return True


def _translate_document(
    translator: Translator, options: dict[str, Any], file: str, out: Path, **choices: Any
) -> dict[str, Any]:
    """Translate a TMX, XLIFF or PO file and return the report."""
    from regard.cli import tables
    from regard.documents.formats import left_out
    from regard.documents.translate import translate_file

    with tables.download_bar() as progress:
        translate = partial(translator.translate, **{**options, "align": True})
        outcome = translate_file(file, out, translate, **choices, progress=progress)
    _print_outcome(outcome, file, "it is left as it was", "")
    kept = f"; kept {outcome.kept:,} that had a translation" if outcome.kept else ""
    skipped = f"; {left_out(outcome.skipped)}" if outcome.skipped else ""
    print(f"{out}: translated {outcome.translated:,}{kept}{skipped}", file=sys.stderr)
    return {
        "out": str(out),
        "translated": outcome.translated,
        "kept": outcome.kept,
        "left_out": dict(outcome.skipped),
        "unaligned": outcome.unaligned,
        **_failures(outcome.failed),
        "terms": dict(outcome.terms),
    }


# Messages.


def _print_outcome(outcome: Outcome, file: str, consequence: str, place: str) -> None:
    """Print on standard error which lines failed, which terms are missing, and which tags may be misplaced."""
    _print_failed(outcome.failed, file, consequence)
    if outcome.split:
        lines = f"{outcome.split:,} line{'s' * (outcome.split != 1)}"
        print(f"{lines} had a sentence that was too long for the model and was split", file=sys.stderr)
    for where, term in outcome.missing.first:
        print(f"regard: glossary: term {term} not placed in {place}{where}", file=sys.stderr)
    if total := outcome.terms.total():
        counts = ", ".join(f"{count:,} {status}" for status, count in outcome.terms.items())
        print(f"glossary: {total:,} term{'s' * (total != 1)}: {counts}", file=sys.stderr)
    if texts := outcome.unaligned:
        tags = f"in {texts:,} text{'s' * (texts != 1)} tags are placed in proportion to the length"
        print(f"regard: this model has no attention to align words by: {tags}; check them", file=sys.stderr)


def _print_failed(failed: Problems, file: str, consequence: str) -> None:
    from regard.text.files import display_name

    for line, problem in failed.first:
        print(f"regard: {display_name(file)}:{line}: {problem}; {consequence}", file=sys.stderr)
    if more := failed.count - len(failed.first):
        print(f"regard: and {more:,} more such line{'s' * (more != 1)}", file=sys.stderr)


def _failures(failed: Problems) -> dict[str, Any]:
    """The number of failed lines and the first of them, for --json."""
    return {"failures": failed.count, "failed": [{"line": line, "problem": problem} for line, problem in failed.first]}


# Lines.


def _translate_lines(
    job: LineJob,
    translator: Translator,
    options: dict[str, Any],
    out: Path | None,
    *,
    tags: str,
    trace: Path | None,
    force: bool,
) -> None:
    """Translate a file in windows of constant memory; with `trace`, draw the attention of the first translation."""
    from regard.cli import tables
    from regard.documents.translate import translate_lines
    from regard.text.files import open_text

    waiting: deque[Line] = deque()
    traced: list[Result] = []
    translate: Callable[..., Iterator[Result]] = translator.stream
    if tags != "off":
        model_tags = translator.tokenizers.source.tags
        translate = partial(
            translate_lines, translator.translate, model_tags=model_tags, outcome=job.outcome, always=tags == "on"
        )

    def texts(lines: Iterable[Line]) -> Iterator[str]:
        for line in lines:
            waiting.append(line)
            yield line.text

    def results(source: Iterator[str]) -> Iterator[Result]:
        if trace is not None:  # one line at a time, until one has a trace
            for result in translate(source, **{**options, "lines": 1, "trace": True}):
                traced.extend([result] if result.trace is not None or result.parts else [])
                yield result
                if traced:
                    break
        yield from translate(source, **options)

    with ExitStack() as stack:
        stream = stack.enter_context(open_text(job.file))
        write = stack.enter_context(_output(out, force=force))
        hidden = out is None and sys.stdout.isatty()  # a progress bar would mix with the translations
        progress = None if hidden else stack.enter_context(tables.counting_bar("translating"))
        total = _count_lines(job.file) if progress and sys.stderr.isatty() else None
        if job.file == "-" and sys.stdin.isatty():
            options = {**options, "lines": 1}  # translate each line as it is typed
        for result in results(texts(job.read(stream))):
            write(job.write(waiting.popleft(), result))
            if progress:
                progress(job.lines, total)
    if traced and trace is not None:
        next(iter(traced[0].parts), traced[0]).draw(trace, force=force)
    elif trace is not None:
        print(f"regard: no line was translated, so there is nothing to draw in {trace}", file=sys.stderr)
    _print_outcome(job.outcome, job.file, "its translation is empty", "line ")


@contextmanager
def _output(out: Path | None, *, force: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes lines to standard output, or to a file that appears when it is complete."""
    from regard.folders import atomic_file

    if out is None:
        yield partial(print, flush=True)
        return
    with atomic_file(out, force=force) as file:

        def write(line: str) -> None:
            file.write(line.encode() + b"\n")

        yield write


def _count_lines(file: str) -> int | None:
    """The number of lines of a file, for the progress bar; standard input is read only once."""
    from regard.text.files import open_text

    if file == "-":
        return None
    with open_text(file) as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


# Language models.


@examples(
    'regard generate runs/gpt "Once upon a time" --tokens 100',
    'regard generate runs/gpt "The old house" --greedy --stop "."',
)
def generate(
    folder: Folder,
    prompt: Annotated[str, typer.Argument(help="The beginning of the text; may be empty.")] = "",
    tokens: Annotated[int, typer.Option(metavar="N", min=1, help="The maximum number of tokens.")] = 200,
    greedy: Annotated[bool, typer.Option("--greedy/--sample", help="Take the most probable token every time.")] = False,
    temperature: Annotated[
        float | None,
        typer.Option(metavar="T", min=0, help="Sampling temperature. By default that of the config."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p",
            metavar="P",
            min=0,
            max=1,
            help="Nucleus sampling: use the most probable tokens whose probabilities sum to P.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The random seed.")] = 1,
    stop: Annotated[list[str], typer.Option(metavar="TEXT", help="End before this text; may be repeated.")] = [],  # noqa: B006
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Generate text with a gpt: print the prompt and its continuation as it is generated."""
    from regard.devices import use_threads
    from regard.translation.writer import Writer

    use_threads(threads)
    writer = Writer.load(folder, device)
    options: dict[str, Any] = {"temperature": 0.0 if greedy else temperature, "top_p": top_p, "seed": seed}
    if as_json:
        generated = writer.generate(prompt, tokens=tokens, stop=stop, **options)
        return print(json.dumps({"prompt": prompt, **generated._asdict(), "seed": seed}, indent=2, ensure_ascii=False))
    stream = writer.stream(prompt, tokens=tokens, stop=stop, **options)
    print(prompt, end="")
    for token in stream:
        print(token.text, end="", flush=True)
    return print()


@examples(
    'regard fill runs/bert "Paris is the [MASK] of France."',
    'regard fill runs/bert "The [MASK] sees a [MASK]." --top 3 --json',
)
def fill(
    folder: Folder,
    text: Annotated[str, typer.Argument(help='Such as "Paris is the [MASK] of France."')],
    top: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="The number of guesses for each [MASK].")] = 5,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Fill every [MASK] of a text with a bert: print its best guesses."""
    from regard.translation.reader import Reader

    filled = Reader.load(folder, device).fill(text, top=top)
    if as_json:
        gaps = [[guess._asdict() for guess in guesses] for guesses in filled.gaps]
        return print(json.dumps({"text": filled.text, "gaps": gaps}, indent=2, ensure_ascii=False))
    print(filled.text)
    for number, guesses in enumerate(filled.gaps, 1):
        print(f"\ngap {number}" if len(filled.gaps) > 1 else "")
        for guess in guesses:
            print(f"{guess.probability:7.1%}  {guess.text}")
    return None


@examples("regard embed runs/bert lines.txt -o lines.npy", "regard embed runs/bert lines.txt -o lines.npy --pool first")
def embed(
    folder: Folder,
    file: Lines = "-",
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            parser=parse_path,
            metavar="X.npy",
            help="The output file: a float32 array of shape (lines, size).",
        ),
    ],
    pool: Annotated[
        Literal["mean", "first"], typer.Option(help="Pooling: the mean of all tokens, or the first token.")
    ] = "mean",
    force: Force = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Embed every line of a file with a bert; an empty line gives zeros. Exits 1 if a line could not be read."""
    from regard.cli import tables
    from regard.devices import use_threads
    from regard.documents.outcome import Problems
    from regard.folders import atomic_file
    from regard.text.files import open_text
    from regard.translation.lines import read_lines
    from regard.translation.reader import Reader

    check_output(out, file, force=force)
    use_threads(threads)
    reader = Reader.load(folder, device)
    total = _count_lines(file) if sys.stderr.isatty() else None
    failed = Problems()

    def texts(lines: Iterable[Line]) -> Iterator[str]:
        for number, line in enumerate(lines, 1):
            if line.problem:
                failed.add(number, line.problem)
            yield line.text

    with open_text(file) as stream, atomic_file(out, force=force) as output, tables.counting_bar("embedding") as bar:
        source = texts(read_lines(stream, file))
        lines = reader.save_embeddings(source, output, pool=pool, progress=lambda done: bar(done, total))
    _print_failed(failed, file, "its embedding is zero")
    if as_json:
        report = {"out": str(out), "lines": lines, "size": reader.model.config.size, **_failures(failed)}
        print(json.dumps(report, indent=2, ensure_ascii=False))
    if failed.count:
        raise typer.Exit(1)
