"""Texts are split at the ends of sentences and nowhere else, and joined again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from regard.text.sentences import join_parts, split_long_sentence, split_sentences, text_problem


def letters(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


@pytest.mark.parametrize(
    "text",
    [
        "It is late. | Go home! | Why? | Because…",
        "He said: “Stop.” | Then he left.",
        "«Arrête !» | Elle partit.",
        "Il dit : « Bonjour. » | Puis rien.",
        "你好。|再见！|“好吗？”|好。",
        "これは本です。|そうですか？|はい。",
        "هل أنت هنا؟ | نعم.",
        "यह घर है। | वह बड़ा है।",
        "First line\n|second line",
    ],
)
def test_a_text_is_split_at_the_ends_of_sentences(text: str) -> None:
    whole = text.replace("|", "") if "\n" in text or "。" in text else text.replace("| ", "")
    assert [part.text for part in split_sentences(whole) if part.text] == [part.strip() for part in text.split("|")]


@pytest.mark.parametrize(
    "text",
    [
        "Dr. Smith met Mr. Jones at 3.15 p.m. today.",
        "Das kostet z.B. 3.500 Euro am 3. Mai.",
        "M. Dupont et Mme. Martin sont là.",
        "The U.S. Army paid $1.5 million, e.g. for fig. 3.",
        "Visit www.example.org now.",
        "“Stop!” he cried, and ran... away.",
        "J. S. Bach wrote it.",
        "Он живёт на ул. Ленина.",
    ],
)
def test_abbreviations_numbers_and_speech_end_no_sentence(text: str) -> None:
    assert [part.text for part in split_sentences(text)] == [text]


@pytest.mark.parametrize("text", [" One.  Two!\n\nThree? ", "你好。再见。", "a", "A.\tB."])
def test_sentences_joined_again_are_the_text(text: str) -> None:
    parts = split_sentences(text)
    assert "".join(part.gap + part.text for part in parts) == text


def test_a_long_sentence_is_split_at_clauses_first() -> None:
    parts = split_long_sentence("the old house, the small bird; and the green tree", letters, 20)
    assert [part.text for part in parts] == ["the old house,", "the small bird;", "and the green tree"]
    assert [part.inside_sentence for part in parts] == [False, True, True]


def test_a_long_clause_is_split_at_spaces() -> None:
    parts = split_long_sentence("one two three four five six", letters, 10)
    assert [part.text for part in parts] == ["one two", "three four", "five six"]


@pytest.mark.parametrize("text", ["x" * 1001, "e\u0301" * 500, "字" * 999, "👩‍👩‍👧" * 200])
def test_text_without_spaces_is_split_without_loss(text: str) -> None:
    parts = split_long_sentence(text, letters, 64)
    assert "".join(part.text for part in parts) == text
    assert max(len(part.text) for part in parts) <= 64


@pytest.mark.timeout(20)
@pytest.mark.parametrize("run", [".", "?!", " ", ". »", ".)", ",)", "(", " (", "。", "\n", "字", "x"])
def test_long_runs_of_a_character_are_split_in_linear_time(run: str) -> None:
    text = f"A{run * (100_000 // len(run))}B"
    assert "".join(part.gap + part.text for part in split_sentences(text)) == text
    assert "".join(part.gap + part.text for part in split_long_sentence(text, letters, 64)) == text


def test_a_combining_mark_stays_with_its_letter() -> None:
    assert all(part.text.startswith("e") for part in split_long_sentence("e\u0301" * 500, letters, 63))


def test_sentences_of_a_spaced_script_are_joined_by_a_space() -> None:
    assert join_parts(split_sentences("你好。再见。"), ["Hello.", "Goodbye."]) == "Hello. Goodbye."


def test_sentences_of_an_unspaced_script_are_joined_without_a_space() -> None:
    assert join_parts(split_sentences("Hello. Goodbye."), ["你好。", "再见。"]) == "你好。再见。"


def test_a_split_word_is_joined() -> None:
    parts = split_long_sentence("x" * 100, letters, 50)
    assert join_parts(parts, ["y" * 50, "z" * 50]) == "y" * 50 + "z" * 50


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a\0b", "NUL at character 2"), ("a\ud800", "surrogate U\\+D800"), ("\udcff", "not UTF-8 \\(0xFF\\)")],
)
def test_problems_of_a_text_are_named(text: str, problem: str) -> None:
    import re

    assert re.search(problem, text_problem(text))


@pytest.mark.parametrize("text", ["", " ", "😀", "مرحبا", "e\u0301", "\x01", "\u200f"])
def test_other_texts_have_no_problem(text: str) -> None:
    assert not text_problem(text)
