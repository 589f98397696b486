"""HTML: translate the text of a page or a fragment, and keep its markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape, unescape
from html.parser import HTMLParser

from regard.documents.inline import VOID_ELEMENTS, Piece, Tag, split_tags
from regard.documents.outcome import Outcome
from regard.documents.translate import Translate, translate_pieces

INLINE = {
    *("a", "abbr", "b", "bdi", "bdo", "br", "cite", "del", "dfn", "em", "font", "i", "img", "ins", "mark", "q", "s"),
    *("small", "span", "strong", "sub", "sup", "u", "wbr"),
}
"""Elements inside a sentence; all others end it."""
UNTOUCHED = {"script", "style", "pre", "code", "textarea", "svg", "math", "kbd", "samp", "var", "template", "noscript"}
"""Elements whose content is not text to translate."""


def translate_html(html: str, translate: Translate, outcome: Outcome) -> str:
    """The HTML with its text translated; what the model writes is escaped, so that it never becomes markup."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    parser.end_text()
    texts = [part for part in parser.parts if not isinstance(part, str)]
    translations = iter(translate_pieces(texts, translate, outcome))
    return "".join(part if isinstance(part, str) else _write(next(translations)) for part in parser.parts)


def _write(pieces: Sequence[Piece]) -> str:
    return "".join(escape(piece, quote=False) if isinstance(piece, str) else piece.raw for piece in pieces)


class _Parser(HTMLParser):
    """Splits HTML into markup that is kept as it is, and texts with their inline tags."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.parts: list[str | list[Piece]] = []
        self.text: list[Piece] = []
        self.characters = ""  # since the last tag, with references decoded
        self.kept: list[str] = []  # the open elements whose content is kept, the outermost first

    def end_text(self) -> None:
        """End the sentence."""
        self._end_characters()
        if self.text:
            self.parts.append(self.text)
            self.text = []

    def _end_characters(self) -> None:
        # placeholders are kept; tags cannot be here, since the parser has found them
        for piece in split_tags(self.characters):
            is_markup = isinstance(piece, Tag) and piece.raw.startswith("<")
            self.text.append(
                Tag(escape(piece.raw, quote=False))
                if isinstance(piece, Tag) and not is_markup
                else piece.raw
                if isinstance(piece, Tag)
                else piece
            )
        self.characters = ""

    def _keep(self, raw: str, tag: Tag | None = None) -> None:
        """Keep markup: an inline tag within a sentence, or an end of the sentence."""
        if self.kept or tag is None:
            self.end_text()
            self.parts.append(raw)
        else:
            self._end_characters()
            self.text.append(tag)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = self.get_starttag_text() or ""
        values = dict(attrs)
        is_void = tag in VOID_ELEMENTS
        if not is_void and (
            self.kept
            or tag in UNTOUCHED
            or values.get("translate") == "no"
            or "notranslate" in (values.get("class") or "").split()
        ):
            self._keep(raw)
            self.kept.append(tag)
        elif tag in INLINE:
            self._keep(raw, Tag(raw, "alone" if is_void else "open", tag))
        else:
            self._keep(raw)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = self.get_starttag_text() or ""
        self._keep(raw, Tag(raw) if tag in INLINE else None)

    def handle_endtag(self, tag: str) -> None:
        raw = f"</{tag}>"
        if tag in self.kept:
            self.end_text()
            self.parts.append(raw)
            while self.kept.pop() != tag:
                pass
        elif tag in INLINE:
            self._keep(raw, Tag(raw, "close", tag))
        else:
            self._keep(raw)

    def handle_data(self, data: str) -> None:
        if self.kept:
            self.parts.append(data)
        else:
            self.characters += data

    def handle_entityref(self, name: str) -> None:
        self._reference(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self._reference(f"&#{name};")

    def _reference(self, raw: str) -> None:
        if self.kept:
            self.parts.append(raw)
        else:
            self.characters += unescape(raw)

    def handle_comment(self, data: str) -> None:
        self._keep(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._keep(f"<!{decl}>")

    def unknown_decl(self, data: str) -> None:
        self._keep(f"<![{data}]>")

    def handle_pi(self, data: str) -> None:
        self._keep(f"<?{data}>")
