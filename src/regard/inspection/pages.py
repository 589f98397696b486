"""Pages: the template, the style sheet and the heat map that all HTML files share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from regard.inspection.attribution import Map
from regard.inspection.trace import Side

SCRIPTS = ("page.js", "heatmap.js")
"""The scripts of every page."""
SHOWN_SPECIALS = {"<s>": "start", "</s>": "end"}


def page(title: str, body: Iterable[str], *, kind: str, about: str = "", scripts: Sequence[str] = SCRIPTS) -> str:
    """One HTML file that loads nothing from elsewhere, with a heading and these parts; `scripts` run after them."""
    return Template(_file("page.html")).substitute(
        title=escape(title),
        kind=kind,
        about=escape(about),
        body="\n".join(filter(None, body)),
        style=_file("page.css") + _file("inspector.css"),
        script="\n".join(map(_file, scripts)),
    )


def _file(name: str) -> str:
    return files("regard.inspection").joinpath(f"page/{name}").read_text(encoding="utf-8")


def data(values: Any, name: str = "") -> str:
    """Values as JSON in a script element; `<` is escaped, so that no value can close the element."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json"{f" id={name}" if name else ""}>{text}</script>'


def card(title: str, note: str, *content: str) -> str:
    """A box with a title, a note and HTML."""
    shown = f"<p>{escape(note)}</p>" if note else ""
    return f'<section class="card"><h2>{escape(title)}</h2>{shown}{"".join(content)}</section>'


def score_cards(scores: Iterable[Sequence[str]]) -> str:
    """Boxes side by side, each with a name, a large number and notes below it."""
    boxes = [
        f'<section class="card score"><h2>{escape(name)}</h2><p class="big">{escape(number)}</p>'
        f'<p class="interval">{escape(note)}</p>{"".join(map(signature, signatures))}</section>'
        for name, number, note, *signatures in scores
    ]
    return f'<div class="cards">{"".join(boxes)}</div>'


def signature(text: str) -> str:
    """A sacreBLEU signature, which may be wrapped between its parts."""
    return f'<p class="signature">{"|<wbr>".join(map(escape, text.split("|")))}</p>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], foot: Iterable[Sequence[str]] = ()) -> str:
    """A table of HTML cells; the first cell of a row is its heading, and a single cell spans all columns."""

    def line(cells: Sequence[str]) -> str:
        if len(cells) == 1:
            return f'<tr><th class="wide" colspan="{len(head)}"><span>{cells[0]}</span></th></tr>'
        return f'<tr><th scope="row">{cells[0]}</th>{"".join(f"<td>{cell}</td>" for cell in cells[1:])}</tr>'

    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    return (
        f'<div class="scroll" tabindex="0"><table class="data"><thead><tr>{top}</tr></thead>'
        f"<tbody>{''.join(map(line, rows))}</tbody><tfoot>{''.join(map(line, foot))}</tfoot></table></div>"
    )


def words(side: Side) -> dict[str, Any]:
    """The words of a side for a heat map; the start and end tokens by their names."""
    words = [
        SHOWN_SPECIALS.get(word, word) if special else word
        for word, special in zip(side.words, side.special, strict=True)
    ]
    return {"text": side.text, "words": words, "special": [int(special) for special in side.special]}


def heatmaps(title: str, note: str, maps: Mapping[str, Map | str]) -> str:
    """Small heat maps side by side, each under its name; a model without attention shows what it writes instead."""
    cells = []
    for name, shown in maps.items():
        if isinstance(shown, str):
            drawing = f'<p class="soft">It has no attention. It writes:</p><p dir="auto">{escape(shown)}</p>'
        else:
            where, values = shown.picture()
            numbers = [round(value, 3) for value in values.flatten().tolist()]
            drawing = '<div class="heat">' + data(
                {"rows": words(shown.rows), "columns": words(shown.columns), "values": numbers}
            )
            drawing += f'</div><p class="soft">{where}</p>'
        cells.append(f'<div><h3 dir="auto">{escape(name)}</h3>{drawing}</div>')
    return card(title, note, f'<div class="heats">{"".join(cells)}</div>')
