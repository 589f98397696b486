"""Evaluate: score the translations of one system, or the perplexity of a language model."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from regard.config import load_config, split_folders
from regard.decoding.glossary import Glossary, find_forms
from regard.errors import ConfigError, FolderError, refuse_options
from regard.evaluation import metrics, perplexity, systems
from regard.evaluation.metrics import METRICS, Bucket, Score
from regard.evaluation.pages import MAX_ROWS, MAX_TRACES, Row, Sentence, evaluation_parts, page
from regard.evaluation.perplexity import Perplexity
from regard.evaluation.systems import EvaluationSet, Paths, Progress, Translations, path_of
from regard.inspection.charts import FEW_WORDS, format_range
from regard.inspection.quality import Expected, find_warnings
from regard.results import Page, Table, counted
from regard.text.files import read_lines
from regard.translation.loading import load
from regard.translation.reader import Reader
from regard.translation.translator import Result, Translator
from regard.translation.writer import Writer


@dataclass(frozen=True, kw_only=True)
class Evaluation(Page):
    """The scores of one system on one test set."""

    scores: dict[str, Score]  # bleu, chrf, chrf++ and ter
    by_length: list[Bucket]
    by_frequency: list[Bucket]
    frequencies_from: str  # the name of the text in which word frequencies are counted
    sentences: list[Sentence]
    test: EvaluationSet
    translations: Translations
    terms: Mapping[str, Any] | None = None
    messages: Sequence[str] = ()

    @property
    def bleu(self) -> Score:
        return self.scores["bleu"]

    @property
    def chrf(self) -> Score:
        return self.scores["chrf"]

    @property
    def ter(self) -> Score:
        return self.scores["ter"]

    @property
    def confidence(self) -> float | None:
        """The mean confidence of the translations."""
        values = [sentence.confidence for sentence in self.sentences if sentence.confidence is not None]
        return statistics.fmean(values) if values else None

    @property
    def warnings(self) -> dict[str, int] | None:
        """The number of sentences for every kind of warning; None without a source."""
        if self.test.sources is None:
            return None
        kinds = Counter(kind for sentence in self.sentences for kind in {warning.kind for warning in sentence.warnings})
        return dict(kinds.most_common())

    def to_dict(self, *, sentences: bool = False) -> dict[str, Any]:
        """Plain values, ready for JSON; `sentences` adds every line of the test set."""
        values = {
            "system": self.translations.path,
            **{name: score.to_dict() for name, score in self.scores.items()},
            "sentences": len(self.sentences),
            "by_length": self.by_length,
            "by_frequency": self.by_frequency,
            "frequencies_from": self.frequencies_from,
            "warnings": self.warnings,
            "terms": self.terms,
            "confidence": self.confidence,
            "lines": [sentence.to_dict() for sentence in self.sentences] if sentences else None,
        }
        return {name: value for name, value in values.items() if value is not None}

    def tables(self) -> list[Table]:
        scores = [
            [METRICS[name], f"{x.score:.2f}", f"{x.low:z.2f} to {x.high:z.2f}"] for name, x in self.scores.items()
        ]
        signatures = [[f"{METRICS[name]} {score.signature}"] for name, score in self.scores.items()]
        lengths, frequencies = [], []
        for x in self.by_length:
            cells = f"{x['sentences']:,}", f"{x['bleu']:.1f}", f"{x['low']:z.1f} to {x['high']:z.1f}"
            lengths.append([format_range(x["from"], x["to"]), *cells, "few" * x["small"]])
        for x in self.by_frequency:
            if words := x["words"]:
                f1, low, high = (f"{100 * x[name]:.1f}" for name in ("f1", "low", "high"))
                cells = f"{words:,}", f1, f"{low} to {high}"
                frequencies.append([format_range(x["from"], x["to"]), *cells, "few" * (words < FEW_WORDS)])
        facts = []
        if self.warnings is not None:
            counts = ", ".join(f"{kind} {number:,}" for kind, number in self.warnings.items()) or "none"
            facts.append([f"warnings: {counts} of {counted(len(self.sentences), 'sentence')}"])
        if self.confidence is not None:
            facts.append([f"confidence: {self.confidence:.0%} on average"])
        if self.terms is not None:
            where = f"{self.terms['terms']:,} in {counted(self.terms['sentences'], 'sentence')}"
            facts.append([f"terms: {self.terms['accuracy']:.1%} of {where}"])
        title = f"F1 of words by their frequency in {self.frequencies_from}"
        return [
            Table(["", "score", "95 % interval"], scores),
            Table(["signatures"], signatures),
            Table(["words", "sentences", "BLEU", "95 % interval", ""], lengths, "BLEU by reference length"),
            Table(["times", "words", "F1", "95 % interval", ""], frequencies, title),
            *([Table([""], facts)] if facts else []),
        ]

    def to_html(self) -> str:
        """A page with scores, charts and sentences; the worst fifty of a model show its attention."""
        ranked = sorted(self.sentences, key=lambda sentence: (not sentence.warnings, sentence.scores["chrf"]))
        traces = self.translations.traces({sentence.line: sentence.source for sentence in ranked[:MAX_TRACES]})
        rows = [
            Row("warned" * bool(sentence.warnings), [("translation", sentence, traces.get(sentence.line))])
            for sentence in ranked[:MAX_ROWS]
        ]
        system, test, size = self.translations.path, self.test, counted(len(self.sentences), "sentence")
        about = f"{system} on {size} of {test.source_name or system} against {test.reference_names}"
        title, parts = f"BLEU {self.bleu.score:.1f}", evaluation_parts(self.to_dict())
        return page(title, about, parts, rows, "evaluation", test.languages)


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
    beams: int | None = None,
    config: Iterable[str] | Mapping[str, Any] | None = None,
    device: torch.device | str = "auto",
    progress: Progress | None = None,
) -> Evaluation | Perplexity:
    """Score a model or a file of translations (`hypothesis`) against references with BLEU, chrF, chrF++ and TER.

    The model is a folder, several folders joined by `+`, or a loaded model; a gpt or bert is scored by its perplexity
    on the `source` text. `train` is target text in which word frequencies are counted, by default the reference.
    `glossary` is a TSV file whose terms are counted in the translations. `config` holds decode settings, such as
    {"decode.length_penalty": 1.2}.
    """
    if model is not None and hypothesis:
        raise ConfigError("a model translates --source, and --hypothesis is translated already: give one of them")
    if model is not None and is_language_model(model):
        translation_options = {
            "--train": train, "--glossary": glossary, "--lowercase": lowercase, "--tokenize": tokenize,
            "--beams": beams, "--set": config, "--reference": reference if source else None,
        }  # fmt: skip
        refuse_options(translation_options, f"is for translations, and {path_of(model)} is a language model")
        text = source or reference
        if not isinstance(text, str | Path):
            raise ConfigError(f"{path_of(model)} is a language model: give a text with --source FILE")
        loaded = load(model, device) if isinstance(model, str | Path) else model
        assert isinstance(loaded, Writer | Reader)
        return perplexity.measure(loaded, text, system=path_of(model), progress=progress)
    if hypothesis:
        if systems.is_model(hypothesis):
            raise ConfigError(f"--hypothesis ({hypothesis}) is a folder: give a model folder without --hypothesis")
        refuse_options({"--beams": beams, "--set": config}, "is for decoding, and --hypothesis is already translated")
    system = hypothesis or model
    if system is None:
        raise ConfigError("give a model folder to translate --source with, or --hypothesis FILE to score")
    assert not isinstance(system, Writer | Reader)
    test = EvaluationSet.read(source, reference, lowercase=lowercase, tokenize=tokenize)
    if glossary and test.sources is None:
        raise ConfigError("--glossary needs --source FILE, in which its terms are found")
    if train and Path(train).is_dir():
        raise FolderError(f"--train ({train}) is a folder: give a text file")
    frequencies = None
    if train:
        split = metrics.word_splitter(**test.options)
        frequencies = Counter(word for line, _ in read_lines(train) for word in split(line))
    terms = Glossary.read(Path(glossary), None) if glossary else None
    translations = systems.translate(system, test, device=device, beams=beams, config=config, progress=progress)
    if translations.translator is None and test.sources is not None:
        expected = Expected.from_pairs(list(zip(test.sources, test.references[0], strict=True)))
        results = [
            result._replace(warnings=find_warnings(text, result.text, expected=expected))
            for text, result in zip(test.sources, translations.results, strict=True)
        ]
        translations = translations._replace(results=results)
    accuracy = term_accuracy(terms, test.sources or [], translations.results) if terms else None
    if terms and accuracy is None:
        test.messages.append(f"no sentence of {source} has a term of {glossary}: no terms are counted")
    return score_translations(translations, test, frequencies, frequencies_from=str(train or ""), terms=accuracy)


def is_language_model(model: object) -> bool:
    """Whether a loaded model or a model folder is a gpt or bert."""
    if not isinstance(model, str | Path):
        return isinstance(model, Writer | Reader)
    folders = split_folders(model)
    return len(folders) == 1 and not load_config(folders[0]).model.is_translator


def term_accuracy(glossary: Glossary, sources: Sequence[str], results: Sequence[Result]) -> dict[str, Any] | None:
    """The share of glossary terms that the translations have; None if the sources have no term."""
    matches = [glossary.find(source) for source in sources]
    spans = [find_forms(result.text, terms) for result, terms in zip(results, matches, strict=True)]
    present = [span is not None for of_sentence in spans for span in of_sentence]
    if not present:
        return None
    return {"sentences": sum(map(bool, matches)), "terms": len(present), "accuracy": sum(present) / len(present)}


def score_translations(
    translations: Translations,
    test: EvaluationSet,
    frequencies: Counter[str] | None = None,
    *,
    frequencies_from: str = "",
    terms: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Score translations; `frequencies` counts the words of a training text, by default of the reference."""
    texts, references, split = translations.texts, test.references, metrics.word_splitter(**test.options)
    words = [split(line) for line in references[0]]
    if frequencies is None:
        frequencies = Counter(chain.from_iterable(words))
    scores = metrics.sentence_scores(texts, *references, **test.options)
    sources = test.sources or [""] * len(texts)
    sentences = [
        Sentence(n + 1, source, [lines[n] for lines in references], x.text, scores[n], x.warnings, x.confidence)
        for n, (source, x) in enumerate(zip(sources, translations.results, strict=True))
    ]
    return Evaluation(
        scores=metrics.corpus_scores(texts, *references, interval=True, **test.options),
        by_length=metrics.by_length(texts, *references, **test.options),
        by_frequency=metrics.by_frequency(list(map(split, texts)), words, frequencies),
        frequencies_from=frequencies_from or ("the first reference" if len(references) > 1 else "the reference"),
        sentences=sentences,
        test=test,
        translations=translations,
        terms=terms,
        messages=test.messages,
    )
