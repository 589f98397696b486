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
MAX_PACKED_HEAD = 128  # the largest head for which packed attention has a kernel
MAX_SIZE = 10_000_000  # of any one dimension of a model: far more than any computer can hold
MAX_OUTPUT = 100_000  # tokens of a translation


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a model. The defaults are the base Transformer of Vaswani et al. (2017)."""

    family: Family = "transformer"  # the model family: rnn, transformer, bert or gpt
    vocabulary: int = 37000  # size of the source vocabulary, and of the target vocabulary where target_vocabulary is 0
    target_vocabulary: int = 0  # size of the target vocabulary; 0: one vocabulary for both sides
    size: int = 512  # hidden size of the layers, or of the state of a recurrent decoder
    embedding: int = 0  # size of the embeddings of an rnn; 0: model.size
    encoder_size: int = 0  # state size of one direction of a recurrent encoder; 0: both together have model.size
    output_size: int = 0  # size of the layer below the softmax of an rnn; 0: the size of its embeddings
    heads: int = 8  # attention heads per layer
    key_value_heads: int = 0  # heads of keys and values (grouped-query attention); 0: model.heads
    feed_forward_size: int = 2048  # hidden size of the feed-forward layers
    encoder_layers: int = 6  # number of encoder layers
    decoder_layers: int = 6  # number of decoder layers
    max_positions: int = 512  # size of a learned position table; sinusoidal and rotary positions have no limit
    # sinusoidal (the paper's), sinusoidal_halves (all sines, then all cosines), sinusoidal_fairseq (the same with other
    # frequencies, from position 2), learned or rotary
    positions: Positions = "sinusoidal"
    rotary_base: float = 10000.0  # base of the rotary frequencies (RoPE theta)
    norm: Literal["layer", "rms"] = "layer"  # LayerNorm or RMSNorm
    norm_placement: Literal["post", "pre"] = "post"  # after each residual sum (the paper's) or before each sub-layer
    norm_epsilon: float = 1e-5  # epsilon of the norms, against division by zero
    embedding_norm: bool = False  # normalise the embeddings of a transformer (a bert always does)
    scale_embeddings: bool = True  # multiply the embeddings of a transformer by the square root of model.size
    activation: Activation = "relu"  # relu, gelu, gelu_tanh (GPT-2's), silu or swiglu (gated, with a third matrix)
    bias: bool = True  # whether linear layers have biases
    output_bias: bool = False  # whether the logits of a transformer or gpt have a bias
    # weight tying: one matrix for source, target and output embeddings (all), for target and output (target), or none
    tie_embeddings: Literal["all", "target", "none"] = "all"
    dropout: float = 0.1  # dropout on embeddings and on the output of each sub-layer
    attention_dropout: float = 0.0  # dropout on attention weights
    token_types: int = 2  # number of segment types of a bert; 0: none
    pooler: bool = True  # whether a bert has a pooler, a dense layer on its first token
    mlm_head: bool = True  # whether a bert has a masked-language-model head, tied to its embeddings
    cell: Literal["gru", "lstm"] = "gru"  # recurrent cell of an rnn: gru or lstm
    bidirectional: bool = True  # whether the encoder of an rnn is bidirectional
    score: Score = "auto"  # attention score; none: one fixed context vector; auto: additive in an rnn, else scaled_dot
    # where the context of an rnn goes: into the cell (attention from s(t-1)), or to the output, beside s(t)
    feed: Literal["input", "output"] = "input"

    def __post_init__(self) -> None:
        check_types(self)
        check_range(self, "encoder_layers decoder_layers", 1, 1000)
        check_range(self, "vocabulary size heads feed_forward_size max_positions", 1, MAX_SIZE)
        optional = "target_vocabulary embedding encoder_size output_size key_value_heads token_types"
        check_range(self, optional, 0, MAX_SIZE)
        check_range(self, "dropout attention_dropout", 0, below=1)
        for name in ("norm_epsilon", "rotary_base"):
            require(getattr(self, name) > 0, f"model.{name} ({getattr(self, name)}) must be a number above 0")
        if self.family == "rnn":
            self._check_recurrent()
        else:
            self._check_transformer()
        require(
            self.tie_embeddings != "all" or self.target_vocabulary_size == self.vocabulary,
            "model.tie_embeddings = all needs one vocabulary: "
            'set model.target_vocabulary=0 or model.tie_embeddings="target"',
        )

    def _check_transformer(self) -> None:
        size, heads, groups = self.size, self.heads, self.kv_heads
        require(size % heads == 0, f"model.size ({size}) must be a multiple of model.heads ({heads})")
        require(heads % groups == 0, f"model.heads ({heads}) must be a multiple of model.key_value_heads ({groups})")
        require(self.score != "none", f"model.score = none is for model.family = rnn: a {self.family} needs attention")
        if self.positions == "rotary":
            require(self.family != "bert", "model.positions = rotary is for transformer and gpt, not for bert")
            require(
                self.head_size % 2 == 0,
                "model.positions = rotary: model.size / model.heads "
                f"({size} / {heads} = {self.head_size}) must be even",
            )

    def _check_recurrent(self) -> None:
        directions = 2 if self.bidirectional else 1
        require(
            self.encoder_size or self.size % directions == 0,
            f"model.size ({self.size}) must be even for a bidirectional encoder, or set model.encoder_size",
        )
        require(  # a product needs query and key of the same size
            self.score not in ("dot", "scaled_dot", "cosine") or self.encoder_state_size == self.size,
            f"model.score = {self.score} needs encoder states ({self.encoder_state_size}) of the decoder's size "
            f"({self.size}): set model.encoder_size={self.size // directions} or model.score=general",
        )
        require(
            self.tie_embeddings == "none" or self.deep_output_size == self.embedding_size,
            f"model.tie_embeddings = {self.tie_embeddings} uses the embeddings ({self.embedding_size}) as the "
            f'output matrix: set model.output_size={self.embedding_size} or model.tie_embeddings="none"',
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
        return (self.family == "rnn" and self.embedding) or self.size

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

    tokenizer: TokenizerKind = "bpe"  # bpe (byte-level: nothing is unknown), unigram, wordpiece, characters or words
    vocabulary: int = 0  # vocabulary size to learn, special tokens included; 0: chosen from the data
    shared: bool = True  # one tokenizer for both sides; with two, model.tie_embeddings is target or none
    lowercase: bool = False  # lowercase the text
    bpe_dropout: float = 0.0  # the probability that a merge is skipped in training: words are split in several ways
    bpe_dropout_variants: int = 8  # differently tokenized copies of the corpus for BPE dropout; the epochs take turns
    tags: str = ""  # custom tokens that are never split, such as <2fr>, separated by spaces
    max_length: int = 256  # maximum number of tokens of a sentence
    max_length_ratio: float = 4.0  # maximum ratio of the lengths of the two sides, in tokens (3 are added to both)
    # rules: empty, long, ratio, control (characters), copy (of the source), script, duplicate; only empty and control
    # are for single texts (gpt and bert)
    cleaning: str = " ".join(CLEANING)
    held_out: int = 2000  # pairs held out without --valid, at most 2 %; of continuous text, the last tenth
    continuous: bool = False  # read one continuous text (gpt and bert): line ends are tokens, nothing is cleaned
    context_length: int = 512  # tokens per row when texts are packed for a gpt or bert
    isolate_texts: bool = False  # packed texts do not attend to each other
    mask_probability: float = 0.15  # fraction of the tokens that are masked and predicted (bert)

    def __post_init__(self) -> None:
        check_types(self)
        check_range(self, "vocabulary held_out", 0)
        check_range(self, "bpe_dropout_variants max_length max_length_ratio", 1)
        check_range(self, "context_length", 2)
        check_range(self, "bpe_dropout mask_probability", 0, below=1)
        require(not self.bpe_dropout or self.tokenizer == "bpe", "text.bpe_dropout is for text.tokenizer = bpe")
        require(
            not self.continuous or self.tokenizer in EXACT_TOKENIZERS,
            f"text.continuous keeps line ends: set text.tokenizer to {' or '.join(EXACT_TOKENIZERS)}",
        )
        for rule in self.cleaning.split():
            if rule not in CLEANING:
                raise ConfigError(f"text.cleaning has no rule {rule}.{did_you_mean(rule, CLEANING)}")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained."""

    updates: int = 20000  # optimizer updates; with train.minutes the length of the schedule, and at the end those made
    minutes: float = 0.0  # minutes of the run, preparation and scoring included, instead of updates; 0: no limit
    batch_tokens: int = 8192  # padded source and target tokens in a micro-batch, over all processes
    gradient_accumulation: int = 1  # micro-batches per update
    batch_shapes: int = 0  # number of batch shapes, which a GPU replays as CUDA graphs (small models); 0: any shape
    packed: bool = False  # pack the pairs of a batch into one row without padding (a transformer on a GPU)
    compile: Literal["auto", "yes", "no"] = "auto"  # torch.compile; auto: on a GPU, in runs that are long enough
    sharded: bool = False  # shard weights and optimizer over the processes (FSDP2), for models that do not fit one GPU
    learning_rate: float = 0.0007  # peak learning rate; for noam, the factor before size^-0.5
    schedule: Literal["inverse_sqrt", "noam", "cosine", "linear", "constant"] = "inverse_sqrt"  # after the warm-up
    warmup: int = 1000  # updates over which the learning rate rises from zero
    weight_decay: float = 0.0  # decoupled weight decay of the matrices (AdamW)
    beta2: float = 0.98  # Adam's decay rate of squared gradients
    max_grad_norm: float = 1.0  # gradient clipping: the maximum norm; 0: no clipping
    label_smoothing: float = 0.1  # probability mass of each target that is spread evenly over the vocabulary
    r_drop: float = 0.0  # weight of the R-Drop loss: the divergence between two passes with different dropout; 0: off
    guided_alignment: float = 0.0  # weight of the guided alignment loss: a head learns --alignments; 0: off
    freeze: str = ""  # parameters that are not trained, such as encoder.* or source.token, separated by spaces
    lora_rank: int = 0  # LoRA: rank of the matrices trained beside the frozen weights of --from; 0: train all weights
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # of matrix products; auto: bf16 on a GPU that supports it
    ema_decay: float = 0.0  # decay of the moving average of the weights, which is validated and kept; 0: off
    validate_every: int = 1000  # updates between validations
    save_every: int = 1000  # updates between checkpoints
    keep_checkpoints: int = 3  # checkpoints kept beside the best
    patience: int = 0  # early stopping: end after this many validations without improvement; 0: never
    metric: Literal["bleu", "chrf", "loss"] = "bleu"  # metric that chooses the best checkpoint
    film: int = 0  # validation sentences whose attention is recorded at every validation and shown as a film at the end
    seed: int = 1  # seed of all random choices

    def __post_init__(self) -> None:
        check_types(self)
        positive = "updates batch_tokens gradient_accumulation validate_every save_every keep_checkpoints"
        check_range(self, positive, 1)
        check_range(self, "batch_shapes warmup patience film lora_rank minutes", 0)
        check_range(self, "seed", 0, 2**63 - 1)
        check_range(self, "learning_rate weight_decay max_grad_norm r_drop guided_alignment", 0)
        check_range(self, "label_smoothing ema_decay beta2", 0, below=1)
        require(not self.lora_rank or not self.freeze, "train.lora_rank freezes all other weights: drop train.freeze")


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """Search and sampling."""

    beams: int = 5  # beam size; 1: greedy search
    # shrink: ended hypotheses take places of the beam; yes, no and never: as in transformers
    early_stopping: EarlyStopping = "shrink"
    first_token: str = ""  # first token of every translation, such as a language code (--to); empty: none
    length_penalty: float = 1.0  # log-probabilities are divided by the length to this power; 0: none, short outputs win
    coverage_penalty: float = 0.0  # weight of the coverage penalty, for source words that got little attention
    max_length_ratio: float = 3.0  # maximum length of a translation, as a multiple of the source's tokens
    max_length_extra: int = 10  # tokens added to the maximum length that max_length_ratio gives
    min_length: int = 0  # minimum number of tokens of a translation
    no_repeat_ngram: int = 0  # size of n-grams that may not repeat; 0: all may
    temperature: float = 1.0  # sampling temperature; below 1, probable tokens become more probable
    top_k: int = 0  # sample from this many of the most probable tokens; 0: from all
    top_p: float = 1.0  # nucleus sampling: sample from the most probable tokens whose probabilities sum to this

    def __post_init__(self) -> None:
        check_types(self)
        check_range(self, "beams", 1, 100)
        check_range(self, "max_length_extra min_length no_repeat_ngram", 0, MAX_OUTPUT)
        check_range(self, "max_length_ratio", 0, 1000)
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
        model, train = self.model, self.train
        require(
            not self.text.continuous or not model.is_translator,
            f"text.continuous is for model.family = gpt or bert: a {model.family} learns from pairs",
        )
        require(
            not train.packed or self.can_pack,
            "train.packed is for a transformer whose score is not additive, with heads of at most "
            f"{MAX_PACKED_HEAD}, without model.attention_dropout and train.guided_alignment: set train.packed=false",
        )
        for name in ("film", "guided_alignment"):
            require(
                not getattr(train, name) or (model.is_translator and model.score != "none"),
                f"train.{name} needs a translator with attention to its source: set train.{name}=0, "
                "model.family=transformer, or rnn with a model.score",
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
            merged[name] = {**merged.get(name, {}), **section} if isinstance(section, Mapping) else section
        return self.read(merged)

    def with_values(self, assignments: Iterable[str] | Mapping[str, Any]) -> Self:
        """This config with fields set: `section.field=value`, or a mapping of {"section.field": value}."""
        values: dict[str, dict[str, Any]] = {}
        for path, value in parse_assignments(assignments).items():
            section, _, name = path.partition(".")
            require(name, f"{path!r} is not of the form section.field")
            values.setdefault(section, {})[name] = value
        return self.over(values)

    def values(self) -> dict[str, dict[str, Any]]:
        """All fields as nested plain values, ready for JSON."""
        return dataclasses.asdict(self)


def parse_assignments(assignments: Iterable[str] | Mapping[str, Any]) -> dict[str, Any]:
    """{"model.size": 256} from ["model.size=256"]; a mapping stays as it is."""
    if isinstance(assignments, Mapping):
        return dict(assignments)
    values = {}
    for assignment in [assignments] if isinstance(assignments, str) else assignments:
        path, equals, text = map(str.strip, assignment.partition("="))
        if not equals or "." not in path:
            section = next((name for name, fields in Config().values().items() if path in fields), "")
            advice = f". Did you mean {section}.{assignment}?" if section else ""
            raise ConfigError(f"{assignment!r} is not of the form section.field=value{advice}")
        try:  # as TOML; anything else is a string
            values[path] = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            values[path] = text
    return values


def run_values(
    config: Iterable[str] | Mapping[str, Any], *, updates: int | None, minutes: float | None, seed: int | None
) -> dict[str, Any]:
    """The config fields that a call of train sets, by their names."""
    fields = parse_assignments(config)
    if minutes is not None:
        above_0 = isinstance(minutes, int | float) and 0 < minutes < math.inf
        require(above_0, f"--minutes ({minutes}) must be a number of minutes above 0")
        has_updates = updates is not None or "train.updates" in fields
        require(not has_updates, "--updates and --minutes both say how long to train: give one of them")
    values = {"train.updates": updates, "train.minutes": minutes if updates is None else 0.0, "train.seed": seed}
    return fields | {name: value for name, value in values.items() if value is not None}


def require(condition: object, message: str) -> None:
    """Raise a ConfigError with this message unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def check_range(config: Any, names: str, low: float, high: float = math.inf, *, below: float = math.inf) -> None:
    """Check that fields (names separated by spaces) are from `low` to `high` and less than `below`."""
    limit = f"from {low:g} to {high:,}" if high < math.inf else f"at least {low:g}"
    limit += f" and below {below:g}" if below < math.inf else ""
    for name in names.split():
        value = getattr(config, name)
        require(low <= value <= high and value < below, f"{_section(config)}.{name} ({value}) must be {limit}")


def _section(config: Any) -> str:
    return type(config).__name__.removesuffix("Config").lower()


def check_types(config: Any) -> None:
    """Check every field against its annotation: its type, or one of the choices of a Literal."""
    for name, hint in get_type_hints(type(config)).items():
        value, path = getattr(config, name), f"{_section(config)}.{name}"
        if get_origin(hint) is Literal:
            if value not in get_args(hint):
                advice = other_tool_advice(path, str(value))
                message = f"{path} ({value}) must be one of {', '.join(get_args(hint))}"
                raise ConfigError(f"{message}.{advice}" if advice else message)
            continue
        require(type(value) is not int or abs(value) <= 2**64, f"{path} is too large: whole numbers are at most 2^64")
        if hint is float and type(value) is int:
            value = float(value)
            object.__setattr__(config, name, value)
        kind = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[hint]
        require(type(value) is hint, f"{path} ({value!r}) must be {kind}")
        require(hint is not float or math.isfinite(value), f"{path} ({value}) must be a finite number")


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
    path = folder / CONFIG
    if not os.path.isdir(folder):  # unlike Path.is_dir, it never raises
        is_file = os.path.exists(folder)
        raise FolderError(f"{folder} is a file, not a model folder" if is_file else f"There is no folder {folder}")
    if not path.is_file():
        models = sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}"))
        advice = f". It holds model folders: give one of them, such as {folder / models[0]}" if models else ""
        raise FolderError(f"{folder} is not a model folder: it has no {CONFIG}{advice}")
    values = read_json(path)
    if not isinstance(values, dict):
        raise FolderError(f"{path} is not a config: it holds no sections")
    if "model_type" in values or "architectures" in values:
        raise FolderError(f"{path} is from Hugging Face transformers. Import it first: regard import {folder} FOLDER")
    try:
        return Config.read(values)
    except ConfigError as error:
        raise FolderError(f"{path}: {error}") from error


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
    values = find_values(name)
    try:
        return (base or Config()).over(values)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error


def find_values(name: str) -> dict[str, Any]:
    """The values that a preset, a recipe or a model folder sets."""
    if name in PRESETS:
        return {"model": PRESETS[name]}
    path = Path(name)
    if os.path.isdir(name):
        return load_config(path).values()
    if path.suffix == ".toml":
        return _load_toml(path)
    if os.path.isfile(name):
        folder = f" ({path.parent})" if path.name == CONFIG else ""
        raise ConfigError(f"{name} is not a recipe. Give the model folder{folder} or a .toml file")
    recipes = {recipe.stem: recipe for recipe in (Path(__file__).parent / "recipes").glob("*.toml")}
    if name in recipes:
        return _load_toml(recipes[name])
    raise ConfigError(f"There is no preset, recipe or folder {name}.{did_you_mean(name, [*PRESETS, *recipes])}")
