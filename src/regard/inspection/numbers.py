"""Numbers: those a translation lost, changed or added, however figures, times and small numbers are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

LONGEST = 18  # digits of a quantity
SMALL = 12  # up to here any language may spell a number in words that are not known here


def _table(*lists: str) -> dict[str, int]:
    """Words by value: each list counts up from 0, ways to say the same joined by a slash."""
    values = [*range(21), *range(30, 100, 10), 100, 1000, 1_000_000, 1_000_000_000]
    return {
        word: value
        for words in lists
        for value, ways in zip(values, words.split(), strict=True)
        for word in ways.split("/")
        if word != "-"
    }


# 1 is left out: it is the article of too many languages.
WORDS = _table(
    """zero - two/second/twice three/third four/fourth five/fifth six/sixth seven/seventh eight/eighth nine/ninth
    ten/tenth eleven/eleventh twelve/twelfth/dozen/dozens thirteen/thirteenth fourteen/fourteenth fifteen/fifteenth
    sixteen/sixteenth seventeen/seventeenth eighteen/eighteenth nineteen/nineteenth twenty/twentieth thirty/thirtieth
    forty/fortieth fifty/fiftieth sixty/sixtieth seventy/seventieth eighty/eightieth ninety/ninetieth hundred/hundreds
    thousand/thousands million/millions billion/billions""",
    """null - zwei/zwo/zweite/zweiten/zweiter drei/dritte/dritten/dritter vier/vierte/vierten/vierter fünf/fünfte
    sechs/sechste/sechsten sieben/siebte/siebten acht/achte/achten neun/neunte/neunten zehn/zehnte/zehnten
    elf/elfte/elften zwölf/zwölfte/zwölften/dutzend dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn
    zwanzig dreissig vierzig fünfzig sechzig siebzig achtzig neunzig hundert/hunderte tausend/tausende
    million/millionen milliarde/milliarden""",
    """zéro - deux/deuxième/seconde trois/troisième quatre/quatrième cinq/cinquième six/sixième sept/septième
    huit/huitième neuf/neuvième dix/dixième onze/onzième douze/douzième/douzaine/midi/minuit treize quatorze
    quinze/quinzaine seize dix-sept dix-huit dix-neuf vingt/vingtaine trente/trentaine quarante/quarantaine
    cinquante/cinquantaine soixante/soixantaine septante huitante/octante nonante cent/cents/centaine/centaines
    mille/millier/milliers million/millions milliard/milliards""",
    """cero - dos/segundo/segunda tres/tercero/tercera cuatro cinco seis siete ocho nueve diez once doce/docena trece
    catorce quince dieciséis diecisiete dieciocho diecinueve veinte treinta cuarenta cincuenta sesenta setenta ochenta
    noventa cien/ciento/cientos mil/miles millón/millones -""",
    """zero - due/secondo/seconda tre/terzo/terza quattro cinque sei sette otto nove dieci undici dodici/dozzina tredici
    quattordici quindici sedici diciassette diciotto diciannove venti trenta quaranta cinquanta sessanta settanta
    ottanta novanta cento mille/mila milione/milioni miliardo/miliardi""",
    """zero - dois/duas três quatro cinco seis sete oito nove dez onze doze treze catorze/quatorze quinze dezesseis
    dezessete dezoito dezenove vinte trinta quarenta cinquenta sessenta setenta oitenta noventa cem/cento mil
    milhão/milhões bilhão""",
    """nul - twee/tweede drie/derde vier/vierde vijf/vijfde zes zeven acht negen tien elf twaalf/dozijn dertien veertien
    vijftien zestien zeventien achttien negentien twintig dertig veertig vijftig zestig zeventig tachtig negentig
    honderd duizend miljoen miljard""",
)
HAN = "〇二三四五六七八九十百千万億"
WORDS |= dict(zip(HAN, (0, *range(2, 11), 100, 1000, 10_000, 10**8), strict=True))
WORD = re.compile(rf"[{HAN}]+|[^\W\d_{HAN}]+(?:-[^\W\d_{HAN}]+)*")
JOINED = re.compile("|".join(sorted({*WORDS, "ein", "und", "en"} - {"second"}, key=len, reverse=True)))
ORDINAL = re.compile(r"(?<=.{4})s?te[nrms]?$|(?<=.{4})ern?$")  # achtundachtzigsten, Dreißigern
BETWEEN = {"and", "und", "et", "y", "e", "en", "a", "one", "un", "ein"}  # may stand between the words of one number

# 1,000.50  1.000,50  1 000  1'000, or plain digits with or without decimals
FIGURE = re.compile(
    r"(?<!\d)(?:\d{1,3}(?:(?P<by>[.,'’\u00a0\u202f ])\d{3})(?:(?P=by)\d{3})*(?!\d)|\d+)(?:[.,]\d+)*(?!\d)", re.UNICODE
)
YEARS = re.compile(r"(?<!\d)(\d\d)\d\d[-–/]$")  # before the 01 of 2000-01
ASIDE = re.compile(r"&#?\w+;|\bp\. ?100\b")  # digits that are no numbers: &#91; and the French percent
DATE = re.compile(r"(?<!\d)(\d{1,2})\.\s?(\d{1,2})\.(?:\s?(\d{2,4}))?(?!\d)")
TIME = re.compile(
    r"(?<!\d)(?P<hour>[01]?\d|2[0-4])(?:"
    r"(?:[:.]|\s?[hH]\s?)(?P<minute>[0-5]\d)(?!\d|[.,]\d)(?:\s?(?:Uhr|h\b|[aApP]\.?[mM]\b))?"
    r"|\s?(?:Uhr|[hH]\b|heures?|o['’]clock|[aApP]\.?[mM]\b)(?:\s(?P<late>[0-5]\d)(?!\d))?)"
)


class Figure(NamedTuple):
    """A number written in digits."""

    text: str
    start: int
    keys: frozenset[str]
    """What it may be, as it would be compared: figures that share one are the same."""
    whole: int | None
    """Its value, where it is a whole number."""
    hours: frozenset[int]
    """The hours it may name, where it may be a time."""


class Differences(NamedTuple):
    """The figures that one side has and the other has in no form."""

    lost: list[Figure]
    added: list[Figure]


def differences(source: str, target: str) -> Differences:
    """What became of the numbers of a source; what only might have become another is left out."""
    here, there = figures(source), figures(target)
    if not here and not there:
        return Differences([], [])
    said, heard = spelled(source), spelled(target)
    lost, added = _unmatched(here, there, heard), _unmatched(there, here, said)
    if len(lost) != len(added) and _digits(lost) == _digits(added):  # the same digits, parted otherwise
        return Differences([], [])
    # A small one alone may be spelled in words we do not know, unless another number stands in its place.
    other = min(heard - said - _wholes(here), default=SMALL + 1) <= SMALL
    changed = min(said - heard - _wholes(there), default=SMALL + 1) <= SMALL
    return Differences(
        [figure for figure in lost if not _small(figure) or added or other or len(there) >= len(here)],
        [figure for figure in added if not _small(figure) or lost or changed or len(here) >= len(there)],
    )


def figures(text: str) -> list[Figure]:
    """The numbers of a text that are written in digits, in order."""
    found: list[Figure] = []

    def take(match: re.Match[str]) -> str:
        """Note what matched and leave blanks, so that nothing is read twice."""
        if match.re is DATE:
            found.extend(_figure(match[part], match.start(part)) for part in (1, 2, 3) if match[part])
        elif match.re is TIME:
            found.append(_time(match))
        elif match.re is FIGURE:
            found.append(_in_context(match))
        return " " * len(match.group())

    for pattern in (ASIDE, DATE, TIME, FIGURE):
        text = pattern.sub(take, text)
    return sorted(found, key=lambda figure: figure.start)


def _in_context(match: re.Match[str]) -> Figure:
    figure = _figure(match.group(), match.start())
    century = YEARS.search(match.string[max(match.start() - 6, 0) : match.start()])
    if century is None or len(match.group()) != 2:
        return figure
    return figure._replace(keys=figure.keys | {century[1] + match.group()})


def _time(match: re.Match[str]) -> Figure:
    hour, minute = int(match["hour"]), int(match["minute"] or match["late"] or 0)
    plain = _figure(re.sub(r"\D+", ".", match.group()).strip("."), match.start())
    hours = {hour % 12 or 12, hour % 12 + 12, *({hour % 12 + 1} if minute >= 30 else ())}  # halb drei is 2:30
    keys = {f"{hour % 12}:{minute:02d}", *plain.keys, *({str(hour)} if not minute else ())}
    return Figure(match.group(), match.start(), frozenset(keys), plain.whole if minute else hour, frozenset(hours))


def _figure(text: str, start: int) -> Figure:
    """Both readings where a point may part thousands or decimals."""
    parts = re.split(r"\D+", _ascii(text))
    joined = _bare("".join(parts))
    if len(parts) == 1:
        return Figure(text, start, frozenset({joined}), _value(joined), frozenset())
    whole, decimals = _bare("".join(parts[:-1])), parts[-1].rstrip("0")
    read = f"{whole}.{decimals}" if decimals else whole
    if len(parts[-1]) == 3:
        return Figure(text, start, frozenset({joined, read}), _value(joined), frozenset())
    return Figure(text, start, frozenset({read}), None if decimals else _value(whole), frozenset())


def _bare(digits: str) -> str:
    return digits.lstrip("0") or "0"


def _value(digits: str) -> int | None:
    """None for what is no quantity but a key, a code or worse."""
    return int(digits) if len(digits) <= LONGEST else None


def _ascii(text: str) -> str:
    """Digits of any script as 0 to 9."""
    return "".join(str(int(letter)) if letter.isdecimal() else letter for letter in text)


def _digits(found: Sequence[Figure]) -> str:
    return "".join(re.sub(r"\D+", "", _ascii(figure.text)).lstrip("0") for figure in found)


def _small(figure: Figure) -> bool:
    return figure.whole is not None and figure.whole <= SMALL


def _wholes(found: Sequence[Figure]) -> set[int]:
    return {figure.whole for figure in found if figure.whole is not None}


def _unmatched(own: Sequence[Figure], other: Sequence[Figure], spelled_there: set[int]) -> list[Figure]:
    keys = {key for figure in other for key in figure.keys}
    hours = {value % 12 for value in _wholes(other)}
    return [
        figure
        for figure in own
        if not figure.keys & keys
        and figure.whole not in spelled_there
        and not figure.hours & spelled_there
        and not (figure.hours and figure.whole is not None and figure.whole % 12 in hours)
        and figure.whole != 1
    ]


def spelled(text: str) -> set[int]:
    """The numbers that words of the text may mean: each word's own, and those that neighbours make together."""
    found: set[int] = set()
    run: list[int] = []
    plain = text.casefold().replace("quatre-vingts", "huitante").replace("quatre-vingt", "huitante")
    for word in [*WORD.findall(plain), ""]:
        values = _values(word)
        if values:
            run += values
            found |= {value for value in values if value > 1}
        elif run and word not in BETWEEN:
            found.add(_together(run))
            run = []
    return found


def _values(word: str) -> list[int]:
    """The numbers a word is made of: forty-five, fünfundvierzig, 二十."""
    if word in WORDS:
        return [WORDS[word]]
    if "-" in word:
        parts = [_values(part) for part in word.split("-") if part not in BETWEEN]
        return [value for part in parts for value in part] if all(parts) else []
    values, end = [], 0
    word = ORDINAL.sub("", word)
    while end < len(word):
        part = JOINED.match(word, end)
        if part is None:
            return []
        values += [WORDS.get(part.group(), 1)] if part.group() not in ("und", "en") else []
        end = part.end()
    return values


def _together(values: Sequence[int]) -> int:
    """The number that words say one after the other: two, thousand, three, hundred."""
    total = current = 0
    for value in values:
        if value in (100, 1000, 10_000, 10**6, 10**8, 10**9):
            current = max(current, 1) * value
            if value >= 1000:
                total, current = total + current, 0
        elif value == 10 and 2 <= current <= 9:  # 二十
            current *= 10
        else:
            current += value
    return total + current
