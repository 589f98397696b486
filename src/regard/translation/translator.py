"""The translator: text in, text out; the one place where words meet weights.

B sentences, S source tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from regard.config import Config, ModelConfig
from regard.decoding import Begun, Hypothesis, Rule, Rules, Tree, alternatives, beam, greedy, limits, make_rules, sample
from regard.errors import ConfigError, InputError, did_you_mean
from regard.inspection.alignment import extract_alignment
from regard.inspection.quality import Calibration, QualityWarning, confidence, find_warnings
from regard.inspection.trace import Trace, make_side
from regard.inspection.trace import trace as trace_all
from regard.memory import in_halves, in_parts
from regard.models import Generator
from regard.models.folder import load_ensemble, split_folders
from regard.text.ordering import READ_AHEAD_CHARACTERS, READ_AHEAD_TEXTS, batch_by_length, read_ahead
from regard.text.scripts import UNSPACED_SCRIPTS, script
from regard.text.sentences import BREAKS, TextPart, join_parts, split_long_sentence, split_sentences, text_problem
from regard.text.tokenizer import END, MASK, PAD, START, UNKNOWN, Tokenizers

if TYPE_CHECKING:
    from regard.translation.glossary import Placed

POSITIONS = {"cpu": 1024, "mps": 4096, "cuda": 16384}  # source positions, padded, searched at once
PIECE = 64  # tokens of the parts a sentence is split into: a model that runs on without end costs less in short ones
TOP = 5  # alternatives of every step in a trace
ENGINES = {"auto": ("auto", "fp32", "bf16"), "torch": ("auto", "fp32", "bf16"),
           "ctranslate2": ("auto", "fp32", "bf16", "int8")}  # fmt: skip
"""What searches, and the precisions it has: auto is torch, whose words do not depend on what is installed."""


class Result(NamedTuple):
    """A translation."""

    text: str
    score: float = 0.0
    """What hypotheses are ranked by; of a text in several parts, the mean of theirs by length."""
    log_probability: float = 0.0
    confidence: float | None = None
    """The probability that it is good, where the folder has a calibration.json; of several parts, the least."""
    warnings: Sequence[QualityWarning] = ()
    """What a reader should know; `input`: it could not be translated, `split`: a sentence was too long."""
    alignment: list[tuple[int, int]] | None = None
    """(source word, target word), counted from 0, when asked for and the model looks at its source."""
    trace: Trace | None = None
    """When asked for; a text in several parts has one in each of them."""
    alternatives: Sequence[Result] = ()
    """The next best ones, when asked for."""
    steps: Sequence[float] = ()
    """The log-probability of every token and the end."""
    parts: Sequence[Result] = ()
    """The sentences of a text that was too long to be translated at once."""
    terms: Sequence[Placed] = ()
    """What became of the terms of a glossary."""

    def draw(self, path: str | Path, *, force: bool = False) -> None:
        """What was looked at, as .html, .png or .svg; translate with trace=True first."""
        if self.parts:
            raise InputError(f"this text was translated in {len(self.parts)} parts: draw each of result.parts")
        if self.trace is None:
            raise InputError("there is no trace to draw: translate with trace=True")
        from regard.inspection.drawing import draw  # matplotlib is slow to come

        draw(self.trace, path, title=self.trace.source.text, force=force)


class Next(NamedTuple):
    """What could follow the beginning of a translation."""

    word: str
    """Up to the next blank; of a script without blanks, what one token writes. Empty: the translation ends."""
    probability: float
    """Of its first token."""
    text: str
    """The whole translation that goes on so."""


class Asked(NamedTuple):
    """How a batch of sentences is searched."""

    beams: int
    results: int
    """Hypotheses wanted of each sentence, best first."""
    seed: int | None
    """Draw with it instead of searching."""
    prefixes: Sequence[Sequence[int]] | None
    """Target ids each sentence has to begin with."""
    rules: Sequence[Rule] = ()
    """More of what may come next."""


Search = Callable[[Sequence[Sequence[int]], Asked, list[Begun] | None], list[list[Hypothesis]]]
"""`Translator.search`, or another engine that gives the same: ids in, hypotheses out.

A list given as the third argument gets what the torch models read, so that a trace need not read it again; an engine
that has nothing of the kind leaves it empty."""


class Draft(NamedTuple):
    """A hypothesis in words."""

    hypothesis: Hypothesis
    text: str
    warnings: Sequence[QualityWarning] = ()
    terms: Sequence[Placed] = ()


class Terms(Protocol):
    """What a glossary makes of a search: it may search with rules of its own, or change what was written."""

    def drafts(
        self,
        translator: Translator,
        texts: Sequence[str],
        sources: Sequence[Sequence[int]],
        asked: Asked,
        begun: list[Begun] | None,
    ) -> list[list[Draft]]:
        """As `Translator.drafts`: for each sentence, `asked.results` drafts or fewer, best first."""

    def torn(self, text: str, parts: Sequence[str]) -> Sequence[Placed]:
        """The terms of a text that are in none of the parts it is translated in."""


class Sentence(NamedTuple):
    """What is translated at once."""

    text: str
    read: str
    """The text with its tag before it."""
    prefix: str


class Plan(NamedTuple):
    """A text as what is to be translated of it."""

    parts: list[TextPart]
    sentences: list[Sentence]
    """Of the parts that are not empty."""


class Looks(NamedTuple):
    """What is wanted of a translation beside its text."""

    trace: bool
    align: bool
    warn: bool
    hidden: bool
    """The hidden states in the trace,"""
    tree: bool
    """and all branches of a beam search."""


class Done(NamedTuple):
    """A sentence's translation, and how much of the whole text it is."""

    result: Result
    words: tuple[int, int]
    """Of source and translation, where they were aligned."""


class Translator:
    """A model or several, their tokenizers and how they search."""

    def __init__(
        self,
        models: nn.Module | Sequence[nn.Module],
        sides: Tokenizers,
        config: Config,
        *,
        calibration: Calibration | None = None,
    ) -> None:
        self.models = [models] if isinstance(models, nn.Module) else list(models)
        self.sides, self.config, self.calibration = sides, config, calibration
        self.engine: Search = self.search

    @classmethod
    def load(cls, folder: str | Path, device: torch.device | str = "cpu", values: Sequence[str] = ()) -> Translator:
        """The translator in a model folder, or in several joined by `+`, with `decode.field=value` laid over."""
        for value in values:
            if not value.startswith("decode."):
                raise ConfigError(
                    f"{value} cannot be changed any more: only decode.FIELD=VALUE can, once a model is trained"
                )
        models, sides, config = load_ensemble(folder, device, ("rnn", "transformer"), "does not translate")
        return cls(models, sides, config.with_values(values), calibration=Calibration.load(split_folders(folder)[0]))

    def use(self, engine: str, precision: str, folder: str | Path, *, steps: bool = True) -> None:
        """Search with torch (auto) or ctranslate2, in fp32, bf16 or int8; `folder` is where the models came from.

        Without `steps` CTranslate2 is faster, and the confidence of its translations means nothing.
        """
        if engine not in ENGINES or precision not in ENGINES.get(engine, ()):
            known = " or ".join(ENGINES.get(engine, ENGINES))
            what = f"--precision {precision} of --engine {engine}" if engine in ENGINES else f"--engine {engine}"
            raise ConfigError(f"there is no {what}: it is {known}")
        self.engine = self.search
        if engine != "ctranslate2":
            self.models = [model.bfloat16() if precision == "bf16" else model for model in self.models]
            return
        from regard.interop import ctranslate2

        several = "it runs one model, and these are several" if len(self.models) > 1 else ""
        if reason := several or ctranslate2.why_not(self._shapes[0], self.config.decode):
            raise ConfigError(f"--engine ctranslate2 is not for {folder}: {reason}; --engine torch is")
        fast = ctranslate2.Engine(
            Path(folder), self.model, self.sides, precision=precision, device=self.device.type, steps=steps
        )

        def search(
            sources: Sequence[Sequence[int]], asked: Asked, begun: list[Begun] | None = None
        ) -> list[list[Hypothesis]]:
            longest = self.limits(sources)
            if asked.seed is not None or asked.rules or not fast.takes(sources, longest):
                return self.search(sources, asked, begun)
            how: dict[str, Any] = {"longest": longest, "beams": asked.beams, "results": asked.results}
            return fast.search(sources, self.config.decode, prefixes=asked.prefixes, **how)

        self.engine = search

    @property
    def model(self) -> nn.Module:
        """The first of the models: traces are of it."""
        return self.models[0]

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def longest(self) -> int:
        """Source tokens the models can read at once and were trained on, the end not counted."""
        longest = self.config.text.max_length
        return max(longest if self._table is None else min(longest, self._table), 1)

    # Texts.

    def translate(
        self, texts: Sequence[str], *, beams: int | None = None, drawn_with: int | None = None, alternatives: int = 0,
        prefix: str = "", tag: str = "", terms: Terms | None = None, trace: bool = False, hidden: bool = False,
        tree: bool = False, align: bool = False, warn: bool = True,
    ) -> list[Result]:  # fmt: skip
        """One result a text, in their order; empty ones stay empty, and what cannot be read has a warning.

        `drawn_with` is a seed: sample, do not search. The `prefix` is what every translation has to begin with. The
        `tag`, such as <2fr>, is put before every sentence. `trace` and `align` cost a pass over each translation; with
        `hidden` a trace has the hidden states, and with `tree` all branches of a beam search in torch.
        """
        if isinstance(texts, str):
            raise InputError("translate takes a list of texts, and was given one text: put it in brackets")
        if beams is not None and beams < 1:
            raise InputError(f"{beams} beams were asked for; it must be at least 1")
        if tree and terms is not None:
            raise InputError("the tree of a search cannot be told where a glossary changes it: ask for one of them")
        if alternatives < 0:
            raise InputError(f"{alternatives} alternatives were asked for; it must be at least 0")
        found = {text: result for text in texts if (result := _without_search(text)) is not None}
        plans = self._plans([text for text in dict.fromkeys(texts) if text not in found], tag, prefix.strip())
        beams = max(beams or self.config.decode.beams, 1 + alternatives)
        asked = Asked(beams, 1 + alternatives, drawn_with, None)
        wanted = list(dict.fromkeys(sentence for plan in plans.values() for sentence in plan.sentences))
        trace = trace or hidden or tree
        done = self._search_all(wanted, asked, terms, Looks(trace, trace or align, warn, hidden, tree))
        for text, plan in plans.items():
            found[text] = _whole(plan.parts, [done[sentence] for sentence in plan.sentences], self.longest)
            if terms is not None and len(plan.sentences) > 1:
                found[text] = _without(found[text], terms.torn(text, [sentence.read for sentence in plan.sentences]))
        return [found[text] for text in texts]

    def stream(self, texts: Iterable[str], *, lines: int = READ_AHEAD_TEXTS, **how: Any) -> Iterator[Result]:
        """Results of a text without end, in order; so many lines are read ahead. `how` is as for `translate`."""
        for window in read_ahead(texts, lines, READ_AHEAD_CHARACTERS):
            yield from self.translate(window, **how)

    def alternatives_at(self, text: str, prefix: str, count: int, *, tag: str = "") -> list[Next]:
        """What else could follow a translation that begins so: at most `count` words, the most probable first."""
        if count < 1:
            raise InputError(f"{count} alternatives were asked for; it must be at least 1")
        plan = Plan([], []) if _without_search(text) else self._plans([text], tag, prefix.strip())[text]
        if len(plan.sentences) != 1:
            raise InputError(f"alternatives are told of one sentence, and this text has {len(plan.sentences)} parts")
        (sentence,), target = plan.sentences, self.sides.target
        begin = target.encode(sentence.prefix)
        asked = Asked(count, count, None, [begin])
        source, first, mask, rules = self._ready([[*self.sides.source.encode(sentence.read), END]], asked)
        how: dict[str, Any] = {"count": count, "length_penalty": self.config.decode.length_penalty}
        (found,) = alternatives(cast(list[Generator], self.models), source, first, mask, rules=rules, **how)
        words: dict[str, Next] = {}
        for each in found:
            written = make_side(target, each.tokens)
            word, sure = _next_word(written.subwords[len(begin) :]), math.exp(each.steps[len(begin)])
            words.setdefault(word, Next(word, sure, written.text))  # several tokens may begin a word
        return list(words.values())

    def _plans(self, texts: Sequence[str], tag: str, prefix: str) -> dict[str, Plan]:
        """What to translate for each text: itself, or the parts of it where it is too long to be read at once."""
        tags = self.sides.source.tags
        if tag and tag not in tags:
            known = did_you_mean(tag, tags) if tags else " It has no tags at all."
            raise ConfigError(f"this model was not trained with the tag {tag}.{known}")
        begin = len(self.sides.target.encode(prefix))
        if self._table is not None and begin > self._table:
            raise InputError(f"the prefix has {begin} tokens; this model can write at most {self._table}")
        usual = self.calibration.expected.max_source_length if self.calibration else 0
        befores, bares = [], []
        for text in texts:
            own = next((each for each in tags if text.lstrip().startswith(each)), "")  # every part of a text needs it
            befores.append(f"{own or tag} " if own or tag else "")
            bares.append(text.lstrip().removeprefix(own).lstrip() if own else text)
        lengths = self._lengths([before + bare for before, bare in zip(befores, bares, strict=True)])
        plans = {}
        for text, before, bare, length in zip(texts, befores, bares, lengths, strict=True):
            parts = [TextPart("", bare)]
            if length > self.longest or (usual and len(text) > usual) or any(mark in text for mark in BREAKS):
                parts = [part for each in split_sentences(bare) for part in self._fitting(each, before)]
            filled = [part.text for part in parts if part.text]
            wanted = [Sentence(each, before + each, "" if place else prefix) for place, each in enumerate(filled)]
            plans[text] = Plan(parts, wanted)
        return plans

    def _fitting(self, part: TextPart, before: str) -> list[TextPart]:
        """The part in parts that can be read, each with the same before it."""
        taken = self._lengths([before])[0]
        room = max(self.longest - taken, 1)

        def measure(texts: Sequence[str]) -> list[int]:
            return [length - taken for length in self._lengths([before + text for text in texts])]

        if not part.text or measure([part.text])[0] <= room:
            return [part]
        first, *others = split_long_sentence(part.text, measure, min(room, PIECE))
        return [first._replace(gap=part.gap), *others]

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.sides.source.encode_batch(texts)]

    # Sentences.

    def _search_all(
        self, wanted: Sequence[Sentence], asked: Asked, terms: Terms | None, looks: Looks
    ) -> dict[Sentence, Done]:
        texts = [sentence.read for sentence in wanted]
        encoded = [[*ids, END] for ids in self.sides.source.encode_batch(texts)]
        begins = self.sides.target.encode_batch([sentence.prefix for sentence in wanted])
        done: dict[Sentence, Done] = {}

        def together(places: Sequence[int]) -> dict[Sentence, Done]:
            batch, prefixes = [wanted[place] for place in places], [begins[place] for place in places]
            here = asked._replace(prefixes=prefixes if any(prefixes) else None)
            found = self._together(batch, [encoded[place] for place in places], here, terms, looks)
            return dict(zip(batch, found, strict=True))

        for places in batch_by_length([len(ids) for ids in encoded], texts, POSITIONS[self.device.type]):
            for found in in_parts(together, places, in_halves):
                done |= found
        return done

    def _together(
        self,
        batch: Sequence[Sentence],
        sources: Sequence[Sequence[int]],
        asked: Asked,
        terms: Terms | None,
        looks: Looks,
    ) -> list[Done]:
        """One batch: searched, put into words, and looked into as far as asked."""
        texts = [sentence.read for sentence in batch]
        begun: list[Begun] | None = [] if looks.align else None
        trees: list[Tree] | None = [] if looks.tree else None
        write = partial(self.drafts, trees=trees) if terms is None else partial(terms.drafts, self)
        drafts = write(texts, sources, asked, begun)
        seen: Sequence[Trace | None] = [None] * len(batch)
        if looks.align:
            best = [found[0].hypothesis for found in drafts]
            top = TOP if looks.trace else 1
            model, read = cast(Generator, self.model), begun[0] if begun else None
            how: dict[str, Any] = {"trees": trees or None, "hidden": looks.hidden, "top": top}
            seen = trace_all(model, sources, best, self.sides, begun=read, texts=texts, **how)
        return [self._done(*each, looks) for each in zip(batch, drafts, seen, strict=True)]

    def drafts(
        self,
        texts: Sequence[str],
        sources: Sequence[Sequence[int]],
        asked: Asked,
        begun: list[Begun] | None,
        trees: list[Tree] | None = None,
    ) -> list[list[Draft]]:
        """What the engine writes for each sentence, in words, best first; where `trees` are wanted, what torch does."""
        found = self.engine(sources, asked, begun) if trees is None else self.search(sources, asked, begun, trees)
        return [[Draft(each, self.sides.target.decode(each.tokens)) for each in hypotheses] for hypotheses in found]

    def _done(self, sentence: Sentence, drafts: Sequence[Draft], seen: Trace | None, looks: Looks) -> Done:
        """What is told of a sentence."""
        results: dict[str, Result] = {}
        for draft in drafts:
            results.setdefault(draft.text, self._result(draft))  # several may read alike: the first is the best
        best, *others = results.values()
        notes = [*best.warnings]
        if not drafts[0].hypothesis.finished:
            tokens = len(drafts[0].hypothesis.tokens)
            notes.append(
                QualityWarning("unfinished", f"the translation had no end and was ended after {tokens} tokens", [])
            )
        if looks.warn:
            expected = self.calibration.expected if self.calibration else None
            notes += find_warnings(sentence.text, best.text, seen, expected=expected)
        aligned, words = None, (0, 0)
        if seen is not None and "cross" in seen.attention:
            before = len(sentence.read.split()) - len(sentence.text.split())  # the tag is no word of the text
            aligned = [(source - before, target) for source, target in extract_alignment(seen) if source >= before]
            words = (seen.source.special.count(False) - before, seen.target.special.count(False))
            if best.terms and len(seen.target.text.split()) == words[1]:
                aligned = _moved(aligned, seen.target.text.split(), best.text.split())
                words = words[0], len(best.text.split())
        kept = seen if looks.trace else None
        result = best._replace(warnings=notes, alignment=aligned, trace=kept, alternatives=others)
        return Done(result, words)

    def _result(self, draft: Draft) -> Result:
        text, found = draft.text, draft.hypothesis
        sure = confidence(found.steps, self.calibration) if self.calibration else None
        return Result(
            text, found.score, found.log_probability, sure, draft.warnings, steps=found.steps, terms=draft.terms
        )

    # Search.

    def search(
        self,
        sources: Sequence[Sequence[int]],
        asked: Asked,
        begun: list[Begun] | None = None,
        trees: list[Tree] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for each source of ids, or as many drawn with a seed, searched together in torch.

        A list given as `trees` gets all branches of a beam search, for each source.
        """
        settings, models = self.config.decode, cast(list[Generator], self.models)
        source, first, mask, rules = self._ready(sources, asked)
        if asked.seed is not None:
            return sample(
                models,
                source,
                first,
                mask,
                rules=rules,
                samples=asked.results,
                seed=asked.seed,
                temperature=settings.temperature,
                top_k=settings.top_k,
                top_p=settings.top_p,
                min_p=settings.min_p,
                length_penalty=settings.length_penalty,
                begun=begun,
            )
        if asked.beams == 1:
            found = greedy(
                models, source, first, mask, rules=rules, length_penalty=settings.length_penalty, begun=begun
            )
            return [[hypothesis] for hypothesis in found]
        return beam(
            models,
            source,
            first,
            mask,
            rules=rules,
            beams=asked.beams,
            results=asked.results,
            length_penalty=settings.length_penalty,
            coverage_penalty=settings.coverage_penalty,
            diversity=settings.diversity_penalty,
            begun=begun,
            trees=trees,
        )

    def _ready(self, sources: Sequence[Sequence[int]], asked: Asked) -> tuple[Tensor, Tensor, Tensor | None, Rules]:
        """The sources (B, S), what the first step is given, their mask, and what may be written."""
        settings, device = self.config.decode, self.device
        width = max(map(len, sources))
        source = torch.tensor([[*ids, *[PAD] * (width - len(ids))] for ids in sources], device=device)
        mask = source != PAD if any(len(ids) != width for ids in sources) else None
        first = torch.full((len(sources),), START, device=device)
        rules = make_rules(
            end=END,
            longest=self.limits(sources),
            shortest=settings.min_length,
            no_repeat=settings.no_repeat_ngram,
            forbidden=[PAD, START, UNKNOWN, MASK],
            prefixes=asked.prefixes,
            more=asked.rules,
        )
        return source, first, mask, rules

    def limits(self, sources: Sequence[Sequence[int]]) -> list[int]:
        """Tokens the translation of each source of ids may have, the end not counted."""
        settings = self.config.decode
        found = limits([len(ids) for ids in sources], ratio=settings.max_length_ratio, extra=settings.max_length_extra)
        return found if self._table is None else [min(limit, self._table) for limit in found]

    @property
    def _table(self) -> int | None:
        """Tokens of a side that the tables of positions have room for, beside its beginning or end."""
        return min((shape.max_positions - 1 for shape in self._shapes if shape.has_position_table), default=None)

    @property
    def _shapes(self) -> list[ModelConfig]:
        return [cast(ModelConfig, model.config) for model in self.models]


def _moved(found: list[tuple[int, int]], before: list[str], after: list[str]) -> list[tuple[int, int]]:
    """Links to the words that a model wrote as links to those that stand there since a glossary was used."""
    places: dict[int, range] = {}
    for _, start, end, new, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        for word in range(start, end):
            own = new + word - start
            places[word] = range(own, own + 1) if end - start == last - new else range(new, last)
    return sorted({(source, target) for source, word in found for target in places[word]})


def _without_search(text: str) -> Result | None:
    """What is known of a text before it is read: nothing but white space stays, and what is no text is said to be."""
    if problem := text_problem(text):
        return Result("", warnings=(QualityWarning("input", problem, []),))
    return None if text.strip() else Result(text)


def _whole(parts: Sequence[TextPart], done: Sequence[Done], longest: int) -> Result:
    """The result of a text from those of its sentences."""
    if not done:  # a tag, and nothing to translate
        return Result("")
    own = iter(done)
    results = [next(own).result if part.text else Result("") for part in parts]
    if len(done) == 1:  # with white space around it
        (only,) = (each.result for each in done)
        others = [_alternative(parts, results, place) for place in range(len(only.alternatives))]
        return only._replace(text=join_parts(parts, [result.text for result in results]), alternatives=others)
    notes = list({(note.kind, note.message): note for result in results for note in result.warnings}.values())
    if any(part.split for part in parts):
        notes.append(
            QualityWarning("split", f"a sentence was longer than {longest} tokens and translated in parts", [])
        )
    steps = [step for result in results for step in result.steps]
    sure = [result.confidence for result in results if result.confidence is not None]
    most = max(len(result.alternatives) for result in results)
    return Result(
        join_parts(parts, [result.text for result in results]),
        sum(result.score * len(result.steps) for result in results) / len(steps),
        sum(steps),
        min(sure, default=None),
        notes,
        _aligned([part for part in parts if part.text], done),
        alternatives=[_alternative(parts, results, place) for place in range(most)],
        steps=steps,
        parts=[each.result for each in done],
        terms=[term for result in results for term in result.terms],
    )


def _without(result: Result, torn: Sequence[Placed]) -> Result:
    """The result with a warning of the terms that its parts do not have."""
    why = "could not be placed: the text was translated in parts that divide it"
    notes = [QualityWarning("glossary", f"the term {term.source!r} {why}", [term.source]) for term in torn]
    return result._replace(warnings=[*result.warnings, *notes], terms=[*result.terms, *torn])


def _next_word(pieces: Sequence[str]) -> str:
    """The first word of what tokens write."""
    first, rest = pieces[:1], pieces[1:]
    if script("".join(first)) in UNSPACED_SCRIPTS:
        rest = []
    return "".join([*first, *takewhile(lambda piece: not piece[:1].isspace(), rest)]).strip()


def _alternative(parts: Sequence[TextPart], results: Sequence[Result], place: int) -> Result:
    """The text from the alternatives of its sentences, those without so many as they are."""
    chosen = [result.alternatives[place] if place < len(result.alternatives) else result for result in results]
    steps = [step for result in chosen for step in result.steps]
    score = sum(result.score * len(result.steps) for result in chosen) / len(steps)
    return Result(join_parts(parts, [result.text for result in chosen]), score, sum(steps), steps=steps)


def _aligned(parts: Sequence[TextPart], done: Sequence[Done]) -> list[tuple[int, int]] | None:
    """The links of sentences as those of the text."""
    if any(each.result.alignment is None for each in done):
        return None
    found, source, target = [], 0, 0
    for part, each in zip(parts, done, strict=True):
        source, target = source - part.torn, target - part.torn  # a word goes on
        found += [(source + one, target + other) for one, other in each.result.alignment or []]
        source, target = source + each.words[0], target + each.words[1]
    return found
