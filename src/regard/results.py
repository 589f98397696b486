"""Results of public functions: they print as tables, convert to plain values and render in notebooks."""

from __future__ import annotations

import html
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import ConfigError
from regard.folders import write_file


@dataclass(frozen=True)
class Table:
    """Rows of text under a title. The first column is left-aligned, the others right-aligned unless `left`."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    left: bool = False

    def __str__(self) -> str:
        lines = [self.columns, *self.rows] if any(self.columns) else list(self.rows)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [self.title] if self.title else []
        for line in lines:
            cells = [
                cell.rjust(width) if column and not self.left else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            text.append("  ".join(cells).rstrip())
        return "\n".join(text)

    def to_html(self) -> str:
        """The table as HTML, with its title as the caption."""
        caption = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self.rows)
        return f"<table>{caption}<tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


class Report(ABC):
    """The result of a public function, such as `regard.evaluate`. Subclasses define its tables and plain values."""

    messages: Sequence[str] = ()
    """Messages about how the result was computed."""

    @abstractmethod
    def tables(self) -> list[Table]:
        """The tables that the result prints as."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; the same as `--json` prints."""

    def to_json(self, **options: Any) -> str:
        """The plain values as JSON; the options are those of `to_dict`."""
        return json.dumps(self.to_dict(**options), indent=2, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.tables())


class Page(Report):
    """A result that can be saved as a web page."""

    @abstractmethod
    def to_html(self) -> str:
        """The page, which loads nothing from elsewhere."""

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page; its name must end in .html."""
        check_page(path)
        write_file(Path(path), self.to_html(), force=force)


def check_page(path: str | Path) -> None:
    """Raise a ConfigError unless a path ends in .html or .htm."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{path} will be a web page: give it a name that ends in .html")


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 sentence, 2,000 sentences."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def with_unit(number: float, unit: str) -> str:
    """A number with three digits and an SI prefix: 3.03 kB."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if number < 1000:
            return f"{number:.3g} {prefix}{unit}"
        number /= 1000
    return f"{number:.3g} E{unit}"


def format_duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
