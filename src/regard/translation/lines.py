"""Lines: read texts or JSON objects line by line, and write their translations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import tee
from typing import Any, BinaryIO, NamedTuple

from regard.documents.outcome import Outcome
from regard.documents.translate import translate_lines
from regard.errors import DataError
from regard.text.files import display_name, lines_or_errors, written_line
from regard.translation.translator import Result, Translator


class Line(NamedTuple):
    """A line of the input."""

    text: str
    problem: str = ""
    raw: str = ""  # with --jsonl: the JSON text of the line
    fields: Collection[str] = ()


@dataclass
class LineJob:
    """Reads the lines of a file, writes their translations and counts failures and terms."""

    file: str
    jsonl: bool
    field: str  # of the objects of --jsonl, with the text
    names: Sequence[str]  # fields to add to these objects
    tags: str  # auto, on or off
    search: dict[str, Any]  # options of `Translator.translate`
    lines: int = 0
    first_text: str = ""  # the first text that was searched, for --trace
    outcome: Outcome = dataclasses.field(default_factory=Outcome)

    def read(self, stream: BinaryIO) -> Iterator[Line]:
        """Read the lines of an open file; with --jsonl, the texts of their JSON objects."""
        for line in read_lines(stream, self.file):
            yield self._parse(line.text) if self.jsonl and not line.problem else line

    def translate(self, lines: Iterable[Line], translator: Translator, **options: Any) -> Iterator[str]:
        """The output line of each line."""
        lines, ahead = tee(lines)
        for line, result in zip(lines, self.results((x.text for x in ahead), translator, **options), strict=True):
            if not self.first_text and (result.log_probabilities or result.parts):
                self.first_text = line.text
            yield self._write(line, result)

    def results(self, texts: Iterable[str], translator: Translator, **options: Any) -> Iterator[Result]:
        """Translate texts in windows of constant memory, with their tags kept."""
        options = {**self.search, **options}
        if self.tags == "off":
            return translator.stream(texts, **options)
        model_tags, always = translator.tokenizers.source.tags, self.tags == "on"
        return translate_lines(
            translator.translate, texts, model_tags=model_tags, outcome=self.outcome, always=always, **options
        )

    def _parse(self, text: str) -> Line:
        if not text.strip():
            return Line("")
        try:
            row = json.loads(text, parse_int=float)  # Python does not parse integers of more than 4,300 digits
        except (ValueError, RecursionError) as error:
            return Line("", f"this is not JSON ({error})")
        if not isinstance(row, dict):
            return Line("", f'this is not a JSON object such as {{"{self.field}": "..."}}')
        content = row.get(self.field)
        if not isinstance(content, str):
            problem = f"there is no field {self.field!r}"
            if self.field in row:
                problem = f"the value of {self.field!r} is not text"
            return Line("", f"{problem} (--field): the object has {', '.join(row) or 'no fields'}", text, row)
        if existing := [name for name in ("translation", *self.names) if name in row]:
            return Line("", f"the object has a field {existing[0]!r} already: give it another name", text, row)
        return Line(content, "", text, row)

    def _write(self, line: Line, result: Result) -> str:
        """The output line of an input line."""
        self.lines += 1
        problem = line.problem or next((note.message for note in result.warnings if note.kind == "input"), "")
        if problem:
            self.outcome.fail(self.lines, problem)
        self.outcome.split += any(note.kind == "split" for note in result.warnings)
        self.outcome.count_terms(self.lines, result.terms)
        if not self.jsonl:
            texts = [result.text, *(other.text for other in result.alternatives)]
            lines = [written_line(text) for text in texts]
            return lines[0] if len(lines) == 1 else "\t".join(" ".join(line.split()) for line in lines)
        if not line.raw and not problem:
            return ""
        added: dict[str, Any] = {"translation": result.text}
        if problem:
            added["error"] = problem
        else:
            values = result.to_dict()
            values["alternatives"] = [{"text": other.text, "score": other.score} for other in result.alternatives]
            added |= {name: values[name] for name in self.names}
        new = {name: value for name, value in added.items() if name not in line.fields}
        text = json.dumps(new, ensure_ascii=False).encode("utf-8", "replace").decode()  # a lone surrogate is not UTF-8
        # The other fields stay exactly as they were written.
        return f"{line.raw.strip()[:-1].rstrip()}{', ' * bool(new)}{text[1:]}" if line.fields else text


def read_lines(stream: BinaryIO, file: str) -> Iterator[Line]:
    """The lines of an open file; a line that cannot be read has a problem."""
    name = display_name(file)
    for number, line in enumerate(lines_or_errors(stream, name), 1):
        yield Line("", str(line).removeprefix(f"{name}:{number}: ")) if isinstance(line, DataError) else Line(line)
