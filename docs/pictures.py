"""The pictures of the pages: `python docs/pictures.py DEMO` writes docs/demo.png and docs/pictures/*.png.

DEMO is a folder that `regard demo` wrote; its pages are shown as they are, the others are made from its model and data.
Chromium has to be installed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

from playwright.sync_api import sync_playwright

import regard

DOCS = Path(__file__).resolve().parent
WIDTH = 1100
HEIGHTS = {"demo": 1110, "sentence": 900, "evaluation": 900, "comparison": 900, "check": 900}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def make_pages(demo: Path) -> dict[str, Path]:
    """Pages by name, written here; beam search is compared with greedy search, and a damaged corpus is checked."""
    data = demo / "data"
    test = {"source": data / "test.en", "reference": data / "test.fr"}
    greedy = Path("greedy.fr")
    model = regard.load(demo / "model", "cpu")
    sources = test["source"].read_text(encoding="utf-8").splitlines()
    greedy.write_text("".join(f"{result.text}\n" for result in model.translate(sources, beams=1)), encoding="utf-8")
    regard.compare([greedy, demo / "model"], **test, device="cpu").save("comparison.html")
    english, french = (
        (data / f"train.{code}").read_text(encoding="utf-8").splitlines()[:6000] for code in ("en", "fr")
    )
    valid = english[:60], french[:60]
    for line in range(100, 400):
        french[line] = french[line].encode().decode("latin-1") if line < 200 else english[line]
    texts = {"train.en": english, "train.fr": french, "valid.en": valid[0], "valid.fr": valid[1]}
    for name, lines in texts.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    regard.check("train.en", "train.fr", valid=("valid.en", "valid.fr")).save("check.html")
    return {
        "demo": demo / "index.html",
        "sentence": demo / "sentence-1.html",
        "evaluation": demo / "evaluation.html",
        "comparison": Path("comparison.html"),
        "check": Path("check.html"),
    }


def main() -> None:
    demo = Path(sys.argv[1]).resolve()
    (DOCS / "pictures").mkdir(exist_ok=True)
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    with tempfile.TemporaryDirectory() as folder, chdir(folder), sync_playwright() as playwright:
        Path("demo").symlink_to(demo)
        pages = make_pages(Path("demo"))
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name, path in pages.items():
            page = opened.new_page(viewport={"width": WIDTH, "height": HEIGHTS[name]})
            page.goto(path.absolute().as_uri())
            page.wait_for_timeout(300)
            page.screenshot(path=DOCS / ("demo.png" if name == "demo" else f"pictures/{name}.png"))
        opened.close()


if __name__ == "__main__":
    main()
