"""The config: a frozen dataclass in sections, read from presets, TOML, JSON and `section.field=value`."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args, get_origin, get_type_hints

from regard.errors import ConfigError, FolderError, did_you_mean, other_tool_advice
from regard.folders import read_json

Family = Literal["rnn", "transformer", "bert", "gpt"]
Positions = Literal["sinusoidal", "sinusoidal_halves", "sinusoidal_fairseq", "learned", "rotary"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu"]
Score = Literal["auto", "none", "additive", "dot", "scaled_dot", "general", "cosine"]
EarlyStopping = Literal["shrink", "yes", "no", "never"]
TokenizerKind = Literal["bpe", "unigram", "wordpiece", "characters", "words"]

CONFIG = "config.json"  # of a model folder
CLEANING = ("empty", "long", "ratio", "control", "copy", "script", "duplicate")  # in the order they are applied
EXACT_TOKENIZERS = ("bpe", "unigram", "characters")  # these decode to exactly the text they encoded
MAX_LAYERS = 1_000
MAX_PACKED_HEAD = 128  # the largest head for which packed attention has a kernel
MAX_SIZE = 10_000_000  # of any one dimension of a model: far more than any computer can hold
MAX_OUTPUT = 100_000  # tokens of a translation
MAX_LENGTH_RATIO = 1_000
PRODUCT_SCORES = ("dot", "scaled_dot", "cosine")  # these need query and key of the same size


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a model. The defaults are the base Transformer of Vaswani et al. (2017)."""

    family: Family = "transformer"
    """The model family: rnn, transformer, bert or gpt."""
    vocabulary: int = 37000
    """Size of the source vocabulary, and of the target vocabulary where target_vocabulary is 0."""
    target_vocabulary: int = 0
    """Size of the target vocabulary; 0: one vocabulary for both sides."""
    size: int = 512
    """Hidden size of the layers, or of the state of a recurrent decoder."""
    embedding: int = 0
    """Size of the embeddings of an rnn; 0: model.size."""
    encoder_size: int = 0
    """State size of one direction of a recurrent encoder; 0: both directions together have model.size."""
    output_size: int = 0
    """Size of the layer below the softmax of an rnn; 0: the size of its embeddings."""
    heads: int = 8
    """Attention heads per layer."""
    key_value_heads: int = 0
    """Heads of keys and values, each shared by several query heads (grouped-query attention); 0: model.heads."""
    feed_forward_size: int = 2048
    """Hidden size of the feed-forward layers."""
    encoder_layers: int = 6
    """Number of encoder layers."""
    decoder_layers: int = 6
    """Number of decoder layers."""
    max_positions: int = 512
    """Size of a learned position table; sinusoidal and rotary positions have no limit."""
    positions: Positions = "sinusoidal"
    """Positions: sinusoidal (the paper's), sinusoidal_halves (all sines, then all cosines), sinusoidal_fairseq (the
    same with other frequencies, from position 2), learned or rotary."""
    rotary_base: float = 10000.0
    """Base of the rotary frequencies (RoPE theta)."""
    norm: Literal["layer", "rms"] = "layer"
    """LayerNorm or RMSNorm."""
    norm_placement: Literal["post", "pre"] = "post"
    """Post-norm (after each residual sum, the paper's) or pre-norm (before each sub-layer, and once at the end)."""
    norm_epsilon: float = 1e-5
    """Epsilon of the norms, against division by zero."""
    embedding_norm: bool = False
    """Normalise the embeddings before the first layer of a transformer (a bert always does)."""
    scale_embeddings: bool = True
    """Multiply the embeddings of a transformer by the square root of model.size."""
    activation: Activation = "relu"
    """Feed-forward activation: relu, gelu, gelu_tanh (GPT-2's), silu or swiglu (gated, with a third matrix)."""
    bias: bool = True
    """Whether linear layers have biases."""
    output_bias: bool = False
    """Whether the logits of a transformer or gpt have a bias."""
    tie_embeddings: Literal["all", "target", "none"] = "all"
    """Weight tying: source, target and output embeddings (all), target and output (target), or none."""
    dropout: float = 0.1
    """Dropout on embeddings and on the output of each sub-layer."""
    attention_dropout: float = 0.0
    """Dropout on attention weights."""
    token_types: int = 2
    """Number of segment types of a bert; 0: none."""
    pooler: bool = True
    """Whether a bert has a pooler, a dense layer on its first token."""
    mlm_head: bool = True
    """Whether a bert has a masked-language-model head, tied to its embeddings."""
    cell: Literal["gru", "lstm"] = "gru"
    """Recurrent cell of an rnn: gru or lstm."""
    bidirectional: bool = True
    """Whether the encoder of an rnn is bidirectional."""
    score: Score = "auto"
    """Attention score; none: one fixed context vector; auto: additive in an rnn, else scaled_dot."""
    feed: Literal["input", "output"] = "input"
    """Where the context of an rnn goes: into the cell (attention from s(t-1)) or to the output, beside s(t)."""

    def __post_init__(self) -> None:
        check_types(self)
        check_range(self, "encoder_layers decoder_layers", 1, MAX_LAYERS)
        check_range(self, "vocabulary size heads feed_forward_size max_positions", 1, MAX_SIZE)
        check_range(
            self, "target_vocabulary embedding encoder_size output_size key_value_heads token_types", 0, MAX_SIZE
        )
        check_range(self, "dropout attention_dropout", 0, below=1)
        for name in ("norm_epsilon", "rotary_base"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"model.{name} ({getattr(self, name)}) must be a number above 0")
        if self.family == "rnn":
            self._check_recurrent()
        else:
            self._check_transformer()
        two_vocabularies = self.is_translator and self.target_vocabulary not in (0, self.vocabulary)
        if self.tie_embeddings == "all" and two_vocabularies:
            raise ConfigError(
                f"model.tie_embeddings = all needs one vocabulary, and model.target_vocabulary "
                f"({self.target_vocabulary}) is not model.vocabulary ({self.vocabulary}): "
                'set model.target_vocabulary=0 or model.tie_embeddings="target"'
            )

    def _check_transformer(self) -> None:
        if self.size % self.heads:
            raise ConfigError(f"model.size ({self.size}) must be a multiple of model.heads ({self.heads})")
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"model.heads ({self.heads}) must be a multiple of model.key_value_heads ({self.key_value_heads})"
            )
        if self.score == "none":
            raise ConfigError(f"model.score = none is for model.family = rnn: a {self.family} needs attention")
        if self.positions == "rotary" and self.head_size % 2:
            raise ConfigError(
                "model.positions = rotary rotates pairs of numbers: model.size / model.heads "
                f"({self.size} / {self.heads} = {self.head_size}) must be even"
            )
        if self.positions == "rotary" and self.family == "bert":
            raise ConfigError("model.positions = rotary is for transformer and gpt: a bert has learned positions")

    def _check_recurrent(self) -> None:
        directions = 2 if self.bidirectional else 1
        if not self.encoder_size and self.size % directions:
            raise ConfigError(
                f"model.size ({self.size}) must be even for a bidirectional encoder, or set model.encoder_size"
            )
        if self.score in PRODUCT_SCORES and self.encoder_state_size != self.size:
            raise ConfigError(
                f"model.score = {self.score} needs encoder states ({self.encoder_state_size}) of the decoder's size "
                f"({self.size}): set model.encoder_size={self.size // directions} or model.score=general"
            )
        if self.tie_embeddings != "none" and self.deep_output_size != self.embedding_size:
            raise ConfigError(
                f"model.tie_embeddings = {self.tie_embeddings} uses the embeddings ({self.embedding_size}) as the "
                f'output matrix: set model.output_size={self.embedding_size} or model.tie_embeddings="none"'
            )

    # Values that follow from the fields

    @property
    def is_translator(self) -> bool:
        """Whether the family learns from pairs; a gpt or bert learns from single texts."""
        return self.family in ("rnn", "transformer")

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
        """State size of one direction of a recurrent encoder."""
        return self.encoder_size or self.size // (2 if self.bidirectional else 1)

    @property
    def encoder_state_size(self) -> int:
        """Size of a recurrent encoder's state of one source token, both directions together."""
        return self.direction_size * (2 if self.bidirectional else 1)

    @property
    def deep_output_size(self) -> int:
        """Size of the layer below an rnn's softmax."""
        return self.output_size or self.embedding_size

    @property
    def target_vocabulary_size(self) -> int:
        """Size of the vocabulary that the model generates."""
        return (self.is_translator and self.target_vocabulary) or self.vocabulary

    @property
    def score_name(self) -> str:
        if self.score != "auto":
            return self.score
        return "additive" if self.family == "rnn" else "scaled_dot"

    @property
    def has_position_table(self) -> bool:
        """Whether positions are a learned table, which limits sentences to model.max_positions."""
        return self.positions == "learned" or self.family == "bert"

    @property
    def gated(self) -> bool:
        return self.activation == "swiglu"


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """From text to token ids: tokenization and cleaning."""

    tokenizer: TokenizerKind = "bpe"
    """Kind of tokenizer: bpe (byte-level: nothing is unknown), unigram, wordpiece, characters or words."""
    vocabulary: int = 0
    """Vocabulary size to learn, special tokens included; 0: chosen from the data."""
    shared: bool = True
    """One tokenizer for both sides; with two, model.tie_embeddings is target or none."""
    lowercase: bool = False
    """Lowercase the text."""
    bpe_dropout: float = 0.0
    """BPE dropout: the probability that a merge is skipped in training, so that words are split in several ways."""
    bpe_dropout_variants: int = 8
    """Number of differently tokenized copies of the corpus for BPE dropout; the epochs take turns."""
    tags: str = ""
    """Custom tokens that are never split, such as <2fr>, separated by spaces."""
    max_length: int = 256
    """Maximum number of tokens of a sentence."""
    max_length_ratio: float = 4.0
    """Maximum ratio between the lengths of the two sides, in tokens (3 are added to both for short ones)."""
    cleaning: str = " ".join(CLEANING)
    """Cleaning rules: empty, long, ratio, control (characters), copy (of the source), script, duplicate.
    Of these, only empty and control are for single texts (gpt and bert)."""
    held_out: int = 2000
    """Pairs held out for validation without --valid, at most 2 %; of continuous text, the last tenth."""
    continuous: bool = False
    """Read a text file as one continuous text, for a gpt or bert: line ends are tokens, and nothing is cleaned."""
    context_length: int = 512
    """Tokens per row when texts are packed for a gpt or bert."""
    isolate_texts: bool = False
    """Packed texts do not attend to each other."""
    mask_probability: float = 0.15
    """Fraction of the tokens that are masked and predicted (bert)."""

    def __post_init__(self) -> None:
        check_types(self)
        check_range(self, "vocabulary held_out", 0)
        check_range(self, "bpe_dropout_variants max_length", 1)
        check_range(self, "context_length", 2)
        check_range(self, "bpe_dropout mask_probability", 0, below=1)
        if self.bpe_dropout and self.tokenizer != "bpe":
            raise ConfigError(f"text.bpe_dropout is for text.tokenizer = bpe, and it is {self.tokenizer}")
        if self.continuous and self.tokenizer not in EXACT_TOKENIZERS:
            raise ConfigError(
                f"text.continuous keeps line ends, and text.tokenizer = {self.tokenizer} does not: "
                f"set text.tokenizer to {' or '.join(EXACT_TOKENIZERS)}"
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
    """Number of optimizer updates; with train.minutes the length of the schedule, and of a finished run its updates."""
    minutes: float = 0.0
    """Minutes of the run, preparation and scoring included, instead of a number of updates (--minutes); 0: no limit."""
    batch_tokens: int = 8192
    """Padded source and target tokens in a micro-batch, over all processes."""
    gradient_accumulation: int = 1
    """Micro-batches per update."""
    batch_shapes: int = 0
    """Number of different batch shapes, which a GPU replays as CUDA graphs (for small models); 0: any shape."""
    packed: bool = False
    """Pack the pairs of a batch into one row without padding: for a transformer on a GPU, where it is faster."""
    compile: Literal["auto", "yes", "no"] = "auto"
    """Use torch.compile; auto: on a GPU, in runs long enough to gain from it."""
    sharded: bool = False
    """Shard weights and optimizer over the processes (FSDP2), for models that do not fit one GPU."""
    learning_rate: float = 0.0007
    """Peak learning rate; for noam, the factor before size^-0.5."""
    schedule: Literal["inverse_sqrt", "noam", "cosine", "linear", "constant"] = "inverse_sqrt"
    """How the learning rate falls after the warm-up."""
    warmup: int = 1000
    """Updates over which the learning rate rises from zero."""
    weight_decay: float = 0.0
    """Decoupled weight decay of the matrices (AdamW)."""
    beta2: float = 0.98
    """Adam's decay rate of squared gradients."""
    max_grad_norm: float = 1.0
    """Gradient clipping: the maximum norm of the gradient; 0: no clipping."""
    label_smoothing: float = 0.1
    """Label smoothing: the probability mass of each target that is spread evenly over the vocabulary."""
    r_drop: float = 0.0
    """Weight of the R-Drop loss: the divergence between two passes with different dropout; 0: off."""
    guided_alignment: float = 0.0
    """Weight of the guided alignment loss: a head learns --alignments; 0: off."""
    freeze: str = ""
    """Parameters that are not trained, such as encoder.* or source.token, separated by spaces."""
    lora_rank: int = 0
    """LoRA: rank of the matrices trained beside the frozen weights of --from; 0: train all weights."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of matrix products (weights stay in fp32); auto: bf16 on a GPU that supports it, else fp32."""
    ema_decay: float = 0.0
    """Decay of the exponential moving average of the weights, which is validated and kept; 0: off."""
    validate_every: int = 1000
    """Updates between validations."""
    save_every: int = 1000
    """Updates between checkpoints."""
    keep_checkpoints: int = 3
    """Checkpoints kept beside the best."""
    patience: int = 0
    """Early stopping: end after this many validations without improvement; 0: never."""
    metric: Literal["bleu", "chrf", "loss"] = "bleu"
    """Metric that chooses the best checkpoint."""
    film: int = 0
    """Validation sentences whose attention is recorded at every validation and shown as a film at the end."""
    seed: int = 1
    """Seed of all random choices."""

    def __post_init__(self) -> None:
        check_types(self)
        positive = "updates batch_tokens gradient_accumulation validate_every save_every keep_checkpoints"
        check_range(self, positive, 1)
        check_range(self, "batch_shapes warmup patience film lora_rank minutes", 0)
        check_range(self, "seed", 0, 2**63 - 1)
        check_range(self, "learning_rate weight_decay max_grad_norm r_drop guided_alignment", 0)
        check_range(self, "label_smoothing ema_decay beta2", 0, below=1)
        if self.lora_rank and self.freeze:
            raise ConfigError("train.lora_rank freezes all weights but LoRA's, so train.freeze has no effect: give one")


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """Search and sampling."""

    beams: int = 5
    """Beam size; 1: greedy search."""
    early_stopping: EarlyStopping = "shrink"
    """When a beam search ends. shrink: ended hypotheses take its places; yes, no, never: as in transformers."""
    first_token: str = ""
    """First token of every translation, such as a language code (--to); empty: the model chooses it."""
    length_penalty: float = 1.0
    """Length penalty: log-probabilities are divided by the length to this power; 0: none, short outputs win."""
    coverage_penalty: float = 0.0
    """Weight of the coverage penalty, for source words that got little attention."""
    max_length_ratio: float = 3.0
    """Maximum length of a translation, as a multiple of the source's tokens; see max_length_extra."""
    max_length_extra: int = 10
    """Tokens added to the maximum length that max_length_ratio gives."""
    min_length: int = 0
    """Minimum number of tokens of a translation."""
    no_repeat_ngram: int = 0
    """Size of n-grams that may not repeat; 0: all may."""
    temperature: float = 1.0
    """Sampling temperature; below 1, probable tokens become more probable."""
    top_k: int = 0
    """Sample from this many of the most probable tokens; 0: from all."""
    top_p: float = 1.0
    """Nucleus sampling: sample from the most probable tokens whose probabilities sum to this."""

    def __post_init__(self) -> None:
        check_types(self)
        check_range(self, "beams", 1, 100)
        check_range(self, "max_length_extra min_length no_repeat_ngram", 0, MAX_OUTPUT)
        check_range(self, "max_length_ratio", 0, MAX_LENGTH_RATIO)
        check_range(self, "length_penalty coverage_penalty temperature top_k", 0)
        check_range(self, "top_p", 0, 1)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The config of a run: model, text, train and decode."""

    model: ModelConfig = field(default_factory=ModelConfig)
    text: TextConfig = field(default_factory=TextConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        if self.text.continuous and self.model.is_translator:
            raise ConfigError(
                f"text.continuous is for model.family = gpt or bert: a {self.model.family} learns from pairs"
            )
        if self.train.packed and not self.can_pack:
            raise ConfigError(
                "train.packed is for a transformer whose score is not additive, with heads of at most "
                f"{MAX_PACKED_HEAD}, without model.attention_dropout and train.guided_alignment: set train.packed=false"
            )
        for name in ("film", "guided_alignment"):
            if getattr(self.train, name) and (not self.model.is_translator or self.model.score == "none"):
                raise ConfigError(
                    f"train.{name} needs a translator with attention to its source: set train.{name}=0, "
                    "model.family=transformer, or rnn with a model.score"
                )

    @property
    def can_pack(self) -> bool:
        """Whether train.packed is allowed: packed sentences have an attention kernel, which gives no weights."""
        model = self.model
        has_kernel = model.score != "additive" and not model.attention_dropout and model.head_size <= MAX_PACKED_HEAD
        return model.family == "transformer" and has_kernel and not self.train.guided_alignment

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """A config from nested plain values; an unknown name is an error that suggests the nearest one."""
        sections = {f.name: f.default_factory for f in dataclasses.fields(cls)}
        for name, section in values.items():
            if name not in sections:
                raise ConfigError(f"There is no section {name}.{did_you_mean(name, sections, 'sections')}")
            if not isinstance(section, Mapping):
                raise ConfigError(f"{name} is a section with fields, not a value")
            options = [f"{name}.{f.name}" for f in dataclasses.fields(cast(Any, sections[name]))]
            for option in [f"{name}.{key}" for key in section]:
                if option not in options:
                    raise ConfigError(f"There is no option {option}.{did_you_mean(option, options, 'fields')}")
        return cls(**{name: cast(Any, make)(**values.get(name, {})) for name, make in sections.items()})

    def over(self, values: Mapping[str, Any]) -> Self:
        """This config with some fields replaced by nested plain values."""
        merged: dict[str, Any] = self.values()
        for name, section in values.items():
            is_section = name in merged and isinstance(section, Mapping)
            merged[name] = {**merged[name], **section} if is_section else section
        return self.read(merged)

    def with_values(self, assignments: Iterable[str] | Mapping[str, Any]) -> Self:
        """This config with fields set: `section.field=value`, or a mapping of {"section.field": value}."""
        values: dict[str, dict[str, Any]] = {}
        pairs = assignments if isinstance(assignments, Mapping) else parse_assignments(assignments)
        for path, value in pairs.items():
            section, _, name = path.partition(".")
            values.setdefault(section, {})[name] = value
        return self.over(values)

    def values(self) -> dict[str, dict[str, Any]]:
        """All fields as nested plain values, ready for JSON."""
        return dataclasses.asdict(self)


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """{"model.size": 256} from ["model.size=256"]."""
    values = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or "." not in path:
            section = next((name for name, fields in Config().values().items() if path.strip() in fields), "")
            advice = f". Did you mean {section}.{assignment}?" if section else ""
            raise ConfigError(f"{assignment!r} is not of the form section.field=value{advice}")
        values[path.strip()] = _parse(text.strip())
    return values


def run_values(
    config: Mapping[str, Any], *, updates: int | None, minutes: float | None, seed: int | None
) -> dict[str, Any]:
    """The config fields that a call of train sets, by their names."""
    if minutes is not None and not 0 < minutes < math.inf:
        raise ConfigError(f"--minutes ({minutes}) must be a number of minutes above 0")
    if minutes is not None and (updates is not None or "train.updates" in config):
        raise ConfigError("--updates and --minutes both say how long to train: give one of them")
    values = {"train.updates": updates, "train.minutes": minutes if updates is None else 0.0, "train.seed": seed}
    return {**config, **{name: value for name, value in values.items() if value is not None}}


def _parse(text: str) -> Any:
    """Parse a value as TOML; anything else is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def check_range(config: Any, names: str, low: float, high: float = math.inf, *, below: float = math.inf) -> None:
    """Check that fields (names separated by spaces) are from `low` to `high` and less than `below`."""
    for name in names.split():
        value = getattr(config, name)
        if not (low <= value <= high and value < below):
            limit = f"from {low:g} to {high:,}" if high < math.inf else f"at least {low:g}"
            limit += f" and below {below:g}" if below < math.inf else ""
            raise ConfigError(f"{_section_name(config)}.{name} ({value}) must be {limit}")


def _section_name(config: Any) -> str:
    return type(config).__name__.removesuffix("Config").lower()


def check_types(config: Any) -> None:
    """Check every field against its annotation: its type, or one of the choices of a Literal."""
    section = _section_name(config)
    for name, hint in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if type(value) is int and abs(value) > 2**64:
            raise ConfigError(f"{section}.{name} is too large: whole numbers are at most 2^64")
        if type(value) is float and not math.isfinite(value):
            raise ConfigError(f"{section}.{name} ({value}) must be a finite number")
        if get_origin(hint) is Literal:
            if value not in get_args(hint):
                advice = other_tool_advice(f"{section}.{name}", str(value))
                message = f"{section}.{name} ({value}) must be one of {', '.join(get_args(hint))}"
                raise ConfigError(f"{message}.{advice}" if advice else message)
        elif hint is float and type(value) is int:
            object.__setattr__(config, name, float(value))
        elif type(value) is not hint:
            kind = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[hint]
            raise ConfigError(f"{section}.{name} ({value!r}) must be {kind}")


PRESETS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))


def preset(name: str) -> Config:
    """The config of a published model, such as bert-base."""
    if name not in PRESETS:
        raise ConfigError(f"There is no preset {name}.{did_you_mean(name, PRESETS)}")
    return Config.read({"model": PRESETS[name]})


def split_folders(name: str | Path) -> list[Path]:
    """The folders of a name: one folder, or several joined by `+`."""
    path = Path(name)
    return [path] if os.path.exists(path) else [Path(part) for part in str(name).split("+") if part] or [path]


def load_config(folder: Path) -> Config:
    """The config of a model folder."""
    path = _config_file(folder)
    values = read_json(path)
    if not isinstance(values, dict):
        raise FolderError(f"{path} is not a config: it holds no sections")
    if "model_type" in values or "architectures" in values:
        raise FolderError(f"{path} is from Hugging Face transformers. Import it first: regard import {folder} FOLDER")
    try:
        return Config.read(values)
    except ConfigError as error:
        raise FolderError(f"{path}: {error}") from error


def _config_file(folder: Path) -> Path:
    path = folder / CONFIG
    if not os.path.isdir(folder):  # unlike Path.is_dir, it never raises
        is_file = os.path.exists(folder)
        raise FolderError(f"{folder} is a file, not a model folder" if is_file else f"There is no folder {folder}")
    if not path.is_file():
        models = sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}"))
        advice = f". It holds model folders: give one of them, such as {folder / models[0]}" if models else ""
        raise FolderError(f"{folder} is not a model folder: it has no {CONFIG}{advice}")
    return path


def _load_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not a config: {error}") from error


def to_json(config: Config) -> str:
    """The text of `config.json`."""
    return json.dumps(config.values(), indent=2, allow_nan=False) + "\n"


def find_config(name: str, base: Config | None = None) -> Config:
    """The config of a preset, a recipe (a name or a TOML file) or a model folder; other fields are those of `base`."""
    return (base or Config()).over(find_values(name))


def find_values(name: str) -> dict[str, Any]:
    """The values that a preset, a recipe or a model folder sets."""
    if name in PRESETS:
        return {"model": PRESETS[name]}
    path = Path(name)
    if os.path.isdir(name):
        return load_config(path).values()
    if path.suffix == ".json":
        raise ConfigError(f"{name} is not a recipe. Give the model folder ({path.parent}) or a .toml file")
    if path.suffix == ".toml":
        return _load_toml(path)
    recipes = {recipe.stem: recipe for recipe in (Path(__file__).parent / "recipes").glob("*.toml")}
    if name in recipes:
        return _load_toml(recipes[name])
    raise ConfigError(f"There is no preset, recipe or folder {name}.{did_you_mean(name, [*PRESETS, *recipes])}")
