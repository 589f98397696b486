"""The page of the server, in a browser: it translates, shows why, lets words be chosen, and says what went wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

TEXT = "the old house sees a bird"

pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page with a translator; nothing may be loaded from elsewhere, and no script may fail."""
    context = browser.new_context()
    opened = context.new_page()
    trouble: list[str] = []
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.on(
        "request", lambda request: None if request.url.startswith((address, "data:")) else trouble.append(request.url)
    )
    opened.goto(address)
    opened.wait_for_selector("#source")
    yield opened
    context.close()
    assert not trouble


def translate(page: Any, text: str = TEXT) -> str:
    """Type a text and wait for its translation."""
    with page.expect_response("**/trace"):
        page.fill("#source", text)
    page.wait_for_selector(".written:not([aria-busy]) button")
    return str(page.inner_text(".written"))


def test_a_text_is_translated_after_a_pause(page: Any) -> None:
    assert translate(page).strip()


def test_a_word_under_the_pointer_is_marked_in_the_inspector(page: Any) -> None:
    translate(page)
    page.click("summary:has-text('Why')")
    page.hover(".inspector .sentence button >> nth=0")
    assert page.locator(".inspector .tip:visible").count() == 1


def test_a_word_under_the_pointer_shows_which_words_it_attends_to(page: Any) -> None:
    translate(page)
    page.hover(".written button >> nth=0")
    shown = page.inner_text(".linked")
    assert shown.startswith(page.inner_text(".written button >> nth=0"))
    assert set(TEXT.split()) & set(shown.replace(",", "").split())


def test_the_page_can_be_used_with_the_keyboard_alone(page: Any) -> None:
    translate(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    assert page.evaluate("document.activeElement === document.querySelector('.written button')")


def test_another_word_is_chosen_and_the_translation_goes_on_from_there(page: Any) -> None:
    translate(page)
    page.click(".written button >> nth=0")
    page.fill("dialog input", "vieille")
    with page.expect_response("**/trace"):
        page.click("dialog >> text=Use")
    page.wait_for_selector(".written:not([aria-busy]) button")
    assert page.inner_text(".written").startswith("vieille")
    assert "continues what you chose" in page.inner_text("#note")


def test_words_that_changed_since_the_last_translation_are_marked(page: Any) -> None:
    translate(page)
    translate(page, "a small river and the bird of the old house")
    assert page.locator(".written .changed").count() > 0


def test_a_head_is_switched_off_and_on(page: Any) -> None:
    translate(page)
    page.click("summary:has-text('Why')")
    page.locator(".inspector .heads button").first.click()
    with page.expect_request("**/trace") as request:
        page.click("text=Switch off the chosen head")
    assert len(json.loads(request.value.post_data)["without"]) == 1
    page.wait_for_selector(".written:not([aria-busy])")
    with page.expect_request("**/trace") as request:
        page.click("button:has-text('×')")
    assert json.loads(request.value.post_data)["without"] == []


def test_the_server_is_asked_again_when_it_is_busy(page: Any) -> None:
    page.route("**/trace", lambda route: route.fulfill(status=429, headers={"Retry-After": "0.1"}, json={}))
    page.fill("#source", TEXT)
    page.wait_for_selector("[role=alert]:has-text('busy')")
    page.unroute("**/trace")
    page.wait_for_selector(".written button")
    assert page.locator("[role=alert]:visible").count() == 0


def test_an_error_is_said(page: Any) -> None:
    page.route("**/trace", lambda route: route.fulfill(status=503, json={"error": "too slow today"}))
    page.fill("#source", TEXT)
    page.wait_for_selector("[role=alert]:has-text('too slow today')")


def test_a_file_comes_back_translated(page: Any) -> None:
    page.click("summary:has-text('A file')")
    page.set_input_files("input[type=file]", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"the bird\n"})
    with page.expect_download() as download:
        page.click("text=Download the translation")
    assert download.value.suggested_filename == "a_fr.txt"


def test_the_history_is_kept_in_the_browser_and_can_be_cleared(page: Any) -> None:
    translate(page)
    page.reload()
    page.wait_for_selector("#source")
    page.click("summary:has-text('History')")
    page.click(".history button >> nth=0")
    assert page.input_value("#source") == TEXT
    page.click("text=Clear the history")
    assert page.locator(".history button").count() == 0


def test_a_gpt_continues_a_text_as_it_is_written(page: Any) -> None:
    page.select_option("select[name=model]", "gpt")
    page.fill("#prompt", "the old")
    with page.expect_response("**/v1/completions") as response:
        page.click("button:has-text('Continue')")
    response.value.finished()
    page.wait_for_selector("button:has-text('Continue'):not([disabled])")
    assert page.inner_text(".written").startswith("the old")


def test_a_bert_fills_gaps(page: Any) -> None:
    page.select_option("select[name=model]", "bert")
    page.fill("#text", "the [MASK] house")
    page.click("text=Fill in")
    page.wait_for_selector(".guess")
    assert page.locator(".guess").count() == 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("model", ["translator", "gpt", "bert"])
def test_axe_finds_nothing_serious(browser: Any, address: str, model: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#source")
    if model == "translator":
        translate(page)
        page.click("summary:has-text('Why')")
        page.click(".written button >> nth=0")
    else:
        page.select_option("select[name=model]", model)
        page.fill("textarea", "the [MASK] house")
        page.click("text=Show attention")
        page.wait_for_selector(".inspector .sentence")
    found = Axe().run(page).response["violations"]
    context.close()
    assert not [
        (rule["id"], [node["html"][:200] for node in rule["nodes"][:3]])
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ]


def test_a_phone_shows_all_of_the_page(browser: Any, address: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#source")
    translate(page)
    for title in ("Why", "Glossary", "A file", "History"):
        page.click(f"summary:has-text('{title}')")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
