"""Sizing: choose a model size and a schedule from data and hardware.

If the number of updates is given, the choice depends only on the data, the kind of device (cpu, cuda) and whether it
has kernels for packed pairs, so that two such machines choose the same. With `--minutes` a few updates are timed, and
the size is chosen by their speed; the clock ends the run, so the number of updates is an estimate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from regard import kernels
from regard.config import Config, TrainConfig
from regard.counting import count, count_flops
from regard.devices import supports_bf16
from regard.memory import free_memory
from regard.results import counted, format_duration
from regard.training.clock import RESERVE_SHARE, VALIDATION_SHARE
from regard.training.data import Data
from regard.training.distributed import Runtime
from regard.training.events import Say
from regard.training.loop import Training

if TYPE_CHECKING:
    from regard.training.train import Request

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
VALIDATIONS_IN_MINUTES = 8  # of a run with --minutes; fewer if they are slow (loop.VALIDATION_GAP)
GRAPH_SHAPES = 24, 48  # shapes of padded batches for CUDA graphs: of a small model, and of one of size 512 or more
TIMED_SECONDS = 1.5  # of updates with each number of threads
WARM_UPDATES = 4  # on a GPU not timed: they choose kernels, allocate memory and capture graphs
CPU_TIMED_TOKENS = 1024  # of an update that is timed on a CPU: enough to see its speed

MakeModel = Callable[[Config], nn.Module]


class ModelShape(NamedTuple):
    """A model for corpora of at least `min_examples` examples (tokens for language models)."""

    min_examples: int
    layers: int
    size: int
    heads: int
    feed_forward: int
    dropout: float
    r_drop: float = 0.0
    on_cpu: bool = True  # a CPU can train it within hours


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
    source_length: float  # mean tokens of a source; 0 for language models
    target_length: float
    has_gpu: bool
    cores: int
    flops: float  # FLOP/s of training
    has_packed_kernels: bool = True  # a GPU with bf16 and Triton has them
    seconds: float = math.inf  # the time for updates

    @property
    def epoch_tokens(self) -> float:
        """Tokens of an epoch, both sides together."""
        return self.examples * (self.source_length + self.target_length)

    @property
    def is_pairs(self) -> bool:
        return self.source_length > 0


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
    shapes = MODEL_SHAPES[config.model.family]
    for shape in reversed([s for s in shapes if s.min_examples <= examples and (s.on_cpu or facts.has_gpu)]):
        sized = _with_model(config, unset, shape, facts)
        if facts.seconds >= MIN_EPOCHS_IN_MINUTES * facts.epoch_tokens * seconds_per_token(sized, facts):
            break
    return _with_schedule(sized, unset, facts)


def _with_model(config: Config, unset: frozenset[str], shape: ModelShape, facts: Facts) -> Config:
    size, heads = shape.size, shape.heads
    if "model.size" not in unset:
        size = config.model.size
        heads = next(number for number in (shape.heads, 8, 4, 2, 1) if size % number == 0)
    values: dict[str, Any] = {
        "model.size": size,
        "model.heads": heads,
        "model.feed_forward_size": max(1, size * shape.feed_forward // shape.size),
        "model.encoder_layers": shape.layers,
        "model.decoder_layers": shape.layers,
        "model.dropout": shape.dropout,
        **{f"model.{name}": value for name, value in FAMILY_DEFAULTS[config.model.family].items()},
        # the second forward pass is cheap on a GPU that is not fully used
        "train.r_drop": shape.r_drop if facts.has_gpu else 0.0,
        "train.ema_decay": 0.999,
    }
    config = _fill(config, unset, values)
    if facts.has_gpu and config.model.family == "transformer":
        is_free = "train.packed" in unset and not config.train.batch_shapes
        has_kernels = facts.has_packed_kernels and config.train.precision != "fp32"
        packs = config.train.packed or (is_free and has_kernels and config.can_pack)
        batches = {"train.packed": True} if packs else {"train.batch_shapes": GRAPH_SHAPES[size >= 512]}
        config = _fill(config, unset, batches)
    return config


def _with_schedule(config: Config, unset: frozenset[str], facts: Facts) -> Config:
    """Choose batch_tokens and updates, and warm-up, learning rate, validations and checkpoints by them."""
    # A power of two that grows with the cube root of the data: 8,192 for Multi30k. It is at most a hundredth of an
    # epoch, and at most 4,096 on a CPU, which is enough to keep its cores busy.
    tokens = min(8192 * (facts.epoch_tokens / MULTI30K_TOKENS) ** (1 / 3), facts.epoch_tokens / 100)
    tokens = min(tokens, 65_536 if facts.has_gpu else 4096)
    tokens = min(tokens, facts.seconds / (MIN_UPDATES_IN_MINUTES * seconds_per_token(config, facts)))
    batch_tokens = max(1024, 1 << math.floor(math.log2(max(tokens, 1))))
    config = _fill(config, unset, {"train.batch_tokens": batch_tokens})
    has_limit = math.isfinite(facts.seconds)
    if "train.updates" not in unset:
        updates = config.train.updates
    elif has_limit:  # the expected number, which is the length of the schedule
        updates = max(10, int(facts.seconds / update_seconds(config, facts)))
    else:  # more data gets fewer epochs
        epochs = min(100.0, max(3.0, MULTI30K_EPOCHS * (MULTI30K_TOKENS / max(facts.epoch_tokens, 1)) ** 0.25))
        number = min(MAX_UPDATES, epochs * facts.epoch_tokens / tokens_per_update(config.train))
        if not facts.has_gpu:
            number = min(number, MAX_CPU_SECONDS / update_seconds(config, facts))
        updates = max(100, int(float(f"{number:.1e}")))  # two digits
    every = max(updates // VALIDATIONS, min(100, updates))
    if has_limit:
        every = math.ceil(updates / VALIDATIONS_IN_MINUTES)
    warmup = max(1, min(4000, updates // 6))
    # the peak of the noam schedule (Multi30k's recipe: 0.002, transformer-base: 0.0007), limited for short runs
    size = config.model.size
    peak = min(0.002 if config.model.family == "transformer" else 0.001, 0.512 / size, (size * warmup) ** -0.5)
    values = {
        "train.updates": updates,
        "train.warmup": warmup,
        "train.learning_rate": float(f"{peak:.1g}"),
        "train.schedule": "cosine" if has_limit else "inverse_sqrt",
        "train.validate_every": every,
        "train.save_every": math.ceil(updates / SAVES_IN_MINUTES) if has_limit else every,
        # with --updates or --minutes a run does not stop early
        "train.patience": VALIDATIONS // 4 if "train.updates" in unset and not has_limit else 0,
    }
    return _fill(config, unset, values)


def _fill(config: Config, unset: frozenset[str], values: Mapping[str, Any]) -> Config:
    """The config with those `values` whose fields are unset."""
    return config.with_values({name: value for name, value in values.items() if name in unset})


def tokens_per_update(settings: TrainConfig) -> int:
    """Padded tokens of an update, with gradient accumulation."""
    return settings.batch_tokens * settings.gradient_accumulation


def update_seconds(config: Config, facts: Facts) -> float:
    """Estimated seconds of an update."""
    return tokens_per_update(config.train) * seconds_per_token(config, facts)


def seconds_per_token(config: Config, facts: Facts) -> float:
    """Estimated seconds of a token of an epoch."""
    if facts.is_pairs:
        source, target = max(1, round(facts.source_length)), max(1, round(facts.target_length))
    else:
        source, target = 0, min(config.text.context_length, config.model.max_positions)
    passes = 2 if config.train.r_drop else 1
    return passes * count_flops(config.model, source, target).training / (source + target) / facts.flops


def describe(config: Config, facts: Facts) -> str:
    """`29,000 pairs, 2 cores: a transformer of 4+4 layers of 256 (9.1 million parameters), ...`"""
    model, settings = config.model, config.train
    data = f"{facts.examples:,} pairs" if facts.is_pairs else f"{facts.epoch_tokens:,.0f} tokens"
    place = "a GPU" if facts.has_gpu else counted(facts.cores, "core")
    layers = {"bert": f"{model.encoder_layers}", "gpt": f"{model.decoder_layers}"}.get(
        model.family, f"{model.encoder_layers}+{model.decoder_layers}"
    )
    article, total = "an" if model.family == "rnn" else "a", count(config).total
    parameters = f"{total / 1e6:,.1f} million" if total >= 1e5 else f"{total:,}"
    size = f"{article} {model.family} of {layers} layers of {model.size} ({parameters} parameters)"
    updates = f"{settings.updates:,} updates of {tokens_per_update(settings):,} tokens"
    if settings.minutes:
        minutes = f"{settings.minutes:g} minute{'s' * (settings.minutes != 1)}"
        return f"{data}, {place}, {minutes}: {size}, about {updates}"
    seconds = settings.updates * update_seconds(config, facts)
    # the formula is for a CPU, and it ignores start-up, validations and other programs
    about = f", about {format_duration(seconds)}" if seconds >= 60 and not facts.has_gpu else ""
    return f"{data}, {place}: {size}, {updates}{about}; --minutes limits the time, --recipe sets the size"


# Measurements on this machine


def complete_config(
    config: Config, request: Request, data: Data, runtime: Runtime, make_model: MakeModel, say: Say
) -> Config:
    """Choose the fields that a request leaves unset from data, hardware and `train.minutes`."""
    facts, minutes, unset, usable = gather_facts(data, runtime), config.train.minutes, request.unset, math.inf
    if minutes:
        facts = replace(facts, seconds=60 * minutes)
        guess = choose(config, unset, facts)
        seconds = time_update(guess, data, runtime, make_model, say if request.choose_threads else None)
        flops = facts.flops * update_seconds(guess, facts) / seconds
        usable = 60 * minutes * (1 - RESERVE_SHARE - VALIDATION_SHARE) - (time.perf_counter() - request.start)
        facts = replace(facts, seconds=max(usable, 1.0), flops=flops, cores=torch.get_num_threads())
    config = choose(config, unset, facts)
    if unset:
        say(describe(config, facts))
    epoch = facts.epoch_tokens * seconds_per_token(config, facts)
    if usable < epoch:
        enough = math.ceil((60 * minutes - usable + epoch) / 60)
        share = max(usable, 0) / epoch
        text = f"beside preparation and scoring, only {share:.0%} of an epoch fits into --minutes {minutes:g}"
        say(f"{text}; --minutes {enough} would be enough")
    return config


def gather_facts(data: Data, runtime: Runtime) -> Facts:
    """Collect the facts about data and hardware from which a size is chosen."""
    store, is_pairs, device = data.train[0], data.config.model.is_translator, runtime.device.type
    has_gpu, cores = device == "cuda", torch.get_num_threads()
    return Facts(
        examples=len(store),
        source_length=float(store.source.lengths.mean()) if is_pairs else 0.0,
        target_length=float((store.target if is_pairs else store.text).lengths.mean()),
        has_gpu=has_gpu,
        cores=cores,
        flops=CORE_FLOPS * (1000 if has_gpu else min(cores, 8)),  # a guess: more than 8 cores help little
        has_packed_kernels=kernels.is_available() and supports_bf16(device),
    )


def time_update(
    config: Config,
    data: Data,
    runtime: Runtime,
    make_model: MakeModel,
    say: Say | None = None,
    *,
    cpu_tokens: int = CPU_TIMED_TOKENS,
) -> float:
    """Estimate the seconds of an update on this machine from a few updates, which are discarded.

    On a CPU they have at most `cpu_tokens`. With `say`, one CPU thread is compared with all threads, and the faster is
    used from now on: on a busy machine, threads wait for each other.
    """
    update_tokens, batch_tokens = tokens_per_update(config.train), config.train.batch_tokens // runtime.world_size
    if runtime.device.type == "cpu":
        batch_tokens = min(batch_tokens, cpu_tokens)
    timed = replace(config.train, batch_tokens=batch_tokens, gradient_accumulation=1, compile="no")
    config, single_process = replace(config, train=timed), Runtime(runtime.device, 0, 1)
    training = Training(Path(), make_model(config), config, replace(data, config=config), single_process)
    training.batches = cycle(list(islice(training.batches, WARM_UPDATES)))  # so that each CUDA graph is captured once
    threads, seconds = torch.get_num_threads(), _time(training)
    if say and threads > 1 and runtime.device.type == "cpu" and runtime.world_size == 1:
        torch.set_num_threads(1)
        one_thread = _time(training)
        if one_thread < seconds:
            factor = seconds / one_thread
            say(f"using one CPU thread: at the moment it is {factor:.1f} times as fast as {threads} threads")
            seconds = one_thread
        else:
            torch.set_num_threads(threads)
    del training
    free_memory()
    return seconds * update_tokens / batch_tokens / runtime.world_size


def _time(training: Training) -> float:
    """The median seconds of an update."""
    seconds: list[float] = []
    warm = WARM_UPDATES if training.runtime.device.type == "cuda" else 1
    while len(seconds) <= warm or sum(seconds) < TIMED_SECONDS:
        start = time.perf_counter()
        training.step()
        seconds.append(time.perf_counter() - start)
    return median(seconds[warm:])
