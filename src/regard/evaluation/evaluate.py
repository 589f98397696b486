"""Evaluate: score the translations of one system, or the perplexity of a language model."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from regard.decoding.glossary import Glossary
from regard.errors import ConfigError, DataError
from regard.evaluation import perplexity
from regard.evaluation.metrics import (
    FEW_SENTENCES,
    LENGTHS,
    METRICS,
    Bucket,
    Score,
    by_length,
    check_lines,
    corpus_scores,
    line_lengths,
    sentence_scores,
    word_splitter,
)
from regard.evaluation.perplexity import Perplexity
from regard.evaluation.systems import (
    Paths,
    Progress,
    Translations,
    is_model,
    name_of,
    read_test_set,
    term_accuracy,
    translate_test,
)
from regard.evaluation.words import FrequencyBucket, by_frequency, count_words
from regard.folders import clear_os_errors, write_file
from regard.inspection.quality import Expected, QualityWarning, find_warnings
from regard.models.folder import load_config
from regard.results import Report, Table
from regard.text.files import read_lines
from regard.translation.loading import load
from regard.translation.reader import Reader
from regard.translation.translator import Translator
from regard.translation.writer import Writer

EXAMPLES = {"warned": 15, "worst": 15, "best": 10, "middle": 50}  # maximum sentences of each kind in a report
MAX_EXAMPLES = 50  # of all kinds together
MIN_EXAMPLE_WORDS = 4  # sentences with shorter references are poor examples


class Sentence(NamedTuple):
    """One line of the test set."""

    line: int
    """The line number, from 1."""
    source: str
    """Empty if only translations were given."""
    references: tuple[str, ...]
    text: str
    scores: dict[str, float]
    warnings: Sequence[QualityWarning]
    confidence: float | None = None

    def to_dict(self) -> dict[str, Any]:
        warnings = [warning._asdict() for warning in self.warnings]
        return {**self._asdict(), "references": list(self.references), "warnings": warnings}


@dataclass(frozen=True, kw_only=True)
class Evaluation(Report):
    """The scores of one system on one test set."""

    system: str
    about: str
    """A description of the test set."""
    bleu: Score
    chrf: Score
    ter: Score
    by_length: list[Bucket]
    by_frequency: list[FrequencyBucket]
    frequencies_from: str
    """The name of the text in which word frequencies are counted."""
    warnings: dict[str, int] | None
    """The number of sentences for every kind of warning; None without a source."""
    sentences: list[Sentence]
    terms: Mapping[str, Any] | None
    tokenize: str | None
    translator: Translator | None = None
    """The model that translated; a saved page shows its attention."""
    beams: int | None = None

    @property
    def confidence(self) -> float | None:
        """The mean confidence of the translations."""
        values = [sentence.confidence for sentence in self.sentences if sentence.confidence is not None]
        return statistics.fmean(values) if values else None

    def to_dict(self, *, sentences: bool = False) -> dict[str, Any]:
        """Plain values, ready for JSON; `sentences` adds every line of the test set."""
        values = {
            "system": self.system,
            **{name: getattr(self, name).to_dict() for name in METRICS},
            "sentences": len(self.sentences),
            "by_length": [bucket.to_dict() for bucket in self.by_length],
            "by_frequency": [bucket.to_dict() for bucket in self.by_frequency],
            "frequencies_from": self.frequencies_from,
            "warnings": self.warnings,
            "terms": None if self.terms is None else dict(self.terms),
            "confidence": self.confidence,
            "each": [sentence.to_dict() for sentence in self.sentences] if sentences else None,
        }
        return {name: value for name, value in values.items() if value is not None}

    def tables(self) -> list[Table]:
        scores = [(METRICS[name], getattr(self, name)) for name in METRICS]
        lengths = [
            [
                format_range(bucket.first, bucket.last),
                f"{bucket.sentences:,}",
                f"{bucket.bleu:.1f}",
                format_interval(bucket),
                note,
            ]
            for bucket in self.by_length
            for note in ["few" if bucket.small else ""]
        ]
        frequencies = [
            [format_range(first, last), f"{words:,}", f"{100 * f1:.1f}", f"{100 * low:.1f} to {100 * high:.1f}", note]
            for first, last, words, _, _, f1, low, high in self.by_frequency
            for note in ["few" if words < FEW_SENTENCES else ""]
            if words
        ]
        tables = [
            Table(
                ["", "score", "95 % interval"], [[name, f"{x.score:.2f}", format_interval(x, 2)] for name, x in scores]
            ),
            Table(["signatures"], [[f"{name} {score.signature}"] for name, score in scores]),
            Table(["words", "sentences", "BLEU", "95 % interval", ""], lengths, "BLEU by reference length"),
            Table(
                ["times", "words", "F1", "95 % interval", ""],
                frequencies,
                f"F1 of words by their frequency in {self.frequencies_from}",
            ),
        ]
        facts = []
        if self.warnings is not None:
            counts = ", ".join(f"{kind} {number:,}" for kind, number in self.warnings.items()) or "none"
            facts.append(f"warnings: {counts} of {len(self.sentences):,} sentences")
        if self.confidence is not None:
            facts.append(f"confidence: {self.confidence:.0%} on average")
        if self.terms is not None:
            facts.append(f"terms: {_terms_text(self.terms)}")
        return [*tables, Table([""], [[fact] for fact in facts])] if facts else tables

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write a page with scores, charts and about fifty example sentences, for a model with their attention."""
        from regard.evaluation.pages import evaluation_page

        write_file(Path(path), evaluation_page(self, choose_examples(self)), force=force)


def format_range(first: int, last: int | None) -> str:
    """`11–20`, `5` or `61+`."""
    return f"{first}+" if last is None else f"{first}" if first == last else f"{first}–{last}"


def format_interval(scored: Score | Bucket, digits: int = 1) -> str:
    """`87.7 to 93.5`."""
    return f"{scored.low:z.{digits}f} to {scored.high:z.{digits}f}"


def _terms_text(terms: Mapping[str, Any]) -> str:
    text = f"{terms['accuracy']:.1%} of {terms['terms']:,} in {terms['sentences']:,} sentences"
    with_glossary = terms.get("with_glossary")
    if not with_glossary:
        return text
    bleu = f"BLEU of these {with_glossary['bleu']:.1f}, without {with_glossary['bleu_without']:.1f}"
    return f"{text}; {with_glossary['accuracy']:.1%} with the glossary ({bleu})"


def evaluate(
    model: str | Path | Translator | Writer | Reader | None = None,
    *,
    source: str | Path | None = None,
    reference: Paths | None = None,
    hypothesis: str | Path | None = None,
    train: str | Path | None = None,
    glossary: str | Path | None = None,
    lowercase: bool = False,
    tokenize: str | None = None,
    lengths: Sequence[int] | None = None,
    beams: int | None = None,
    config: Mapping[str, Any] | None = None,
    device: torch.device | str = "auto",
    progress: Progress | None = None,
) -> Evaluation | Perplexity:
    """Score a model or a file of translations (`hypothesis`) against references with BLEU, chrF and TER.

    The model is a folder, several folders joined by `+`, or a loaded model; a gpt or bert is scored by its perplexity
    on the `source` text. `train` is target text in which word frequencies are counted, by default the reference.
    `glossary` is a TSV file whose terms are counted in the translations. `lengths` are the upper limits of the length
    buckets, in reference words. `config` holds decode settings, such as {"decode.length_penalty": 1.2}.
    """
    if model is not None and language_model(model):
        given = {
            "--hypothesis": hypothesis, "--train": train, "--glossary": glossary, "--lowercase": lowercase,
            "--tokenize": tokenize, "--lengths": lengths, "--beams": beams, "--set": config,
            "--reference": reference if source else None,
        }  # fmt: skip
        refuse(given, f"is for translations, and {name_of(model)} is a language model")
        return _perplexity(model, source or reference, device, progress)
    system = _choose_system(model, hypothesis)
    if hypothesis:
        refuse({"--beams": beams, "--set": config}, "is for decoding, and --hypothesis is already translated")
    lengths = LENGTHS if lengths is None else lengths
    test = read_test_set(source, reference, tokenize=tokenize, lengths=lengths)
    if glossary and test.sources is None:
        raise ConfigError("--glossary needs --source FILE, in which its terms are found")
    if train:
        with clear_os_errors(Path(train), "read"), open(train, "rb"):
            pass
    terms = Glossary.read(Path(glossary), None) if glossary else None
    translations = translate_test(system, test.sources, device=device, beams=beams, config=config, progress=progress)
    test.check(name_of(system), translations.texts)
    options: dict[str, Any] = {"lowercase": lowercase, "tokenize": tokenize}
    accuracy = None
    if terms is not None:
        accuracy = term_accuracy(terms, test.sources or [], test.references, translations, beams=beams, **options)
    return score_translations(
        translations,
        test.references,
        sources=test.sources,
        train=train,
        terms=accuracy,
        lengths=lengths,
        system=name_of(system),
        about=f"{len(translations.texts):,} sentences of {source or hypothesis} against {', '.join(test.names)}",
        beams=beams,
        **options,
    )


def language_model(model: object) -> bool:
    """Whether a loaded model or a model folder is a gpt or bert."""
    if not isinstance(model, str | Path):
        return isinstance(model, Writer | Reader)
    single = "+" not in str(model) or Path(model).exists()
    return single and load_config(Path(model)).model.family in ("gpt", "bert")


def refuse(given: Mapping[str, Any], reason: str) -> None:
    """Raise a ConfigError for options that would have no effect."""
    for flag, value in given.items():
        if value:
            raise ConfigError(f"{flag} {reason}: leave it out")


def _choose_system(model: Any, hypothesis: str | Path | None) -> str | Path | Translator:
    if model is not None and hypothesis:
        raise ConfigError("a model translates --source, and --hypothesis is translated already: give one of them")
    if hypothesis and is_model(hypothesis):
        raise ConfigError(f"--hypothesis ({hypothesis}) is a folder: give a model folder without --hypothesis")
    if model is None and not hypothesis:
        raise ConfigError("give a model folder to translate --source with, or --hypothesis FILE to score")
    return cast("str | Path | Translator", model if model is not None else hypothesis)


def _perplexity(model: Any, text: Paths | None, device: torch.device | str, progress: Progress | None) -> Perplexity:
    if not isinstance(text, str | Path):
        raise ConfigError(f"{name_of(model)} is a language model: give a text with --source FILE")
    loaded = cast("Writer | Reader", load(model, device) if isinstance(model, str | Path) else model)
    return perplexity.measure(loaded, text, system=name_of(model), progress=progress)


def score_translations(
    translations: Translations,
    references: Sequence[Sequence[str]],
    *,
    sources: Sequence[str] | None = None,
    train: str | Path | None = None,
    terms: Mapping[str, Any] | None = None,
    lowercase: bool = False,
    tokenize: str | None = None,
    lengths: Sequence[int] = LENGTHS,
    system: str = "",
    about: str = "",
    beams: int | None = None,
) -> Evaluation:
    """Score translations against one or more references.

    Warnings and confidences are those of the translator; for texts from a file, warnings are found in the texts.
    """
    hypotheses = translations.texts
    check_lines(hypotheses, *references)
    if sources is not None and len(sources) != len(hypotheses):
        raise DataError(
            f"there are {len(sources):,} sources and {len(hypotheses):,} translations: the numbers must be equal"
        )
    options: dict[str, Any] = {"lowercase": lowercase, "tokenize": tokenize}
    split = word_splitter(**options)
    reference_words = [split(line) for line in references[0]]
    frequencies = count_words(reference_words if train is None else (split(line) for line, _ in read_lines(train)))
    scores = sentence_scores(hypotheses, *references, **options)
    warnings = translations.warnings
    if warnings is None:
        warnings = _find_warnings(sources, hypotheses, references[0]) if sources else [()] * len(hypotheses)
    confidences = translations.confidences or [None] * len(hypotheses)
    sentences = [
        Sentence(
            line=line + 1,
            source=sources[line] if sources is not None else "",
            references=tuple(lines[line] for lines in references),
            text=hypotheses[line],
            scores=scores[line],
            warnings=warnings[line],
            confidence=confidences[line],
        )
        for line in range(len(hypotheses))
    ]
    kinds = Counter(kind for sentence in sentences for kind in {warning.kind for warning in sentence.warnings})
    return Evaluation(
        system=system,
        about=about,
        **corpus_scores(hypotheses, *references, interval=True, **options),
        by_length=by_length(hypotheses, *references, lengths=lengths, **options),
        by_frequency=by_frequency([split(line) for line in hypotheses], reference_words, frequencies),
        frequencies_from=str(train or ("the first reference" if len(references) > 1 else "the reference")),
        warnings=None if sources is None else dict(kinds.most_common()),
        sentences=sentences,
        terms=terms,
        tokenize=tokenize,
        translator=translations.translator,
        beams=beams,
    )


def _find_warnings(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> list[Sequence[QualityWarning]]:
    """Find warnings in the texts alone; the references give the expected lengths and script."""
    expected = Expected.from_pairs(list(zip(sources, references, strict=True)))
    return [find_warnings(source, text, expected=expected) for source, text in zip(sources, hypotheses, strict=True)]


def choose_examples(evaluation: Evaluation) -> list[tuple[str, Sentence]]:
    """Choose example sentences for a report with their kind: warned, worst, best or middle by sentence chrF.

    Among sentences with the same score, longer ones come first.
    """
    sentences = evaluation.sentences
    lengths = line_lengths([sentence.references[0] for sentence in sentences], tokenize=evaluation.tokenize)
    eligible = [number for number, length in enumerate(lengths) if length >= MIN_EXAMPLE_WORDS]
    eligible = eligible or list(range(len(lengths)))

    def rank(number: int) -> tuple[float, int]:
        return sentences[number].scores["chrf"], -lengths[number]

    ranked = sorted(eligible, key=rank)
    centre = len(ranked) // 2
    kinds = {
        "warned": sorted((number for number, sentence in enumerate(sentences) if sentence.warnings), key=rank),
        "worst": ranked,
        "best": sorted(eligible, key=lambda number: (-sentences[number].scores["chrf"], -lengths[number])),
        "middle": [ranked[place] for place in sorted(range(len(ranked)), key=lambda place: abs(place - centre))],
    }
    chosen: dict[int, str] = {}
    for kind, numbers in kinds.items():
        new = [number for number in numbers if number not in chosen]
        chosen |= dict.fromkeys(new[: min(EXAMPLES[kind], MAX_EXAMPLES - len(chosen))], kind)
    return [(kind, sentences[number]) for number, kind in chosen.items()]
