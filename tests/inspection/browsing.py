"""Pages as a browser has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Opened:
    """A page in a browser, and all that went wrong or out on it."""

    def __init__(self, browser: Any, path: Path, page: str, **how: Any) -> None:
        path.write_text(page, encoding="utf-8")
        self.context = browser.new_context(**how)
        self.page = self.context.new_page()
        self.trouble: list[str] = []
        self.page.on("console", lambda message: self.trouble.append(message.text))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on(
            "request", lambda request: self.trouble.append(request.url) if "file:" not in request.url else None
        )
        self.page.goto(path.as_uri())

    def count(self, selector: str) -> int:
        found: int = self.page.locator(selector).count()
        return found

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert not self.trouble
