"""Terms: a glossary of invented words for a model of the built-in corpus: how many are placed, and BLEU on the rest.

It needs a finished model: `regard demo`, then `python -m benchmarks terms --model demo/model --data demo/data`.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks.measure import report
from regard.corpora.builtin.lexicon import ALL_NOUNS
from regard.decoding.glossary import Glossary
from regard.evaluation.metrics import corpus_scores
from regard.translation.translator import Translator

SYLLABLES = "zor blax qui vun tremp gux wob krel fip yost dral mog".split()  # noqa: SIM905
TERM = "☃"  # replaces a term on both sides, so that BLEU is of the rest


def main(model: str = "demo/model", data: str = "demo/data", nouns: int = 60, beams: int = 1) -> bool:
    """The share of terms that stand in the output, and BLEU of everything else with and without the glossary."""
    if not Path(model, "model.safetensors").exists():
        print(f"terms needs a model of the built-in corpus, and {model} is none: left out", file=sys.stderr)
        return True
    words = invented(nouns)
    glossary = Glossary.make([(english, [new]) for english, (_, new) in words.items()])
    lines = [Path(data, f"test.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "fr")]
    pairs = [pair for pair in zip(*lines, strict=True) if glossary.find(pair[0])]
    sources = [source for source, _ in pairs]

    def bleu_of_rest(texts: list[str], side: int) -> float:
        """BLEU where every term, the French word (0) or the glossary's (1), is replaced by one character."""
        hidden = [hide_terms(source, text, side) for source, text in zip(sources, texts, strict=True)]
        references = [hide_terms(source, text, 0) for source, text in pairs]
        return corpus_scores(hidden, references, metrics=["bleu"])["bleu"].score

    def hide_terms(source: str, text: str, side: int) -> str:
        for match in glossary.find(source):
            english = match.source if match.source in words else match.source[0].lower() + match.source[1:]
            word = re.escape(words[english][side])
            text = re.sub(rf"(?<!\w){word}(?!\w)", TERM, text, flags=re.IGNORECASE)
        return text

    translator = Translator.load(model, "cpu")
    translator.translate(sources[:8], beams=beams)  # warm up
    started = time.perf_counter()
    plain = [result.text for result in translator.translate(sources, beams=beams)]
    between = time.perf_counter()
    results = translator.translate(sources, beams=beams, glossary=glossary)
    seconds = time.perf_counter() - between
    counts = Counter(term.status for result in results for term in result.terms)
    terms = counts.total()
    before, after = bleu_of_rest(plain, 0), bleu_of_rest([result.text for result in results], 1)
    facts = {"sentences": len(pairs), "terms": terms, "status": counts}
    right = report("invented terms that stand in the output", 1 - counts["missing"] / terms, at_least=0.95, **facts)
    cost = {"with": after, "without": before, "milliseconds": 1000 * seconds / len(pairs)}
    cost["milliseconds_without"] = 1000 * (between - started) / len(pairs)
    return report("BLEU that the rest of the sentence loses", before - after, at_most=1.0, **cost) and right


def invented(nouns: int) -> dict[str, tuple[str, str]]:
    """English nouns with their French noun and an invented word."""
    generator = random.Random(3)
    known = [noun for noun in ALL_NOUNS if noun.kind != "person"]
    known = [noun for noun in known if all(" " not in word for word in (*noun.english, *noun.french))]
    generator.shuffle(known)
    entries: dict[str, tuple[str, str]] = {}
    for noun in known[:nouns]:
        for english, french in zip(noun.english, noun.french, strict=True):
            new = "".join(generator.choice(SYLLABLES) for _ in range(generator.choice([2, 3])))
            entries.setdefault(english, (french, new))
    return entries
