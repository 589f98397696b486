"""The translator: split texts into sentences, encode, search, align, and join the translations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from regard.config import Config, ModelConfig, split_folders
from regard.decoding import Encoded, Engine, Hypothesis, SearchOptions, TorchEngine
from regard.decoding.glossary import Glossary, Term, TokenAttention, find_forms, place_terms, token_spans
from regard.decoding.search import NotFiniteError
from regard.errors import ConfigError, InputError, did_you_mean
from regard.inspection import alignment
from regard.inspection.quality import Calibration, Expected, QualityWarning, confidence, find_warnings
from regard.inspection.trace import Trace, trace
from regard.memory import in_halves, in_parts
from regard.models import Generator
from regard.models.folder import load_ensemble, load_model
from regard.text.ordering import READ_AHEAD_CHARACTERS, READ_AHEAD_TEXTS, batch_by_length, read_ahead
from regard.text.sentences import (
    BREAKS,
    TextPart,
    count_sentences,
    join_parts,
    split_long_sentence,
    split_sentences,
    text_list,
    text_problem,
)
from regard.text.tokenizer import Tokenizers
from regard.translation.loaded import LoadedModels

BATCH_TOKENS = {"cpu": 1024, "mps": 4096, "cuda": 16384}  # padded source tokens searched at once
SPLIT_LENGTH = 64  # maximum tokens of the parts of an overlong sentence; short parts limit the cost of endless output
TOP = 5  # most probable tokens recorded for every step of a trace
PRECISIONS = ("auto", "fp32", "bf16")
ENGINES = {"auto": PRECISIONS, "torch": PRECISIONS, "ctranslate2": (*PRECISIONS, "int8")}
"""The engines and their precisions; auto is torch, whose output does not depend on what is installed."""


class Result(NamedTuple):
    """A translation."""

    text: str
    score: float = 0.0
    """The log-probability with length and coverage penalty; for several parts, the mean weighted by length."""
    log_probability: float = 0.0
    confidence: float | None = None
    """The probability that the translation is good, if the folder has a calibration.json; the minimum over parts."""
    warnings: Sequence[QualityWarning] = ()
    """Quality warnings; `input`: the text could not be read, `split`: a sentence was too long."""
    alignment: list[tuple[int, int]] | None = None
    """(source word, target word), counted from 0, if requested and the model has attention."""
    trace: Trace | None = None  # if requested; for a text in several parts, each part has its trace
    alternatives: Sequence[Result] = ()  # the next best translations, if requested
    log_probabilities: Sequence[float] = ()  # of all tokens, including the end token
    parts: Sequence[Result] = ()  # the sentences of a text that was too long to be translated at once
    terms: Sequence[Term] = ()  # the glossary terms of the text, with their status
    words: tuple[int, int] = (0, 0)  # the numbers of source and target words that the alignment counts

    def __repr__(self) -> str:
        return f"Result(text={self.text!r}, score={self.score:.4g})"  # a trace would print thousands of numbers

    def to_dict(self) -> dict[str, Any]:
        """The translation as plain values, for JSON; the trace is left out."""
        values = {name: getattr(self, name) for name in ("text", "score", "log_probability", "confidence", "alignment")}
        values |= {name: [value._asdict() for value in getattr(self, name)] for name in ("warnings", "terms")}
        return values | {"alternatives": [other.to_dict() for other in self.alternatives]}

    def draw(self, path: str | Path, *, force: bool = False) -> None:
        """Write the attention as .html, .png or .svg; translate with trace=True first."""
        if self.parts:
            raise InputError(f"this text was translated in {len(self.parts)} parts: draw each of result.parts")
        if self.trace is None:
            raise InputError("there is no trace to draw: translate with trace=True")
        from regard.inspection.drawing import draw  # matplotlib is slow to import

        draw(self.trace, path, title=self.trace.source.text, force=force)


class Sentence(NamedTuple):
    """The unit of translation: a sentence, or a text that is short enough."""

    text: str
    tag: str  # the tag before the text, with its space
    prefix: str  # the translation starts with this text


class Options(NamedTuple):
    """Options of a call of `translate` for every sentence."""

    search: SearchOptions
    glossary: Glossary | None
    trace: bool
    hidden: bool
    align: bool
    warn: bool
    first: int | None  # the first token of every translation, if it is not the model's choice


class Translator(LoadedModels):
    """A model or an ensemble with its tokenizers and decode settings."""

    def __init__(
        self,
        models: nn.Module | Sequence[nn.Module],
        tokenizers: Tokenizers,
        config: Config,
        *,
        calibration: Calibration | None = None,
        folder: str | Path = "",
    ) -> None:
        super().__init__(models, config, folder)
        self.tokenizers, self.calibration = tokenizers, calibration
        self.expected = calibration.expected if calibration else Expected()
        self.torch_engine = TorchEngine(self.models, config.decode, tokenizers.target.special)
        self.engine: Engine = self.torch_engine

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: torch.device | str = "auto",
        values: Iterable[str] | Mapping[str, Any] = (),
        config: Config | None = None,
    ) -> Translator:
        """Load a model folder, or an ensemble joined by `+`; `values` set fields of the decode section."""
        for value in values:
            if not value.startswith("decode."):
                raise ConfigError(f"{value} cannot be changed after training: only decode.FIELD=VALUE can")
        models, tokenizers, config = load_ensemble(folder, device, ("rnn", "transformer"), "does not translate", config)
        calibration = Calibration.load(split_folders(folder)[0])
        return cls(models, tokenizers, config.with_values(values), calibration=calibration, folder=folder)

    def use(self, engine: str, precision: str, folder: str | Path, *, token_scores: bool = True) -> None:
        """Search with torch (auto) or ctranslate2 in fp32, bf16 or int8; `folder` is where the models came from.

        Without `token_scores` CTranslate2 is faster, and confidences are not meaningful.
        """
        if precision not in ENGINES.get(engine, ()):
            engines = "; ".join(f"--engine {name} has {', '.join(known)}" for name, known in ENGINES.items())
            raise ConfigError(f"there is no --engine {engine} with --precision {precision}: {engines}")
        if precision != "bf16" and next(self.model.parameters()).dtype == torch.bfloat16:  # rounded: read them again
            self.models = [load_model(path, self.device)[0] for path in split_folders(folder)]
            self.torch_engine = TorchEngine(self.models, self.config.decode, self.tokenizers.target.special)
        self.engine = self.torch_engine
        if engine == "ctranslate2":
            from regard.interop import ctranslate2

            ensemble = "it runs one model, and this is an ensemble" if len(self.models) > 1 else ""
            config = cast(ModelConfig, self.model.config)
            if reason := ensemble or ctranslate2.unsupported_reason(config, self.config.decode):
                raise ConfigError(f"--engine ctranslate2 is not for {folder}: {reason}; --engine torch is")
            self.engine = ctranslate2.CTranslate2Engine(
                Path(folder), self.torch_engine, self.tokenizers, precision=precision, token_scores=token_scores
            )
        elif precision != "auto":
            for model in self.models:
                model.bfloat16() if precision == "bf16" else model.float()

    @property
    def model(self) -> nn.Module:
        """The first model of the ensemble, which is used for traces."""
        return self.models[0]

    @property
    def max_length(self) -> int:
        """Maximum source tokens of a sentence, by model and training data, without the end token."""
        longest, positions = self.config.text.max_length, self.torch_engine.max_positions
        return max(longest if positions is None else min(longest, positions), 1)

    def translate(
        self,
        texts: Iterable[str],
        *,
        beams: int | None = None,
        seed: int | None = None,
        alternatives: int = 0,
        prefix: str = "",
        tag: str = "",
        to: str = "",
        glossary: Glossary | None = None,
        trace: bool = False,
        hidden: bool = False,
        align: bool = False,
        warn: bool = True,
    ) -> list[Result]:
        """Translate texts, one result each in the same order; empty texts stay empty, unreadable ones get a warning.

        A `seed` samples instead of searching. Every translation begins with the `prefix`. The `tag`, such as <2fr>, is
        put before every sentence; `to` is the first token of every translation, a language code. `trace` and `align`
        cost one pass over each translation; `hidden` adds the hidden states to the trace.
        """
        texts, results = text_list(texts, "translate"), dict[str, Result]()
        if (beams is not None and beams < 1) or alternatives < 0:
            raise InputError(f"beams ({beams}) must be at least 1, and alternatives ({alternatives}) at least 0")
        for text in dict.fromkeys(texts):  # those that need no search
            if problem := text_problem(text):
                results[text] = Result("", warnings=(QualityWarning("input", problem, []),))
            elif not text.strip():
                results[text] = Result(text)
        name, target = to or self.config.decode.first_token, self.tokenizers.target
        first = target.token_id(name) if name else None
        if name and first is None:
            known = did_you_mean(name, target.tags) if target.tags else ""
            raise ConfigError(f"this model has no language or token {name}.{known}")
        beams = max(beams or self.config.decode.beams, 1 + alternatives)
        search = SearchOptions(beams=beams, results=1 + alternatives, seed=seed)
        split = self._split([text for text in dict.fromkeys(texts) if text not in results], tag, prefix)
        distinct = list(dict.fromkeys(sentence for _, sentences in split.values() for sentence in sentences))
        trace = trace or hidden
        options = Options(search, glossary, trace, hidden, trace or align, warn, first)
        translated = self._translate_all(distinct, options)
        for text, (parts, sentences) in split.items():
            results[text] = _join(parts, [translated[sentence] for sentence in sentences], self.max_length)
        return [results[text] for text in texts]

    def stream(self, texts: Iterable[str], *, lines: int = READ_AHEAD_TEXTS, **options: Any) -> Iterator[Result]:
        """Translate an iterable of any length, in windows of `lines` texts; the options are those of `translate`."""
        for window in read_ahead(texts, lines, READ_AHEAD_CHARACTERS):
            yield from self.translate(window, **options)

    # Splitting.

    def _split(self, texts: Sequence[str], tag: str, prefix: str) -> dict[str, tuple[list[TextPart], list[Sentence]]]:
        """The parts of each text, and its sentences to translate.

        That is the text itself, unless it is too long, or has more sentences than any source of the validation set.
        """
        tags, prefix = self.tokenizers.source.tags, prefix.strip()
        if tag and tag not in tags:
            known = did_you_mean(tag, tags) if tags else " It has no tags at all."
            raise ConfigError(f"this model was not trained with the tag {tag}.{known}")
        prefix_tokens, positions = len(self.tokenizers.target.encode(prefix)), self.torch_engine.max_positions
        if positions is not None and prefix_tokens > positions:
            raise InputError(f"the prefix has {prefix_tokens} tokens; this model can write at most {positions}")
        tagged = []  # the tag with its space, and the text without its own tag: every part needs the tag
        for text in texts:
            own_tag = next((known for known in tags if text.lstrip().startswith(known)), "")
            untagged = text.lstrip().removeprefix(own_tag).lstrip() if own_tag else text
            tagged.append((f"{own_tag or tag} " if own_tag or tag else "", untagged))
        split = {}
        for text, (tag_text, untagged), length in zip(texts, tagged, self._lengths(map("".join, tagged)), strict=True):
            is_long = length > self.max_length or 0 < self.expected.max_source_length < len(text)
            is_long |= 0 < self.expected.max_source_sentences < count_sentences(untagged)
            parts = [TextPart("", untagged)]
            if is_long or any(mark in text for mark in BREAKS):
                parts = [part for sentence in split_sentences(untagged) for part in self._fit(sentence, tag_text)]
            filled = [part.text for part in parts if part.text]
            split[text] = parts, [Sentence(part, tag_text, "" if i else prefix) for i, part in enumerate(filled)]
        return split

    def _fit(self, part: TextPart, tag_text: str) -> list[TextPart]:
        """Split a part so that the model can read every piece with the tag before it."""
        (tag_length,) = self._lengths([tag_text.rstrip()])  # its space belongs to the next token
        limit = max(self.max_length - tag_length, 1)

        def measure(texts: Sequence[str]) -> list[int]:
            """Lengths without the tag: those of pieces are added up, and each part has only one tag."""
            return [length - tag_length for length in self._lengths(tag_text + text for text in texts)]

        if not part.text or measure([part.text])[0] <= limit:
            return [part]
        first, *others = split_long_sentence(part.text, measure, min(limit, SPLIT_LENGTH))
        return [first._replace(gap=part.gap), *others]

    def _lengths(self, texts: Iterable[str]) -> list[int]:
        return [len(ids) for ids in self.tokenizers.source.encode_batch(list(texts))]

    # Translating sentences.

    def _translate_all(self, distinct: Sequence[Sentence], options: Options) -> dict[Sentence, Result]:
        """Translate sentences in batches of similar length; a batch that does not fit a GPU's memory is halved."""
        texts = [sentence.tag + sentence.text for sentence in distinct]
        sources = [[*ids, self.tokenizers.source.special.end] for ids in self.tokenizers.source.encode_batch(texts)]
        first = [] if options.first is None else [options.first]
        prefixes = self.tokenizers.target.encode_batch([sentence.prefix for sentence in distinct])
        translated: dict[Sentence, Result] = {}

        def translate_batch(rows: Sequence[int]) -> None:
            batch, forced = [distinct[row] for row in rows], [[*first, *prefixes[row]] for row in rows]
            search = options.search._replace(prefixes=forced if any(forced) else None)
            results = self._translate_batch(batch, [sources[row] for row in rows], options._replace(search=search))
            translated.update(zip(batch, results, strict=True))

        for rows in batch_by_length([len(ids) for ids in sources], texts, BATCH_TOKENS[self.device.type]):
            in_parts(translate_batch, rows, in_halves)
        return translated

    def _translate_batch(
        self, batch: Sequence[Sentence], sources: Sequence[Sequence[int]], options: Options
    ) -> list[Result]:
        """Search, trace what is needed, and place glossary terms."""
        texts = [sentence.tag + sentence.text for sentence in batch]
        matches = [options.glossary.find(text) if options.glossary else [] for text in texts]
        encoded: list[Encoded] | None = [] if options.align or any(matches) else None
        try:
            hypotheses = self.engine.search(sources, options.search, encoded)
        except NotFiniteError as error:
            raise NotFiniteError(error.sentence, batch[error.sentence].text) from None
        candidates = [[self._to_result(hypothesis, options.first) for hypothesis in beam] for beam in hypotheses]
        aligned = [(row, 0) for row in range(len(batch)) if options.align]
        lacking = [  # (row, rank) of translations without some of their terms; attention shows where these belong
            (row, rank)
            for row, required in enumerate(matches)
            for rank, result in enumerate(candidates[row] if required else ())
            if None in find_forms(result.text, required)
        ]
        traced = list(dict.fromkeys([*aligned, *lacking]))
        rows = torch.tensor([row for row, _ in traced], dtype=torch.int64, device=self.device)
        traces = trace(
            cast(Generator, self.model),
            [sources[row] for row, _ in traced],
            [hypotheses[row][rank] for row, rank in traced],
            self.tokenizers,
            encoded=encoded[0].select(rows) if encoded and traced else None,
            texts=[texts[row] for row, _ in traced],
            hidden=options.hidden,
            top=TOP if options.trace else 1,
        )
        trace_of = dict(zip(traced, traces, strict=True))
        attention = {place: _token_attention(trace_of[place]) for place in lacking}
        for row, required in enumerate(matches):
            for rank, result in enumerate(candidates[row] if required else ()):
                text, terms = place_terms(result.text, required, attention.get((row, rank)))
                notes = [
                    QualityWarning("glossary", f"the term {term.source!r} could not be placed", [term.source])
                    for term in terms
                    if term.status == "missing"
                ]
                candidates[row][rank] = result._replace(text=text, terms=terms, warnings=notes)
        return [
            self._finish(sentence, hypotheses[row][0], candidates[row], trace_of.get((row, 0)), options)
            for row, sentence in enumerate(batch)
        ]

    def _to_result(self, hypothesis: Hypothesis, first: int | None) -> Result:
        """A hypothesis as text; a forced `first` token, such as a language code, is not part of it."""
        return Result(
            self.tokenizers.target.decode(hypothesis.tokens if first is None else hypothesis.tokens[1:]),
            hypothesis.score,
            hypothesis.log_probability,
            confidence(hypothesis.log_probabilities, self.calibration) if self.calibration else None,
            log_probabilities=hypothesis.log_probabilities,
        )

    def _finish(
        self,
        sentence: Sentence,
        hypothesis: Hypothesis,
        candidates: Sequence[Result],
        traced: Trace | None,
        options: Options,
    ) -> Result:
        """The best candidate with its alternatives, warnings, alignment and trace."""
        by_text: dict[str, Result] = {}
        for candidate in candidates:
            by_text.setdefault(candidate.text, candidate)  # candidates are sorted: the first of equal texts is the best
        best, *others = by_text.values()
        notes = [*best.warnings]
        if not hypothesis.finished:
            message = f"the translation was cut off after {len(hypothesis.tokens)} tokens, the maximum length"
            notes.append(QualityWarning("unfinished", message, []))
        if options.warn:
            notes += find_warnings(sentence.text, best.text, expected=self.expected)
        if options.align and traced is not None and "cross" in traced.attention:
            best = _aligned(best, traced, len(sentence.tag.split()), options.first)
        return best._replace(warnings=notes, trace=traced if options.trace else None, alternatives=others)


def _aligned(result: Result, traced: Trace, tag_words: int, first: int | None) -> Result:
    """Add the alignment to a result; the words of a tag and of a language code do not count as words of the texts."""
    code_words = 0 if first is None or first in traced.special.textless else 1
    links = [(i - tag_words, j - code_words) for i, j in alignment.extract_alignment(traced)]
    links = [(i, j) for i, j in links if i >= 0 and j >= 0]
    words = (traced.source.special.count(False) - tag_words, traced.target.special.count(False) - code_words)
    before, after = traced.target.text.split(), result.text.split()
    if result.terms and len(before) == words[1]:
        links, words = _realign(links, before, after), (words[0], len(after))
    return result._replace(alignment=links, words=words)


def _token_attention(traced: Trace) -> TokenAttention | None:
    """The attention that alignments use, by token instead of by word; None for a model without attention."""
    if "cross" not in traced.attention:
        return None
    sides = traced.source, traced.target
    spans = [token_spans(side.subwords, [side.special[word] for word in side.word]) for side in sides]
    source, target = (side._replace(words=side.subwords, word=[*range(len(side.ids))]) for side in sides)
    by_token = dataclasses.replace(traced, source=source, target=target)
    return TokenAttention(alignment.cross_attention(by_token), *spans)


def _realign(aligned: list[tuple[int, int]], before: list[str], after: list[str]) -> list[tuple[int, int]]:
    """Map an alignment with the words of the model to the words after terms were placed."""
    new_places: dict[int, range] = {}
    for _, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        for word in range(start, end):
            new = new_start + word - start
            same_length = end - start == new_end - new_start
            new_places[word] = range(new, new + 1) if same_length else range(new_start, new_end)
    return sorted({(source, target) for source, word in aligned for target in new_places[word]})


# Joining.


def _join(parts: Sequence[TextPart], translated: Sequence[Result], max_length: int) -> Result:
    """Join the results of sentences into the result of their text."""
    if not translated:  # a tag, and nothing to translate
        return Result("")
    in_order = iter(translated)
    results = [next(in_order) if part.text else Result("") for part in parts]
    ranks = range(max(len(result.alternatives) for result in results))  # a sentence with fewer keeps its translation
    alternatives = [_join_scores(parts, [next(iter(x.alternatives[rank:]), x) for x in results]) for rank in ranks]
    joined = _join_scores(parts, results)
    if len(translated) == 1:  # with white space around it
        return translated[0]._replace(text=joined.text, alternatives=alternatives)
    notes = list({(note.kind, note.message): note for result in results for note in result.warnings}.values())
    if any(part.inside_sentence for part in parts):
        message = f"a sentence was longer than {max_length} tokens and translated in parts"
        notes.append(QualityWarning("split", message, []))
    aligned, source, target = [], 0, 0
    for part, result in zip(parts, results, strict=True):
        source, target = source - part.inside_word, target - part.inside_word  # the part continues a word
        aligned += [(source + i, target + j) for i, j in result.alignment or []]
        source, target = source + result.words[0], target + result.words[1]
    return joined._replace(
        confidence=min((result.confidence for result in results if result.confidence is not None), default=None),
        warnings=notes,
        alignment=None if any(result.alignment is None for result in translated) else aligned,
        alternatives=alternatives,
        parts=translated,
        terms=[term for result in results for term in result.terms],
        words=(source, target),
    )


def _join_scores(parts: Sequence[TextPart], results: Sequence[Result]) -> Result:
    logs = [value for result in results for value in result.log_probabilities]
    score = sum(result.score * len(result.log_probabilities) for result in results) / len(logs)
    return Result(join_parts(parts, [result.text for result in results]), score, sum(logs), log_probabilities=logs)
