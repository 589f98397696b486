"""Accounting: parameters by part, FLOPs, bytes and time, by formula; nothing is allocated and torch is not imported.

S source tokens, T target tokens, B sentences in a batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Config, ModelConfig, find_config
from regard.errors import ConfigError, FolderError, did_you_mean

# Parameters


@dataclass(frozen=True)
class Part:
    """A named part of a model: its own parameters by a formula, or those of its parts, `times` over."""

    name: str
    formula: str = ""
    own: int = 0
    parts: tuple[Part, ...] = ()
    times: int = 1
    where: tuple[str, ...] = ()
    """Prefixes of the names its parameters have in the built model."""

    @property
    def each(self) -> int:
        return self.own + sum(part.total for part in self.parts)

    @property
    def total(self) -> int:
        return self.each * self.times

    def as_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {"name": self.name, "total": self.total}
        if self.formula:
            values["formula"] = self.formula
        if self.times > 1:
            values |= {"times": self.times, "each": self.each}
        if self.parts:
            values["parts"] = [part.as_dict() for part in self.parts]
        return values


@dataclass(frozen=True)
class Count:
    """The parameters of a model, by part."""

    name: str
    config: ModelConfig
    tree: tuple[Part, ...]

    @property
    def total(self) -> int:
        return sum(part.total for part in self.tree)

    @property
    def parts(self) -> dict[str, int]:
        return {part.name: part.total for part in self.tree}

    @property
    def remarks(self) -> list[str]:
        """What a reader of the number should know."""
        return _remarks(self)

    def as_dict(self) -> dict[str, Any]:
        tree = [part.as_dict() for part in self.tree]
        return {"total": self.total, "parts": self.parts, "tree": tree, "remarks": self.remarks}


def count(model: str | Path | Config | ModelConfig) -> Count:
    """The parameters of a preset, a recipe, a folder or a config, by formula."""
    if isinstance(model, ModelConfig):
        return Count(model.family, model, FAMILIES[model.family](model))
    config = model if isinstance(model, Config) else find_config(str(model))
    name = config.model.family if isinstance(model, Config) else str(model)
    return Count(name, config.model, FAMILIES[config.model.family](config.model))


def _matrix(name: str, inputs: int, outputs: int, bias: bool = True, **kwargs: Any) -> Part:
    formula = f"{inputs:,} × {outputs:,}" + (f" + {outputs:,}" if bias else "")
    return Part(name, formula, inputs * outputs + (outputs if bias else 0), **kwargs)


def _table(name: str, rows: int, size: int, **kwargs: Any) -> Part:
    return Part(name, f"{rows:,} × {size:,}", rows * size, **kwargs)


def _vector(name: str, size: int, **kwargs: Any) -> Part:
    return Part(name, f"{size:,}", size, **kwargs)


def _norm(config: ModelConfig, name: str = "norm", **kwargs: Any) -> Part:
    if config.norm == "rms":
        return Part(name, f"{config.size:,}", config.size, **kwargs)
    return Part(name, f"2 × {config.size:,}", 2 * config.size, **kwargs)


def _embeddings(
    config: ModelConfig, name: str, vocabulary: int, where: str, types: int = 0, norm: bool = False
) -> Part:
    parts = [_table("tokens", vocabulary, config.size)]
    if config.has_position_table:
        parts.append(_table("positions", config.max_positions, config.size))
    if types:
        parts.append(_table("types", types, config.size))
    if norm:
        parts.append(_norm(config))
    return Part(name, parts=tuple(parts), where=(where,))


def _sides(config: ModelConfig) -> list[tuple[str, int, str]]:
    if config.tie_embeddings == "all":
        return [("embeddings", config.vocabulary, "source.")]
    source = ("source embeddings", config.vocabulary, "source.")
    return [source, ("target embeddings", config.target_vocabulary_size, "target.")]


def _attention(config: ModelConfig, name: str) -> Part:
    size, keys = config.size, config.kv_heads * config.head_size
    parts = [
        _matrix("query", size, size, config.bias),
        _matrix("key", size, keys, config.bias),
        _matrix("value", size, keys, config.bias),
        _matrix("join", size, size, config.bias),
    ]
    head = config.head_size
    if config.score_name == "additive":
        parts.append(Part("score", f"v, b: 2 × {head:,}", 2 * head))
    elif config.score_name == "general":
        parts.append(_matrix("score", head, head, bias=False))
    elif config.score_name == "cosine":
        parts.append(Part("score", "temperature", 1))
    return Part(name, parts=tuple(parts))


def _layer(config: ModelConfig, name: str, times: int, cross: bool, where: str) -> Part:
    inner = config.feed_forward_size
    widen = [_matrix("gate", config.size, inner, config.bias)] if config.gated else []
    widen += [_matrix("widen", config.size, inner, config.bias), _matrix("narrow", inner, config.size, config.bias)]
    parts = [_attention(config, "attention")]
    if cross:
        parts.append(_attention(config, "cross attention"))
    parts.append(Part("feed-forward", parts=tuple(widen)))
    parts.append(Part("norms", parts=(_norm(config, "norm", times=3 if cross else 2),)))
    return Part(name, parts=tuple(parts), times=times, where=(where,))


def _final_norm(config: ModelConfig, where: str) -> tuple[Part, ...]:
    return (_norm(config, "final norm", where=(where,)),) if config.norm_placement == "pre" else ()


def _output(config: ModelConfig, size: int, bias: bool) -> Part:
    parts = []
    if config.tie_embeddings == "none":
        parts.append(_matrix("matrix", size, config.target_vocabulary_size, bias=False))
    if bias:
        parts.append(_vector("bias", config.target_vocabulary_size))
    formula = "" if config.tie_embeddings == "none" else "the embeddings once more (tied)"
    return Part("output", formula, parts=tuple(parts), where=("output",))


def _transformer(config: ModelConfig) -> tuple[Part, ...]:
    norm = config.embedding_norm
    embeddings = [_embeddings(config, name, vocabulary, where, norm=norm) for name, vocabulary, where in _sides(config)]
    encoder = (_layer(config, "layers", config.encoder_layers, cross=False, where="encoder.blocks."),)
    decoder = (_layer(config, "layers", config.decoder_layers, cross=True, where="decoder.blocks."),)
    return (
        *embeddings,
        Part("encoder", parts=encoder + _final_norm(config, "encoder.norm."), where=("encoder.",)),
        Part("decoder", parts=decoder + _final_norm(config, "decoder.norm."), where=("decoder.",)),
        _output(config, config.size, config.output_bias),
    )


def _gpt(config: ModelConfig) -> tuple[Part, ...]:
    return (
        _embeddings(config, "embeddings", config.vocabulary, "target.", norm=config.embedding_norm),
        _layer(config, "layers", config.decoder_layers, cross=False, where="decoder.blocks."),
        *_final_norm(config, "decoder.norm."),
        _output(config, config.size, config.output_bias),
    )


def _bert(config: ModelConfig) -> tuple[Part, ...]:
    parts = [
        _embeddings(config, "embeddings", config.vocabulary, "source.", types=config.token_types, norm=True),
        _layer(config, "layers", config.encoder_layers, cross=False, where="encoder.blocks."),
        *_final_norm(config, "encoder.norm."),
    ]
    if config.pooler:
        parts.append(_matrix("pooler", config.size, config.size, where=("pooler.",)))
    if config.mlm_head:
        parts.append(_masked_head(config))
    return tuple(parts)


def _masked_head(config: ModelConfig) -> Part:
    dense = _matrix("dense", config.size, config.size)
    return Part("head", parts=(dense, _norm(config), _vector("bias", config.vocabulary)), where=("head.",))


def _recurrent(config: ModelConfig, inputs: int, size: int, name: str, times: int = 1) -> Part:
    gates = _gates(config)
    formula = f"{gates} gates × {size:,} × ({inputs:,} + {size:,} + 2)"
    return Part(name, formula, gates * size * (inputs + size + 2), times=times)


def _gates(config: ModelConfig) -> int:
    return 3 if config.cell == "gru" else 4


def _rnn(config: ModelConfig) -> tuple[Part, ...]:
    size, width, context = config.size, config.embedding_size, config.encoder_state_size
    attends, directions = config.score != "none", 2 if config.bidirectional else 1
    into_cell = config.feed == "input"
    embeddings = [_table(name, vocabulary, width, where=(where,)) for name, vocabulary, where in _sides(config)]
    encoder = tuple(
        _recurrent(config, width if i == 0 else context, config.direction_size, f"layer {i}", directions)
        for i in range(config.encoder_layers)
    )
    first = width + (context if into_cell else 0)
    decoder = tuple(
        _recurrent(config, first if i == 0 else size, size, f"layer {i}") for i in range(config.decoder_layers)
    )
    states = config.decoder_layers * (1 if config.cell == "gru" else 2)
    bridge = _matrix("bridge", config.direction_size if attends else context, states * size, where=("bridge.",))
    attention = _rnn_attention(config)
    if into_cell:
        deep = _matrix("maxout", size + width + context, 2 * config.deep_output_size)
    else:
        deep = _matrix("first layer", context + size, config.deep_output_size)
    logits = _output(config, config.deep_output_size, bias=True)
    output = Part("output", logits.formula, parts=(deep, *logits.parts), where=("deep_output.", "output"))
    return (
        *embeddings,
        Part("encoder", parts=encoder, where=("encoder.",)),
        bridge,
        *attention,
        Part("decoder", parts=decoder, where=("decoder.",)),
        output,
    )


def _rnn_attention(config: ModelConfig) -> tuple[Part, ...]:
    size, context = config.size, config.encoder_state_size
    parts: dict[str, tuple[Part, ...]] = {
        "additive": (
            _matrix("W_s", size, size, bias=False),
            _matrix("W_h", context, size, bias=False),
            Part("v, b", f"2 × {size:,}", 2 * size),
        ),
        "general": (_matrix("W", size, context, bias=False),),
        "cosine": (Part("temperature", "1", 1),),
    }
    if config.score_name not in parts:
        return ()
    return (Part("attention", parts=parts[config.score_name], where=("query_proj.", "key_proj.", "score.")),)


FAMILIES = {"rnn": _rnn, "transformer": _transformer, "bert": _bert, "gpt": _gpt}


def _remarks(counted: Count) -> list[str]:
    config, remarks = counted.config, []
    if config.family == "bert" and not config.mlm_head:
        remarks.append(f"with the tied masked-token head: {counted.total + _masked_head(config).total:,}")
    if config.family == "bert" and counted.total == 109_482_240:
        remarks.append(
            "a much-copied count of 109,786,368 gives each of the 12 heads a bias of 768 numbers; a head has 64, so "
            "12 layers × 3 projections × (12 × 768 − 768) = 304,128 are counted that do not exist"
        )
    for total, rounded in ((63_082_496, "65 M"), (214_245_376, "213 M")):
        if config.family == "transformer" and counted.total == total:
            remarks.append(f"the paper's table has {rounded}, rounded")
    return remarks


# Work


@dataclass(frozen=True)
class Work:
    """Floating-point operations of one sentence (pair), forward: matrix products only, a multiply and an add as two."""

    source: int
    target: int
    parts: Mapping[str, int]

    @property
    def forward(self) -> int:
        return sum(self.parts.values())

    @property
    def training(self) -> int:
        """Forward and backward: the backward pass does each product twice more."""
        return 3 * self.forward

    def as_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "forward": self.forward,
            "training": self.training,
            "forward_per_token": self.forward / self.target,
            "training_per_token": self.training / self.target,
            "parts": dict(self.parts),
        }


def work(config: ModelConfig, source: int, target: int) -> Work:
    """What one sentence of S source and T target tokens costs; of a bert or gpt T is the length of the text."""
    if config.family == "rnn":
        return Work(source, target, _rnn_work(config, source, target))
    size, keys = config.size, config.kv_heads * config.head_size
    turn = 2 * size * config.head_size if config.score_name == "general" else 0  # q W of one token
    project = 2 * (2 * size * size + 2 * size * keys) + turn  # query, join, key and value of one token
    inner = 2 * (3 if config.gated else 2) * size * config.feed_forward_size
    look = 4 * size  # one query on one key: the score and the sum
    if config.family == "bert":
        layers = config.encoder_layers * target * (project + inner + look * target)
        head = target * 2 * size * (size + config.vocabulary) if config.mlm_head else 0
        return Work(0, target, {"layers": layers, "pooler": 2 * size * size * config.pooler, "head": head})
    logits = target * 2 * size * config.target_vocabulary_size
    if config.family == "gpt":
        layers = config.decoder_layers * target * (project + inner + look * target)
        return Work(0, target, {"layers": layers, "output": logits})
    encoder = config.encoder_layers * source * (project + inner + look * source)
    ask, remember = 2 * 2 * size * size + turn, 2 * 2 * size * keys
    cross = config.decoder_layers * (target * (ask + look * source) + source * remember)
    decoder = config.decoder_layers * target * (project + inner + look * target)
    return Work(source, target, {"encoder": encoder, "decoder": decoder, "cross attention": cross, "output": logits})


def _rnn_work(config: ModelConfig, source: int, target: int) -> dict[str, int]:
    size, width, context, gates = config.size, config.embedding_size, config.encoder_state_size, _gates(config)
    directions = 2 if config.bidirectional else 1
    reading = width + (config.encoder_layers - 1) * context + config.encoder_layers * config.direction_size
    encoder = source * directions * 2 * gates * config.direction_size * reading
    first = width + (context if config.feed == "input" else 0)
    decoder = target * 2 * gates * size * (first + (config.decoder_layers - 1) * size + config.decoder_layers * size)
    states = config.decoder_layers * (1 if config.cell == "gru" else 2)
    bridge = 2 * states * size * (config.direction_size if config.score != "none" else context)
    attention = 0
    if config.score != "none":
        attention = target * source * 2 * (size if config.score_name == "additive" else context)  # the scores
        attention += target * source * 2 * context  # the contexts
    if config.score_name == "additive":
        attention += target * 2 * size * size + source * 2 * size * context
    elif config.score_name == "general":
        attention += target * 2 * size * context
    if config.feed == "input":
        deep = target * 2 * (size + width + context) * 2 * config.deep_output_size
    else:
        deep = target * 2 * (size + context) * config.deep_output_size
    output = deep + target * 2 * config.deep_output_size * config.target_vocabulary_size
    return {"encoder": encoder, "bridge": bridge, "attention": attention, "decoder": decoder, "output": output}


# Bytes

PRECISIONS = {"fp32": 4, "bf16": 2}


@dataclass(frozen=True)
class Bytes:
    """Memory of a training run and of decoding, in bytes."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """An estimate: what the backward pass needs of one batch, without the allocator's slack."""
    cache_per_token: int
    """Of decoding: what one more target token adds to the keys and values held, per hypothesis."""
    cache_per_source_token: int

    @property
    def training(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations

    def as_dict(self) -> dict[str, int]:
        return {**self.__dict__, "training": self.training}


def memory(config: ModelConfig, parameters: int, batch: int, source: int, target: int, precision: str) -> Bytes:
    """What a batch of B pairs needs. In bf16 the master weights, gradients and Adam's two averages stay in fp32."""
    if precision not in PRECISIONS:
        raise ConfigError(f"There is no precision {precision}.{did_you_mean(precision, PRECISIONS)}")
    number = PRECISIONS[precision]
    weights = parameters * (4 if precision == "fp32" else 6)
    return Bytes(
        weights=weights,
        gradients=4 * parameters,
        optimizer=8 * parameters,
        activations=batch * _activations(config, source, target).bytes(number),
        cache_per_token=number * _cache(config),
        cache_per_source_token=number * _source_cache(config),
    )


def _cache(config: ModelConfig) -> int:
    if config.family in ("rnn", "bert"):
        return 0
    return 2 * config.decoder_layers * config.kv_heads * config.head_size


def _source_cache(config: ModelConfig) -> int:
    if config.family == "rnn":
        if config.score == "none":
            return 0
        return config.encoder_state_size + (config.size if config.score_name == "additive" else 0)
    return _cache(config) if config.family == "transformer" else 0


@dataclass(frozen=True)
class Kept:
    """Numbers the backward pass needs: those autocast narrows, and those that stay wide (norms, the loss)."""

    narrow: int
    wide: int

    def bytes(self, number: int) -> int:
        # In fp32 the loss reuses the logits' place; in bf16 both the narrow logits and the wide ones are held.
        return number * self.narrow + 4 * self.wide


def _activations(config: ModelConfig, source: int, target: int) -> Kept:
    """What is kept per sentence, counted on what the operations save, dropout masks included."""
    size, inner, head = config.size, config.feed_forward_size, config.kv_heads * config.head_size
    if config.family == "rnn":
        return _rnn_activations(config, source, target)
    feed = inner * {"relu": 1, "swiglu": 4}.get(config.activation, 2)
    formed = 0 if config.score_name != "additive" else config.heads * config.head_size
    layer = 7 * size + 2 * head + feed  # a token's query, key, value, context, what goes into products, masks
    norms = 2 * size
    if config.family == "bert":
        narrow = target * (config.encoder_layers * (layer + formed * target) + 4 * size)
        wide = target * (config.encoder_layers * norms + size + config.mlm_head * (size + config.vocabulary))
        return Kept(narrow, wide)
    if config.family == "gpt":
        narrow = target * (config.decoder_layers * (layer + formed * target) + 2 * size)
        return Kept(narrow, target * (config.decoder_layers * norms + config.target_vocabulary_size + size))
    narrow = source * (config.encoder_layers * (layer + formed * source) + 2 * size)
    narrow += target * (config.decoder_layers * (layer + formed * target) + 2 * size)
    narrow += config.decoder_layers * (target * (5 * size + formed * source) + source * 2 * head)
    wide = source * config.encoder_layers * norms + target * (config.decoder_layers * (norms + size) + size)
    return Kept(narrow, wide + target * config.target_vocabulary_size)


def _rnn_activations(config: ModelConfig, source: int, target: int) -> Kept:
    size, width, context = config.size, config.embedding_size, config.encoder_state_size
    state = 7 if config.cell == "gru" else 10  # gates and states of one step, for each number of the state
    encoder = source * (2 * width + config.encoder_layers * (state + 3) * context)
    decoder = target * (2 * width + config.decoder_layers * (state + 2) * size)
    attention = source * target * size if config.score_name == "additive" else target * (context + size)
    deep = target * (size + context + 4 * config.deep_output_size)
    wide = target * config.target_vocabulary_size + (attention if config.score != "none" else 0)
    if config.feed == "input" and config.score != "none":  # its cell is not one kernel: sums and gates stay wide
        return Kept(encoder + deep, wide + decoder)
    return Kept(encoder + decoder + deep, wide)


# Time


@dataclass(frozen=True)
class Hardware:
    """One device, by its maker's data sheet: dense rates in TFLOP/s, memory in GB."""

    fp32: float
    bf16: float
    memory: float
    source: str


HARDWARE = {
    "h200": Hardware(67, 989, 141, "NVIDIA H200 SXM data sheet"),
    "h100": Hardware(67, 989, 80, "NVIDIA H100 SXM data sheet"),
    "a100": Hardware(19.5, 312, 80, "NVIDIA A100 80GB data sheet"),
    "l4": Hardware(30.3, 121, 24, "NVIDIA L4 data sheet"),
    "v100": Hardware(15.7, 125, 32, "NVIDIA V100 data sheet (fp16 in place of bf16)"),
    "t4": Hardware(8.1, 65, 16, "NVIDIA T4 data sheet (fp16 in place of bf16)"),
    "rtx4090": Hardware(82.6, 165.2, 24, "NVIDIA Ada whitepaper"),
    "rtx3090": Hardware(35.6, 71, 24, "NVIDIA Ampere GA102 whitepaper"),
}


@dataclass(frozen=True)
class Duration:
    """How long a training of so many target tokens takes on so many devices at a given share of their peak."""

    hardware: str
    devices: int
    utilisation: float
    tokens: float
    seconds: float
    tokens_per_second: float
    price: float
    """Of one device for an hour, as given; 0: not given."""

    @property
    def device_hours(self) -> float:
        return self.devices * self.seconds / 3600

    def as_dict(self) -> dict[str, Any]:
        values = {**self.__dict__, "device_hours": self.device_hours}
        return values | ({"cost": self.device_hours * self.price} if self.price else {})


def duration(
    done: Work, *, hardware: str, tokens: float, utilisation: float, precision: str, devices: int, price: float
) -> Duration:
    """Time = training operations / (peak × utilisation × devices)."""
    if hardware not in HARDWARE:
        raise ConfigError(f"There is no hardware {hardware}.{did_you_mean(hardware, HARDWARE)}")
    if not 0 < utilisation <= 1:
        raise ConfigError(f"utilisation ({utilisation}) must be above 0 and at most 1: the share of the peak reached")
    for name, number in (("tokens", tokens), ("devices", devices)):
        if not 1 <= number <= 1e30:
            raise ConfigError(f"{name} ({number:g}) must be from 1 to 1e30")
    if not 0 <= price < float("inf"):
        raise ConfigError(f"price ({price}) must be at least 0")
    peak = getattr(HARDWARE[hardware], precision) * 1e12
    per_token = done.training / done.target
    rate = peak * utilisation * devices / per_token
    return Duration(hardware, devices, utilisation, tokens, tokens / rate, rate, price)


# Many devices


@dataclass(frozen=True)
class Scale:
    """One update on so many devices, whole weights on each (DDP) or divided among them (FSDP2)."""

    devices: int
    sharded: bool
    compute: float
    """Seconds, of the device with the most sentences."""
    communication: float
    """Seconds, none of them hidden behind the computation: the worst case."""
    tokens: int
    memory: float
    """Bytes on each device."""

    @property
    def seconds(self) -> float:
        return self.compute + self.communication

    def as_dict(self) -> dict[str, Any]:
        derived = {"seconds": self.seconds, "tokens_per_second": self.tokens / self.seconds}
        return {**self.__dict__, **derived, "computing": self.compute / self.seconds}


def scale(
    counted: Count,
    done: Work,
    needed: Bytes,
    *,
    devices: int,
    sharded: bool,
    hardware: str,
    batch: int,
    precision: str,
    utilisation: float,
    link: float,
) -> Scale:
    """An update of `batch` sentences in all, on devices that each send `link` GB/s; docs/scale.md has the formulas."""
    if not 1 <= devices <= 10**6:
        raise ConfigError(f"gpus ({devices}) must be from 1 to 1,000,000")
    if not 0 < link < float("inf"):
        raise ConfigError(f"link ({link}) must be above 0: the GB/s each device can send")
    alone = -(-batch // devices)  # sentences of the device that has the most
    one = duration(
        done,
        hardware=hardware,
        tokens=alone * done.target,
        utilisation=utilisation,
        precision=precision,
        devices=1,
        price=0.0,
    )
    # Gradients are summed and spread (2 × 4P), or weights brought together twice and gradients summed (3 × 4P).
    sent = (3 if sharded else 2) * 4 * counted.total * (devices - 1) / devices
    held = needed.weights + needed.gradients + needed.optimizer
    if sharded and devices > 1:
        masters = 4 * counted.total + needed.gradients + needed.optimizer
        together = _together(counted) / counted.total * (needed.weights + needed.gradients)
        held = int(masters / devices + together)
    memory = held + needed.activations * alone / batch
    return Scale(devices, sharded, one.seconds, sent / (link * 1e9), batch * done.target, memory)


def _together(counted: Count) -> int:
    """Parameters of divided weights that a device has whole at a time: two layers, and all that is in no layer."""
    layers = [part for part in _parts(counted.tree) if any(name.endswith("blocks.") for name in part.where)]
    outside = counted.total - sum(part.total for part in layers)
    return min(counted.total, outside + 2 * max((part.each for part in layers), default=0))


def _parts(tree: tuple[Part, ...]) -> list[Part]:
    return [inner for part in tree for inner in (part, *_parts(part.parts))]


# Folders


def stored(folder: Path) -> int | None:
    """Parameters in a folder's `model.safetensors`, read off its header; None where there is no such file."""
    path = folder / "model.safetensors"
    if not path.exists():
        return None
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= 100_000_000:
                raise ValueError("its header has no sensible length")
            header = json.loads(file.read(length))
        total = 0
        for name, tensor in header.items():
            if name != "__metadata__":
                size = 1
                for side in tensor["shape"]:
                    size *= int(side)
                total += size
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FolderError(f"{path} is damaged: {error}") from error
    return total
