"""CTranslate2: a Transformer of ours, translated by an engine made for nothing else.

The words are those of our own search on nearly all sentences: its beams are filled up again when hypotheses end, ours
are not, and where a model is unsure that decides.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import MultiHead, sinusoidal
from regard.config import DecodeConfig, ModelConfig
from regard.decoding import Hypothesis
from regard.errors import ConfigError, RunError
from regard.folders import atomic_folder, cache, checksum
from regard.models.blocks import Block
from regard.models.folder import MODEL
from regard.models.layers import Embedding, FeedForward
from regard.models.transformer import Transformer
from regard.text.tokenizer import END, MASK, PAD, SPECIALS, START, UNKNOWN, Tokenizer, Tokenizers

LAYOUT = 1  # of what `convert` writes: another number, and models are converted anew
POSITIONS = 4096  # rows of the table that stands for sinusoidal positions
PATIENCE = 1.5  # of its beams: with 1 it stops before the best has ended in 11 of 1,000 sentences, with this in none
FORBIDDEN = (PAD, START, UNKNOWN, MASK)
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH", "swiglu": "SWISH"}
TYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}
SCORES = ("scaled_dot", "dot")


def why_not(model: ModelConfig, decode: DecodeConfig) -> str:
    """What CTranslate2 has no words for, or nothing."""
    if model.family != "transformer":
        return f"it runs transformers, and this is a model of the family {model.family}"
    if model.score_name not in SCORES:
        return f"it knows no model.score = {model.score_name}, only {' and '.join(SCORES)}"
    if decode.coverage_penalty:
        return "its coverage penalty looks at one layer, ours at all: set decode.coverage_penalty=0"
    if decode.diversity_penalty:
        return "its beam has no groups: set decode.diversity_penalty=0"
    return ""


class Engine:
    """A model folder, loaded by CTranslate2; `precision` is fp32, bf16 or int8, and auto is int8 on a CPU.

    With `steps` the log-probability of every token is told, at the price of one more pass over what was found; without,
    their mean stands for each.
    """

    def __init__(
        self, folder: Path, model: nn.Module, sides: Tokenizers, *, precision: str, device: str, steps: bool
    ) -> None:
        assert isinstance(model, Transformer)
        ctranslate2 = _library()
        device = "cuda" if device == "cuda" else "cpu"
        asked = {"auto": "int8" if device == "cpu" else "float16", **TYPES}[precision]
        known = ctranslate2.get_supported_compute_types(device)
        if asked not in known:
            names = [name for name, kind in TYPES.items() if kind in known]
            raise ConfigError(f"CTranslate2 computes in {' or '.join(names)} on this {device}, not in {precision}")
        place = cache("ctranslate2") / _name(folder, model.config, sides)
        if not place.is_dir():
            with atomic_folder(place, force=True) as new:
                convert(model, sides, new)
        threads = torch.get_num_threads()
        try:
            self._engine = ctranslate2.Translator(str(place), device, compute_type=asked, intra_threads=threads)
        except RuntimeError as error:
            raise RunError(f"CTranslate2 cannot load {place}: {error}") from error
        self._source = _vocabulary(sides.source, model.config.vocabulary)
        self._target = _vocabulary(sides.target, model.config.target_vocabulary_size)
        self._ids = {token: number for number, token in enumerate(self._target)}
        rows = model.config.max_positions if model.config.has_position_table else POSITIONS
        self._positions = None if model.config.positions == "rotary" else rows
        self._steps = steps

    def takes(self, sources: Sequence[Sequence[int]], longest: Sequence[int]) -> bool:
        """Whether there are positions enough for sources of ids and translations of these lengths."""
        return self._positions is None or max(*map(len, sources), 1 + max(longest)) <= self._positions

    def search(
        self, sources: Sequence[Sequence[int]], settings: DecodeConfig, *, longest: Sequence[int], beams: int,
        results: int, prefixes: Sequence[Sequence[int]] | None,
    ) -> list[list[Hypothesis]]:  # fmt: skip
        """The `results` best hypotheses of each source of ids, best first, as `decoding.beam` gives them.

        The engine divides the probability of forbidden tokens among the others, and we do not: it is told of them only
        where it would write one. The longest length is one for all: what becomes too long is searched again.
        """
        if prefixes is not None:
            longest = [max(most, len(prefix)) for most, prefix in zip(longest, prefixes, strict=True)]
        asked = _Asked(settings, beams, results, prefixes)
        found = self._run(sources, list(range(len(sources))), asked, max(longest), forbid=False)
        again: dict[int, list[int]] = {}
        for row, most in enumerate(longest):
            best = [hypothesis.tokens for hypothesis in found[row]]
            if any(len(tokens) >= most or not set(FORBIDDEN).isdisjoint(tokens) for tokens in best):
                again.setdefault(most, []).append(row)
        for most, rows in again.items():
            for row, hypotheses in zip(rows, self._run(sources, rows, asked, most, forbid=True), strict=True):
                found[row] = hypotheses
        return found

    def _run(
        self, sources: Sequence[Sequence[int]], rows: list[int], asked: _Asked, most: int, *, forbid: bool
    ) -> list[list[Hypothesis]]:
        """The hypotheses of some of the sources, none longer than `most` tokens."""
        settings, prefixes = asked.settings, asked.prefixes
        ruled = forbid or prefixes is not None or settings.min_length > 0 or settings.no_repeat_ngram > 0
        texts = [[self._source[number] for number in sources[row]] for row in rows]
        begins = None if prefixes is None else [[self._target[number] for number in prefixes[row]] for row in rows]
        answers = self._engine.translate_batch(
            texts,
            begins,
            beam_size=asked.beams,
            patience=PATIENCE,
            num_hypotheses=asked.beams if ruled else asked.results,
            length_penalty=settings.length_penalty,
            no_repeat_ngram_size=settings.no_repeat_ngram,
            suppress_sequences=[[self._target[number]] for number in FORBIDDEN] if forbid else None,
            return_end_token=True,  # so that it counts as a token, as with us
            max_input_length=0,
            max_decoding_length=max(most, 1),  # the end not counted: what has none gets one when it is scored
            min_decoding_length=settings.min_length,
            return_scores=True,
        )
        found = []
        for answer in answers:
            ids = [self._without_end(tokens)[:most] for tokens in answer.hypotheses]
            totals = [
                score * len(tokens) ** settings.length_penalty
                for tokens, score in zip(answer.hypotheses, answer.scores, strict=True)
            ]
            found.append([_hypothesis(*each, most, asked) for each in zip(ids, totals, strict=True)])
        return self._scored(texts, found, asked, most) if ruled or self._steps else found

    def _without_end(self, tokens: list[str]) -> list[int]:
        ids = [self._ids[token] for token in tokens]
        return ids[:-1] if ids and ids[-1] == END else ids

    def _scored(
        self, texts: list[list[str]], found: list[list[Hypothesis]], asked: _Asked, most: int
    ) -> list[list[Hypothesis]]:
        """The same hypotheses by the model's own probabilities, and the best of them: each once."""
        owners = [row for row, hypotheses in enumerate(found) for _ in hypotheses]
        ids = [hypothesis.tokens for hypotheses in found for hypothesis in hypotheses]
        words = [[self._target[number] for number in tokens] for tokens in ids]
        scored = self._engine.score_batch([texts[row] for row in owners], words, max_input_length=0)
        again: list[dict[tuple[int, ...], Hypothesis]] = [{} for _ in found]
        for row, tokens, result in zip(owners, ids, scored, strict=True):
            steps = [float(step) for step in result.log_probs]
            again[row][tuple(tokens)] = _hypothesis(tokens, math.fsum(steps), most, asked)._replace(steps=steps)
        return [sorted(each.values(), key=lambda one: -one.score)[: asked.results] for each in again]


class _Asked(NamedTuple):
    """What a search was asked for."""

    settings: DecodeConfig
    beams: int
    results: int
    prefixes: Sequence[Sequence[int]] | None


def _hypothesis(tokens: list[int], total: float, most: int, asked: _Asked) -> Hypothesis:
    count = len(tokens) + 1
    score = total / count**asked.settings.length_penalty
    return Hypothesis(tokens, score, total, len(tokens) < most, [total / count] * count)


def _name(folder: Path, config: ModelConfig, sides: Tokenizers) -> str:
    """What tells a converted model from others: equal weights in another shape are another model."""
    facts = [LAYOUT, checksum(folder / MODEL), sides.fingerprint, asdict(config)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _library() -> Any:
    try:
        import ctranslate2
    except ImportError as error:
        raise ConfigError("--engine ctranslate2 needs CTranslate2: pip install regard[fast]") from error
    return ctranslate2


# Converting.


def convert(model: Transformer, sides: Tokenizers, folder: Path) -> None:
    """Write a model as CTranslate2 reads it, in the precision it has."""
    spec = _spec(model.config)
    config = model.config
    for side, embedding, stack in (("encoder", model.source, model.encoder), ("decoder", model.target, model.decoder)):
        theirs = getattr(spec, side)
        _embed(theirs, theirs.embeddings[0] if side == "encoder" else theirs.embeddings, embedding, config)
        for layer, block in zip(theirs.layer, stack.blocks, strict=True):
            assert isinstance(block, Block)
            _block(layer, block, config)
        if stack.norm is not None:
            _norm(theirs.layer_norm, stack.norm)
    output = model.target.token.weight if model.output is None else model.output.weight
    _linear(spec.decoder.projection, output, model.output_bias)
    spec.register_source_vocabulary(_vocabulary(sides.source, config.vocabulary))
    spec.register_target_vocabulary(_vocabulary(sides.target, config.target_vocabulary_size))
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = (SPECIALS[i] for i in (START, END, UNKNOWN))
    spec.config.decoder_start_token = SPECIALS[START]
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


def _vocabulary(tokenizer: Tokenizer, size: int) -> list[str]:
    """The names of all ids; a model may have more than its tokenizer."""
    known = tokenizer.tokens(range(min(size, tokenizer.size)))
    return known + [f"<none {number}>" for number in range(len(known), size)]


def _spec(config: ModelConfig) -> Any:
    """An empty model of this shape."""
    from ctranslate2 import specs

    common: dict[str, Any] = {
        "pre_norm": config.norm_placement == "pre",
        "activation": specs.Activation[ACTIVATIONS[config.activation]],
        "layernorm_embedding": config.embedding_norm,
        "ffn_glu": config.gated,
        "rms_norm": config.norm == "rms",
        "num_heads_kv": config.kv_heads if config.kv_heads != config.heads else None,
    }
    if config.positions == "rotary":
        common |= {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": config.rotary_base}
    encoder = specs.TransformerEncoderSpec(config.encoder_layers, config.heads, **common)
    decoder = specs.TransformerDecoderSpec(config.decoder_layers, config.heads, **common)
    return specs.TransformerSpec(encoder, decoder)


def _embed(theirs: Any, tokens: Any, ours: Embedding, config: ModelConfig) -> None:
    tokens.weight = _plain(ours.token.weight)
    theirs.scale_embeddings = config.scale_embeddings
    if ours.position is not None:
        theirs.position_encodings.encodings = _plain(ours.position.weight)
    elif config.positions != "rotary":
        halves = config.positions == "sinusoidal_halves"
        theirs.position_encodings.encodings = _plain(sinusoidal(torch.arange(POSITIONS), config.size, halves=halves))
    if ours.norm is not None:
        _norm(theirs.layernorm_embedding, ours.norm)


def _block(theirs: Any, ours: Block, config: ModelConfig) -> None:
    _attention(theirs.self_attention, ours.attention, config, itself=True)
    _norm(theirs.self_attention.layer_norm, ours.attention_norm)
    if ours.cross is not None and ours.cross_norm is not None:
        _attention(theirs.attention, ours.cross, config, itself=False)
        _norm(theirs.attention.layer_norm, ours.cross_norm)
    _feed_forward(theirs.ffn, ours.feed_forward)
    _norm(theirs.ffn.layer_norm, ours.feed_forward_norm)


def _attention(theirs: Any, ours: MultiHead, config: ModelConfig, *, itself: bool) -> None:
    """They project what asks itself with one matrix, as we do, and else queries apart from keys and values."""
    weight, bias = ours.in_proj.weight, ours.in_proj.bias
    queries = ours.widths[0]
    parts = [slice(None)] if itself else [slice(0, queries), slice(queries, None)]
    for linear, part in zip(theirs.linear, parts, strict=False):
        _linear(linear, weight[part], None if bias is None else bias[part])
    _linear(theirs.linear[-1], ours.out_proj.weight, ours.out_proj.bias)
    if config.score_name == "dot":
        theirs.queries_scale = 1.0


def _feed_forward(theirs: Any, ours: FeedForward) -> None:
    weight, bias = ours.up_proj.weight, ours.up_proj.bias
    if ours.gated:
        half = len(weight) // 2
        _linear(theirs.linear_0, weight[:half], None if bias is None else bias[:half])
        _linear(theirs.linear_0_noact, weight[half:], None if bias is None else bias[half:])
    else:
        _linear(theirs.linear_0, weight, bias)
    _linear(theirs.linear_1, ours.down_proj.weight, ours.down_proj.bias)


def _linear(theirs: Any, weight: Tensor, bias: Tensor | None) -> None:
    theirs.weight = _plain(weight)
    if bias is not None:
        theirs.bias = _plain(bias)


def _norm(theirs: Any, ours: nn.Module) -> None:
    theirs.gamma = _plain(ours.weight)
    if getattr(ours, "bias", None) is not None:
        theirs.beta = _plain(ours.bias)


def _plain(tensor: Any) -> Tensor:
    copied: Tensor = tensor.detach().to("cpu", torch.float32).clone().contiguous()
    return copied
