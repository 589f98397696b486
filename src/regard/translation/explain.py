"""Explain: what a model attended to, and what its output depends on, for one sentence."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from regard.config import ModelConfig, split_folders
from regard.decoding import Hypothesis, SearchOptions, Tree, greedy
from regard.errors import ConfigError, InputError
from regard.folders import write_file
from regard.inspection import attribution, inspector
from regard.inspection.attribution import Map
from regard.inspection.quality import QualityWarning, find_warnings
from regard.inspection.trace import Trace, trace
from regard.models import Generator
from regard.models.folder import read_languages
from regard.results import Report, Table
from regard.text.sentences import text_problem
from regard.text.tokenizer import Tokenizers
from regard.translation.loading import load
from regard.translation.reader import GAP, Reader
from regard.translation.translator import TOP, Translator
from regard.translation.writer import Writer

GPT_TOKENS = 24  # tokens that a gpt generates after the prompt


@dataclass(frozen=True, eq=False)
class Explanation(Report):
    """The trace of one sentence and its attribution map."""

    model: nn.Module  # the traced model: the first one of an ensemble
    trace: Trace
    warnings: Sequence[QualityWarning]
    title: str
    method: str
    kind: str  # which attention: "cross", "encoder" or "decoder"
    layer: int | None
    head: int | None
    languages: tuple[str, str] = ("", "")  # the codes of source and target; empty if unknown

    @cached_property
    def map(self) -> Map:
        """The requested map; of a model without attention, its first map of another method."""
        if self.trace.attention or self.method in attribution.SIGNED:
            return attribution.explain(self.trace, self.method, self.model, self.kind)
        return attribution.explain_all(self.trace, self.model)[0]

    @cached_property
    def maps(self) -> list[Map]:
        """The maps of all methods, the requested one first."""
        first, all_maps = self.map, attribution.explain_all(self.trace, self.model)
        return [first, *(other for other in all_maps if (other.method, other.kind) != (first.method, first.kind))]

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write a page (.html), a figure (.png, .svg) or the trace with the map as numbers (.json)."""
        from regard.inspection import drawing  # matplotlib is slow to import

        path = Path(path)
        drawing.check_suffix(path, also=[".json"])
        if path.suffix.lower() == ".json":
            where, values = self.map.picture(self.layer, self.head)
            explanation = {
                "method": self.map.method,
                "kind": self.map.kind,
                "where": where,
                "rows": self.map.rows.words,
                "columns": self.map.columns.words,
                "values": [[float(f"{value:.6g}") for value in row] for row in values.tolist()],
            }
            numbers = self.trace.as_json() | {"explanation": explanation, "warnings": self.to_dict()["warnings"]}
            return write_file(path, json.dumps(numbers, ensure_ascii=False) + "\n", force=force)
        maps = self.maps if path.suffix.lower() == ".html" else [self.map]
        return drawing.draw(self.trace, path, maps=maps, force=force, **self._view)

    @property
    def _view(self) -> dict[str, Any]:
        view = {"layer": self.layer, "head": self.head, "title": self.title, "languages": self.languages}
        return view | {"warned": self.warnings}

    def tables(self) -> list[Table]:
        """For every row of the map, the word with the highest value."""
        where, values = self.map.picture(self.layer, self.head)
        rows = [
            [word, self.map.columns.words[int(row.argmax())], f"{float(row.max()):.2f}"]
            for word, row in zip(self.map.rows.words, values, strict=True)
            if len(row)
        ]
        title = ", ".join(filter(None, [self.title, f"{self.map.method} ({self.map.kind})", where]))
        return [Table(["word", "most from", "value"], rows, title)]

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.trace.target.text,
            "score": self.trace.score,
            "method": self.map.method,
            "kind": self.map.kind,
            "warnings": [warning._asdict() for warning in self.warnings],
        }

    def _repr_html_(self) -> str:
        page = inspector.page(self.trace, self.maps, **self._view)
        return f'<iframe srcdoc="{html.escape(page)}" style="width:100%;height:40em;border:0"></iframe>'


def explain(
    model: Translator | Writer | Reader | str | Path,
    text: str,
    *,
    target: str | None = None,
    method: str = "attention",
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    beams: int | None = None,
    device: torch.device | str = "auto",
) -> Explanation:
    """Explain how a model or a model folder translates a text, continues it (gpt) or reads it (bert).

    With a `target`, that translation is explained (teacher forcing) instead of the model's output. The `method` is
    attention, rollout, value, gradient or ablation; `kind` is cross, encoder or decoder attention.
    """
    attribution.check_method(method, kind)
    if problem := text_problem(text) or text_problem(target or ""):
        raise InputError(f"the sentence cannot be read: {problem}")
    if not text.strip():
        raise InputError("there is no sentence to explain: it is empty")
    if target is not None and not target.strip():
        raise InputError("the target is empty: give the translation to explain, or leave it out")
    name = Path(str(model)).name if isinstance(model, str | Path) else ""
    loaded = load(model, device) if isinstance(model, str | Path) else model
    model_traced = loaded.models[0]
    tokenizers = loaded.tokenizers if isinstance(loaded, Translator) else Tokenizers(loaded.tokenizer, loaded.tokenizer)
    hypotheses, trees = list[Hypothesis](), list[Tree]()
    if isinstance(loaded, Reader):
        if target:
            raise ConfigError(f"{name or 'this model'} is a bert, which does not generate text: leave out --target")
        source = loaded.encode_with_gaps(GAP.split(text))
        loaded.check_length(source)
    elif isinstance(loaded, Writer):
        source, hypothesis = _continue(loaded, text, target)
        hypotheses = [hypothesis]
    else:
        source = [*tokenizers.source.encode(text), tokenizers.source.special.end]
        if len(source) - 1 > loaded.max_length:
            raise InputError(
                f"the sentence has {len(source) - 1} tokens and this model reads {loaded.max_length}: explain a part"
            )
        if target:
            hypotheses = [_given(tokenizers.target.encode(target))]
            _check_positions(model_traced, len(hypotheses[0].tokens) + 1)
        else:
            # The search is that of `translate`, without a record, so that the score is exactly the same.
            options = SearchOptions(beams or loaded.config.decode.beams)
            hypotheses = loaded.torch_engine.search([source], options, trees=trees)[0][:1]
    generator = cast(Generator, model_traced)
    traced = trace(generator, [source], hypotheses, tokenizers, texts=[text], trees=trees, hidden=True, top=TOP)[0]
    warned: list[QualityWarning] = []
    if isinstance(loaded, Translator):
        warned = find_warnings(text, traced.target.text, expected=loaded.expected)
    if target:
        traced = dataclasses.replace(traced, score=float(traced.log_probabilities.mean()))
    title = f"{name} ({traced.family})" if name and name != traced.family else traced.family
    traced, kind = traced.split_punctuation(), kind or attribution.default_kind(traced)
    languages = read_languages(split_folders(model)[0]) if isinstance(model, str | Path) else None
    return Explanation(model_traced, traced, warned, title, method, kind, layer, head, languages or ("", ""))


def _continue(writer: Writer, prompt: str, target: str | None) -> tuple[list[int], Hypothesis]:
    """The ids of a prompt, and its continuation: the target, or what the model generates."""
    before, model = writer.encode_prompt(prompt), writer.models[0]
    if target:
        whole = writer.encode_prompt(f"{prompt} {target}")
        # If tokenized together, the end of the prompt and the start of the target may share a token.
        is_prefix = whole[: len(before)] == before
        ids = whole[len(before) :] if is_prefix else writer.tokenizer.encode(target)
        _check_positions(model, len(before) + len(ids))
        return before, _given(ids)
    _check_positions(model, len(before) + 1)
    config = cast(ModelConfig, model.config)
    tokens = min(GPT_TOKENS, config.max_positions - len(before)) if config.has_position_table else GPT_TOKENS
    return before, greedy(
        cast(list[Generator], writer.models),
        torch.tensor([before[:-1]], dtype=torch.int64, device=writer.device),
        torch.tensor([before[-1]], device=writer.device),
        constraints=writer.constraints(tokens),
        length_penalty=writer.config.decode.length_penalty,
    )[0]


def _given(tokens: list[int]) -> Hypothesis:
    """The hypothesis of a target that the user gave; the trace computes its probabilities."""
    return Hypothesis(tokens, 0.0, 0.0, True, [])


def _check_positions(model: nn.Module, tokens: int) -> None:
    config = cast(ModelConfig, model.config)
    if config.has_position_table and tokens > config.max_positions:
        raise InputError(f"the text has {tokens} tokens; this {config.family} has {config.max_positions} positions")
