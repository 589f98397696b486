"""Terminology: what is asked for stands in the translation, in its sentence, and nothing fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.config import Config
from regard.errors import DataError, InputError
from regard.models import build
from regard.models.contract import Record, State
from regard.text.tokenizer import END, PAD, Tokenizer, Tokenizers, train
from regard.translation.glossary import (
    Glossary,
    Match,
    Mode,
    Terminology,
    edges,
    forms_of,
    knows,
    place,
    present,
    report,
    units,
)
from regard.translation.translator import Translator
from tests.inspection.traces import made

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


def untrained(name: str) -> Translator:
    own = tokenizer()
    torch.manual_seed(1)
    config = Config.read(
        {"model": {**SHAPES[name], "vocabulary": own.size}, "decode": {"max_length_ratio": 1.5, "max_length_extra": 12}}
    )
    return Translator(build(config.model).eval().requires_grad_(False), Tokenizers(own, own), config)


def terminology(mode: Mode = "soft", terms: Any = (("house", ["zorblax"]),), keep: Any = ()) -> Terminology:
    return Terminology(Glossary.make(terms, keep), mode)


# Finding terms.


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"/X\d/", "the X77 here", ["X77"]),
        (r"/\d+/", "AB12, 7", ["AB12", "7"]),
        (r"/[A-Z]-/", "an AB-12", ["AB-"]),
        (r"/ \d /", "a 1 b", ["1"]),
        (r"/g.i/", "あgai協", ["gai"]),
    ],
)
def test_a_pattern_copies_the_whole_words_it_touches(pattern: str, text: str, found: list[str]) -> None:
    matches = Glossary.make((), [pattern]).find(text)
    assert [match.source for match in matches] == found
    assert all(text[match.start : match.end] == match.source == match.forms[0] for match in matches)


def test_a_term_that_falls_between_parts_is_warned_of() -> None:
    translator = untrained("rnn")
    translator.config = translator.config.with_values(["text.max_length=4"])
    (result,) = translator.translate(
        ["the river house " * 4], terms=terminology(terms=[("the river house the", ["zorblax"])])
    )
    assert len(result.parts) > 1
    assert [term.how for term in result.terms if term.source == "the river house the"].count("missing") == 2
    assert any(note.kind == "glossary" and "parts that divide it" in note.message for note in result.warnings)


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


def test_case_is_ignored_when_asked_for() -> None:
    terms = [("Old House", ["x"])]
    assert not Glossary.make(terms).find("an OLD house")
    assert [match.source for match in Glossary.make(terms, ignore_case=True).find("an OLD house")] == ["OLD house"]


def test_words_and_patterns_are_kept_as_they_stand() -> None:
    found = Glossary.make((), ["XK-42", r"/[A-Z]{2}\d+/"]).find("XK-42 or AB7, not xk-42")
    assert [(match.source, match.forms, match.kept) for match in found] == [
        ("XK-42", ("XK-42",), True),
        ("AB7", ("AB7",), True),
    ]


def test_marks_belong_to_their_word() -> None:
    assert [*map("किताब, l'eau".__getitem__, (slice(*span) for span in units("किताब, l'eau")))] == [
        "किताब", ",", "l", "'", "eau",
    ]  # fmt: skip


# Files.


def test_a_glossary_is_read_with_all_forms_of_a_term(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("# a remark\nagreement\taccord|accords\n\nhouse\tmaison\tdemeure\nhouse\tlogis\n")
    terms = Glossary.read(path, None).terms
    assert terms == {("agreement",): ("accord", "accords"), ("house",): ("maison", "demeure", "logis")}


@pytest.mark.parametrize("line", ["house", "house\t", "\tmaison", "house\t|"])
def test_a_line_without_a_term_says_where_it_stands(tmp_path: Path, line: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(f"a\tb\n{line}\n")
    with pytest.raises(DataError, match=r"terms.tsv:2: .* must be a source term, a tab and its target term"):
        Glossary.read(path, None)


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="is no regular expression"):
        Glossary.make((), ["/(/"])


# Placing.


def match_of(text: str, source: str, *forms: str, kept: bool = False) -> Match:
    start = text.index(source)
    return Match(start, start + len(source), source, forms, kept)


def test_a_term_takes_the_place_of_the_word_that_looked_at_it() -> None:
    weights = torch.eye(4)[[0, 2, 1, 3]]
    seen = made("the old house", "the house old", weights.tolist())
    seen = seen.__class__(**{**vars(seen), "target": seen.target._replace(pieces=["the", " house", " old", "</s>"]),
                             "source": seen.source._replace(pieces=["the", " old", " house", "</s>"])})  # fmt: skip
    text, words = place(seen, weights, "the house old", [match_of("the old house", "old", "zorblax")])
    assert text == "the house zorblax"
    assert words == [(10, 13)]


@pytest.mark.parametrize(
    ("text", "found"),
    [("l'accord est", True), ("Accord est", True), ("un Accord", False), ("désaccord", False), ("accords", False)],
)
def test_a_form_is_there_as_a_word(text: str, found: bool) -> None:
    assert (present(text, [Match(0, 1, "a", ("accord",), False)]) != [None]) is found


def test_each_stretch_of_a_translation_serves_one_term() -> None:
    twice = [Match(0, 1, "a", ("accord",), False)] * 2
    assert present("un accord", twice) == [(3, 9), None]
    assert present("un accord, un accord", twice) == [(3, 9), (14, 20)]


@pytest.mark.parametrize("beams", [1, 3])
def test_an_invented_word_stands_where_attention_rests_on_its_source(beams: int) -> None:
    results = backwards().translate(LINES, beams=beams, terms=terminology(), warn=False)
    assert [result.text.strip() for result in results] == [
        "river the near zorblax old the",
        "zorblax the sees bird green a",
        "bird a hears child the",
        "zorblax the and zorblax the",
        "river a and XK-42",
    ]
    assert [[term.how for term in result.terms] for result in results] == [
        ["placed"],
        ["placed"],
        [],
        ["placed"] * 2,
        [],
    ]


def test_the_model_is_fed_its_own_word() -> None:
    plain = backwards().translate(LINES, warn=False)
    with_terms = backwards().translate(LINES, terms=terminology(), warn=False)
    assert [result.log_probability for result in plain] == [result.log_probability for result in with_terms]


def test_a_term_of_several_words_takes_the_place_of_all_of_theirs() -> None:
    terms = terminology(terms=[("old house", ["zorblax"])])
    assert backwards().translate([" see the old house near"], terms=terms, warn=False)[0].text.strip() == (
        "near zorblax the see"
    )


def test_at_the_beginning_a_term_is_written_large_and_what_is_kept_is_not() -> None:
    def first(terms: Terminology) -> str:
        return backwards().translate([" near House"], terms=terms, warn=False)[0].text.strip()

    assert first(terminology(terms=[("House", ["zorblax"])])) == "Zorblax near"
    assert first(terminology(terms=[("House", ["zorblax"])], keep=["near"])) == "Zorblax near"


def test_alignments_are_those_of_the_words_that_stand_there() -> None:
    terms = terminology(terms=[("house", ["zorb blax"])])
    (result,) = backwards().translate([" the old house near"], terms=terms, align=True, warn=False)
    assert result.text.split() == ["near", "zorb", "blax", "old", "the"]
    assert result.alignment == [(0, 4), (1, 3), (2, 1), (2, 2), (3, 0)]


@pytest.mark.parametrize("mode", ["soft", "hard"])
def test_the_order_of_lines_and_what_else_is_in_the_batch_change_nothing(mode: Mode) -> None:
    translator, terms = backwards(), terminology(mode, [("house", ["zorblax"]), ("bird", ["wob|fip"])], ["XK-42"])
    whole = {line: result.text for line, result in zip(LINES, translator.translate(LINES, terms=terms), strict=True)}
    other = [*reversed(LINES), LINES[1]]
    assert [result.text for result in translator.translate(other, terms=terms)] == [whole[line] for line in other]
    for line in LINES:
        assert translator.translate([line], terms=terms)[0].text == whole[line]


# Every family.


@pytest.mark.parametrize("mode", ["soft", "hard"])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", [*SHAPES])
def test_no_family_fails_and_every_term_is_there(name: str, beams: int, mode: Mode) -> None:
    terms = terminology(mode, [("house", ["zorblax", "zor"]), ("bird", ["river"])], ["XK-42"])
    for line, result in zip(LINES, untrained(name).translate(LINES, beams=beams, terms=terms), strict=True):
        matches = terms.glossary.find(line)
        assert len(result.terms) == len(matches)
        missing = [term.source for term in result.terms if term.how == "missing"]
        assert len(missing) == present(result.text, matches).count(None)
        assert [note.evidence[0] for note in result.warnings if note.kind == "glossary"] == missing
        assert not missing


def test_models_together_have_terms_too() -> None:
    one, other = untrained("transformer"), untrained("rnn-none")
    both = Translator([one.model, other.model], one.sides, one.config)
    results = both.translate(LINES, terms=terminology())
    assert all(term.form for result in results for term in result.terms)


def test_alternatives_and_samples_have_terms_too() -> None:
    translator = untrained("transformer")
    (result,) = translator.translate(["the old house"], alternatives=2, terms=terminology())
    assert all("zorblax" in other.text for other in [result, *result.alternatives])
    assert "zorblax" in translator.translate(["the old house"], drawn_with=3, terms=terminology())[0].text


def test_a_term_that_cannot_be_written_is_warned_of() -> None:
    own = tokenizer("words")
    config = Config.read({"model": {**SHAPES["rnn-none"], "vocabulary": own.size}})
    translator = Translator(build(config.model).eval().requires_grad_(False), Tokenizers(own, own), config)
    (result,) = translator.translate(["the old house"], terms=terminology(), warn=False)
    assert [term.how for term in result.terms] == ["missing"]
    assert [note.message for note in result.warnings if note.kind == "glossary"] == [
        "the term 'house' could not be placed"
    ]


@pytest.mark.parametrize("name", [*SHAPES])
def test_what_is_kept_is_the_same_to_the_byte(name: str) -> None:
    text = "the ½-Ω™ near Ａ１"
    (result,) = untrained(name).translate([text], terms=terminology(terms=(), keep=["½-Ω™", "/Ａ./"]))
    assert "½-Ω™" in result.text
    assert "Ａ１" in result.text


# Deciding.


def test_a_word_of_few_pieces_is_known() -> None:
    own = tokenizer()
    assert knows(own, Match(0, 1, "a", ("house",), False))
    assert not knows(own, Match(0, 1, "a", ("zorblax",), False))
    assert knows(own, Match(0, 1, "a", ("zorblax", "old house"), False))


def test_a_vocabulary_that_cannot_write_a_form_has_no_tokens_for_it() -> None:
    assert forms_of(tokenizer("words"), Match(0, 1, "a", ("zorblax", "river"), False))[0].tokens
    assert not forms_of(tokenizer("words"), Match(0, 1, "a", ("zorblax",), False))


def test_pieces_inside_a_word_are_told_from_those_that_begin_one() -> None:
    own = tokenizer()
    found = edges(own)
    (house,) = own.encode(" house")
    assert house not in found.inside
    assert own.encode("z")[0] in found.inside
    assert own.encode("'")[0] in found.joins
    assert END not in found.inside


# Reporting.


def test_a_report_counts_terms_and_compares_with_and_without() -> None:
    def equal(ours: Any, theirs: Any) -> float:
        return 100.0 * sum(a.strip() == b for a, b in zip(ours, theirs, strict=True)) / len(ours)

    references = ["river the near zorblax old the", "-", "-", "zorblax the and zorblax the", "-"]
    found = report(backwards(), LINES, references, terminology(), equal)
    assert (found.sentences, found.terms, found.accuracy) == (3, 4, 1.0)
    assert found.how == {"written": 0, "forced": 0, "placed": 4, "missing": 0}
    assert (found.bleu, found.bleu_without) == (pytest.approx(200 / 3), 0.0)


def test_there_is_nothing_to_report_without_terms() -> None:
    with pytest.raises(DataError, match="no sentence has a term"):
        report(backwards(), ["a bird"], ["b"], terminology(), lambda *_: 0.0)
