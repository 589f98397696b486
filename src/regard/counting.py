"""Count what a model costs: parameters by part, FLOPs, memory, training time and price; no weights are allocated.

S source tokens, T target tokens, B sentences in a batch.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from regard.config import Config, ModelConfig, find_config
from regard.errors import ConfigError, did_you_mean
from regard.results import Report, Table, counted, format_duration, with_unit

SENTENCE_TOKENS = 32  # default length of source and target
BATCH_SENTENCES = 32
TRAINING_TOKENS = 1e9
PRECISIONS = {"fp32": 4, "bf16": 2}  # bytes of a number


# Parameters

Shape = tuple[int, ...]
Tree = dict[str, Any]  # nested: a shape, or a Tree by name


@dataclass(frozen=True)
class Part:
    """A part of a model: a module, a parameter, or `times` equal layers."""

    name: str
    formula: str
    single: int  # parameters of one copy
    parts: tuple[Part, ...] = ()
    times: int = 1

    @property
    def total(self) -> int:
        return self.single * self.times

    def to_dict(self) -> dict[str, Any]:
        values = {"name": self.name, "total": self.total, "formula": self.formula}
        values |= {"times": self.times, "single": self.single} if self.times > 1 else {}
        values["parts"] = [part.to_dict() for part in self.parts]
        return {name: value for name, value in values.items() if value not in ("", [])}

    def rows(self, depth: int = 0) -> list[tuple[str, str, str]]:
        """The rows of the printed table: the part, and below it its parts."""
        formula = self.formula
        if self.times > 1:
            formula = f"{self.times} × ({formula})" if formula else f"{self.times} × {self.single:,}"
        row = ("  " * depth + self.name, formula, f"{self.total:,}")
        return [row, *chain.from_iterable(part.rows(depth + 1) for part in self.parts)]


def part_tree(config: ModelConfig) -> tuple[Part, ...]:
    """The parts of a model, from the names and shapes of its parameters on the meta device."""
    from regard.models import build  # torch is imported only when something is counted

    tree: Tree = {"output": {}}
    for name, parameter in build(config, "meta").named_parameters():
        branch = tree
        *path, leaf = _part_name(config, name).split(".")
        for step in path:
            branch = branch.setdefault(step, {})
        branch[leaf] = tuple(parameter.shape)
    output = tree.pop("output")
    parts = [_make_part(name, branch) for name, branch in tree.items()]
    if config.family != "bert":
        parts.append(_make_part("output", output) if output else Part("output", "tied to the embeddings", 0))
    return tuple(parts)


def _part_name(config: ModelConfig, name: str) -> str:
    """The name of a parameter in the tree of parts."""
    one_stack = not config.is_translator
    one_table = one_stack or config.tie_embeddings == "all"
    if match := re.match(r"(encoder|decoder)\.(blocks|norm)\.", name):
        part = {"blocks": "layers.", "norm": "final norm." if one_stack else "norm."}[match[2]]
        return ("" if one_stack else match[1] + ".") + part + name.removeprefix(match[0])
    parts = {
        "source.": "embeddings." if one_table else "source embeddings.",
        "target.": "embeddings." if one_stack else "target embeddings.",
        "query_proj.": "attention.query_proj.",
        "key_proj.": "attention.key_proj.",
        "score.": "attention.score.",
        "deep_output.": "output.deep_output.",
        "output_bias": "output.bias",
    }
    for prefix, part in parts.items():
        if name.startswith(prefix):
            return part + name.removeprefix(prefix)
    return name


def _make_part(name: str, branch: Tree | Shape) -> Part:
    if isinstance(branch, dict) and len(branch) == 1:
        return _make_part(name, *branch.values())
    shapes = [branch] if isinstance(branch, tuple) else list(branch.values())
    if isinstance(branch, tuple) or all(isinstance(shape, tuple) for shape in shapes):  # a module's weights and biases
        return Part(name, _formula(shapes), sum(map(math.prod, shapes)))
    parts = tuple(_make_part(key, value) for key, value in branch.items())
    if all(key.isdigit() for key in branch):
        if len({dataclasses.replace(part, name="") for part in parts}) == 1:
            return dataclasses.replace(parts[0], name=name, times=len(parts))
        parts = tuple(dataclasses.replace(part, name=f"layer {part.name}") for part in parts)
    return Part(name, "", sum(part.total for part in parts), parts)


def _formula(shapes: Sequence[Shape]) -> str:
    """The number of parameters as a sum of products, such as 768 × 3,072 + 3,072."""
    biased = any(len(shape) == 1 for shape in shapes)  # a linear layer: inputs × outputs + outputs
    terms = []
    for shape in dict.fromkeys(shapes):
        factors = [shapes.count(shape)] * (shapes.count(shape) > 1) + [*(reversed(shape) if biased else shape)]
        terms.append(" × ".join(f"{factor:,}" for factor in factors) or "1")
    return " + ".join(terms)


# FLOPs


@dataclass(frozen=True)
class Flops:
    """FLOPs of one sentence (pair): matrix products only, a multiply-add counts as two."""

    source: int
    target: int
    parts: Mapping[str, int]
    forward: int
    training: int  # forward and backward: the backward pass needs two products for each product of the forward pass
    forward_per_token: float
    training_per_token: float


def count_flops(config: ModelConfig, source: int, target: int) -> Flops:
    """FLOPs of a sentence of S source and T target tokens; for a bert or gpt, T is the length of the text."""
    source = source if config.is_translator else 0
    parts = (_rnn_flops if config.family == "rnn" else _transformer_flops)(config, source, target)
    forward = sum(parts.values())
    return Flops(source, target, parts, forward, 3 * forward, forward / target, 3 * forward / target)


def _transformer_flops(config: ModelConfig, source: int, target: int) -> dict[str, int]:
    size, keys = config.size, config.kv_heads * config.head_size
    score = 2 * size * config.head_size if config.score_name == "general" else 0  # q W of one token
    projections = 2 * (2 * size * size + 2 * size * keys) + score  # query, output, key and value of one token
    feed_forward = 2 * (3 if config.gated else 2) * size * config.feed_forward_size
    pair = 4 * size  # one query and one key: the score and the weighted sum

    def layers(number: int, tokens: int) -> int:
        return number * tokens * (projections + feed_forward + pair * tokens)

    if config.family == "bert":
        head = target * 2 * size * (size + config.vocabulary) if config.mlm_head else 0
        pooler = 2 * size * size * config.pooler
        return {"layers": layers(config.encoder_layers, target), "pooler": pooler, "head": head}
    logits = target * 2 * size * config.target_vocabulary_size
    if config.family == "gpt":
        return {"layers": layers(config.decoder_layers, target), "output": logits}
    queries, memory = 2 * 2 * size * size + score, 2 * 2 * size * keys
    cross = config.decoder_layers * (target * (queries + pair * source) + source * memory)
    encoder, decoder = layers(config.encoder_layers, source), layers(config.decoder_layers, target)
    return {"encoder": encoder, "decoder": decoder, "cross attention": cross, "output": logits}


def _rnn_flops(config: ModelConfig, source: int, target: int) -> dict[str, int]:
    size, width, context = config.size, config.embedding_size, config.encoder_state_size
    gates, directions = 3 if config.cell == "gru" else 4, 2 if config.bidirectional else 1
    inputs = width + (config.encoder_layers - 1) * context + config.encoder_layers * config.direction_size
    encoder = source * directions * 2 * gates * config.direction_size * inputs
    first = width + (context if config.feed == "input" else 0)
    decoder = target * 2 * gates * size * (first + (config.decoder_layers - 1) * size + config.decoder_layers * size)
    states = config.decoder_layers * (1 if config.cell == "gru" else 2)
    bridge = 2 * states * size * (config.direction_size if config.score != "none" else context)
    score, attention = config.score_name, 0
    if score != "none":  # the scores and the weighted sums, then the projections
        attention = target * source * 2 * ((size if score == "additive" else context) + context)
        projections = {"additive": target * size + source * context, "general": target * context}
        attention += 2 * size * projections.get(score, 0)
    deep_inputs = 2 * (size + width + context) if config.feed == "input" else size + context
    output = target * 2 * config.deep_output_size * (deep_inputs + config.target_vocabulary_size)
    return {"encoder": encoder, "bridge": bridge, "attention": attention, "decoder": decoder, "output": output}


# Memory


@dataclass(frozen=True)
class Memory:
    """Bytes of a training run and of the caches in decoding."""

    precision: str
    batch: int
    weights: int
    gradients: int
    optimizer: int
    activations: int  # an estimate: what the backward pass needs of one batch, without the allocator's overhead
    cache_per_token: int  # in decoding: keys and values of one more target token, per hypothesis
    cache_per_source_token: int
    training: int  # weights, gradients, optimizer and activations


def estimate_memory(
    config: ModelConfig, parameters: int, batch: int, source: int, target: int, precision: str
) -> Memory:
    """Memory for B pairs in a batch. In bf16 the master weights, gradients and Adam's two averages stay in fp32."""
    bytes_each = PRECISIONS[precision]
    count_activations = _rnn_activations if config.family == "rnn" else _activations
    low, fp32 = count_activations(config, source, target)
    keys = 2 * config.decoder_layers * config.kv_heads * config.head_size
    cache = keys if config.family in ("transformer", "gpt") else 0
    source_cache = keys if config.family == "transformer" else 0
    if config.family == "rnn" and config.score != "none":
        source_cache = config.encoder_state_size + (config.size if config.score_name == "additive" else 0)
    weights, gradients, optimizer = parameters * (4 if precision == "fp32" else 6), 4 * parameters, 8 * parameters
    activations = batch * (bytes_each * low + 4 * fp32)
    training = weights + gradients + optimizer + activations
    caches = bytes_each * cache, bytes_each * source_cache
    return Memory(precision, batch, weights, gradients, optimizer, activations, *caches, training)


def _activations(config: ModelConfig, source: int, target: int) -> tuple[int, int]:
    """Activations that autograd keeps per sentence, dropout masks included.

    Returns two counts: those in the training precision, and those that are always fp32 (norms and the loss). In fp32
    the loss reuses the memory of the logits; in bf16 both are held.
    """
    size, keys = config.size, config.kv_heads * config.head_size
    inner = config.feed_forward_size * {"relu": 1, "swiglu": 4}.get(config.activation, 2)
    scores = size if config.score_name == "additive" else 0  # of one query and one key; fused kernels keep none
    layer = 7 * size + 2 * keys + inner  # query, key, value, context, inputs of products and masks of one token
    norms = 2 * size
    if config.family == "bert":
        low = target * (config.encoder_layers * (layer + scores * target) + 4 * size)
        fp32 = target * (config.encoder_layers * norms + size + config.mlm_head * (size + config.vocabulary))
        return low, fp32
    low = target * (config.decoder_layers * (layer + scores * target) + 2 * size)
    fp32 = target * (config.decoder_layers * norms + config.target_vocabulary_size + size)
    if config.family == "transformer":
        low += source * (config.encoder_layers * (layer + scores * source) + 2 * size)
        low += config.decoder_layers * (target * (5 * size + scores * source) + source * 2 * keys)
        fp32 += source * config.encoder_layers * norms + target * config.decoder_layers * size
    return low, fp32


def _rnn_activations(config: ModelConfig, source: int, target: int) -> tuple[int, int]:
    size, width, context = config.size, config.embedding_size, config.encoder_state_size
    state = 7 if config.cell == "gru" else 10  # gates and states of one step, per number of the state
    encoder = source * (2 * width + config.encoder_layers * (state + 3) * context)
    decoder = target * (2 * width + config.decoder_layers * (state + 2) * size)
    attention = source * target * size if config.score_name == "additive" else target * (context + size)
    output = target * (size + context + 4 * config.deep_output_size)
    fp32 = target * config.target_vocabulary_size + (attention if config.score != "none" else 0)
    if config.feed == "input" and config.score != "none":  # decoded step by step, without a fused kernel: in fp32
        return encoder + output, fp32 + decoder
    return encoder + decoder + output, fp32


# Time


@dataclass(frozen=True)
class Hardware:
    """A device from its data sheet, or a CPU as measured: dense peak in TFLOP/s, memory in GB, bandwidth in TB/s."""

    fp32: float
    bf16: float
    memory: float
    bandwidth: float
    source: str
    matrix_share: float = 0.73  # the share of the peak that matrix products reach
    activation_passes: float = 8.3  # how many times an update reads or writes all activations of a batch


# The defaults fit the measured speed of transformer-base, transformer-big and gpt2 on an H200 within 9 % (RECORDS.md).
HARDWARE = {
    "h200": Hardware(67, 989, 141, 4.8, "NVIDIA H200 SXM data sheet"),
    "h100": Hardware(67, 989, 80, 3.35, "NVIDIA H100 SXM data sheet"),
    "a100": Hardware(19.5, 312, 80, 2.039, "NVIDIA A100 80GB SXM data sheet"),
    "l4": Hardware(30.3, 121, 24, 0.3, "NVIDIA L4 data sheet"),
    "v100": Hardware(15.7, 125, 32, 0.9, "NVIDIA V100 data sheet (fp16 in place of bf16)"),
    "t4": Hardware(8.1, 65, 16, 0.32, "NVIDIA T4 data sheet (fp16 in place of bf16)"),
    "rtx4090": Hardware(82.6, 165.2, 24, 1.008, "NVIDIA Ada whitepaper"),
    "rtx3090": Hardware(35.6, 71, 24, 0.936, "NVIDIA Ampere GA102 whitepaper"),
}
CPU_PASSES = 26.0  # on a CPU, where the steps of a layer are not compiled into one; fits two cores (RECORDS.md)


@functools.cache
def find_hardware(name: str) -> Hardware:
    """A device of the table, or `cpu`: this machine, measured in about a second."""
    if name != "cpu":
        if name not in HARDWARE:
            raise ConfigError(f"There is no hardware {name}.{did_you_mean(name, [*HARDWARE, 'cpu'])}")
        return HARDWARE[name]
    from regard.devices import measure_cpu  # torch is imported only when something is counted

    speed = measure_cpu()
    memory = math.inf  # on Windows, which does not tell
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    source = f"measured with {counted(speed.threads, 'thread')}"
    fp32, bandwidth = speed.fp32 / 1e12, speed.bandwidth / 1e12
    return Hardware(fp32, math.nan, memory, bandwidth, source, matrix_share=1.0, activation_passes=CPU_PASSES)


@dataclass(frozen=True)
class Time:
    """The time to train on a number of target tokens: that of matrix products plus that of moving activations."""

    hardware: str
    devices: int
    tokens: float
    price: float | None
    seconds: float
    tokens_per_second: float
    utilisation: float  # the share of the peak FLOP/s that training reaches (model FLOPs utilisation, MFU)
    device_hours: float
    cost: float | None


def estimate_time(
    flops: Flops, memory: Memory, hardware: str, devices: int, tokens: float, price: float | None
) -> Time:
    """The time and the cost of training on a number of target tokens."""
    device, work = find_hardware(hardware), flops.training_per_token
    peak: float = getattr(device, memory.precision) * 1e12
    activations = memory.activations / (memory.batch * flops.target)
    moving = device.activation_passes * activations / (device.bandwidth * 1e12)
    rate = devices / (work / (device.matrix_share * peak) + moving)
    hours = devices * tokens / rate / 3600
    cost = hours * price if price else None
    return Time(hardware, devices, tokens, price, tokens / rate, rate, rate * work / (devices * peak), hours, cost)


# Count


@dataclass(frozen=True)
class Count(Report):
    """Parameters, FLOPs and memory of a model; `total` is its number of parameters."""

    name: str
    config: ModelConfig
    tree: tuple[Part, ...]
    flops: Flops
    memory: Memory
    time: Time | None  # None without hardware

    @property
    def total(self) -> int:
        """Parameters of the model; those that are shared count once."""
        return sum(part.total for part in self.tree)

    @property
    def parts(self) -> dict[str, int]:
        """Parameters of the top-level parts."""
        return {part.name: part.total for part in self.tree}

    def to_dict(self) -> dict[str, Any]:
        tree = [part.to_dict() for part in self.tree]
        values: dict[str, Any] = {
            "name": self.name,
            "parameters": {"total": self.total, "parts": self.parts, "tree": tree},
            "flops": dataclasses.asdict(self.flops),
            "memory": dataclasses.asdict(self.memory),
        }
        return values | ({"time": dataclasses.asdict(self.time)} if self.time else {})

    def tables(self) -> list[Table]:
        rows = [row for part in self.tree for row in part.rows()]
        rows.append(("total", "", f"{self.total:,}"))
        flops, memory, time = self.flops, self.memory, self.time
        tokens = f"{flops.source} source and {flops.target} target tokens" if flops.source else f"{flops.target} tokens"
        weights = "fp32" if memory.precision == "fp32" else "fp32 master weights and bf16 copies"
        costs = [
            (f"FLOPs per token, forward, in a sentence of {tokens}", with_unit(flops.forward_per_token, "FLOP")),
            ("FLOPs per token, forward and backward", with_unit(flops.training_per_token, "FLOP")),
            (f"weights: {weights}", with_unit(memory.weights, "B")),
            ("gradients: fp32", with_unit(memory.gradients, "B")),
            ("optimizer: Adam's two averages, fp32", with_unit(memory.optimizer, "B")),
            (f"activations, about, for a batch of {memory.batch} sentences", with_unit(memory.activations, "B")),
            ("memory for training", with_unit(memory.training, "B")),
            ("cache per target token and hypothesis", with_unit(memory.cache_per_token, "B")),
            ("cache per source token", with_unit(memory.cache_per_source_token, "B")),
        ]
        costs = [row for row in costs if row[1] != "0 B"]
        if time is not None:
            device = find_hardware(time.hardware)
            speed = f"{time.utilisation:.0%} of the peak of {time.devices} × {time.hardware}"
            fits = "fits" if memory.training <= device.memory * 1e9 else "does not fit"
            costs += [
                (f"time for {time.tokens:,.0f} target tokens at {speed}", format_duration(time.seconds)),
                ("target tokens per second", f"{time.tokens_per_second:,.0f}"),
                (
                    f"memory of one {time.hardware}, which this batch {fits} ({device.source})",
                    f"{device.memory:.4g} GB",
                ),
            ]
            if time.cost is not None:
                costs.append((f"cost at {time.price:g} per device and hour", f"{time.cost:,.2f}"))
        title = f"{self.name}: {self.total:,} parameters"
        return [Table(("part", "formula", "parameters"), rows, title), Table(("", ""), costs)]


def count(
    model: str | Path | Config | ModelConfig,
    *,
    values: Iterable[str] | Mapping[str, Any] = (),
    source: int | None = None,
    target: int | None = None,
    batch: int = BATCH_SENTENCES,
    precision: str | None = None,
    hardware: str | None = None,
    tokens: float = TRAINING_TOKENS,
    devices: int = 1,
    price: float | None = None,
) -> Count:
    """Count the parameters of a preset, recipe, model folder or config, and estimate FLOPs, memory, time and cost.

    `values` are `section.field=value` or a mapping. By default a sentence has 32 source and 32 target tokens; a text
    fills the context of a bert or gpt. The precision is bf16, or fp32 on a CPU. Time and cost (`price` per device and
    hour) need `hardware`.
    """
    if price and not hardware:
        raise ConfigError("price needs hardware, to know how fast a device is")
    precision = precision or ("fp32" if hardware == "cpu" else "bf16")
    if hardware == "cpu" and precision != "fp32":
        raise ConfigError(f"hardware cpu is measured in fp32, as models are trained there, not in {precision}")
    if precision not in PRECISIONS:
        raise ConfigError(f"There is no precision {precision}.{did_you_mean(precision, PRECISIONS)}")
    lengths = {"source": (source, 1, 1e6), "target": (target, 1, 1e6), "batch": (batch, 1, 1e9)}
    costs = {"tokens": (tokens, 1, 1e30), "devices": (devices, 1, 1e6), "price": (price, 0, 1e9)}
    for option, (number, low, high) in {**lengths, **costs}.items():
        if number is not None and not (isinstance(number, int | float) and low <= number <= high):
            raise ConfigError(f"{option} ({number}) must be from {low:g} to {high:g}")
    if isinstance(model, ModelConfig):
        model = Config(model=model)
    config = (model if isinstance(model, Config) else find_config(str(model))).with_values(values).model
    default = SENTENCE_TOKENS
    if config.has_position_table:
        longest = max(target or 0, (source or 0) if config.family == "transformer" else 0)
        if longest > config.max_positions:
            limit = f"model.max_positions ({config.max_positions})"
            raise ConfigError(f"a sentence of {longest} tokens is longer than {limit}")
        default = min(default, config.max_positions)
    source, target = source or default, target or (default if config.is_translator else config.max_positions)
    tree, flops = part_tree(config), count_flops(config, source, target)
    total = sum(part.total for part in tree)
    memory = estimate_memory(config, total, batch, source if config.is_translator else 0, target, precision)
    time = estimate_time(flops, memory, hardware, devices, tokens, price) if hardware else None
    return Count(config.family if isinstance(model, Config) else str(model), config, tree, flops, memory, time)
