"""The commands that use a model: translate, generate, fill, embed."""

from __future__ import annotations

import json
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

import typer

from regard.cli.options import Beams, Device, Force, Json, Languages, Threads, Values, check_output, two
from regard.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from regard.decoding.glossary import Glossary
    from regard.documents.outcome import Outcome, Problems
    from regard.translation.translator import Result, Translator

ADDED = ("score", "confidence", "warnings", "alignment")  # what --add may name

Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="A model folder, or several joined by +.")]
Lines = Annotated[str, typer.Argument(metavar="FILE or -", help="One text a line.")]


def translate(
    folder: Folder,
    file: Lines = "-",
    out: Annotated[Path | None, typer.Option(help="Write here instead of to standard output.")] = None,
    beams: Beams = None,
    alternatives: Annotated[
        int, typer.Option(min=0, max=99, help="So many more translations of each line, after tabs.")
    ] = 0,
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw instead of searching, as decode.temperature says.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of --sample.")] = 1,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="What every translation has to begin with.")] = "",
    tag: Annotated[str, typer.Option(metavar="<2fr>", help="Put before every sentence, as in training.")] = "",
    jsonl: Annotated[bool, typer.Option("--jsonl", help="JSON objects in, and out with their translations.")] = False,
    field: Annotated[str, typer.Option(metavar="NAME", help="Of --jsonl: where the text stands.")] = "text",
    add: Annotated[
        str, typer.Option(metavar="NAMES", help="Of --jsonl: score,confidence,warnings,alignment are written too.")
    ] = "",
    glossary: Annotated[
        Path | None, typer.Option(metavar="TSV", help="Source terms and, after tabs or |, what they may be called.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(metavar="FILE", help="Words and /patterns/ that are copied.")] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", help="Of --glossary: AGREEMENT is agreement.")] = False,
    tags: Annotated[
        str, typer.Option(metavar="auto, on or off", help="Keep <tags> and {names} in place; auto: where some are.")
    ] = "auto",
    languages: Languages = None,
    everything: Annotated[bool, typer.Option("--all", help="Of TMX, XLIFF and PO: what is translated, too.")] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="What was looked at for the first line; .png or .svg too.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="torch (auto), or ctranslate2: faster on a CPU, of transformers alone.")
    ] = "auto",
    precision: Annotated[
        str, typer.Option(help="fp32 or bf16; int8 too with ctranslate2, whose auto it is on a CPU.")
    ] = "auto",
    values: Values = [],  # noqa: B006 - typer copies it
    force: Force = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """One line out per line in, always. Exits 1 where a line could not be read; its translation is empty."""
    from regard.devices import find_device, use_threads
    from regard.translation.translator import Translator

    names = _names(add, jsonl)
    if tags not in ("auto", "on", "off"):
        raise ConfigError(f"--tags ({tags}) must be auto, on or off")
    document = not jsonl and _is_document(file, out, plain=not alternatives and trace is None)
    if as_json and out is None:
        raise ConfigError("--json reports on standard output, where the translations go: give --out FILE too")
    check_output(out, file, force=force)
    _can_draw(trace, file, str(out or ""), force=force)
    use_threads(threads)
    translator = Translator.load(folder, find_device(device), values)
    translator.use(engine, precision, folder, token_scores="confidence" in names)
    how: dict[str, Any] = {
        "beams": beams or None,
        "seed": seed if sample else None,
        "alternatives": alternatives,
        "prefix": prefix,
        "tag": tag,
        "align": "alignment" in names,
        "warn": "warnings" in names,
        "glossary": _glossary(glossary, keep, ignore_case),
    }
    if document and out is not None:
        codes = two("--languages", languages, "codes", "en,fr")
        _document(translator, how, file, out, codes, everything=everything, force=force, as_json=as_json)
        return
    names += ["alternatives"] * bool(jsonl and alternatives)
    job = Job(file, out, jsonl=jsonl, field=field, names=names, force=force, tags=tags)
    run(job, translator, how, trace=trace is not None)
    if trace is not None and job.traced is not None:
        next(iter(job.traced.parts), job.traced).draw(trace, force=force)
    elif trace is not None:
        print(f"regard: no line was translated, so there is nothing to draw in {trace}", file=sys.stderr)
    done = job.outcome
    _tell_failed(done.failed, file, "its translation is empty")
    if done.split:
        lines = f"{done.split:,} line{'s' * (done.split != 1)}"
        print(f"{lines} had a sentence too long to be read at once: it was split", file=sys.stderr)
    _tell_terms(done, "line ")
    _tell_unaligned(done.unaligned)
    if as_json:
        told = {"out": str(out), "lines": job.lines, **_failures(done.failed), "terms": dict(done.terms)}
        print(json.dumps(told, indent=2, ensure_ascii=False))
    if done.failed.count:
        raise typer.Exit(1)


def _can_draw(trace: Path | None, *others: str, force: bool) -> None:
    """Whether a picture may be written where it is asked for, before anything is translated."""
    check_output(trace, *others, force=force)
    if trace is not None:
        from regard.inspection.drawing import check_suffix

        check_suffix(trace)


def _is_document(file: str, out: Path | None, *, plain: bool) -> bool:
    """Whether a file is translated in place; then what is asked for must have room in it."""
    from regard.documents.formats import format_of
    from regard.documents.translate import FILLERS

    if format_of(file) not in FILLERS:
        return False
    if out is None or not plain:
        wrong = "needs --out FILE" if out is None else "has no room for --alternatives or --trace"
        raise ConfigError(f"{file} is translated in place: it {wrong}")
    return True


def _document(
    translator: Translator,
    how: dict[str, Any],
    file: str,
    out: Path,
    languages: tuple[str, str] | None,
    *,
    everything: bool,
    force: bool,
    as_json: bool,
) -> None:
    """A TMX, XLIFF or PO file, filled in place."""
    from regard.cli import tables
    from regard.documents.formats import left_out
    from regard.documents.translate import translate_file

    translate = partial(translator.translate, **{**how, "align": True})
    choice: dict[str, Any] = {"languages": languages, "everything": everything, "force": force}
    with tables.download_bar() as progress:
        done = translate_file(file, out, translate, **choice, progress=progress)
    _tell_failed(done.failed, file, "it is left as it was")
    _tell_terms(done, "")
    _tell_unaligned(done.unaligned)
    if as_json:
        told = {"translated": done.translated, "kept": done.kept, "left_out": dict(done.skipped)}
        more = {"unaligned": done.unaligned, **_failures(done.failed), "terms": dict(done.terms)}
        print(json.dumps({"out": str(out), **told, **more}, indent=2, ensure_ascii=False))
    else:
        kept = f"; kept {done.kept:,} that had a translation" if done.kept else ""
        rest = f"; {left_out(done.skipped)}" if done.skipped else ""
        print(f"{out}: translated {done.translated:,}{kept}{rest}", file=sys.stderr)
    if done.failed.count:
        raise typer.Exit(1)


def _tell_failed(failed: Problems, file: str, so: str) -> None:
    from regard.text.files import display_name

    for line, problem in failed.first:
        print(f"regard: {display_name(file)}:{line}: {problem}; {so}", file=sys.stderr)
    if more := failed.count - len(failed.first):
        print(f"regard: and {more:,} more such line{'s' * (more != 1)}", file=sys.stderr)


def _failures(failed: Problems) -> dict[str, Any]:
    """For a report: how many lines failed, and the first of them."""
    return {"failures": failed.count, "failed": [{"line": line, "problem": problem} for line, problem in failed.first]}


def _tell_terms(done: Outcome, kind: str) -> None:
    for where, term in done.missing.first:
        print(f"regard: glossary: term {term} not placed in {kind}{where}", file=sys.stderr)
    if done.terms:
        print(f"glossary: {_counted(done.terms)}", file=sys.stderr)


def _tell_unaligned(texts: int) -> None:
    if texts:
        placed = f"in {texts:,} text{'s' * (texts != 1)} tags stand in proportion to the length"
        print(f"regard: this model does not say which word became which: {placed}; look at them", file=sys.stderr)


def _glossary(glossary: Path | None, keep: Path | None, ignore_case: bool) -> Glossary | None:
    from regard.decoding.glossary import Glossary

    if glossary is None and keep is None:
        return None
    return Glossary.read(glossary, keep, ignore_case=ignore_case)


def _counted(counts: Counter[str]) -> str:
    """`12 terms: 10 written, 2 placed`"""
    total = counts.total()
    return f"{total:,} term{'s' * (total != 1)}: {', '.join(f'{count:,} {how}' for how, count in counts.items())}"


def _names(add: str, jsonl: bool) -> list[str]:
    names = [name.strip() for name in add.split(",") if name.strip()]
    for name in names:
        if name not in ADDED:
            raise ConfigError(f"--add has no {name}.{did_you_mean(name, ADDED)}")
    if names and not jsonl:
        raise ConfigError("--add writes into the objects of --jsonl: give --jsonl too")
    return names


class Line(NamedTuple):
    """A line of the input."""

    text: str
    problem: str = ""
    written: str = ""
    """The JSON object it is in, as it stands there,"""
    fields: Collection[str] = ()
    """and its fields."""


class Job:
    """A file that is translated line for line: where from, where to, and how it went."""

    def __init__(
        self, file: str, out: Path | None, *, jsonl: bool, field: str, names: Sequence[str], force: bool, tags: str
    ) -> None:
        from regard.documents.outcome import Outcome

        self.tags, self.outcome = tags, Outcome()
        self.file, self.out, self.force = file, out, force
        self.jsonl, self.field, self.names = jsonl, field, names
        self.lines = 0
        self.traced: Result | None = None

    def read(self, stream: BinaryIO) -> Iterator[Line]:
        """Its lines; what is wrong with one is said in its place."""
        for line in _lines(stream, self.file):
            yield self._object(line.text) if self.jsonl and not line.problem else line

    def _object(self, text: str) -> Line:
        if not text.strip():
            return Line("")
        try:
            row = json.loads(text, parse_int=float)  # of an integer Python reads no more than some thousand digits
        except ValueError as error:
            return Line("", f"this is not JSON ({error})")
        except RecursionError:
            return Line("", "this JSON is nested too deeply to be read")
        if not isinstance(row, dict):
            return Line("", f'this is not a JSON object such as {{"{self.field}": "..."}}')
        found = row.get(self.field)
        if not isinstance(found, str):
            fields = ", ".join(map(str, row)) or "none"
            return Line("", f"there is no text in a field {self.field!r} (--field): it has {fields}", text, row)
        if taken := [name for name in ("translation", *self.names) if name in row]:
            return Line("", f"the object has a field {taken[0]!r} already: give it another name", text, row)
        return Line(found, "", text, row)

    def written(self, line: Line, result: Result) -> str:
        """The line for a line, counted."""
        from regard.documents.translate import count_terms
        from regard.text.files import one_line

        self.lines += 1
        problem = line.problem or next((note.message for note in result.warnings if note.kind == "input"), "")
        if problem:
            self.outcome.failed.add(self.lines, problem)
        self.outcome.split += any(note.kind == "split" for note in result.warnings)
        count_terms(self.lines, result, self.outcome)
        if not self.jsonl:
            texts = [result.text, *(other.text for other in result.alternatives)]
            return one_line(texts[0]) if len(texts) == 1 else "\t".join(" ".join(text.split()) for text in texts)
        if not line.written and not problem:
            return ""
        added = {"translation": result.text, **({} if problem else {name: _plain(result, name) for name in self.names})}
        added |= {"error": problem} if problem else {}
        return _with(line, {name: value for name, value in added.items() if name not in line.fields})


def _lines(stream: BinaryIO, file: str) -> Iterator[Line]:
    """The lines of a file; what is wrong with one is said in its place."""
    from regard.text.files import display_name, lines_or_errors

    name = display_name(file)
    for number, found in enumerate(lines_or_errors(stream, name), 1):
        if isinstance(found, DataError):
            yield Line("", str(found).removeprefix(f"{name}:{number}: "))
        else:
            yield Line(found)


def _plain(result: Result, name: str) -> Any:
    """A part of a result as JSON has it."""
    found = getattr(result, name)
    if name == "alternatives":
        return [{"text": other.text, "score": other.score} for other in found]
    return [note._asdict() for note in found] if name == "warnings" else found


def _with(line: Line, added: dict[str, Any]) -> str:
    """The object of a line as it was written, so that no number in it changes, and more fields at its end."""
    more = json.dumps(added, ensure_ascii=False).encode("utf-8", "replace").decode()  # half a character is no UTF-8
    if not line.fields:
        return more
    return f"{line.written.strip()[:-1].rstrip()}{', ' * bool(added)}{more[1:]}"


def run(job: Job, translator: Translator, how: dict[str, Any], *, trace: bool) -> None:
    """Translate a file, in windows so that files of any size take the same memory; with a trace of the first text."""
    from regard.cli import tables
    from regard.text.files import open_text

    waiting: deque[Line] = deque()
    translate = _stream(job, translator)

    def texts(lines: Iterable[Line]) -> Iterator[str]:
        for line in lines:
            waiting.append(line)
            yield line.text

    def results(source: Iterator[str], how: dict[str, Any]) -> Iterator[Result]:
        if trace:  # line by line, until there is one to look at
            for result in translate(source, **{**how, "lines": 1, "trace": True}):
                job.traced = result if result.trace is not None or result.parts else None
                yield result
                if job.traced is not None:
                    break
        yield from translate(source, **how)

    with ExitStack() as stack:
        stream = stack.enter_context(open_text(job.file))
        write = stack.enter_context(_writing(job.out, force=job.force))
        quiet = job.out is None and sys.stdout.isatty()  # what is written there would be mixed with a bar
        progress = None if quiet else stack.enter_context(tables.counting_bar("translating"))
        total = _count(job.file) if progress and sys.stderr.isatty() else None
        if job.file == "-" and sys.stdin.isatty():
            how = {**how, "lines": 1}  # a line typed is a line translated
        for result in results(texts(job.read(stream)), how):
            write(job.written(waiting.popleft(), result))
            if progress:
                progress(job.lines, total)


def _stream(job: Job, translator: Translator) -> Callable[..., Iterator[Result]]:
    from regard.documents import translate as documents

    if job.tags == "off":
        return translator.stream
    options: dict[str, Any] = {"model_tags": translator.tokenizers.source.tags, "always": job.tags == "on"}
    return partial(documents.translate_lines, translator.translate, outcome=job.outcome, **options)


@contextmanager
def _writing(out: Path | None, *, force: bool) -> Iterator[Callable[[str], None]]:
    """Lines to standard output, or to a file that appears when all are there."""
    from regard.folders import atomic_file

    if out is None:
        yield lambda line: print(line, flush=True)
        return
    with atomic_file(out, force=force) as file:

        def write(line: str) -> None:
            file.write(line.encode() + b"\n")

        yield write


def _count(file: str) -> int | None:
    """Lines of a file, for the time left; standard input is read but once."""
    from regard.text.files import open_text

    if file == "-":
        return None
    with open_text(file) as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def generate(
    folder: Folder,
    prompt: Annotated[str, typer.Argument(help="The beginning of the text; nothing: anything.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Tokens at most.")] = 200,
    greedy: Annotated[bool, typer.Option("--greedy/--sample", help="The most probable token every time.")] = False,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Below 1 the probable becomes more so; as the folder's config says.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", min=0, max=1, help="Of the tokens that together have this probability.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another one, another text.")] = 1,
    stop: Annotated[list[str], typer.Option(metavar="TEXT", help="End before this; may be repeated.")] = [],  # noqa: B006
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """The prompt and what a gpt writes after it, as it is written."""
    from regard.devices import find_device, use_threads
    from regard.translation.writer import Writer

    use_threads(threads)
    writer = Writer.load(folder, find_device(device))
    how: dict[str, Any] = {"temperature": 0.0 if greedy else temperature, "top_p": top_p, "seed": seed, "stop": stop}
    if as_json:
        passage = writer.generate(prompt, tokens=tokens, **how)
        return print(json.dumps({"prompt": prompt, **passage._asdict(), "seed": seed}, indent=2, ensure_ascii=False))
    pieces = writer.stream(prompt, tokens=tokens, **how)
    print(prompt, end="")
    for piece in pieces:
        print(piece.text, end="", flush=True)
    return print()


def fill(
    folder: Folder,
    text: Annotated[str, typer.Argument(help='Such as "Paris is the [MASK] of France."')],
    top: Annotated[int, typer.Option(min=1, max=1000, help="Guesses for each gap.")] = 5,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """What a bert would put in the place of every [MASK], best first."""
    from regard.devices import find_device
    from regard.translation.reader import Reader

    found = Reader.load(folder, find_device(device)).fill(text, top=top)
    if as_json:
        gaps = [[guess._asdict() for guess in guesses] for guesses in found.gaps]
        return print(json.dumps({"text": found.text, "gaps": gaps}, indent=2, ensure_ascii=False))
    print(found.text)
    for number, guesses in enumerate(found.gaps, 1):
        head = f"gap {number}" if len(found.gaps) > 1 else ""
        print("\n" + head if head else "")
        for guess in guesses:
            print(f"{guess.probability:7.1%}  {guess.text}")
    return None


def embed(
    folder: Folder,
    file: Lines = "-",
    *,
    out: Annotated[Path, typer.Option(metavar="X.npy", help="(lines, size) numbers as float32.")],
    pool: Annotated[str, typer.Option(help="mean: of all tokens; first: the first token.")] = "mean",
    force: Force = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """What a bert makes of every line, as numbers; of an empty line, zeros. Exits 1 where a line could not be read."""
    from regard.cli import tables
    from regard.devices import find_device, use_threads
    from regard.documents.outcome import Problems
    from regard.folders import atomic_file
    from regard.text.files import open_text
    from regard.translation.reader import Reader

    check_output(out, file, force=force)
    use_threads(threads)
    reader = Reader.load(folder, find_device(device))
    total = _count(file) if sys.stderr.isatty() else None
    failed = Problems()

    def texts(lines: Iterable[Line]) -> Iterator[str]:
        for number, line in enumerate(lines, 1):
            if line.problem:
                failed.add(number, line.problem)
            yield line.text

    with open_text(file) as stream, atomic_file(out, force=force) as written, tables.counting_bar("reading") as tell:
        lines = reader.save(texts(_lines(stream, file)), written, pool=pool, progress=lambda done: tell(done, total))
    _tell_failed(failed, file, "its numbers are zeros")
    if as_json:
        told = {"out": str(out), "lines": lines, "size": reader.model.config.size, **_failures(failed)}
        print(json.dumps(told, indent=2, ensure_ascii=False))
    if failed.count:
        raise typer.Exit(1)
