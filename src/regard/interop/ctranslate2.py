"""CTranslate2: translate with a library made for fast inference on CPUs and GPUs.

Its output equals that of `TorchEngine` on nearly all sentences. CTranslate2 refills the beam when hypotheses end and
`TorchEngine` does not, which can matter where a model is unsure.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.multihead import MultiHead
from regard.config import DecodeConfig, ModelConfig
from regard.decoding import Encoded, Hypothesis, SearchOptions, TorchEngine
from regard.decoding.engine import Ids
from regard.errors import ConfigError, RegardError
from regard.folders import atomic_folder, cache, check_replaceable, checksum
from regard.interop.verification import SENTENCES, Texts, Verification, bleu_difference, search, verification_texts
from regard.models.blocks import Block
from regard.models.folder import MODEL, load_ensemble
from regard.models.layers import Embedding, FeedForward, position_table
from regard.models.transformer import Transformer
from regard.text.tokenizer import Tokenizer, Tokenizers

LAYOUT = 1  # version of the files that `convert` writes; a new number makes cached models obsolete
MAX_POSITIONS = 4096  # rows of the table of sinusoidal positions
PATIENCE = 1.5  # of the beam search: with 1 it missed the best hypothesis in 11 of 1,000 sentences, with 1.5 in none
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH", "swiglu": "SWISH"}
TYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}
SCORES = ("scaled_dot", "dot")
QUANTIZATIONS = ("float32", "float16", "int8", "int8_float32")
TOLERANCE = 1e-3  # of a log-probability in float32


def unsupported_reason(model: ModelConfig, decode: DecodeConfig) -> str:
    """Why CTranslate2 does not support a model; empty if it does."""
    if model.family != "transformer":
        return f"it supports only the family transformer, and this model is of the family {model.family}"
    if model.score_name not in SCORES:
        return f"it does not support model.score = {model.score_name}, only {' and '.join(SCORES)}"
    if decode.coverage_penalty:
        return "its coverage penalty reads one layer, and Regard's all of them: set decode.coverage_penalty=0"
    return ""


class CTranslate2Engine:
    """A model folder loaded by CTranslate2; `precision` is fp32, bf16, int8 or auto, which is fp32 on a CPU.

    Sampling and texts longer than the position table are left to the torch engine. With `token_scores`, the
    log-probability of every token is computed in one more pass over the output; without, every token gets their mean.
    """

    def __init__(
        self,
        folder: Path,
        torch_engine: TorchEngine,
        tokenizers: Tokenizers,
        *,
        precision: str,
        token_scores: bool,
    ) -> None:
        (model,) = torch_engine.models
        assert isinstance(model, Transformer)
        ctranslate2 = _library()
        device = "cuda" if next(model.parameters()).device.type == "cuda" else "cpu"
        compute_type = {"auto": "float32" if device == "cpu" else "float16", **TYPES}[precision]
        supported = ctranslate2.get_supported_compute_types(device)
        if compute_type not in supported:
            names = [name for name, kind in TYPES.items() if kind in supported]
            raise ConfigError(f"CTranslate2 computes in {' or '.join(names)} on this {device}, not in {precision}")
        self.converted = cache("ctranslate2") / _name(folder, model.config, tokenizers)
        if not self.converted.is_dir():
            with atomic_folder(self.converted, force=True) as new:
                convert(model, tokenizers, new)
        # Each thread translates a part of a batch: threads that share every matrix product wait for each other.
        threads = torch.get_num_threads()
        self._threads = threads if device == "cpu" else 1
        self._translator = ctranslate2.Translator(
            str(self.converted), device, compute_type=compute_type, inter_threads=self._threads, intra_threads=1
        )
        torch.set_num_threads(threads)  # CTranslate2 has set it to intra_threads: both use OpenMP
        self._torch_engine, self._settings = torch_engine, torch_engine.settings
        self._source = _vocabulary(tokenizers.source, model.config.vocabulary)
        self._target = _vocabulary(tokenizers.target, model.config.target_vocabulary_size)
        self._ids = {token: number for number, token in enumerate(self._target)}
        positions = model.config.max_positions if model.config.has_position_table else MAX_POSITIONS
        self._positions = None if model.config.positions == "rotary" else positions
        self._token_scores, self._special = token_scores, tokenizers.target.special

    def without_token_scores(self) -> CTranslate2Engine:
        """The same engine without the pass that computes the log-probability of every token."""
        engine = copy.copy(self)
        engine._token_scores = False
        return engine

    def search(
        self, sources: Ids, options: SearchOptions, encoded: list[Encoded] | None = None
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for each source, as `TorchEngine.search` returns them.

        CTranslate2 renormalizes the probabilities when tokens are forbidden and `TorchEngine` does not, so tokens are
        forbidden only in a second search of the sources where one was generated. CTranslate2 has one maximum length for
        a batch, so sources with an output above their own maximum are searched again too.
        """
        max_lengths = self._torch_engine.max_lengths(sources)
        too_long = self._positions is not None and max(*map(len, sources), 1 + max(max_lengths)) > self._positions
        if options.seed is not None or too_long:
            return self._torch_engine.search(sources, options, encoded)
        if options.prefixes is not None:
            max_lengths = [max(limit, len(prefix)) for limit, prefix in zip(max_lengths, options.prefixes, strict=True)]
        results = self._run(sources, list(range(len(sources))), options, max(max_lengths), forbid=False)
        rerun: dict[int, list[int]] = {}  # rows by maximum length
        for row, limit in enumerate(max_lengths):
            outputs = [hypothesis.tokens for hypothesis in results[row]]
            if any(
                len(tokens) >= limit or not set(self._special.never_generated).isdisjoint(tokens) for tokens in outputs
            ):
                rerun.setdefault(limit, []).append(row)
        for limit, rows in rerun.items():
            for row, hypotheses in zip(rows, self._run(sources, rows, options, limit, forbid=True), strict=True):
                results[row] = hypotheses
        return results

    def _run(
        self, sources: Ids, rows: list[int], options: SearchOptions, max_length: int, *, forbid: bool
    ) -> list[list[Hypothesis]]:
        """The hypotheses of some of the sources, with at most `max_length` tokens."""
        settings, prefixes = self._settings, options.prefixes
        constrained = forbid or prefixes is not None or settings.min_length > 0 or settings.no_repeat_ngram > 0
        texts = [[self._source[number] for number in sources[row]] for row in rows]
        prefix_tokens = (
            None if prefixes is None else [[self._target[number] for number in prefixes[row]] for row in rows]
        )
        answers = self._translator.translate_batch(
            texts,
            prefix_tokens,
            beam_size=options.beams,
            patience=PATIENCE,
            num_hypotheses=options.beams if constrained else options.results,
            length_penalty=settings.length_penalty,
            no_repeat_ngram_size=settings.no_repeat_ngram,
            suppress_sequences=[[self._target[number]] for number in self._special.never_generated] if forbid else None,
            return_end_token=True,  # so that it counts as a token, as in our search
            max_input_length=0,
            max_decoding_length=max(max_length, 1),  # without the end token, which scoring adds where it is missing
            min_decoding_length=settings.min_length,
            return_scores=True,
            max_batch_size=-(-len(texts) // self._threads),
        )
        candidates = []
        for answer in answers:
            outputs = [[self._ids[token] for token in tokens] for tokens in answer.hypotheses]
            ids = [[number for number in output if number != self._special.end][:max_length] for output in outputs]
            totals = [
                score * len(tokens) ** settings.length_penalty
                for tokens, score in zip(answer.hypotheses, answer.scores, strict=True)
            ]
            candidates.append([self._hypothesis(*pair, max_length) for pair in zip(ids, totals, strict=True)])
        if constrained or self._token_scores:
            return self._rescore(texts, candidates, options.results, max_length)
        return candidates

    def _rescore(
        self, texts: list[list[str]], candidates: list[list[Hypothesis]], results: int, max_length: int
    ) -> list[list[Hypothesis]]:
        """Score hypotheses with the unconstrained model, and return the best distinct ones."""
        owners = [row for row, hypotheses in enumerate(candidates) for _ in hypotheses]
        ids = [hypothesis.tokens for hypotheses in candidates for hypothesis in hypotheses]
        words = [[self._target[number] for number in tokens] for tokens in ids]
        size = -(-len(owners) // self._threads)
        scored = self._translator.score_batch(
            [texts[row] for row in owners], words, max_input_length=0, max_batch_size=size
        )
        rescored: list[dict[tuple[int, ...], Hypothesis]] = [{} for _ in candidates]
        for row, tokens, answer in zip(owners, ids, scored, strict=True):
            logs = [float(value) for value in answer.log_probs]
            hypothesis = self._hypothesis(tokens, math.fsum(logs), max_length)
            rescored[row][tuple(tokens)] = hypothesis._replace(log_probabilities=logs)
        return [
            sorted(hypotheses.values(), key=lambda hypothesis: -hypothesis.score)[:results] for hypotheses in rescored
        ]

    def _hypothesis(self, tokens: list[int], total: float, max_length: int) -> Hypothesis:
        count = len(tokens) + 1
        score = total / count**self._settings.length_penalty
        return Hypothesis(tokens, score, total, len(tokens) < max_length, [total / count] * count)


def _name(folder: Path, config: ModelConfig, tokenizers: Tokenizers) -> str:
    """The name of a converted model in the cache, a hash of weights, tokenizers and config."""
    facts = [LAYOUT, checksum(folder / MODEL), tokenizers.fingerprint, asdict(config)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _library() -> Any:
    try:
        import ctranslate2
    except ImportError as error:
        raise ConfigError("--engine ctranslate2 needs CTranslate2: pip install regard[fast]") from error
    return ctranslate2


# Exporting.


def export_ctranslate2(
    folder: Path, out: Path, *, quantization: str = "float32", force: bool = False, sentences: int = SENTENCES
) -> Verification:
    """Write a folder that any program with CTranslate2 can load, and compare it with the model on `sentences`.

    In float32 a difference above `TOLERANCE` is an error; the other types differ by their rounding.
    """
    if quantization not in QUANTIZATIONS:
        raise ConfigError(f"there is no CTranslate2 export in {quantization}, only in {', '.join(QUANTIZATIONS)}")
    (model,), tokenizers, config = load_ensemble(folder, "cpu", ("transformer",), "CTranslate2 does not run")
    if reason := unsupported_reason(config.model, config.decode):
        raise ConfigError(f"{folder} cannot be exported to CTranslate2: {reason}")
    assert isinstance(model, Transformer)
    ctranslate2 = _library()
    verification = Verification(reason="no sentences were asked for")
    with atomic_folder(out, force=force) as new:
        convert(model, tokenizers, new, quantization=quantization)
        tokenizers.save(new)
        if sentences:
            translator = ctranslate2.Translator(str(new), "cpu")  # in float32 where the CPU has no float16
            texts = verification_texts(folder, tokenizers, config, sentences)
            verification = _compare(model.float(), tokenizers, translator, texts)
            if quantization == "float32" and verification.difference > TOLERANCE:
                raise RegardError(
                    f"the exported model differs from {folder}: {verification}; the tolerance is {TOLERANCE:g}; "
                    "nothing was written"
                )
        (new / "card.md").write_text(_export_card(folder, quantization, verification), encoding="utf-8")
        check_replaceable(out, new)
    return verification


def _compare(model: Transformer, tokenizers: Tokenizers, translator: Any, texts: Texts) -> Verification:
    """Compare the greedy translations of both libraries and the log-probability of every token."""
    special, target = tokenizers.target.special, tokenizers.target
    ours = search(model, texts, special)
    words = [tokenizers.source.tokens(source) for source in texts.sources]
    answers = translator.translate_batch(
        words,
        beam_size=1,
        max_input_length=0,
        max_decoding_length=texts.length,
        suppress_sequences=[[token] for token in target.tokens(special.never_generated)],
    )
    names = _vocabulary(target, model.config.target_vocabulary_size)
    ids = {token: number for number, token in enumerate(names)}
    theirs = [[ids[token] for token in answer.hypotheses[0]] for answer in answers]
    outputs = [row.tokens for row in ours]
    scored = translator.score_batch(words, [target.tokens(output) for output in outputs], max_input_length=0)
    difference = max(
        abs(a - b)
        for row, answer in zip(ours, scored, strict=True)
        for a, b in zip(row.log_probabilities, answer.log_probs, strict=False)
    )
    return Verification(
        len(ours),
        difference,
        greedy=sum(one == other for one, other in zip(outputs, theirs, strict=True)),
        bleu=bleu_difference(outputs, theirs, texts.references, target),
        library="CTranslate2",
    )


def _export_card(folder: Path, quantization: str, verification: Verification) -> str:
    card = folder / "card.md"
    return (
        f"# {folder.resolve().name} for CTranslate2 ({quantization})\n\n## Verification\n\n{verification.sentence}\n"
        + (f"\n{card.read_text(encoding='utf-8')}" if card.exists() else "")
    )


# Converting.


def convert(model: Transformer, tokenizers: Tokenizers, folder: Path, *, quantization: str | None = None) -> None:
    """Write a model in CTranslate2's format, in its own precision or quantized.

    The weights are shared with the model until they are written one by one.
    """
    if quantization in ("int8", "int8_float32") and next(model.parameters()).dtype == torch.float32:
        model = copy.deepcopy(model)  # CTranslate2 multiplies weights in fp32 in place
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
    spec.register_source_vocabulary(_vocabulary(tokenizers.source, config.vocabulary))
    spec.register_target_vocabulary(_vocabulary(tokenizers.target, config.target_vocabulary_size))
    special = tokenizers.target.special
    names = tokenizers.target.tokens([special.start, special.end, special.unknown])
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = names
    spec.config.decoder_start_token = names[0]
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def _vocabulary(tokenizer: Tokenizer, size: int) -> list[str]:
    """The tokens of all ids; a model may have more ids than its tokenizer."""
    known = tokenizer.tokens(range(min(size, tokenizer.size)))
    return known + [f"<none {number}>" for number in range(len(known), size)]


def _spec(config: ModelConfig) -> Any:
    """An empty CTranslate2 model with this config."""
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
        table = position_table(config.positions, torch.arange(MAX_POSITIONS), config.size)
        theirs.position_encodings.encodings = _plain(table)
    if ours.norm is not None:
        _norm(theirs.layernorm_embedding, ours.norm)


def _block(theirs: Any, ours: Block, config: ModelConfig) -> None:
    _attention(theirs.self_attention, ours.attention, config, is_self=True)
    _norm(theirs.self_attention.layer_norm, ours.attention_norm)
    if ours.cross is not None and ours.cross_norm is not None:
        _attention(theirs.attention, ours.cross, config, is_self=False)
        _norm(theirs.attention.layer_norm, ours.cross_norm)
    _feed_forward(theirs.ffn, ours.feed_forward)
    _norm(theirs.ffn.layer_norm, ours.feed_forward_norm)


def _attention(theirs: Any, ours: MultiHead, config: ModelConfig, *, is_self: bool) -> None:
    """CTranslate2 joins queries, keys and values in one matrix; in cross-attention the queries have their own."""
    weight, bias = ours.in_proj.weight, ours.in_proj.bias
    queries = ours.widths[0]
    parts = [slice(None)] if is_self else [slice(0, queries), slice(queries, None)]
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
    plain: Tensor = tensor.detach().cpu().contiguous()
    return plain.float() if plain.dtype == torch.float64 else plain
