"""What a run is: one frozen record in sections, from TOML, JSON, presets and `section.field=value`."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from regard.errors import ConfigError, FolderError, did_you_mean

Family = Literal["rnn", "transformer", "bert", "gpt"]
Positions = Literal["sinusoidal", "sinusoidal_halves", "learned", "rotary"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu"]
Score = Literal["auto", "none", "additive", "dot", "scaled_dot", "general", "cosine"]
TokenizerKind = Literal["bpe", "unigram", "wordpiece", "characters", "words"]

CLEANING = ("empty", "long", "ratio", "control", "copy", "script", "duplicate")  # in the order they are tried
EXACT_TOKENIZERS = ("bpe", "characters")  # these give back every text as it was
MAX_LAYERS = 1_000
MAX_SIZE = 10_000_000  # of any one dimension of a model: far more than any computer can hold
PRODUCT_SCORES = ("dot", "scaled_dot", "cosine")  # these compare two vectors of one size as they are


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a model. The defaults are the base Transformer of Vaswani et al. (2017)."""

    family: Family = "transformer"
    """rnn, transformer, bert or gpt."""
    vocabulary: int = 37000
    """Tokens known: of the source, and of the target too where target_vocabulary is 0."""
    target_vocabulary: int = 0
    """Tokens known on the target side; 0: one vocabulary for both."""
    size: int = 512
    """Width of the model: of its layers, or of a recurrent decoder's state."""
    embedding: int = 0
    """Width of the embeddings of an rnn; 0: model.size."""
    encoder_size: int = 0
    """State of one direction of a recurrent encoder; 0: so that its directions together have model.size."""
    output_size: int = 0
    """Width of an rnn's layer below the softmax; 0: that of the embeddings."""
    heads: int = 8
    """Attention heads of a layer."""
    key_value_heads: int = 0
    """Heads of keys and values, each shared by several query heads; 0: one for each."""
    feed_forward_size: int = 2048
    """Width inside the feed-forward layers."""
    encoder_layers: int = 6
    """Layers that read."""
    decoder_layers: int = 6
    """Layers that write."""
    max_positions: int = 512
    """Rows of a learned position table; sinusoidal and rotary positions have no end."""
    positions: Positions = "sinusoidal"
    """sinusoidal (the paper's), sinusoidal_halves (all sines, then all cosines), learned or rotary."""
    rotary_base: float = 10000.0
    """Longest wavelength of rotary positions, in units of 2 pi."""
    norm: Literal["layer", "rms"] = "layer"
    """LayerNorm or RMSNorm."""
    norm_placement: Literal["post", "pre"] = "post"
    """After each residual sum (the paper) or before each sub-layer, with one more norm at the end."""
    norm_epsilon: float = 1e-5
    """What keeps a norm from dividing by zero."""
    embedding_norm: bool = False
    """Normalise the embeddings before the first layer of a transformer (bert always does)."""
    scale_embeddings: bool = True
    """Multiply the embeddings of a transformer by the root of model.size."""
    activation: Activation = "relu"
    """relu, gelu, gelu_tanh (GPT-2's), silu or swiglu (gated: a third matrix)."""
    bias: bool = True
    """Biases in the layers' matrices."""
    output_bias: bool = False
    """A bias on the logits of a transformer or gpt."""
    tie_embeddings: Literal["all", "target", "none"] = "all"
    """Share source, target and output embeddings; target and output only; none."""
    dropout: float = 0.1
    """Dropout on embeddings and on what each sub-layer adds."""
    attention_dropout: float = 0.0
    """Dropout on attention weights."""
    token_types: int = 2
    """Segment types of a bert."""
    pooler: bool = True
    """A bert's dense layer on its first token."""
    mlm_head: bool = True
    """A bert's head that names the masked tokens, tied to its embeddings."""
    cell: Literal["gru", "lstm"] = "gru"
    """Cell of an rnn."""
    bidirectional: bool = True
    """An rnn's encoder reads both ways."""
    score: Score = "auto"
    """How queries are compared with keys; none: one fixed vector; auto: additive in an rnn, else scaled_dot."""
    feed: Literal["input", "output"] = "input"
    """Where an rnn's context goes: into the cell (attention from s(t-1)) or beside s(t) to the output."""

    def __post_init__(self) -> None:
        check_types("model", self)
        for name in ("encoder_layers", "decoder_layers"):
            in_range("model", self, name, 1, MAX_LAYERS)
        for name in ("vocabulary", "size", "heads", "feed_forward_size", "max_positions", "token_types"):
            in_range("model", self, name, 1, MAX_SIZE)
        for name in ("target_vocabulary", "embedding", "encoder_size", "output_size", "key_value_heads"):
            in_range("model", self, name, 0, MAX_SIZE)
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"model.{name} ({getattr(self, name)}) must be at least 0 and below 1")
        for name in ("norm_epsilon", "rotary_base"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"model.{name} ({getattr(self, name)}) must be a number above 0")
        if self.family == "rnn":
            self._check_recurrent()
        else:
            self._check_attentive()
        if (
            self.tie_embeddings == "all"
            and self.family in ("rnn", "transformer")
            and self.target_vocabulary
            not in (
                0,
                self.vocabulary,
            )
        ):
            raise ConfigError(
                f"model.tie_embeddings = all needs one vocabulary, and model.target_vocabulary "
                f"({self.target_vocabulary}) is not "
                f'model.vocabulary ({self.vocabulary}): set model.target_vocabulary=0 or model.tie_embeddings="target"'
            )

    def _check_attentive(self) -> None:
        if self.size % self.heads:
            raise ConfigError(f"model.size ({self.size}) must be a multiple of model.heads ({self.heads})")
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"model.heads ({self.heads}) must be a multiple of model.key_value_heads ({self.key_value_heads})"
            )
        if self.score == "none":
            raise ConfigError(f"model.score = none is for model.family = rnn: a {self.family} is made of attention")
        if self.positions == "rotary" and self.head_size % 2:
            raise ConfigError(
                "model.positions = rotary turns pairs of numbers: model.size / model.heads "
                f"({self.size} / {self.heads} = {self.head_size}) must be even"
            )
        if self.positions == "rotary" and self.family == "bert":
            raise ConfigError("model.positions = rotary is for transformer and gpt: a bert has learned positions")

    def _check_recurrent(self) -> None:
        directions = 2 if self.bidirectional else 1
        if not self.encoder_size and self.size % directions:
            raise ConfigError(f"model.size ({self.size}) must be even, or model.encoder_size given, to read both ways")
        if self.score in PRODUCT_SCORES and self.encoder_state_size != self.size:
            raise ConfigError(
                f"model.score = {self.score} needs encoder states ({self.encoder_state_size}) of the decoder's size "
                f"({self.size}): set model.encoder_size={self.size // directions} or model.score=general"
            )
        if self.tie_embeddings != "none" and self.deep_output_size != self.embedding_size:
            raise ConfigError(
                f"model.tie_embeddings = {self.tie_embeddings} uses the embeddings ({self.embedding_size}) as the "
                f"output matrix: set "
                f'model.output_size={self.embedding_size} or model.tie_embeddings="none"'
            )

    # What the zeros stand for.

    @property
    def head_size(self) -> int:
        return self.size // self.heads

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.key_value_heads or self.heads

    @property
    def embedding_size(self) -> int:
        return (self.embedding or self.size) if self.family == "rnn" else self.size

    @property
    def direction_size(self) -> int:
        """State of one direction of a recurrent encoder."""
        return self.encoder_size or self.size // (2 if self.bidirectional else 1)

    @property
    def encoder_state_size(self) -> int:
        """What a recurrent encoder says of one source token."""
        return self.direction_size * (2 if self.bidirectional else 1)

    @property
    def deep_output_size(self) -> int:
        """Width of the layer below an rnn's softmax."""
        return self.output_size or self.embedding_size

    @property
    def target_vocabulary_size(self) -> int:
        """Size of the vocabulary that is written."""
        return (self.family in ("rnn", "transformer") and self.target_vocabulary) or self.vocabulary

    @property
    def score_name(self) -> str:
        if self.score != "auto":
            return self.score
        return "additive" if self.family == "rnn" else "scaled_dot"

    @property
    def has_position_table(self) -> bool:
        """Whether positions are looked up, so that no sentence is longer than model.max_positions."""
        return self.positions == "learned" or self.family == "bert"

    @property
    def gated(self) -> bool:
        return self.activation == "swiglu"


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """From text to ids: how it is cut, and which lines are left out."""

    tokenizer: TokenizerKind = "bpe"
    """bpe (of bytes: nothing is unknown), unigram, wordpiece, characters or words."""
    vocabulary: int = 0
    """Tokens to learn, special ones included; 0: as many as the data suggest."""
    shared: bool = True
    """One tokenizer for both sides of a pair; with two, model.tie_embeddings is target or none."""
    lowercase: bool = False
    """Read capitals as small letters."""
    bpe_dropout: float = 0.0
    """Share of merges left out at random in training, so that words are seen cut in several ways."""
    bpe_dropout_variants: int = 8
    """Differently cut copies of the corpus that bpe_dropout makes; the epochs take them in turn."""
    tags: str = ""
    """Tokens of your own that are never cut, such as <2fr>, with blanks between."""
    max_length: int = 256
    """Tokens a sentence may have."""
    max_length_ratio: float = 4.0
    """How many times as long as the other side a side may be, in tokens (3 are added to both for short ones)."""
    cleaning: str = " ".join(CLEANING)
    """What is left out: empty, long, ratio, control (characters), copy (of the source), script, duplicate."""
    held_out: int = 2000
    """Pairs kept apart for validation when none are given, never more than 2 in 100; of running text the last tenth."""
    continuous: bool = False
    """A text file is one running text, for a gpt or bert: line ends are tokens too, and nothing is left out."""
    context_length: int = 512
    """Tokens a row has when texts are packed for a gpt or bert."""
    isolate_texts: bool = False
    """Packed texts do not see each other."""
    mask_probability: float = 0.15
    """Share of the tokens a bert has to guess."""
    fingerprint: str = ""
    """Of the tokenizer a model was trained with; training writes it, and another tokenizer is refused."""

    def __post_init__(self) -> None:
        check_types("text", self)
        for name, least in (
            ("vocabulary", 0),
            ("bpe_dropout_variants", 1),
            ("max_length", 1),
            ("held_out", 0),
            ("context_length", 2),
        ):
            at_least("text", self, name, least)
        for name in ("bpe_dropout", "mask_probability"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"text.{name} ({getattr(self, name)}) must be at least 0 and below 1")
        if self.bpe_dropout and self.tokenizer != "bpe":
            raise ConfigError(f"text.bpe_dropout is for text.tokenizer = bpe, and it is {self.tokenizer}")
        if self.continuous and self.tokenizer not in EXACT_TOKENIZERS:
            raise ConfigError(
                f"text.continuous keeps line ends, and text.tokenizer = {self.tokenizer} does not: "
                f"set text.tokenizer to {' or '.join(EXACT_TOKENIZERS)}"
            )
        if self.continuous and self.isolate_texts:
            raise ConfigError(
                "text.continuous makes one text of a file, and text.isolate_texts keeps its lines apart: choose one"
            )
        if not self.max_length_ratio >= 1:
            raise ConfigError(f"text.max_length_ratio ({self.max_length_ratio}) must be at least 1")
        for rule in self.cleaning.split():
            if rule not in CLEANING:
                raise ConfigError(f"text.cleaning has no rule {rule}.{did_you_mean(rule, CLEANING)}")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained."""

    updates: int = 20000
    """Optimizer updates in all."""
    batch_tokens: int = 8192
    """Positions, padded, of source and target together in a micro-batch, over all processes."""
    gradient_accumulation: int = 1
    """Micro-batches an update is made of."""
    equal_lengths: bool = False
    """Only sources of one length share a batch: no padding mask is needed, and more batches are."""
    batch_shapes: int = 0
    """Batches come in so many shapes, which a GPU replays as CUDA graphs: small models need no less; 0: in any."""
    compile: Literal["auto", "yes", "no"] = "auto"
    """torch.compile; auto: on a GPU, in runs long enough to win back the time it takes."""
    sharded: bool = False
    """Weights and optimizer are divided among the processes (FSDP2): for models that do not fit one GPU."""
    learning_rate: float = 0.0007
    """Highest learning rate; of noam the factor before size^-0.5."""
    schedule: Literal["inverse_sqrt", "noam", "cosine", "linear", "constant"] = "inverse_sqrt"
    """How the rate falls after the warm-up."""
    warmup: int = 1000
    """Updates over which the rate rises from zero."""
    weight_decay: float = 0.0
    """Decoupled weight decay of the matrices (AdamW)."""
    beta2: float = 0.98
    """How long Adam remembers squared gradients."""
    max_grad_norm: float = 1.0
    """Largest norm of a gradient; 0: any."""
    label_smoothing: float = 0.1
    """Label smoothing: the share of each target spread evenly over the vocabulary."""
    r_drop: float = 0.0
    """Weight of R-Drop: two passes with different dropout are drawn to each other; 0: one pass."""
    guided_alignment: float = 0.0
    """Weight of guided alignment: a head is drawn to word alignments (--alignments), or to its layer's own; 0: none."""
    freeze: str = ""
    """Parameters that stay as they are, such as encoder.* or source.token, with blanks between."""
    lora_rank: int = 0
    """Rank of the small matrices that alone are trained, beside those of a model given by --from; 0: none."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16 keeps the weights in fp32; auto: bf16 on a GPU that has it, else fp32."""
    ema_decay: float = 0.0
    """Of the exponential average of the weights that is validated and kept; 0: none."""
    average_checkpoints: int = 0
    """Average the last so many checkpoints at the end; 0: none."""
    validate_every: int = 1000
    """Updates from one validation to the next."""
    save_every: int = 1000
    """Updates from one checkpoint to the next."""
    keep_checkpoints: int = 3
    """Checkpoints kept beside the best."""
    patience: int = 0
    """Validations without improvement after which training ends; 0: never."""
    metric: Literal["bleu", "chrf", "loss"] = "bleu"
    """What the best model is chosen by."""
    film: int = 0
    """Validation sentences whose attention is kept at every validation, and drawn as a film at the end."""
    seed: int = 1
    """Of all randomness."""

    def __post_init__(self) -> None:
        check_types("train", self)
        for name in (
            "updates",
            "batch_tokens",
            "gradient_accumulation",
            "validate_every",
            "save_every",
            "keep_checkpoints",
        ):
            at_least("train", self, name, 1)
        for name in ("batch_shapes", "warmup", "average_checkpoints", "patience", "film", "seed", "lora_rank"):
            at_least("train", self, name, 0)
        for name in ("learning_rate", "weight_decay", "max_grad_norm", "r_drop", "guided_alignment"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"train.{name} ({getattr(self, name)}) must be at least 0")
        for name in ("label_smoothing", "ema_decay", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"train.{name} ({getattr(self, name)}) must be at least 0 and below 1")
        if self.lora_rank and self.freeze:
            raise ConfigError(
                "train.lora_rank freezes all but the adapters, so train.freeze has nothing left: give one"
            )


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How a model's probabilities become sentences."""

    beams: int = 5
    """Hypotheses kept side by side; 1: greedy."""
    length_penalty: float = 1.0
    """Power of the length that log-probabilities are divided by; 0: short ones win."""
    coverage_penalty: float = 0.0
    """Weight of the penalty for source words that got little attention."""
    diversity_penalty: float = 0.0
    """Penalty for tokens other groups of the beam have chosen; with alternatives, they differ more."""
    max_length_ratio: float = 3.0
    """How many times as long as its source a translation may become, in tokens,"""
    max_length_extra: int = 10
    """and how many tokens more."""
    min_length: int = 0
    """Tokens a translation has at least."""
    no_repeat_ngram: int = 0
    """Length of the n-grams that may not come twice; 0: all may."""
    temperature: float = 1.0
    """Of sampling: below 1 the probable becomes more so."""
    top_k: int = 0
    """Sample from so many of the most probable tokens; 0: from all."""
    top_p: float = 1.0
    """Sample from the most probable tokens that together have this probability."""
    min_p: float = 0.0
    """Sample from tokens that have at least this share of the most probable one's probability."""

    def __post_init__(self) -> None:
        check_types("decode", self)
        if not 1 <= self.beams <= 100:
            raise ConfigError(f"decode.beams ({self.beams}) must be from 1 to 100")
        for name in ("max_length_extra", "min_length", "no_repeat_ngram", "top_k"):
            at_least("decode", self, name, 0)
        for name in ("length_penalty", "coverage_penalty", "diversity_penalty", "max_length_ratio", "temperature"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"decode.{name} ({getattr(self, name)}) must be at least 0")
        for name in ("top_p", "min_p"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"decode.{name} ({getattr(self, name)}) must be from 0 to 1")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run, section by section."""

    model: ModelConfig = field(default_factory=ModelConfig)
    text: TextConfig = field(default_factory=TextConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        if self.text.continuous and self.model.family not in ("gpt", "bert"):
            raise ConfigError(
                f"text.continuous is for model.family = gpt or bert: a {self.model.family} learns from pairs"
            )
        if self.train.film and (self.model.family in ("gpt", "bert") or self.model.score == "none"):
            raise ConfigError(
                "train.film shows what a translator looks at in its source, and this model does not look: "
                "set train.film=0, model.family=transformer, or rnn with a model.score"
            )

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """A config from nested plain values; unknown names are refused with the nearest known one."""
        sections = {f.name: f.default_factory for f in dataclasses.fields(cls)}
        for name, section in values.items():
            if name not in sections:
                raise ConfigError(f"There is no section {name}.{did_you_mean(name, sections)}")
            if not isinstance(section, Mapping):
                raise ConfigError(f"{name} is a section with fields, not a value")
        return cls(**{name: _section(name, make, values.get(name, {})) for name, make in sections.items()})

    def over(self, values: Mapping[str, Any]) -> Self:
        """This config with nested plain values laid over it."""
        mine: dict[str, Any] = self.values()
        for name, section in values.items():
            both = name in mine and isinstance(section, Mapping)
            mine[name] = {**mine[name], **section} if both else section
        return self.read(mine)

    def with_values(self, assignments: Iterable[str] | Mapping[str, Any]) -> Self:
        """This config with fields set: `section.field=value`, or a mapping of {"section.field": value}."""
        values = self.values()
        pairs = assignments if isinstance(assignments, Mapping) else parse_assignments(assignments)
        for path, value in pairs.items():
            section, _, name = path.partition(".")
            if not name:
                raise ConfigError(f"{path!r} is not of the form section.field")
            if section not in values:
                raise ConfigError(f"There is no section {section}.{did_you_mean(section, values)}")
            values[section][name] = value
        return self.read(values)

    def values(self) -> dict[str, dict[str, Any]]:
        """Nested plain values, all fields, ready for JSON."""
        return dataclasses.asdict(self)


def _section(name: str, make: Any, values: Mapping[str, Any]) -> Any:
    known = [f.name for f in dataclasses.fields(make)]
    options = [f"{name}.{field}" for field in known]
    for key in values:
        if key not in known:
            raise ConfigError(f"There is no option {name}.{key}.{did_you_mean(f'{name}.{key}', options)}")
    return make(**values)


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """{"model.size": 256} from ["model.size=256"]."""
    values = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or "." not in path:
            raise ConfigError(f"{assignment!r} is not of the form section.field=value")
        values[path.strip()] = _parse(text.strip())
    return values


def _parse(text: str) -> Any:
    """A value as TOML would read it; anything TOML does not know is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def in_range(section: str, config: Any, name: str, low: int, high: int) -> None:
    value = getattr(config, name)
    if value < low:
        raise ConfigError(f"{section}.{name} ({value}) must be at least {low}")
    if value > high:
        raise ConfigError(f"{section}.{name} ({value}) must be at most {high:,}")


def at_least(section: str, config: Any, name: str, least: int) -> None:
    value = getattr(config, name)
    if value < least:
        raise ConfigError(f"{section}.{name} ({value}) must be at least {least}")


def check_types(section: str, config: Any) -> None:
    """Every field holds what its annotation says: numbers are numbers, a choice is one of the choices."""
    for name, hint in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if get_origin(hint) is Literal:
            if value not in get_args(hint):
                message = f"{section}.{name} ({value}) must be one of {', '.join(get_args(hint))}."
                raise ConfigError(message + (did_you_mean(value, get_args(hint)) if isinstance(value, str) else ""))
        elif hint is float and type(value) is int:
            object.__setattr__(config, name, float(value))
        elif type(value) is not hint:
            kind = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[hint]
            raise ConfigError(f"{section}.{name} ({value!r}) must be {kind}")


# Known shapes. bert's are as published: without the masked-token head, which training adds.
_BERT = {
    "family": "bert",
    "vocabulary": 30522,
    "positions": "learned",
    "norm_epsilon": 1e-12,
    "activation": "gelu",
    "scale_embeddings": False,
    "embedding_norm": True,
    "attention_dropout": 0.1,
    "mlm_head": False,
}
_GPT2 = {
    "family": "gpt",
    "vocabulary": 50257,
    "positions": "learned",
    "max_positions": 1024,
    "norm_placement": "pre",
    "activation": "gelu_tanh",
    "scale_embeddings": False,
    "attention_dropout": 0.1,
}
_RNN = {
    "family": "rnn",
    "vocabulary": 30000,
    "size": 1000,
    "embedding": 620,
    "encoder_size": 1000,
    "output_size": 500,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "feed": "input",
    "tie_embeddings": "none",
    "dropout": 0.0,
}

PRESETS: dict[str, dict[str, Any]] = {
    "transformer-base": {},
    "transformer-big": {"size": 1024, "heads": 16, "feed_forward_size": 4096, "dropout": 0.3},
    "bert-base": {**_BERT, "size": 768, "heads": 12, "feed_forward_size": 3072, "encoder_layers": 12},
    "bert-large": {**_BERT, "size": 1024, "heads": 16, "feed_forward_size": 4096, "encoder_layers": 24},
    "gpt2": {**_GPT2, "size": 768, "heads": 12, "feed_forward_size": 3072, "decoder_layers": 12},
    "gpt2-medium": {**_GPT2, "size": 1024, "heads": 16, "feed_forward_size": 4096, "decoder_layers": 24},
    "gpt2-large": {**_GPT2, "size": 1280, "heads": 20, "feed_forward_size": 5120, "decoder_layers": 36},
    "gpt2-xl": {**_GPT2, "size": 1600, "heads": 25, "feed_forward_size": 6400, "decoder_layers": 48},
    "rnnsearch-50": {**_RNN, "score": "additive"},
    "rnnencdec": {**_RNN, "score": "none", "bidirectional": False},
}  # fmt: skip


def preset(name: str) -> Config:
    """A known shape by name."""
    if name not in PRESETS:
        raise ConfigError(f"There is no preset {name}.{did_you_mean(name, PRESETS)}")
    return Config.read({"model": PRESETS[name]})


def from_toml(path: Path) -> Config:
    """A recipe file."""
    return Config.read(_load(path, lambda text: tomllib.loads(text)))


def from_json(path: Path) -> Config:
    """The `config.json` of a model folder."""
    return Config.read(_load(path, json.loads))


def _load(path: Path, parse: Any) -> dict[str, Any]:
    try:
        values = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not a config: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is not a config: it holds no sections")
    return values


def to_json(config: Config) -> str:
    """The text of `config.json`."""
    return json.dumps(config.values(), indent=2, allow_nan=False) + "\n"


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; a name no file can have is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def find_config(name: str, base: Config | None = None) -> Config:
    """The config behind a preset's name, a recipe's name or file, or a model folder; the rest is as in `base`."""
    return (base or Config()).over(_find_values(name))


def _find_values(name: str) -> dict[str, Any]:
    if name in PRESETS:
        return {"model": PRESETS[name]}
    path = Path(name)
    if is_folder(path):
        if not (path / "config.json").is_file():
            raise FolderError(f"{name} is not a model folder: it has no config.json")
        return _load(path / "config.json", json.loads)
    if path.suffix == ".toml":
        return _load(path, tomllib.loads)
    recipes = {recipe.stem: recipe for recipe in (Path(__file__).parent / "recipes").glob("*.toml")}
    if name in recipes:
        return _load(recipes[name], tomllib.loads)
    raise ConfigError(f"There is no preset, recipe or folder {name}.{did_you_mean(name, [*PRESETS, *recipes])}")
