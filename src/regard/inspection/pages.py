"""Pages: the template, the style sheet and the parts that all HTML files share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.inspection.attribution import Map
    from regard.inspection.trace import Side


def page(title: str, body: Iterable[str], *, kind: str, about: str = "") -> str:
    """One HTML file that loads nothing from elsewhere; the title says what came out."""
    content = "\n".join(filter(None, body))
    scripts = ["page.js", "heatmap.js", *["inspector.js"] * ('<div class="inspector">' in content)]
    return Template(_file("page.html")).substitute(
        title=escape(title),
        kind=kind,
        about=escape(about),
        body=content,
        style=_file("page.css") + _file("inspector.css"),
        script="\n".join(map(_file, scripts)),
    )


def _file(name: str) -> str:
    return files("regard.inspection").joinpath(f"page/{name}").read_text(encoding="utf-8")


def drawn(kind: str, values: Any) -> str:
    """An element that a script draws the values into; `<` is escaped, so that no value can close the element."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<div class="{kind}"><script type="application/json">{text}</script></div>'


def card(title: str, note: str, *content: str) -> str:
    """A section with a title, a note and HTML."""
    shown = f"<p>{escape(note)}</p>" if note else ""
    return f'<section class="card"><h2>{escape(title)}</h2>{shown}{"".join(content)}</section>'


def text(tag: str, content: str, language: str = "") -> str:
    """An element with HTML in another language, whose direction the browser finds."""
    attribute = f' lang="{language}"' if language else ""
    return f'<{tag} dir="auto"{attribute}>{content}</{tag}>'


def command(line: str) -> str:
    """A command that can be copied."""
    return f'<div class="command"><code>{escape(line)}</code></div>'


def fold(summary: str, content: str) -> str:
    """Content that is shown when its summary is clicked."""
    return f'<details class="fold"><summary>{escape(summary)}</summary>{content}</details>'


def score_cards(scores: Iterable[tuple[str, str, str]], note: str) -> str:
    """Sections side by side, each with a name, a large number and its interval; below them a note."""
    boxes = [
        f'<section class="score"><h2>{escape(name)}</h2><p class="big">{escape(number)}</p>'
        f'<p class="interval">{escape(interval)}</p></section>'
        for name, number, interval in scores
    ]
    return f'<div class="cards">{"".join(boxes)}</div><p class="soft">{escape(note)}</p>'


def signature(text: str) -> str:
    """A sacreBLEU signature, which may be wrapped between its parts."""
    return f'<p class="signature">{"|<wbr>".join(map(escape, text.split("|")))}</p>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of HTML cells; the first cell of a row is its heading."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for first, *cells in rows
    )
    return (
        '<div class="scroll" tabindex="0" role="group" aria-label="table"><table class="data">'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def words(side: Side, language: str = "") -> dict[str, Any]:
    """The words of a side for a heat map; the start and end tokens by their names."""
    names = {"<s>": "start", "</s>": "end"}
    words = [names.get(word, word) if special else word for word, special in zip(side.words, side.special, strict=True)]
    values = {"text": side.text, "words": words, "special": [int(special) for special in side.special]}
    return values | ({"language": language} if language else {})


def heatmap(shown: Map, languages: tuple[str, str] = ("", ""), note: str = "") -> str:
    """A small heat map of cross-attention; below it a note, and the layer and head if there are several."""
    where, picture = shown.picture()
    numbers = [round(value, 3) for value in picture.flatten().tolist()]
    values = {"rows": words(shown.rows, languages[1]), "columns": words(shown.columns, languages[0]), "values": numbers}
    below = " ".join(filter(None, [note, where and f"{where[:1].upper()}{where[1:]}."]))
    return drawn("heat", values) + f'<p class="soft">{escape(below)}</p>' * bool(below)
