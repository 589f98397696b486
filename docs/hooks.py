"""What the site adds to the pages: set formulas, the source files they quote, drawings in the page's own colours.

In the repository the pages stand by themselves: formulas are LaTeX between dollars, links lead to the files. MkDocs
calls these functions while it builds.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files, InclusionLevel
from pygments.formatters import HtmlFormatter

DOCS = Path(__file__).parent
ROOT = DOCS.parent
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?:\.\./)+(?P<path>(?:src|tests|benchmarks)/[\w/]+\.py)\)")
MATHS = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)
DRAWING = re.compile(r'<img alt="([^"]*)" src="[./]*(figures/\w+\.svg)" ?/?>')
BARE = re.compile(r"(<mi>(?:exp|log|sin|cos|tanh)</mi>)(?!<mo)")  # as in log p: a thin space
QUOTED = re.compile(r"```python\n(.*?)```", re.S)
# What the scripts of the theme look for even where there is neither highlight.js nor a search.
SOUGHT = ("hljs-light", "hljs-dark", "mkdocs_search_modal", "mkdocs-search-results")


def on_files(files: Files, config: Any) -> Files:
    """A page for every source file that is linked to, and the colours of code."""
    pages = [page.read_text() for page in DOCS.rglob("*.md")]
    for path in sorted({match["path"] for page in pages for match in LINK.finditer(page)}):
        text = f'# `{path}`\n\n````````python linenums="1"\n{(ROOT / path).read_text()}````````\n'
        page = File.generated(config, _page_of(path), content=text)
        page.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(page)
    colours = [
        HtmlFormatter(style=style).get_style_defs(f"[data-bs-theme={theme}] .highlight")
        for theme, style in (("light", "friendly"), ("dark", "github-dark"))
    ]
    files.append(File.generated(config, "code.css", content="\n".join(colours)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to source files lead to their pages, at the lines meant."""
    up = "../" * page.file.src_uri.count("/")

    def lead(match: re.Match[str]) -> str:
        line = line_of(match["path"], match["text"].strip("`"), markdown[match.end() :])
        return f"[{match['text']}]({up}{_page_of(match['path'])}{f'#line-{line}' if line else ''})"

    return LINK.sub(lead, markdown)


def on_page_content(html_text: str, page: Any, **_: Any) -> str:
    """Formulas as MathML, which browsers set themselves; drawings in the page, so that they follow light and dark."""
    html_text = MATHS.sub(_set, html_text)
    if page.file.src_uri.startswith("source/"):
        html_text = re.sub(r'<span id="__span-\d+-(\d+)">', r'<span id="line-\1">', html_text)
        page.present_anchor_ids |= set(re.findall(r'id="(line-\d+)"', html_text))  # so that links to lines are checked
    return DRAWING.sub(lambda match: f"<figure>{(DOCS / match[2]).read_text()}</figure>", html_text)


def on_post_page(html_text: str, **_: Any) -> str:
    """Every page has what the theme's scripts look for, or they would stop before the switch of light and dark."""
    sought = "".join(f'<div id="{name}"></div>' for name in SOUGHT)
    return re.sub(r"<body\b[^>]*>", rf"\g<0><div hidden>{sought}</div>", html_text, count=1)


on_post_template = on_post_page  # 404.html


def line_of(path: str, name: str, after: str) -> int:
    """Where a function or class is defined, or where the lines quoted next begin; 0: nowhere in particular."""
    text = (ROOT / path).read_text()
    defined = re.search(rf"^ *(?:def|class) {re.escape(name.split('.')[-1])}\b", text, re.M)
    if defined:
        return text.count("\n", 0, defined.start()) + 1
    quoted = QUOTED.match(after.split("\n\n", 1)[-1])
    first = quoted[1].splitlines()[0].strip() if quoted else ""
    return next((number for number, line in enumerate(text.splitlines(), 1) if first and line.strip() == first), 0)


def _page_of(path: str) -> str:
    return f"source/{path.removesuffix('.py')}.md"


def _set(match: re.Match[str]) -> str:
    formula = convert(html.unescape(match[2]), display="block" if match[1] == "div" else "inline")
    formula = BARE.sub(r'\1<mspace width="0.17em"/>', formula.replace("<mo>&#x0221E;</mo>", "<mi>&#x0221E;</mi>"))
    return re.sub(r"(&#x00028;</mo>)<mo>(&#x02212;</mo>)", r'\1<mo form="prefix">\2', formula)  # (-x): a sign, no minus
