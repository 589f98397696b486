"""Sizing: choose a model size and a schedule from data and hardware; pure functions that measure nothing.

If the number of updates is given, the choice depends only on the data, the kind of device (cpu, cuda) and whether it
has kernels for packed pairs, so that two such machines choose the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from regard.config import Config, TrainConfig
from regard.counting import count, count_flops
from regard.results import counted

SCHEDULE_FIELDS = frozenset({"train.updates", "train.warmup", "train.validate_every", "train.save_every"})
CHOSEN_FIELDS = SCHEDULE_FIELDS | {
    *("model.size", "model.heads", "model.feed_forward_size", "model.encoder_layers", "model.decoder_layers"),
    *("model.dropout", "model.norm_placement", "model.positions", "model.activation", "model.scale_embeddings"),
    *("train.batch_tokens", "train.batch_shapes", "train.packed", "train.learning_rate", "train.schedule"),
    *("train.r_drop", "train.ema_decay", "train.patience"),
}
"""The config fields that are chosen if neither a recipe nor the user sets them."""

CORE_FLOPS = 40e9  # FLOP/s of one core in training, measured with a transformer-base on two idle cores
MAX_CPU_SECONDS = 3 * 3600.0  # estimated time of a run on a CPU, unless updates or minutes are given
MULTI30K_TOKENS = 29_000 * 30  # in an epoch of Multi30k, both sides together
MULTI30K_EPOCHS = 56.0  # 6,000 updates of 8,192 tokens give good scores on Multi30k
MIN_UPDATES_IN_MINUTES = 3000  # of a run with --minutes, if batches can be small enough
MIN_EPOCHS_IN_MINUTES = 5.0  # a model size that takes longer is not chosen with --minutes
MAX_UPDATES = 100_000  # of the base Transformer of Vaswani et al. (2017)
VALIDATIONS = 20  # of a run
SAVES_IN_MINUTES = 10  # of a run with --minutes: a killed run loses a tenth of its updates
VALIDATIONS_IN_MINUTES = 8  # of a run with --minutes, if they take less than a tenth of the time; at least 2
GRAPH_SHAPES = 24, 48  # shapes of padded batches for CUDA graphs: of a small model, and of one of size 512 or more


class ModelShape(NamedTuple):
    """A model for corpora of at least `min_examples` examples (tokens for language models)."""

    min_examples: int
    layers: int
    size: int
    heads: int
    feed_forward: int
    dropout: float
    r_drop: float = 0.0
    on_cpu: bool = True
    """Whether a CPU can train it within hours."""


# Little data: fewer layers, narrower, more dropout (Sennrich and Zhang 2019; Araabi and Monz 2020). The second is the
# recipe of Multi30k, the third fairseq's for IWSLT, then Vaswani et al.'s base and big.
TRANSFORMERS = (
    ModelShape(0, 3, 128, 4, 256, 0.3, r_drop=3.0),
    ModelShape(10_000, 4, 256, 4, 512, 0.3, r_drop=3.0),
    ModelShape(100_000, 6, 512, 4, 1024, 0.3, on_cpu=False),
    ModelShape(1_000_000, 6, 512, 8, 2048, 0.1, on_cpu=False),
    ModelShape(20_000_000, 6, 1024, 16, 4096, 0.1, on_cpu=False),
)
RNNS = (
    ModelShape(0, 1, 128, 1, 1, 0.3),
    ModelShape(10_000, 1, 256, 1, 1, 0.3),
    ModelShape(100_000, 1, 512, 1, 1, 0.2, on_cpu=False),
    ModelShape(1_000_000, 2, 1024, 1, 1, 0.1, on_cpu=False),
)
TEXTS = (  # gpt and bert, by tokens
    ModelShape(0, 4, 128, 4, 512, 0.2),
    ModelShape(100_000, 4, 256, 4, 1024, 0.2),
    ModelShape(300_000, 6, 384, 6, 1536, 0.2, on_cpu=False),  # nanoGPT's for Shakespeare
    ModelShape(20_000_000, 8, 512, 8, 2048, 0.1, on_cpu=False),
    ModelShape(500_000_000, 12, 768, 12, 3072, 0.1, on_cpu=False),  # GPT-2 and BERT base
)
MODEL_SHAPES = {"transformer": TRANSFORMERS, "rnn": RNNS, "gpt": TEXTS, "bert": TEXTS}
FAMILY_DEFAULTS: dict[str, dict[str, Any]] = {
    "transformer": {"norm_placement": "pre"},
    "rnn": {},
    "gpt": {"norm_placement": "pre", "positions": "learned", "activation": "gelu_tanh", "scale_embeddings": False},
    "bert": {"positions": "learned", "activation": "gelu", "scale_embeddings": False},
}


@dataclass(frozen=True)
class Facts:
    """Facts about data and hardware from which a size is chosen."""

    examples: int
    source_length: float
    """Mean tokens of a source; 0 for language models."""
    target_length: float
    device: str
    """cpu, cuda or mps."""
    cores: int
    has_packed_kernels: bool = True
    """Whether a GPU has kernels for packed pairs: with bf16 and Triton."""
    seconds: float | None = None
    """The time for updates; None for no limit."""
    validation_seconds: float = 0.0
    """The estimated time of a validation."""
    measured_flops: float = 0.0
    """Measured FLOPs per second of training; 0 if they were not measured."""

    @property
    def flops(self) -> float:
        """FLOPs per second: without a measurement more than 8 cores help little, and a GPU counts as 1,000 cores."""
        return self.measured_flops or CORE_FLOPS * (1000 if self.has_gpu else min(self.cores, 8))

    @property
    def epoch_tokens(self) -> float:
        """Tokens of an epoch, both sides together."""
        return self.examples * (self.source_length + self.target_length)

    @property
    def is_pairs(self) -> bool:
        return self.source_length > 0

    @property
    def has_gpu(self) -> bool:
        return self.device == "cuda"


def unset_fields(values: Iterable[str], *, recipe: bool, started: bool) -> frozenset[str]:
    """The config fields the user did not set; `values` are the section.field names that are set.

    A recipe sets all fields. A model to start from sets model shape and learning rate.
    """
    names = frozenset() if recipe else CHOSEN_FIELDS
    if started:
        names &= SCHEDULE_FIELDS | {"train.batch_tokens", "train.patience"}
    return names - set(values)


def choose(config: Config, unset: frozenset[str], facts: Facts) -> Config:
    """Choose the unset fields; if only model.size is set, heads and feed-forward size follow from it.

    Data and device must be large enough for a model shape, and several epochs of it must fit into the time.
    """
    examples = facts.examples if facts.is_pairs else facts.epoch_tokens
    shapes = [
        shape
        for shape in MODEL_SHAPES[config.model.family]
        if shape.min_examples <= examples and (shape.on_cpu or facts.has_gpu)
    ]
    for shape in reversed(shapes):
        sized = _with_model(config, unset, shape, facts)
        if facts.seconds is None or facts.seconds >= MIN_EPOCHS_IN_MINUTES * epoch_seconds(sized, facts):
            break
    return _with_schedule(sized, unset, facts)


def _with_model(config: Config, unset: frozenset[str], shape: ModelShape, facts: Facts) -> Config:
    size, heads = shape.size, shape.heads
    if "model.size" not in unset:
        size = config.model.size
        heads = next(number for number in (shape.heads, 8, 4, 2, 1) if size % number == 0)
    model = {
        "size": size,
        "heads": heads,
        "feed_forward_size": max(1, size * shape.feed_forward // shape.size),
        "encoder_layers": shape.layers,
        "decoder_layers": shape.layers,
        "dropout": shape.dropout,
        **FAMILY_DEFAULTS[config.model.family],
    }
    train: dict[str, Any] = {
        # the second forward pass is cheap on a GPU that is not fully used
        "r_drop": shape.r_drop if facts.has_gpu else 0.0,
        "ema_decay": 0.999,
    }
    config = _fill(config, unset, {"model": model, "train": train})
    if facts.has_gpu and config.model.family == "transformer":
        is_free = "train.packed" in unset and not config.train.batch_shapes
        has_kernels = facts.has_packed_kernels and config.train.precision != "fp32"
        packs = config.train.packed or (is_free and has_kernels and config.can_pack)
        batches = {"packed": True} if packs else {"batch_shapes": GRAPH_SHAPES[size >= 512]}
        config = _fill(config, unset, {"train": batches})
    return config


def _with_schedule(config: Config, unset: frozenset[str], facts: Facts) -> Config:
    """Choose batch_tokens and updates, and warm-up, learning rate, validations and checkpoints by them."""
    config = _fill(config, unset, {"train": {"batch_tokens": _batch_tokens(config, facts)}})
    updates = _updates(config, facts) if "train.updates" in unset else config.train.updates
    every = max(updates // VALIDATIONS, min(100, updates))
    if facts.seconds is not None:
        share = max(1 / VALIDATIONS_IN_MINUTES, 10 * facts.validation_seconds / facts.seconds)
        every = math.ceil(updates * min(share, 1 / 2))
    warmup = max(1, min(4000, updates // 6))
    # the peak of the noam schedule (Multi30k's recipe: 0.002, transformer-base: 0.0007), limited for short runs
    size = config.model.size
    peak = min(0.002 if config.model.family == "transformer" else 0.001, 0.512 / size, (size * warmup) ** -0.5)
    values = {
        "updates": updates,
        "warmup": warmup,
        "learning_rate": float(f"{peak:.1g}"),
        "schedule": "inverse_sqrt" if facts.seconds is None else "cosine",
        "validate_every": every,
        "save_every": every if facts.seconds is None else math.ceil(updates / SAVES_IN_MINUTES),
        # with --updates or --minutes a run does not stop early
        "patience": VALIDATIONS // 4 if "train.updates" in unset and facts.seconds is None else 0,
    }
    return _fill(config, unset, {"train": values})


def _batch_tokens(config: Config, facts: Facts) -> int:
    """A power of two that grows with the cube root of the data: 8,192 for Multi30k, at most 65,536.

    It is at most a hundredth of an epoch, at most 4,096 on a CPU (enough to keep its cores busy), and small enough for
    MIN_UPDATES_IN_MINUTES, but at least 1,024.
    """
    grown = 8192 * (facts.epoch_tokens / MULTI30K_TOKENS) ** (1 / 3)
    limit = min(grown, facts.epoch_tokens / 100, 65_536 if facts.has_gpu else 4096)
    if facts.seconds is not None:
        limit = min(limit, facts.seconds / (MIN_UPDATES_IN_MINUTES * _seconds_per_token(config, facts)))
    return max(1024, 1 << math.floor(math.log2(max(limit, 1))))


def _updates(config: Config, facts: Facts) -> int:
    """Choose updates: more data gets fewer epochs; on a CPU at most MAX_CPU_SECONDS; rounded to two digits.

    With a time limit it is the expected number, which is the length of the schedule.
    """
    if facts.seconds is not None:
        return max(10, int(facts.seconds / update_seconds(config, facts)))
    epochs = min(100.0, max(3.0, MULTI30K_EPOCHS * (MULTI30K_TOKENS / max(facts.epoch_tokens, 1)) ** 0.25))
    updates = min(MAX_UPDATES, epochs * facts.epoch_tokens / tokens_per_update(config.train))
    if not facts.has_gpu:
        updates = min(updates, MAX_CPU_SECONDS / update_seconds(config, facts))
    figures = 10.0 ** max(0, math.floor(math.log10(max(updates, 1))) - 1)
    return max(100, int(round(updates / figures) * figures))


def tokens_per_update(settings: TrainConfig) -> int:
    """Padded tokens of an update, with gradient accumulation."""
    return settings.batch_tokens * settings.gradient_accumulation


def update_seconds(config: Config, facts: Facts) -> float:
    """Estimated seconds of an update."""
    return tokens_per_update(config.train) * _seconds_per_token(config, facts)


def epoch_seconds(config: Config, facts: Facts) -> float:
    """Estimated seconds of an epoch."""
    return facts.epoch_tokens * _seconds_per_token(config, facts)


def _seconds_per_token(config: Config, facts: Facts) -> float:
    if facts.is_pairs:
        source, target = max(1, round(facts.source_length)), max(1, round(facts.target_length))
    else:
        source, target = 0, min(config.text.context_length, config.model.max_positions)
    passes = 2 if config.train.r_drop else 1
    return passes * count_flops(config.model, source, target).training / (source + target) / facts.flops


def _fill(config: Config, unset: frozenset[str], values: dict[str, dict[str, Any]]) -> Config:
    """The config with those `values` whose fields are unset."""
    return config.over(
        {
            section: {name: value for name, value in fields.items() if f"{section}.{name}" in unset}
            for section, fields in values.items()
        }
    )


def describe(config: Config, facts: Facts, time: str = "") -> str:
    """`29,000 pairs, 2 cores: a transformer of 4+4 layers of 256 (9.1 million parameters), ...`"""
    model, settings = config.model, config.train
    data = f"{facts.examples:,} pairs" if facts.is_pairs else f"{facts.epoch_tokens:,.0f} tokens"
    place = "a GPU" if facts.has_gpu else counted(facts.cores, "core")
    layers = {"bert": f"{model.encoder_layers}", "gpt": f"{model.decoder_layers}"}.get(
        model.family, f"{model.encoder_layers}+{model.decoder_layers}"
    )
    article, total = "an" if model.family == "rnn" else "a", count(config).total
    parameters = f"{total / 1e6:.1f} million" if total >= 1e5 else f"{total:,}"
    size = f"{article} {model.family} of {layers} layers of {model.size} ({parameters} parameters)"
    updates = f"{settings.updates:,} updates of {tokens_per_update(settings):,} tokens"
    if settings.minutes:
        minutes = f"{settings.minutes:g} minute{'s' * (settings.minutes != 1)}"
        return f"{data}, {place}, {minutes}: {size}, about {updates}"
    about = "" if facts.has_gpu or not time else f", about {time}"  # the formula is for a CPU
    return f"{data}, {place}: {size}, {updates}{about}; --minutes limits the time, --recipe sets the size"
