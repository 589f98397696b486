"""Terms: a glossary of invented words for a model of the built-in corpus; how many come out, and what the rest costs.

It needs a finished model: `regard demo`, then `python -m benchmarks terms --model demo/model --data demo/data`.
"""

from __future__ import annotations

import random
import re
import sys
import time
from pathlib import Path

from benchmarks.measure import report
from regard.corpora.builtin.lexicon import ALL_NOUNS
from regard.evaluation.metrics import corpus_scores
from regard.translation.glossary import Glossary, Terminology, tally
from regard.translation.translator import Translator

SYLLABLES = "zor blax qui vun tremp gux wob krel fip yost dral mog".split()  # noqa: SIM905
SIGN = "☃"  # stands for a term on both sides, so that BLEU is of the rest


def main(model: str = "demo/model", data: str = "demo/data", nouns: int = 60, beams: int = 1) -> bool:
    """Accuracy of the default mode, and BLEU of everything but the terms with and without it."""
    if not Path(model, "model.safetensors").exists():
        print(f"terms needs a model of the built-in corpus, and {model} is none: left out", file=sys.stderr)
        return True
    words = invented(nouns)
    glossary = Glossary.make([(english, [new]) for english, (_, new) in words.items()])
    lines = [Path(data, f"test.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "fr")]
    pairs = [pair for pair in zip(*lines, strict=True) if glossary.find(pair[0])]
    sources = [source for source, _ in pairs]

    def rest(texts: list[str], side: int) -> float:
        """BLEU where every term, the model's own word (0) or the glossary's (1), is one sign."""
        signed = [signs(source, text, side) for source, text in zip(sources, texts, strict=True)]
        wanted = [signs(source, text, 0) for source, text in pairs]
        return corpus_scores(signed, wanted, metrics=["bleu"])["bleu"].score

    def signs(source: str, text: str, side: int) -> str:
        for match in glossary.find(source):
            english = match.source if match.source in words else match.source[0].lower() + match.source[1:]
            word = re.escape(words[english][side])
            text = re.sub(rf"(?<!\w){word}(?!\w)", SIGN, text, flags=re.IGNORECASE)
        return text

    translator = Translator.load(model)
    translator.translate(sources[:8], beams=beams)  # warm
    begun = time.perf_counter()
    plain = [result.text for result in translator.translate(sources, beams=beams)]
    between = time.perf_counter()
    found = translator.translate(sources, beams=beams, terms=Terminology(glossary, "soft"))
    took = time.perf_counter() - between
    counts = tally(term for result in found for term in result.terms)
    asked = sum(counts.values())
    before, after = rest(plain, 0), rest([result.text for result in found], 1)
    facts = {"sentences": len(pairs), "terms": asked, "how": dict(counts)}
    right = report("invented terms that stand in the output", 1 - counts["missing"] / asked, at_least=0.95, **facts)
    cost = {"with": after, "without": before, "milliseconds": 1000 * took / len(pairs)}
    cost["milliseconds_without"] = 1000 * (between - begun) / len(pairs)
    return report("BLEU that the rest of the sentence loses", before - after, at_most=1.0, **cost) and right


def invented(nouns: int) -> dict[str, tuple[str, str]]:
    """English nouns, their French and a word that no language has."""
    chance = random.Random(3)
    known = [noun for noun in ALL_NOUNS if noun.kind != "person"]
    known = [noun for noun in known if all(" " not in word for word in (*noun.english, *noun.french))]
    chance.shuffle(known)
    found: dict[str, tuple[str, str]] = {}
    for noun in known[:nouns]:
        for english, french in zip(noun.english, noun.french, strict=True):
            new = "".join(chance.choice(SYLLABLES) for _ in range(chance.choice([2, 3])))
            found.setdefault(english, (french, new))
    return found
