"""Precision: compare int8 with fp32 in CTranslate2 on the validation sentences of a model folder, once a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from regard.devices import bf16_warning
from regard.documents.formats import read_pairs
from regard.evaluation.calibration import MAX_SENTENCES, scored_texts
from regard.evaluation.metrics import choose_tokenizer, paired_tests
from regard.evaluation.systems import Progress
from regard.folders import read_json, write_file
from regard.models.folder import VALIDATION
from regard.translation.translator import Translator

WINDOW = 100  # sentences translated together, after which the progress bar moves
COST_FILE = "int8.json"  # in the folder of the converted model
SIGNIFICANCE = 0.05


def use_engine(
    translator: Translator,
    engine: str,
    precision: str,
    folder: str | Path,
    *,
    token_scores: bool,
    say: Callable[[str], None],
    progress: Progress | None = None,
) -> str:
    """Switch a translator to an engine and a precision, and return the precision in use.

    For CTranslate2 on a CPU, `auto` is int8 unless BLEU is significantly lower than with fp32.
    """
    measures = engine == "ctranslate2" and precision in ("auto", "int8") and translator.device.type == "cpu"
    translator.use(engine, "int8" if measures else precision, folder, token_scores=token_scores)
    if not measures:
        if precision == "bf16" and (slow := bf16_warning(translator.device.type)):
            say(slow)
        return precision
    cost = int8_cost(translator, Path(folder), say, progress)
    if cost is None:
        is_worse, measured = True, f"{folder} has no {VALIDATION} to measure it on"
    else:
        is_worse = cost["int8"] < cost["fp32"] and cost["p"] is not None and cost["p"] < SIGNIFICANCE
        p = "" if cost["p"] is None else f" (p = {cost['p']:.3f})"
        on = f"{cost['sentences']:,} validation sentences"
        measured = f"{cost['int8']:.1f} BLEU on {on}, fp32: {cost['fp32']:.1f}{p}"
    chosen = "fp32" if is_worse and precision == "auto" else "int8"
    alternative = "for exact results: --precision fp32" if chosen == "int8" else "faster: --precision int8"
    say(f"int8: {measured}; {chosen} is used ({alternative})")
    translator.use("ctranslate2", chosen, folder, token_scores=token_scores)
    return chosen


def int8_cost(
    translator: Translator, folder: Path, say: Callable[[str], None], progress: Progress | None
) -> dict[str, Any] | None:
    """BLEU in fp32 and in int8 of a translator that uses CTranslate2, and the p-value of a paired bootstrap test.

    None if its folder has no validation sentences; the p-value is None if too few translations differ for a test.
    """
    from regard.interop.ctranslate2 import CTranslate2Engine  # it imports the built-in corpus

    assert isinstance(translator.engine, CTranslate2Engine)
    path = translator.engine.converted / COST_FILE
    if kept := read_json(path, optional=True):
        return dict(kept)
    if not (folder / VALIDATION).is_file():
        return None
    pairs = list(islice(read_pairs(folder / VALIDATION), MAX_SENTENCES))
    say(f"comparing int8 with fp32 on {len(pairs):,} validation sentences, once for this model")
    references = [pair.target for pair in pairs]
    translations: list[str] = []
    for precision in ("fp32", "int8"):
        translator.use("ctranslate2", precision, folder, token_scores=False)
        for result in translator.stream((pair.source for pair in pairs), lines=WINDOW, warn=False):
            translations += scored_texts([result])
            if progress is not None:
                progress(len(translations), 2 * len(pairs))
    systems = translations[: len(pairs)], translations[len(pairs) :]
    tokenize = choose_tokenizer(references, say)
    (fp32, int8), _ = paired_tests("bleu", systems, [references], ["bootstrap"], tokenize=tokenize)
    cost = {"fp32": fp32.score, "int8": int8.score, "p": int8.p_bootstrap, "sentences": len(pairs)}
    write_file(path, json.dumps(cost) + "\n", force=True)
    return cost
