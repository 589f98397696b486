"""HTML keeps its markup, and neither the source nor the model's output becomes markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from regard.documents.html import translate_html
from regard.documents.outcome import Outcome
from regard.translation.translator import Result

HOSTILE = "<img src=x onerror=evil()> --> ]]>"


def capitals(html: str) -> str:
    """The HTML with its words in capitals, in their order."""

    def translate(texts: Sequence[str], **options: Any) -> list[Result]:
        return [Result(text.upper(), alignment=[(n, n) for n in range(len(text.split()))]) for text in texts]

    return translate_html(html, translate, Outcome())


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<P CLASS=a>the <b>old</b> house</P >", "<P CLASS=a>THE <b>OLD</b> HOUSE</P >"),
        ("<ul><li>one<li>two</ul>", "<ul><li>ONE<li>TWO</ul>"),
        ("a<br/>b", "A<br/>B"),
        ("x &lt; y &amp; z", "X &lt; Y &amp; Z"),
        ("5 < 6 > 4", "5 &lt; 6 &gt; 4"),
        ("a < b", "A &lt; B"),
        ("<!-- no --><p>yes", "<!-- no --><p>YES"),
        ("<title>a &lt;i> b</title>", "<title>A &lt;i&gt; B</title>"),
        ("<div translate=no>no <b>no</b></div>yes", "<div translate=no>no <b>no</b></div>YES"),
        ("<p class='x notranslate'>no</p>yes", "<p class='x notranslate'>no</p>YES"),
        ("<svg><path d='M'/><![CDATA[ <b> > ]]></svg>yes", "<svg><path d='M'/><![CDATA[ <b> > ]]></svg>YES"),
    ],
)
def test_text_is_translated_and_markup_kept(html: str, expected: str) -> None:
    assert capitals(html) == expected


@pytest.mark.parametrize(
    "html",
    [
        "<!-- <img src=x onerror=evil()>",
        "<script>'<b>'</script>",
        "<script><!-- <script> </script> <b> --></script>",
        "<style><!-- <style> no",
        "<textarea><b>no</textarea>",
        "<xmp><b>no</b></xmp>",
        "<noscript><b>no</noscript>",
        "<plaintext><b>no</plaintext><b>no",
        "<!DOCTYPE html SYSTEM 'no'>",
        "<?php no ?>",
        "</ no>",
    ],
)
def test_what_a_browser_does_not_show_stays_as_it_is(html: str) -> None:
    assert capitals(html) == html


@pytest.mark.parametrize("html", ["&lt;script&gt;", "<input value='<script>", "<a href=x <b", '<i title="<b>'])
def test_text_that_looks_like_markup_stays_text(html: str) -> None:
    assert "<" not in capitals(html)


@pytest.mark.parametrize("html", ["bird", "<p>the <b>bird</b>", "<title>bird</title>", "<p title='x'>bird <!-- x -->"])
def test_markup_that_a_model_writes_is_escaped(html: str) -> None:
    def translate(texts: Sequence[str], **options: Any) -> list[Result]:
        return [Result(HOSTILE, alignment=[]) for _ in texts]

    assert "<img" not in translate_html(html, translate, Outcome())


@pytest.mark.slow
def test_a_browser_finds_the_elements_of_the_source_in_the_translation(browser: Any) -> None:
    different = """pairs => {
        const elements = html => [...new DOMParser().parseFromString(html, "text/html").querySelectorAll("*")].map(
            element => element.tagName + [...element.attributes].map(one => one.name + one.value)).sort().join(" ");
        return pairs.filter(([before, after]) => elements(before) !== elements(after)); }"""
    parts = (
        "<p>",
        "<b>",
        "<i x='>'>",
        "</i>",
        "<a b=c/>",
        "<!--",
        "-->",
        "<script>",
        "</script>",
        "<title>",
        "</title>",
        "<svg>",
        "<![CDATA[",
        "]]>",
        "</svg>",
        "</b x>",
        "<!x",
        '<img alt="',
        '">',
        "<em/>",
        " bird ",
        "&lt;u&gt;",
    )
    texts = [first + second + third for first in parts for second in parts[::2] for third in parts[1::2]]
    page = browser.new_page()
    assert page.evaluate(different, [(text, capitals(text)) for text in texts]) == []
    page.close()
