"""Language codes: which of them name the same language, and their English names."""

from __future__ import annotations

from functools import lru_cache

Languages = tuple[str, str]
"""The codes of a source and a target language."""

NAMES = {
    entry[:2]: entry[3:]
    for entry in """
    ar=Arabic az=Azerbaijani be=Belarusian bg=Bulgarian bn=Bengali ca=Catalan cs=Czech cy=Welsh da=Danish de=German
    el=Greek en=English eo=Esperanto es=Spanish et=Estonian eu=Basque fa=Persian fi=Finnish fr=French ga=Irish
    gl=Galician he=Hebrew hi=Hindi hr=Croatian hu=Hungarian hy=Armenian id=Indonesian is=Icelandic it=Italian
    ja=Japanese ka=Georgian kk=Kazakh km=Khmer ko=Korean ky=Kyrgyz lt=Lithuanian lv=Latvian mk=Macedonian
    mn=Mongolian mr=Marathi ms=Malay mt=Maltese my=Burmese ne=Nepali nl=Dutch no=Norwegian pl=Polish ps=Pashto
    pt=Portuguese ro=Romanian ru=Russian sk=Slovak sl=Slovenian so=Somali sq=Albanian sr=Serbian sv=Swedish
    sw=Swahili ta=Tamil te=Telugu th=Thai tl=Tagalog tr=Turkish uk=Ukrainian ur=Urdu uz=Uzbek vi=Vietnamese xh=Xhosa
    yo=Yoruba zh=Chinese zu=Zulu""".split()  # noqa: SIM905
}


def language_name(code: str) -> str:
    """The English name of a language, or its code."""
    return NAMES.get(code.lower(), code)


def same_language(one: str, other: str) -> bool:
    """Whether two codes match: `en` matches `en-US`, `EN` and `en_GB`; `en-US` does not match `en-GB`."""
    first, second = (code.lower().replace("_", "-").split("-") for code in (one, other))
    shared = min(len(first), len(second))
    return first[:shared] == second[:shared]


@lru_cache(maxsize=1024)  # called for every unit of a file
def find_language(codes: tuple[str, ...], language: str) -> int | None:
    """The index of the code that is equal to `language`, else of the first one that matches it."""
    matching = [i for i, code in enumerate(codes) if same_language(code, language)]
    return min(matching, key=lambda i: codes[i].lower() != language.lower(), default=None)
