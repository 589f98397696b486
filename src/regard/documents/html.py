"""HTML: translate the text of a page or a fragment, and keep its markup.

Markup is found as browsers find it, even if it is malformed, and copied without changes.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from regard.documents.inline import VOID_ELEMENTS, Piece, Tag
from regard.documents.outcome import Outcome
from regard.documents.translate import Translate, translate_pieces
from regard.documents.xml import split_text, write_pieces

INLINE = {
    *("a", "abbr", "b", "bdi", "bdo", "br", "cite", "del", "dfn", "em", "font", "i", "img", "ins", "mark", "q", "s"),
    *("small", "span", "strong", "sub", "sup", "u", "wbr"),
}
"""Elements inside a sentence; all others end it."""
FOREIGN = {"svg", "math"}
"""Elements with the syntax of XML: CDATA sections, self-closing tags, and no raw elements."""
UNTOUCHED = FOREIGN | {"pre", "code", "kbd", "samp", "var", "template"}
"""Elements whose content is not text to translate."""
RAW = {"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "noscript", "plaintext"}
"""Elements whose content has no markup; only that of the title is text to translate."""

SPACE = r" \t\n\r\f"
VALUE = rf"\"[^\"]*+\"|'[^']*+'|[^{SPACE}>\"'][^{SPACE}>]*+|(?=>)"
ATTRIBUTE = rf"[^{SPACE}/>][^{SPACE}/>=]*+(?:[{SPACE}]*+=[{SPACE}]*+(?:{VALUE})|(?![{SPACE}]*+=))"
MARKUP = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|<(?:[!?]|/(?![A-Za-z]|\Z))[^>]*+(?:>|\Z)"
    rf"|<(?P<close>/?)(?P<name>[A-Za-z][^{SPACE}/>]*+)(?P<attributes>(?:[{SPACE}/]*+{ATTRIBUTE})*+)[{SPACE}/]*?(?P<slash>/?)>"
    r"|(?P<unfinished></?[A-Za-z])",
    re.DOTALL,
)


def translate_html(html: str, translate: Translate, outcome: Outcome) -> str:
    """Translate the text of HTML; the output of the model is escaped, so that it never becomes markup."""
    parts = _Splitter(html).parts
    texts = [part for part in parts if not isinstance(part, str)]
    translations = iter(translate_pieces(texts, translate, outcome))
    return "".join(part if isinstance(part, str) else write_pieces(next(translations)) for part in parts)


class _Splitter:
    """Splits HTML into markup that is kept as it is, and texts with their inline tags."""

    def __init__(self, html: str) -> None:
        self.parts: list[str | list[Piece]] = []
        self.text: list[Piece] = []
        self.kept: list[str] = []  # open elements whose content is not translated, the outermost first
        at = 0
        while (match := MARKUP.search(html, at)) and match["unfinished"] is None:
            self._add_characters(html[at : match.start()])
            at = self._add_markup(html, match)
        self._add_characters(html[at:])  # a tag that never ends is text
        self._keep("")  # ends the last text

    def _add_characters(self, raw: str) -> None:
        if self.kept:
            self.parts.append(raw)
        else:
            self.text += split_text(unescape(raw))

    def _keep(self, raw: str) -> None:
        self.parts += [self.text, raw] if self.text else [raw]
        self.text = []

    def _add_markup(self, html: str, match: re.Match[str]) -> int:
        """Add a tag or comment, with its content if it is a raw element; return the position after it."""
        foreign = bool(self.kept) and self.kept[0] in FOREIGN
        end, name = match.end(), (match["name"] or "").lower()
        if foreign and match[0].startswith("<![CDATA["):
            close = html.find("]]>", match.start())
            end = len(html) if close < 0 else close + len("]]>")
        raw = html[match.start() : end]
        if match["close"] and name in self.kept:
            self._keep(raw)
            while self.kept.pop() != name:
                pass
            return end
        slash = match["slash"] and (foreign or name in FOREIGN | INLINE)
        side: Any = "close" if match["close"] else "alone" if slash or name in VOID_ELEMENTS else "open"
        if name in INLINE and not self.kept and not (side == "open" and _is_kept(match)):
            self.text.append(Tag(raw, side, name))
            return end
        self._keep(raw)
        if side == "open" and name in RAW and not foreign:
            stop = _raw_end(html, name, end)
            (self._add_characters if name == "title" else self._keep)(html[end:stop])
            return stop
        if name and side == "open" and (self.kept or _is_kept(match)):
            self.kept.append(name)
        return end


def _is_kept(tag: re.Match[str]) -> bool:
    """Whether the content of an element is not translated, by its name or its attributes."""
    values: dict[str, str] = {}
    for attribute in re.findall(ATTRIBUTE, tag["attributes"]):
        name, _, value = attribute.partition("=")
        values.setdefault(name.strip().lower(), value.strip().strip("\"'").lower())
    by_attribute = values.get("translate") == "no" or "notranslate" in values.get("class", "").split()
    return by_attribute or tag["name"].lower() in UNTOUCHED


def _raw_end(html: str, name: str, start: int) -> int:
    """The end of the content of a raw element; a comment in a script may contain another script element."""
    commented = nested = False
    for match in re.compile(rf"<!--(?!-?>)|-->|<(/?){name}(?=[{SPACE}/>])", re.IGNORECASE).finditer(html, start):
        if match[1] is None:
            commented = match[0] == "<!--"
            nested = nested and commented
        elif not match[1]:
            nested = commented and name == "script"
        elif nested:
            nested = False
        elif name != "plaintext":
            return match.start()
    return len(html)
