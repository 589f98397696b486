"""The page of the server: its files, built from the same components as the inspector's page."""

from __future__ import annotations

from functools import partial
from importlib.resources import files

from fastapi import FastAPI
from starlette.responses import Response

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PARTS = {
    "/": ("text/html", ["server/page/index.html"]),
    "/page.css": ("text/css", ["inspection/page/page.css", "inspection/page/inspector.css", "server/page/serve.css"]),
    "/page.js": (
        "text/javascript",
        [
            "inspection/page/page.js",
            "inspection/page/heatmap.js",
            "inspection/page/inspector.js",
            "server/page/serve.js",
        ],
    ),
}
"""Paths with their types and the files that they consist of."""


def add_routes(app: FastAPI) -> None:
    """Add the page to an app."""
    for path, (kind, names) in PARTS.items():
        content = "\n".join(files("regard").joinpath(name).read_text(encoding="utf-8") for name in names)
        app.get(path, include_in_schema=False)(partial(_answer, content, kind))


async def _answer(content: str, kind: str) -> Response:
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return Response(content, media_type=kind, headers=headers)
