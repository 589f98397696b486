"""Terms of a glossary are found in the source and stand in the translation."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from regard.config import Config
from regard.decoding import glossary
from regard.decoding.glossary import (
    Glossary,
    Match,
    Term,
    TokenAttention,
    find_forms,
    place_terms,
    token_spans,
    word_spans,
)
from regard.errors import DataError, InputError
from regard.models import build
from regard.models.contract import Record, State
from regard.text.tokenizer import PAD, Tokenizer, Tokenizers, train
from regard.translation.translator import Translator

LINES = [  # a blank before the first word makes its tokens those of a word in the middle
    " the old house near the river",
    " a green bird sees the house",
    " the child hears a bird",
    " the house and the house",
    " XK-42 and a river",
]
RNN = {"family": "rnn", "size": 16}
SHAPES: dict[str, dict[str, Any]] = {
    "transformer": {
        "size": 16,
        "heads": 2,
        "feed_forward_size": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "max_positions": 64,
    },
    "rnn": RNN,
    "rnn-none": {**RNN, "score": "none"},
}


def tokenizer(kind: Any = "bpe") -> Tokenizer:
    return train(LINES * 4, kind=kind, vocabulary=320)


class Backwards(nn.Module):
    """Writes the words of its source backwards, each token while it looks at its own source and nothing else."""

    def __init__(self, config: Any, order: Any) -> None:
        super().__init__()
        self.config, self.order = config, order
        self.weight = nn.Parameter(torch.zeros(1))

    def start(
        self, source: Tensor, mask: Tensor | None = None, record: Record | None = None, capacity: int = 0
    ) -> State:
        places = torch.zeros_like(source)
        for row, ids in enumerate(source.tolist()):
            own = self.order([number for number in ids if number != PAD])
            places[row, : len(own)] = torch.tensor(own)
        return State((source, places), (torch.zeros(len(source), dtype=torch.int64),))

    def step(self, tokens: Tensor, state: State, record: Record | None = None) -> tuple[Tensor, State]:
        (source, places), (position,) = state
        each = len(tokens) // max(len(source), 1)
        source, places = source.repeat_interleave(each, 0), places.repeat_interleave(each, 0)
        steps = position[:, None] + torch.arange(tokens.shape[1])
        looked = places.gather(1, steps.clamp(max=source.shape[1] - 1))
        chosen = source.gather(1, looked)
        if record is not None:
            record["decoder.0.cross"] = torch.eye(source.shape[1])[looked][:, None]
        logits = 9.0 * torch.nn.functional.one_hot(chosen, self.config.vocabulary)
        return logits, State(state.memory, (position + tokens.shape[1],))


def backwards() -> Translator:
    """A translator whose translation and attention are known."""
    own = tokenizer()

    def order(ids: list[int]) -> list[int]:
        words: list[list[int]] = []
        for place_, piece in enumerate(own.tokens(ids[:-1])):
            if not words or piece.startswith("Ġ"):
                words.append([])
            words[-1].append(place_)
        return [*(place_ for word in reversed(words) for place_ in word), len(ids) - 1]

    config = Config.read({"model": {**SHAPES["transformer"], "vocabulary": own.size}})
    return Translator(Backwards(config.model, order), Tokenizers(own, own), config)


def untrained(name: str, *values: str) -> Translator:
    own = tokenizer("words")
    torch.manual_seed(1)
    config = Config.read(
        {"model": {**SHAPES[name], "vocabulary": own.size}, "decode": {"max_length_ratio": 1.5, "max_length_extra": 12}}
    ).with_values(values)
    return Translator(build(config.model).eval().requires_grad_(False), Tokenizers(own, own), config)


def make_glossary(terms: Any = (("house", ["zorblax"]),), keep: Any = ()) -> Glossary:
    return Glossary.make(terms, keep)


# Finding terms.


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"/X\d/", "the X77 here", ["X77"]),
        (r"/\d+/", "AB12, 7", ["AB12", "7"]),
        (r"/\d*/", "AB12, the house", ["AB12"]),
        (r"/[A-Z]-/", "an AB-12", ["AB-"]),
        (r"/ \d /", "a 1 b", ["1"]),
        (r"/g.i/", "あgai協", ["gai"]),
    ],
)
def test_a_pattern_copies_the_whole_words_it_touches(pattern: str, text: str, found: list[str]) -> None:
    matches = Glossary.make((), [pattern]).find(text)
    assert [match.source for match in matches] == found
    assert all(text[match.start : match.end] == match.source == match.forms[0] for match in matches)


@pytest.mark.parametrize(
    ("terms", "text", "found"),
    [
        (["house"], "a house, the houses", ["house"]),
        (["house", "old house"], "an old house and a house", ["old house", "house"]),
        (["a b", "b c d"], "a b c d", ["b c d"]),
        (["agreement"], "Agreement on an Agreement.", ["Agreement"]),
        (["C++"], "C++ and C", ["C++"]),
        (["old  house"], "the old house", ["old house"]),
        (["協定"], "この協定は", ["協定"]),
        (["कि"], "किताब", []),
        (["house"], "", []),
    ],
)
def test_terms_are_found_as_words_the_longest_first(terms: list[str], text: str, found: list[str]) -> None:
    glossary = Glossary.make([(term, ["x"]) for term in terms])
    assert [match.source for match in glossary.find(text)] == found


def test_case_is_ignored_on_request() -> None:
    terms = [("Old House", ["x"])]
    assert not Glossary.make(terms).find("an OLD house")
    assert [match.source for match in Glossary.make(terms, ignore_case=True).find("an OLD house")] == ["OLD house"]


def test_words_and_patterns_are_copied() -> None:
    found = Glossary.make((), ["XK-42", r"/[A-Z]{2}\d+/"]).find("XK-42 or AB7, not xk-42")
    assert [(match.source, match.forms, match.copied) for match in found] == [
        ("XK-42", ("XK-42",), True),
        ("AB7", ("AB7",), True),
    ]


def test_combining_marks_belong_to_their_word() -> None:
    assert [*map("किताब, l'eau".__getitem__, (slice(*span) for span in word_spans("किताब, l'eau")))] == [
        "किताब", ",", "l", "'", "eau",
    ]  # fmt: skip


# Files.


def test_a_glossary_is_read_with_all_forms_of_a_term(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("# a comment\nagreement\taccord|accords\n\nhouse\tmaison\tdemeure\nhouse\tlogis\n")
    terms = Glossary.read(path, None).terms
    assert terms == {("agreement",): ("accord", "accords"), ("house",): ("maison", "demeure", "logis")}


@pytest.mark.parametrize("line", ["house", "house\t", "\tmaison", "house\t|"])
def test_a_line_without_a_term_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(f"a\tb\n{line}\n")
    with pytest.raises(DataError, match=r"terms.tsv:2: .* must be a source term, a tab and its target term"):
        Glossary.read(path, None)


@pytest.mark.parametrize("pattern", ["(", "[a-", "a{99999999999999999999}", "(" * 2000 + ")" * 2000])
def test_a_pattern_that_cannot_be_compiled_is_named(pattern: str) -> None:
    with pytest.raises(InputError, match="is not a regular expression"):
        Glossary.make(keep=[f"/{pattern}/"])


def test_a_pattern_that_backtracks_without_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glossary, "PATTERN_SECONDS", 0.1)
    with pytest.raises(InputError, match=r"the regular expression /\(a\|aa\)\+\$/ is too slow"):
        Glossary.make(keep=["/(a|aa)+$/"]).find("a" * 100 + "!")


def test_a_pattern_that_recurses_without_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = SimpleNamespace(pattern="(?R)", finditer=Mock(side_effect=MemoryError))  # the real one takes seconds
    monkeypatch.setattr(glossary.regex, "compile", lambda pattern: endless)
    with pytest.raises(InputError, match=r"the regular expression /\(\?R\)/ is too slow"):
        Glossary.make(keep=["/(?R)/"]).find("a text")


def test_nested_repetition_does_not_hang() -> None:
    assert Glossary.make(keep=["/(a+)+$/"]).find("a" * 100 + "!") == []


# Placing.


def match_of(text: str, source: str, *forms: str, kept: bool = False) -> Match:
    start = text.index(source)
    return Match(start, start + len(source), source, forms, kept)


def test_a_term_replaces_the_word_that_attended_to_it() -> None:
    ended = [False, False, False, True]
    attention = TokenAttention(
        torch.eye(4)[[0, 2, 1, 3]],
        token_spans(["the", " old", " house", "</s>"], ended),
        token_spans(["the", " house", " old", "</s>"], ended),
    )
    match = match_of("the old house", "old", "zorblax")
    assert place_terms("the house old", [match], attention) == (
        "the house zorblax",
        [Term("old", "zorblax", "placed")],
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [("l'accord est", True), ("Accord est", True), ("un Accord", False), ("désaccord", False), ("accords", False)],
)
def test_a_form_is_found_as_a_whole_word(text: str, found: bool) -> None:
    assert (find_forms(text, [Match(0, 1, "a", ("accord",), False)]) != [None]) is found


def test_no_part_of_a_translation_counts_for_two_terms() -> None:
    twice = [Match(0, 1, "a", ("accord",), False)] * 2
    assert find_forms("un accord", twice) == [(3, 9), None]
    assert find_forms("un accord, un accord", twice) == [(3, 9), (14, 20)]


@pytest.mark.parametrize("beams", [1, 3])
def test_a_term_replaces_the_word_that_attends_to_its_source(beams: int) -> None:
    results = backwards().translate(LINES, beams=beams, glossary=make_glossary(), warn=False)
    assert [result.text.strip() for result in results] == [
        "river the near zorblax old the",
        "zorblax the sees bird green a",
        "bird a hears child the",
        "zorblax the and zorblax the",
        "river a and XK-42",
    ]
    assert [[term.status for term in result.terms] for result in results] == [
        ["placed"],
        ["placed"],
        [],
        ["placed"] * 2,
        [],
    ]


def test_a_glossary_does_not_change_the_search() -> None:
    plain = backwards().translate(LINES, warn=False)
    with_terms = backwards().translate(LINES, glossary=make_glossary(), warn=False)
    assert [result.log_probability for result in plain] == [result.log_probability for result in with_terms]


def test_a_term_of_several_words_replaces_all_of_their_translations() -> None:
    glossary = make_glossary(terms=[("old house", ["zorblax"])])
    assert backwards().translate([" see the old house near"], glossary=glossary, warn=False)[0].text.strip() == (
        "near zorblax the see"
    )


def test_a_term_at_the_beginning_is_capitalized_and_a_copied_word_is_not() -> None:
    def first(glossary: Glossary) -> str:
        return backwards().translate([" near House"], glossary=glossary, warn=False)[0].text.strip()

    assert first(make_glossary(terms=[("House", ["zorblax"])])) == "Zorblax near"
    assert first(make_glossary(terms=[("House", ["zorblax"])], keep=["near"])) == "Zorblax near"


def test_alignments_count_the_words_of_the_placed_terms() -> None:
    glossary = make_glossary(terms=[("house", ["zorb blax"])])
    (result,) = backwards().translate([" the old house near"], glossary=glossary, align=True, warn=False)
    assert result.text.split() == ["near", "zorb", "blax", "old", "the"]
    assert result.alignment == [(0, 4), (1, 3), (2, 1), (2, 2), (3, 0)]


def test_terms_do_not_depend_on_the_order_of_lines_or_the_batch() -> None:
    translator, glossary = backwards(), make_glossary([("house", ["zorblax"]), ("bird", ["wob", "fip"])], ["XK-42"])
    results = translator.translate(LINES, glossary=glossary)
    whole = {line: result.text for line, result in zip(LINES, results, strict=True)}
    other = [*reversed(LINES), LINES[1]]
    assert [result.text for result in translator.translate(other, glossary=glossary)] == [whole[line] for line in other]
    for line in LINES:
        assert translator.translate([line], glossary=glossary)[0].text == whole[line]


# Every family.


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", [*SHAPES])
def test_every_family_places_terms_or_warns_of_them(name: str, beams: int) -> None:
    glossary = make_glossary([("house", ["zorblax", "zor"]), ("bird", ["river"])], ["XK-42"])
    statuses = []
    for line, result in zip(LINES, untrained(name).translate(LINES, beams=beams, glossary=glossary), strict=True):
        matches = glossary.find(line)
        assert len(result.terms) == len(matches)
        missing = [term.source for term in result.terms if term.status == "missing"]
        assert len(missing) == find_forms(result.text, matches).count(None)
        assert [note.evidence[0] for note in result.warnings if note.kind == "glossary"] == missing
        statuses += [term.status for term in result.terms]
    assert ("placed" in statuses) is (name != "rnn-none")  # a model without attention places no terms


def test_an_ensemble_places_terms() -> None:
    one, other = untrained("transformer"), untrained("rnn-none")
    both = Translator([one.model, other.model], one.tokenizers, one.config)
    results = both.translate(LINES, glossary=make_glossary())
    assert all(term.form for result in results for term in result.terms)


def test_alternatives_and_samples_have_terms() -> None:
    translator = untrained("transformer")
    (result,) = translator.translate(["the old house"], alternatives=2, glossary=make_glossary())
    assert all("zorblax" in other.text for other in [result, *result.alternatives])
    assert "zorblax" in translator.translate(["the old house"], seed=3, glossary=make_glossary())[0].text


def test_a_term_without_a_word_to_replace_gets_a_warning() -> None:
    translator = untrained("rnn", "decode.max_length_ratio=0", "decode.max_length_extra=0")  # the output is empty
    (result,) = translator.translate(["the old house"], glossary=make_glossary(), warn=False)
    assert [term.status for term in result.terms] == ["missing"]
    assert [note.message for note in result.warnings if note.kind == "glossary"] == [
        "the term 'house' could not be placed"
    ]


@pytest.mark.parametrize("name", ["transformer", "rnn"])
def test_copied_words_are_the_same_to_the_byte(name: str) -> None:
    text = "the ½-Ω™ near Ａ１"
    (result,) = untrained(name).translate([text], glossary=make_glossary(terms=(), keep=["½-Ω™", "/Ａ./"]))
    assert "½-Ω™" in result.text
    assert "Ａ１" in result.text
