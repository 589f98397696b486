"""Size: the model and the schedule that suit the data and the machine; pure functions, nothing is measured.

A run whose updates are given depends on the data and the kind of device alone, so that two machines choose alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from regard.config import Config, ModelConfig, TrainConfig
from regard.counting import count, work

PLANNED = frozenset({"train.updates", "train.warmup", "train.validate_every", "train.save_every"})
"""What --minutes decides."""
CHOSEN = PLANNED | frozenset(
    [f"model.{name}" for name in "size heads feed_forward_size encoder_layers decoder_layers dropout".split()]  # noqa: SIM905
    + [f"model.{name}" for name in "norm_placement positions activation scale_embeddings".split()]  # noqa: SIM905
    + [f"train.{name}" for name in "batch_tokens batch_shapes learning_rate schedule r_drop ema_decay patience".split()]  # noqa: SIM905
)
"""What is chosen where neither a recipe nor the user says it."""

CORE = 40e9  # operations a second of one core in training: half of what two idle cores gave a transformer-base
LONGEST = 3 * 3600.0  # seconds that a run on a CPU may take by that figure, unless its length is given
EPOCHS, KNOWN = 56.0, 29_000  # Multi30k is good after 6,000 updates of 8,192 positions, 29,000 pairs of about 30
ENOUGH = 3000  # updates of a run that was given a time, where batches can be small enough
PASSES = 5.0  # epochs a size should see in the minutes given; a smaller one sees more
MOST_UPDATES = 100_000  # of the base Transformer of Vaswani et al. (2017)
VALIDATIONS = 20  # of a run
SHAPES_OF_BATCHES = 24, 48  # on a GPU, which waits for Python without CUDA graphs: of a small model, and from 512 on
BIG = 20 * 2**30  # bytes of a GPU that a transformer-big is trained on


class Shape(NamedTuple):
    """A model for corpora of at least so many examples (tokens, for one text)."""

    least: int
    layers: int
    size: int
    heads: int
    feed_forward: int
    dropout: float
    rdrop: float = 0.0
    on_cpu: bool = True
    """Whether a CPU trains it in hours."""


# Little data: fewer layers, narrower, more dropout (Sennrich and Zhang 2019; Araabi and Monz 2020). The second is the
# recipe of Multi30k, the third fairseq's for IWSLT, then Vaswani et al.'s base and big.
TRANSFORMERS = (
    Shape(0, 3, 128, 4, 256, 0.3, rdrop=3.0),
    Shape(10_000, 4, 256, 4, 512, 0.3, rdrop=3.0),
    Shape(100_000, 6, 512, 4, 1024, 0.3, on_cpu=False),
    Shape(1_000_000, 6, 512, 8, 2048, 0.1, on_cpu=False),
    Shape(20_000_000, 6, 1024, 16, 4096, 0.1, on_cpu=False),
)
RNNS = (
    Shape(0, 1, 128, 1, 1, 0.3),
    Shape(10_000, 1, 256, 1, 1, 0.3),
    Shape(100_000, 1, 512, 1, 1, 0.2, on_cpu=False),
    Shape(1_000_000, 2, 1024, 1, 1, 0.1, on_cpu=False),
)
TEXTS = (  # gpt and bert, by tokens
    Shape(0, 4, 128, 4, 512, 0.2),
    Shape(100_000, 4, 256, 4, 1024, 0.2),
    Shape(300_000, 6, 384, 6, 1536, 0.2, on_cpu=False),  # nanoGPT's for Shakespeare
    Shape(20_000_000, 8, 512, 8, 2048, 0.1, on_cpu=False),
    Shape(500_000_000, 12, 768, 12, 3072, 0.1, on_cpu=False),  # GPT-2 and BERT base
)
SHAPES = {"transformer": TRANSFORMERS, "rnn": RNNS, "gpt": TEXTS, "bert": TEXTS}
STYLE: dict[str, dict[str, Any]] = {
    "transformer": {"norm_placement": "pre"},
    "rnn": {},
    "gpt": {"norm_placement": "pre", "positions": "learned", "activation": "gelu_tanh", "scale_embeddings": False},
    "bert": {"positions": "learned", "activation": "gelu", "scale_embeddings": False},
}


@dataclass(frozen=True)
class Facts:
    """What a size is chosen by."""

    examples: int
    source: float
    target: float
    """Mean positions of an example's sides; one text has no source."""
    longest: int
    """Positions of the longest example, both sides together."""
    device: str
    """cpu, cuda or mps."""
    memory: int
    """Bytes of a GPU that are not other programs'; 0: not known."""
    cores: int
    minutes: float
    """0: as long as it takes."""

    @property
    def positions(self) -> float:
        """Of an epoch."""
        return self.examples * (self.source + self.target)

    @property
    def pairs(self) -> bool:
        return self.source > 0

    @property
    def modest(self) -> bool:
        """Whether there is no CUDA GPU."""
        return self.device != "cuda"


def left_open(asked: Iterable[str], *, recipe: bool, started: bool, minutes: bool) -> frozenset[str]:
    """What nobody has said, of `section.field=value` that were asked.

    A recipe says all but what --minutes plans. A model to start from brings its shape, and its rate should not rise.
    """
    names = CHOSEN if not recipe else PLANNED if minutes else frozenset()
    if started:
        names &= PLANNED | {"train.batch_tokens", "train.patience"}
    return names - {value.partition("=")[0].strip() for value in asked}


def choose(config: Config, left_open: frozenset[str], facts: Facts) -> Config:
    """The config with what is left open filled in; what a size would not fit (heads, widths) follows what is given."""
    shapes = _possible(config.model, facts)
    config = _with_model(config, left_open, shapes[-1], facts)
    for shape in reversed(shapes[:-1]):
        if not facts.minutes or facts.minutes * 60 >= PASSES * facts.positions * _seconds(config, facts):
            break
        config = _with_model(config, left_open, shape, facts)
    return scheduled(config, left_open, facts)


def _possible(model: ModelConfig, facts: Facts) -> list[Shape]:
    """The sizes the data are enough for, smallest first."""
    amount = facts.examples if facts.pairs else facts.positions
    enough = [shape for shape in SHAPES[model.family] if shape.least <= amount]
    if facts.modest:
        return [shape for shape in enough if shape.on_cpu]
    return [shape for shape in enough if facts.memory >= BIG or shape.size < 1024]


def _with_model(config: Config, left_open: frozenset[str], shape: Shape, facts: Facts) -> Config:
    given = {name: getattr(config.model, name) for name in ("size", "heads") if f"model.{name}" not in left_open}
    size, heads = given.get("size", shape.size), given.get("heads", shape.heads)
    if "size" not in given:
        size = max(1, round(size / (2 * heads))) * 2 * heads
    elif "heads" not in given:
        heads = next(number for number in (shape.heads, 8, 4, 2, 1) if size % number == 0)
    values = {
        "size": size,
        "heads": heads,
        "feed_forward_size": max(1, size * shape.feed_forward // shape.size),
        "encoder_layers": shape.layers,
        "decoder_layers": shape.layers,
        "dropout": shape.dropout,
        **STYLE[config.model.family],
    }
    # the second pass of R-Drop is cheap on a GPU, which a small model leaves idle
    training = {
        "r_drop": 0.0 if facts.modest else shape.rdrop,
        "ema_decay": 0.0 if config.train.average_checkpoints else 0.999,
    }
    if not facts.modest and config.model.family == "transformer":
        training["batch_shapes"] = SHAPES_OF_BATCHES[size >= 512]
    return _laid_under(config, left_open, {"model": values, "train": training})


def scheduled(config: Config, left_open: frozenset[str], facts: Facts) -> Config:
    """The config with the budget, the updates and all that follows from them."""
    config = _laid_under(config, left_open, {"train": {"batch_tokens": _budget(config, facts)}})
    updates = _updates(config, facts) if "train.updates" in left_open else config.train.updates
    return with_updates(config, left_open, updates, facts, every=max(updates // VALIDATIONS, min(100, updates)))


def with_updates(config: Config, left_open: frozenset[str], updates: int, facts: Facts, *, every: int) -> Config:
    """The config for so many updates, validated every so many: its warm-up, rate, schedule and saves."""
    warmup = max(1, min(4000, updates // 6))
    if "train.learning_rate" not in left_open:  # whoever says how high the rate rises knows how fast it can
        warmup = min(warmup, max(1, config.train.warmup))
    # noam's peak: 0.002 for Multi30k's recipe, 0.0007 for the paper's base; no more than these where runs are short
    size = config.model.size
    rate = min(0.002 if config.model.family == "transformer" else 0.001, 0.512 / size, (size * warmup) ** -0.5)
    if "train.save_every" not in left_open:
        save = config.train.save_every
        # the best model is kept only where a validated update is saved too; no more validations than there is time for
        every = math.ceil(every / save) * save if facts.minutes else max(1, every // save) * save
    elif "train.validate_every" not in left_open:
        every = config.train.validate_every
    values = {
        "updates": updates,
        "warmup": warmup,
        "learning_rate": float(f"{rate:.1g}"),
        "schedule": "cosine" if facts.minutes else "inverse_sqrt",
        "validate_every": every,
        "save_every": every,
        # whoever says how long to train means it
        "patience": VALIDATIONS // 4 if "train.updates" in left_open and not facts.minutes else 0,
    }
    return _laid_under(config, left_open, {"train": values})


def _budget(config: Config, facts: Facts) -> int:
    """It grows as the cube root of the data, from Multi30k's 8,192 to about the paper's 50,000; a power of two.

    Never more than a hundredth of an epoch, nor than the time given allows for updates enough, or a run would end
    before it has learned; on a CPU what keeps its cores busy. Never less than the longest example, or 1,024.
    """
    grown = 8192 * (facts.positions / (30 * KNOWN)) ** (1 / 3)
    most = min(grown, facts.positions / 100, 4096 if facts.modest else 65_536)
    if facts.minutes:
        most = min(most, 60 * facts.minutes / (ENOUGH * _seconds(config, facts)))
    return max(1024, 1 << math.floor(math.log2(max(most, 1))), 1 << math.ceil(math.log2(max(facts.longest, 1))))


def _updates(config: Config, facts: Facts) -> int:
    """Fewer epochs the more data there is; on a CPU no more than LONGEST allows; two figures are said."""
    epochs = min(100.0, max(3.0, EPOCHS * (30 * KNOWN / max(facts.positions, 1)) ** 0.25))
    updates = min(MOST_UPDATES, epochs * facts.positions / per_update(config.train))
    if facts.modest:
        updates = min(updates, LONGEST / (per_update(config.train) * _seconds(config, facts)))
    figures = 10.0 ** max(0, math.floor(math.log10(max(updates, 1))) - 1)
    return max(100, int(round(updates / figures) * figures))


def per_update(settings: TrainConfig) -> int:
    """Positions of an update, all its micro-batches together."""
    return settings.batch_tokens * settings.gradient_accumulation


def seconds(config: Config, facts: Facts) -> float:
    """How long the updates of this config take on a CPU, by formula."""
    return config.train.updates * per_update(config.train) * _seconds(config, facts)


def _seconds(config: Config, facts: Facts) -> float:
    """Of training on one position; more than 8 cores help little, and a GPU is taken for a thousand."""
    source, target = max(1, round(facts.source)) if facts.pairs else 0, max(1, round(facts.target))
    if not facts.pairs:
        target = min(config.text.context_length, config.model.max_positions)
    passes = 2 if config.train.r_drop else 1
    speed = CORE * (min(facts.cores, 8) if facts.modest else 1000)
    return passes * work(config.model, source, target).training / (source + target) / speed


def _laid_under(config: Config, left_open: frozenset[str], values: dict[str, dict[str, Any]]) -> Config:
    """The config with those of the values that are left open."""
    taken = {
        section: {name: value for name, value in fields.items() if f"{section}.{name}" in left_open}
        for section, fields in values.items()
    }
    return config.over(taken)


# What is said


def sentence(config: Config, facts: Facts, time: str) -> str:
    """`29,000 pairs, 2 cores: a transformer of 4+4 layers of 256 (9.1 million parameters), ...`"""
    model, settings = config.model, config.train
    data = f"{facts.examples:,} pairs" if facts.pairs else f"{facts.positions:,.0f} tokens"
    place = f"{facts.cores} core{'s' * (facts.cores != 1)}" if facts.modest else "a GPU"
    minutes = f", {facts.minutes:g} minute{'s' * (facts.minutes != 1)}" if facts.minutes else ""
    layers = {"bert": f"{model.encoder_layers}", "gpt": f"{model.decoder_layers}"}.get(
        model.family, f"{model.encoder_layers}+{model.decoder_layers}"
    )
    article = "an" if model.family == "rnn" else "a"
    size = f"{article} {model.family} of {layers} layers of {model.size} ({_million(count(config).total)} parameters)"
    updates = f"{settings.updates:,} updates of {per_update(settings):,} positions"
    end = "" if facts.minutes else f", about {time}; --minutes sets a time, --recipe another size"
    return f"{data}, {place}{minutes}: {size}, {updates}{end}"


def _million(number: int) -> str:
    return f"{number / 1e6:.1f} million" if number >= 1e5 else f"{number:,}"
