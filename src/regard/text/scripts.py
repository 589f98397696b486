"""Scripts and damaged text: the script of a line; mojibake, escapes and control characters, and their repair."""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from html.entities import html5

UNSPACED_SCRIPTS = ("Han", "Kana", "Thai", "Lao", "Khmer", "Myanmar")  # scripts without spaces between words
RELATED_SCRIPTS = {"Kana": ("Han",), "Hangul": ("Han",), "Han": ("Bopomofo",)}  # that texts in a script also use

LATIN_ONLY = re.compile("[\0-\u024f\u1e00-\u1eff\u2000-\u206f\u20a0-\u20cf\u2100-\u214f]*")
LETTER = re.compile(r"[^\W\d_]")

# The first word of a letter's Unicode name is its script, with these exceptions.
WIDTHS = re.compile("(FULL|HALF)WIDTH ")
RENAMED = {"CJK": "Han", "HIRAGANA": "Kana", "KATAKANA": "Kana", "HALFWIDTH-FULLWIDTH": "Kana"}
NO_SCRIPT = {"MODIFIER", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER", "FEMININE", "MASCULINE", "MICRO"}


def script(text: str) -> str:
    """The script that most letters of the text are written in: "Latin", "Han", "Kana" ...; "" without letters.

    Japanese mixes Han with Kana, so Han letters beside Kana count as Kana.
    """
    if text.isascii() or LATIN_ONLY.fullmatch(text):
        return "Latin" if LETTER.search(text) else ""
    counts: Counter[str] = Counter()
    for character, count in Counter(text).items():
        counts[script_of(character)] += count
    counts.pop("", None)
    if counts["Kana"] and counts["Han"]:
        counts["Kana"] += counts.pop("Han")
    return max(counts, key=lambda name: (counts[name], name)) if counts.total() else ""


def scripts(lines: Sequence[str]) -> list[str]:
    """The script of each line."""
    if LATIN_ONLY.fullmatch("".join(lines)):  # faster for many lines
        return ["Latin" if LETTER.search(line) else "" for line in lines]
    return list(map(script, lines))


@cache
def script_of(character: str) -> str:
    """The script of one letter; "" for other characters."""
    name = WIDTHS.sub("", unicodedata.name(character, "")).partition(" ")[0] if character.isalpha() else ""
    return "" if name in NO_SCRIPT else RENAMED.get(name, name.capitalize())


# C0 and C1 controls except the tab, line and paragraph separators (many programs split lines there), the byte order
# mark, lone surrogates, private use, noncharacters and U+FFFD, the replacement character. Joiners and direction marks
# are allowed: Persian, Hindi and Hebrew need them.
CONTROL = re.compile(
    "[\0-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufff9-\uffff"
    "\U000f0000-\U0010ffff]"
)


# Mojibake: UTF-8 that was read as Latin-1 or Windows-1252, such as Ã© for é or â€™ for ’. Two or more letters of
# another script are proof by themselves; a single sequence must begin with a letter that does not occur before such a
# character in real text. An accented letter may also be a capital before a quote ("AMANHÃ…"), so its neighbours decide.
CP1252 = {
    bytes([byte]).decode("cp1252"): byte for byte in range(0x80, 0xA0) if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}
CONTINUATION = f"[\x80-\xbf{''.join(CP1252)}]"  # a UTF-8 continuation byte in the wrong code page
SUSPECT = re.compile(f"[\xc2-\xf4]{CONTINUATION}")  # a fast test whether MOJIBAKE can match
MOJIBAKE = re.compile(
    f"(?:[\xc4-\xdf]{CONTINUATION}){{2,}}|(?:[\xe0-\xef]{CONTINUATION}{{2}}){{2,}}"
    f"|\xe2[\x80\x82\x84\x86\x88€‚„†ˆ]{CONTINUATION}|\xef\xbb\xbf|\xef\xbf\xbd|\xf0[\x9fŸ]{CONTINUATION}{{2}}"
    f"|(?P<accent>[\xc2-\xc6\xcc]{CONTINUATION}|\xe1[\xba\xbb]{CONTINUATION})"
)
MAY_FOLLOW_A_LETTER = set("…”“»’‘–—™®°ªº·¹²³\xa0\xad‹›")


def mojibake(text: str) -> list[tuple[int, int, str]]:
    """The start, end and correct text of every sequence of mojibake."""
    repairs: list[tuple[int, int, str]] = []
    proven = False
    for match in MOJIBAKE.finditer(text) if not text.isascii() and SUSPECT.search(text) else ():
        if repaired := as_utf8(match.group()):
            repairs.append((*match.span(), repaired))
            proven = proven or not match["accent"] or stands_out(text, match)
    return repairs if proven else []  # one certain sequence is enough to repair the doubtful ones in the same line


def as_utf8(damaged: str) -> str:
    """Text whose UTF-8 bytes were read as Windows-1252 or Latin-1, repaired; "" if the result is not plausible."""
    try:
        text = bytes(CP1252.get(character, ord(character)) for character in damaged).decode("utf-8")
    except ValueError:
        return ""
    scripts = {script_of(character) for character in text if character.isalpha()}
    is_mixed = len(scripts) > 1 and not scripts <= {"Han", "Kana", "Hangul"}
    is_assigned = all(unicodedata.category(character) not in ("Cn", "Co", "Cc") for character in text)
    return text if is_assigned and not is_mixed else ""


def stands_out(text: str, match: re.Match[str]) -> bool:
    """Whether the characters beside a suspicious sequence show that it is not correct text."""
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    return (
        match.group()[-1] not in MAY_FOLLOW_A_LETTER
        or (match.group()[0].isupper() and (before.islower() or before.isdigit()))
        or after.islower()
        or (after.isalnum() and not before.isalpha())
    )


BACKSLASH = re.compile(r"\\u[0-9a-fA-F]{4}|\\U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}|\\x[89a-fA-F][0-9a-fA-F]")
ENTITY = re.compile(r"&(#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,30});")
SPLIT_ENTITY = re.compile(r"& ?(#? ?(?:apos|quot|amp|lt|gt|nbsp|[0-9]{2,4})) ;|& (#[0-9]{2,4}|apos|quot|amp|nbsp);")


def escape(text: str) -> re.Match[str] | None:
    """The first escape sequence of a tokenizer, a web page or a program, such as `&apos;`, `&#39;` or `\\u00e9`."""
    entities = (match for match in ENTITY.finditer(text) if match[1].startswith("#") or f"{match[1]};" in html5)
    return next(entities, None) or SPLIT_ENTITY.search(text) or BACKSLASH.search(text)


def repair(text: str) -> str:
    """The text with mojibake decoded correctly, entities and escapes resolved, and control characters removed."""
    for _ in range(3):  # text may be damaged more than once: `&amp;amp;#39;`
        for start, end, repaired in reversed(mojibake(text)):
            text = text[:start] + repaired + text[end:]
        if "&" in text:
            text = html.unescape(SPLIT_ENTITY.sub(lambda match: f"&{(match[1] or match[2]).replace(' ', '')};", text))
        text = BACKSLASH.sub(lambda match: chr(int(match.group()[2:], 16)), text)
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "ignore")  # joins the halves of an emoji
    return CONTROL.sub("", text)


def damage(text: str) -> tuple[str, str]:
    """The worst damage ("mojibake", "control-characters", "escapes" or "") and the text around its first place."""
    if repairs := mojibake(text):
        kind, start = "mojibake", repairs[0][0]
    elif match := CONTROL.search(text):
        kind, start = "control-characters", match.start()
    elif match := escape(text):
        kind, start = "escapes", match.start()
    else:
        return "", ""
    return kind, text[max(start - 20, 0) : start + 20]
