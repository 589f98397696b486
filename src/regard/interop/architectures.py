"""Architectures of Hugging Face transformers: the settings of config.json and ours, for import and export.

One table per architecture, read in both directions; the names of its tensors are in `names.py`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.positions import sinusoidal
from regard.config import Family, ModelConfig
from regard.errors import ConfigError, FolderError, did_you_mean
from regard.interop import names
from regard.interop.names import POSITION_OFFSET


class Setting(NamedTuple):
    """A setting in the config.json of transformers, and the field of `ModelConfig` that it sets."""

    theirs: str
    ours: str
    default: Any
    """The value in transformers if config.json does not have the setting."""
    values: Mapping[Any, Any] | None = None
    """Our value for each of theirs, if they differ; of several that mean the same, the first is exported."""
    least: int = 0
    """The smallest number that transformers supports."""

    def read(self, value: Any) -> Any:
        """Our value for theirs."""
        if isinstance(self.default, bool) and not isinstance(value, bool):
            raise FolderError(f"{self.theirs} = {value} is not supported: it must be true or false")
        if self.values is None:
            return value
        if value not in self.values:
            known = ", ".join(map(str, self.values))
            raise FolderError(f"{self.theirs} = {value} is not supported: Regard supports {known}")
        return self.values[value]

    def write(self, value: Any) -> Any:
        """Their value for ours; a KeyError if they have none."""
        if self.values is None:
            if self.least and value < self.least:
                raise KeyError(value)
            return value
        return {ours: theirs for theirs, ours in reversed(list(self.values.items()))}[value]


Settings = dict[str, Any]
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "relu": "relu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
TIED = {True: "all", False: "none"}


def _nothing(config: ModelConfig) -> Settings:
    return {}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How the config.json of one architecture of transformers and a `ModelConfig` are converted into each other."""

    model_type: str
    family: Family
    settings: tuple[Setting, ...]
    """Settings with a field in `ModelConfig`; `read_more` makes those that begin with _ from others."""
    fixed: Mapping[str, Any]
    """Fields of `ModelConfig` that are the same for every model of this architecture."""
    required: Mapping[str, Any] = field(default_factory=dict)
    """Settings that must be missing or have this value, the only one that Regard supports."""
    names: names.Names
    prefix: str = ""
    """Prefix of tensor names in a model with a head; files of a model without one do not have it."""
    detected: Mapping[str, str] = field(default_factory=dict)
    """Fields of `ModelConfig` that are true if the file has this tensor."""
    unused: str = ""
    """A pattern of tensors that are computed, or no longer used, and so not read."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Patterns of tensors of parts that Regard does not have, with the names of these parts for the card."""
    read_more: Callable[[Settings], Settings] = dict
    """Converts settings into the ones that `settings` lists, before they are read."""
    write_more: Callable[[ModelConfig], Settings] = _nothing
    """Further settings of an exported model."""
    head: Callable[[ModelConfig], str]
    """The name of the class in transformers."""

    def read(self, settings: Settings, tensors: Iterable[str]) -> ModelConfig:
        """Our config from their settings and the names of their tensors."""
        settings = self.read_more(dict(settings))
        self._check(settings)
        fields: dict[str, Any] = {}
        for setting in self.settings:
            value = setting.read(settings.get(setting.theirs, setting.default))
            if fields.setdefault(setting.ours, value) != value:
                raise FolderError(
                    f"{setting.theirs} = {value} is not supported: model.{setting.ours} is {fields[setting.ours]} "
                    "by another setting, and Regard has one value for both"
                )
        present = set(tensors)
        seen = {ours: bool({name, name.removeprefix(self.prefix)} & present) for ours, name in self.detected.items()}
        try:
            config = ModelConfig(family=self.family, **{**fields, **self.fixed, **seen})
        except (ConfigError, TypeError) as error:
            raise FolderError(f"this {self.model_type} is not supported: {error}") from error
        return resolved(config)

    def _check(self, settings: Settings) -> None:
        for name, value in self.required.items():
            if settings.get(name, value) != value:
                raise FolderError(f"{name} = {settings[name]} is not supported in a {self.model_type}, only {value}")
        known = {setting.theirs for setting in self.settings} | set(self.required)
        for name in settings:
            if name not in known and not HARMLESS.fullmatch(name.rpartition(".")[2]):
                raise FolderError(
                    f"{name} is not a setting of a {self.model_type} that Regard knows; if it does not change what "
                    "the model computes, remove it from config.json"
                )

    def is_bare(self, config: ModelConfig) -> bool:
        """Whether the class in transformers has no head, so that tensor names have no prefix."""
        return config.family == "bert" and not config.mlm_head

    def added(self, config: ModelConfig) -> dict[str, Tensor]:
        """Tensors that only the class in transformers has: positions, which Regard computes, and zeros."""
        added = {}
        if self.detected == _LOGITS_BIAS and not config.output_bias:
            added["final_logits_bias"] = torch.zeros(1, config.target_vocabulary_size)
        if config.positions == "sinusoidal_halves":
            table = sinusoidal(torch.arange(config.max_positions), config.size, halves=True)
            added |= {f"model.{side}.embed_positions.weight": table for side in ("encoder", "decoder")}
        if self.head(config) == "BertForPreTraining":
            added["cls.seq_relationship.weight"] = torch.zeros(2, config.size)
            added["cls.seq_relationship.bias"] = torch.zeros(2)
        return added

    def mismatches(self, config: ModelConfig, pad: int) -> list[str]:
        """The values that fields of a resolved config would need for this architecture, where they differ."""
        wrong = [f"model.{name} = {value}" for name, value in self.fixed.items() if getattr(config, name) != value]
        for setting in self.settings:
            try:
                setting.write(_value(config, setting.ours))
            except KeyError:
                values = " or ".join(map(str, dict.fromkeys((setting.values or {1: setting.least}).values())))
                wrong.append(f"model.{setting.ours} = {values}")
        if self.required.get("pad_token_id", pad) != pad:
            wrong.append(f"a tokenizer with <pad> at {self.required['pad_token_id']}")
        return wrong

    def write(self, config: ModelConfig) -> Settings:
        """The config.json for a config without mismatches."""
        pairs = ((setting.theirs, setting.write(_value(config, setting.ours))) for setting in self.settings)
        settings = {name: value for name, value in pairs if name[0] != "_"}
        settings |= {"architectures": [self.head(config)], "model_type": self.model_type, **self.required}
        return _nested(settings | self.write_more(config))


def _value(config: ModelConfig, name: str) -> Any:
    if name == "key_value_heads":
        return config.kv_heads
    return config.target_vocabulary_size if name == "target_vocabulary" else getattr(config, name)


def resolved(config: ModelConfig) -> ModelConfig:
    """Replace values that mean the same by one of them, so that configs can be compared."""
    changes: dict[str, Any] = {}
    if config.key_value_heads == config.heads:
        changes["key_value_heads"] = 0
    if config.target_vocabulary == config.vocabulary:
        changes["target_vocabulary"] = 0
    if config.score == "scaled_dot" and config.family != "rnn":
        changes["score"] = "auto"
    if config.family == "gpt" and config.tie_embeddings == "target":
        changes["tie_embeddings"] = "all"
    return dataclasses.replace(config, **changes)


HARMLESS = re.compile(
    r"""architectures|model_type|transformers_version|torch_dtype|dtype|_name_or_path|name_or_path|_num_labels
    |finetuning_task|problem_type|task_specific_params|prefix|license|language|\w*id2label|\w*label2id|num_labels
    |use_cache|cache_implementation|is_encoder_decoder|output_\w+|return_dict\w*|tokenizer_class|gradient_checkpointing
    |init_std|initializer_\w+|tie_encoder_decoder|chunk_size_feed_forward|torchscript|use_bfloat16|tf_legacy_loss
    |\w+_token_id|num_beams|num_beam_groups|num_return_sequences|do_sample|early_stopping|temperature|top_k|top_p
    |typical_p|repetition_penalty|length_penalty|diversity_penalty|\w*no_repeat_ngram_size|bad_words_ids|max_length
    |min_length|exponential_decay_length_penalty|suppress_tokens|begin_suppress_tokens|remove_invalid_values
    |renormalize_logits|force_bos_token_to_be_generated|\w*layerdrop|activation_dropout|attn_pdrop|classif\w*_dropout
    |\w+_classif_dropout|qa_dropout|summary_\w+|n_ctx|pooler_\w+|directionality|num_hidden_layers|static_position_\w+
    |extra_pos_embeddings|normalize_before|normalize_embedding|add_bias_logits|add_final_layer_norm|pretraining_tp
    |encoder|decoder|sinusoidal_pos_embds|adapters|quantization_config_none|attn_implementation|_attn_implementation""",
    re.VERBOSE,
)
"""Settings of training and search, and descriptions: they do not change what a model computes."""

_TRANSLATOR = (
    Setting("vocab_size", "vocabulary", 50265),
    Setting("d_model", "size", 1024),
    Setting("encoder_layers", "encoder_layers", 12),
    Setting("decoder_layers", "decoder_layers", 12),
    Setting("encoder_attention_heads", "heads", 16),
    Setting("decoder_attention_heads", "heads", 16),
    Setting("encoder_ffn_dim", "feed_forward_size", 4096),
    Setting("decoder_ffn_dim", "feed_forward_size", 4096),
    Setting("max_position_embeddings", "max_positions", 1024),
    Setting("dropout", "dropout", 0.1),
    Setting("attention_dropout", "attention_dropout", 0.0),
)
_ENCODER = (
    Setting("vocab_size", "vocabulary", 30522),
    Setting("hidden_size", "size", 768),
    Setting("num_hidden_layers", "encoder_layers", 12),
    Setting("num_attention_heads", "heads", 12),
    Setting("intermediate_size", "feed_forward_size", 3072),
    Setting("hidden_act", "activation", "gelu", ACTIVATIONS),
    Setting("hidden_dropout_prob", "dropout", 0.1),
    Setting("attention_probs_dropout_prob", "attention_dropout", 0.1),
    Setting("max_position_embeddings", "max_positions", 512),
    Setting("layer_norm_eps", "norm_epsilon", 1e-12),
)
_USUAL = {"norm": "layer", "bias": True, "key_value_heads": 0, "score": "auto"}
_BERT = {**_USUAL, "norm_placement": "post"}
_PLAIN = {"is_decoder": False, "add_cross_attention": False, "pruned_heads": {}}
_LOGITS_BIAS = {"output_bias": "final_logits_bias"}


def _seq2seq_activation(default: str) -> Setting:
    return Setting("activation_function", "activation", default, ACTIVATIONS)


def _scale(default: bool) -> Setting:
    return Setting("scale_embedding", "scale_embeddings", default)


def _read_marian(settings: Settings) -> Settings:
    names = ("share_encoder_decoder_embeddings", "tie_word_embeddings")
    shared, tied = (Setting(name, "tie_embeddings", True).read(settings.pop(name, True)) for name in names)
    if shared and not tied:
        raise FolderError("tie_word_embeddings = False is not supported with share_encoder_decoder_embeddings = True")
    settings["_tied"] = "all" if shared else "target" if tied else "none"
    settings["decoder_vocab_size"] = settings.get("decoder_vocab_size") or settings.get("vocab_size", 58101)
    return settings


def _write_marian(config: ModelConfig) -> Settings:
    return {
        "share_encoder_decoder_embeddings": config.tie_embeddings == "all",
        "tie_word_embeddings": config.tie_embeddings != "none",
        "is_encoder_decoder": True,
    }


def _shift_positions(by: int) -> Callable[[Settings], Settings]:
    """Correct max_position_embeddings where it includes unused rows."""

    def change(settings: Settings) -> Settings:
        return settings | {"_positions": settings.pop("max_position_embeddings", 512) + by}

    return change


def _read_gpt2(settings: Settings) -> Settings:
    settings["n_inner"] = settings.get("n_inner") or 4 * settings.get("n_embd", 768)
    settings.pop("embd_pdrop", None)  # one dropout here, that of the residuals
    return settings


def _read_llama(settings: Settings) -> Settings:
    rope = settings.pop("rope_parameters", None) or {}
    settings["rope_theta"] = rope.pop("rope_theta", settings.get("rope_theta", 10000.0))
    kind = rope.pop("rope_type", "default")
    if kind != "default" or rope:
        raise FolderError(f"rope_parameters of the type {kind} are not supported, only default")
    heads = settings.get("num_attention_heads", 32)
    head_size = settings.pop("head_dim", None)
    if head_size is not None and head_size * heads != settings.get("hidden_size", 4096):
        raise FolderError(f"head_dim = {head_size} is not supported: it must be hidden_size / num_attention_heads")
    settings["num_key_value_heads"] = settings.get("num_key_value_heads") or heads
    return settings


def _write_llama(config: ModelConfig) -> Settings:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base}, "head_dim": config.head_size}


def _bert_class(config: ModelConfig) -> str:
    if not config.mlm_head:
        return "BertModel"
    return "BertForPreTraining" if config.pooler else "BertForMaskedLM"


def _flat(settings: Settings) -> Settings:
    """Settings of the two parts of an encoder-decoder as encoder.NAME and decoder.NAME."""
    parts = {side: dict(settings.pop(side, {})) for side in ("encoder", "decoder")}
    parts["encoder"].pop("tie_word_embeddings", None)  # an encoder has no output
    for side, values in parts.items():
        settings |= {f"{side}.{name}": value for name, value in values.items() if name != "model_type"}
        kind = values.get("model_type")
        if kind != "bert-generation":
            raise FolderError(f"an encoder-decoder with the {side} {kind} is not supported, only bert-generation")
    return settings


def _nested(settings: Settings) -> Settings:
    """The settings of an encoder-decoder with those of its parts below them."""
    nested: Settings = {name: value for name, value in settings.items() if "." not in name}
    for name, value in settings.items():
        side, dot, inner = name.partition(".")
        if dot:
            nested.setdefault(side, {})[inner] = value
    return nested


def _two_berts() -> tuple[Setting, ...]:
    settings = []
    for side in ("encoder", "decoder"):
        fields = {"encoder_layers": f"{side}_layers"}
        if side == "decoder":
            fields["vocabulary"] = "target_vocabulary"
        defaults = {"vocab_size": 50358, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
        for theirs, ours, default, values, _ in _ENCODER:
            value = {**defaults, "intermediate_size": 4096}.get(theirs, default)
            settings.append(Setting(f"{side}.{theirs}", fields.get(ours, ours), value, values))
    return tuple(settings)


MARIAN = Architecture(
    model_type="marian",
    family="transformer",
    head=lambda config: "MarianMTModel",
    settings=(
        *_TRANSLATOR,
        Setting("decoder_vocab_size", "target_vocabulary", 58101),
        _seq2seq_activation("gelu"),
        _scale(False),
        Setting("_tied", "tie_embeddings", "all"),
    ),
    fixed={
        **_USUAL,
        "positions": "sinusoidal_halves",
        "norm_placement": "post",
        "embedding_norm": False,
        "norm_epsilon": 1e-5,
    },
    required=_PLAIN,
    names=names.seq2seq,
    prefix="model.",
    detected=_LOGITS_BIAS,
    unused=r"model\.(encoder|decoder)\.embed_positions\.weight",
    read_more=_read_marian,
    write_more=_write_marian,
)
_SHARED = Setting("tie_word_embeddings", "tie_embeddings", True, {True: "all"})
PEGASUS = dataclasses.replace(
    MARIAN,
    model_type="pegasus",
    head=lambda config: "PegasusForConditionalGeneration",
    settings=(*_TRANSLATOR, _seq2seq_activation("gelu"), _scale(False), _SHARED),
    fixed={**MARIAN.fixed, "norm_placement": "pre", "target_vocabulary": 0},
    read_more=dict,
    write_more=lambda config: {"is_encoder_decoder": True},
)
BART = dataclasses.replace(
    PEGASUS,
    model_type="bart",
    head=lambda config: "BartForConditionalGeneration",
    fixed={**PEGASUS.fixed, "positions": "learned", "norm_placement": "post", "embedding_norm": True},
    unused=r"(encoder|decoder)\.version",
)
MBART = dataclasses.replace(
    BART,
    model_type="mbart",
    head=lambda config: "MBartForConditionalGeneration",
    fixed={**BART.fixed, "norm_placement": "pre"},
)
M2M100 = dataclasses.replace(
    PEGASUS,
    model_type="m2m_100",
    head=lambda config: "M2M100ForConditionalGeneration",
    settings=(*_TRANSLATOR, _seq2seq_activation("relu"), _scale(True), _SHARED),
    fixed={**PEGASUS.fixed, "positions": "sinusoidal_fairseq", "output_bias": False},
    detected={},
    unused=r"model\.(encoder|decoder)\.embed_positions\.weights?|(encoder|decoder)\.version|final_logits_bias",
)
BERT = Architecture(
    model_type="bert",
    family="bert",
    head=_bert_class,
    settings=(*_ENCODER, Setting("type_vocab_size", "token_types", 2, least=1)),
    fixed=_BERT,
    required={**_PLAIN, "position_embedding_type": "absolute", "tie_word_embeddings": True},
    names=names.bert,
    prefix="bert.",
    detected={"pooler": "bert.pooler.dense.weight", "mlm_head": "cls.predictions.transform.dense.weight"},
    unused=r"(bert\.)?embeddings\.position_ids",
    left_out={r"cls\.seq_relationship\..+": "the head that predicts the next sentence"},
)
ROBERTA = dataclasses.replace(
    BERT,
    model_type="roberta",
    head=lambda config: "RobertaForMaskedLM" if config.mlm_head else "RobertaModel",
    settings=(
        *(setting for setting in _ENCODER if setting.theirs != "max_position_embeddings"),
        Setting("type_vocab_size", "token_types", 2, least=1),
        Setting("_positions", "max_positions", 510),
    ),
    required={**BERT.required, "pad_token_id": 1, "hidden_act": "gelu"},
    names=names.roberta,
    prefix="roberta.",
    detected={"pooler": "roberta.pooler.dense.weight", "mlm_head": "lm_head.dense.weight"},
    unused=r"(roberta\.)?embeddings\.position_ids",
    left_out={},
    read_more=_shift_positions(-POSITION_OFFSET),
    write_more=lambda config: {"max_position_embeddings": config.max_positions + POSITION_OFFSET},
)
DISTILBERT = dataclasses.replace(
    BERT,
    model_type="distilbert",
    head=lambda config: "DistilBertForMaskedLM" if config.mlm_head else "DistilBertModel",
    settings=(
        Setting("vocab_size", "vocabulary", 30522),
        Setting("dim", "size", 768),
        Setting("n_layers", "encoder_layers", 6),
        Setting("n_heads", "heads", 12),
        Setting("hidden_dim", "feed_forward_size", 3072),
        Setting("activation", "activation", "gelu", {"gelu": "gelu", "relu": "relu"}),
        Setting("dropout", "dropout", 0.1),
        Setting("attention_dropout", "attention_dropout", 0.1),
        Setting("max_position_embeddings", "max_positions", 512),
    ),
    fixed={**_BERT, "norm_epsilon": 1e-12, "pooler": False, "token_types": 0},
    required={**_PLAIN, "tie_word_embeddings": True},
    names=names.distilbert,
    prefix="distilbert.",
    detected={"mlm_head": "vocab_transform.weight"},
    unused=r"(distilbert\.)?embeddings\.position_ids",
    left_out={},
)
BERT_GENERATION = Architecture(
    model_type="encoder-decoder",
    family="transformer",
    head=lambda config: "EncoderDecoderModel",
    settings=_two_berts(),
    fixed={
        **_BERT,
        "positions": "learned",
        "embedding_norm": True,
        "scale_embeddings": False,
        "tie_embeddings": "target",
        "output_bias": True,
    },
    required={
        "encoder.is_decoder": False,
        "encoder.add_cross_attention": False,
        "decoder.is_decoder": True,
        "decoder.add_cross_attention": True,
        "decoder.tie_word_embeddings": True,
    },
    names=names.bert_generation,
    unused=r"(encoder|decoder\.bert)\.embeddings\.position_ids",
    read_more=_flat,
    write_more=lambda config: {f"{side}.model_type": "bert-generation" for side in ("encoder", "decoder")},
)
GPT2 = Architecture(
    model_type="gpt2",
    family="gpt",
    head=lambda config: "GPT2LMHeadModel",
    settings=(
        Setting("vocab_size", "vocabulary", 50257),
        Setting("n_positions", "max_positions", 1024),
        Setting("n_embd", "size", 768),
        Setting("n_layer", "decoder_layers", 12),
        Setting("n_head", "heads", 12),
        Setting("n_inner", "feed_forward_size", 3072),
        Setting("activation_function", "activation", "gelu_new", ACTIVATIONS),
        Setting("resid_pdrop", "dropout", 0.1),
        Setting("attn_pdrop", "attention_dropout", 0.1),
        Setting("layer_norm_epsilon", "norm_epsilon", 1e-5),
        Setting("tie_word_embeddings", "tie_embeddings", True, TIED),
    ),
    fixed={
        **_USUAL,
        "positions": "learned",
        "norm_placement": "pre",
        "embedding_norm": False,
        "scale_embeddings": False,
        "output_bias": False,
    },
    required={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        **_PLAIN,
    },
    names=names.gpt2,
    prefix="transformer.",
    unused=r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",
    read_more=_read_gpt2,
    write_more=lambda config: {"embd_pdrop": config.dropout},
)
LLAMA = Architecture(
    model_type="llama",
    family="gpt",
    head=lambda config: "LlamaForCausalLM",
    settings=(
        Setting("vocab_size", "vocabulary", 32000),
        Setting("hidden_size", "size", 4096),
        Setting("intermediate_size", "feed_forward_size", 11008),
        Setting("num_hidden_layers", "decoder_layers", 32),
        Setting("num_attention_heads", "heads", 32),
        Setting("num_key_value_heads", "key_value_heads", 32),
        Setting("hidden_act", "activation", "silu", {"silu": "swiglu", "swish": "swiglu"}),
        Setting("max_position_embeddings", "max_positions", 2048),
        Setting("rms_norm_eps", "norm_epsilon", 1e-6),
        Setting("attention_dropout", "attention_dropout", 0.0),
        Setting("rope_theta", "rotary_base", 10000.0),
        Setting("tie_word_embeddings", "tie_embeddings", False, TIED),
    ),
    fixed={
        "positions": "rotary",
        "norm": "rms",
        "norm_placement": "pre",
        "embedding_norm": False,
        "scale_embeddings": False,
        "bias": False,
        "output_bias": False,
        "score": "auto",
    },
    required={**_PLAIN, "attention_bias": False, "mlp_bias": False, "sliding_window": None, "rope_scaling": None},
    names=names.llama,
    prefix="model.",
    unused=r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    read_more=_read_llama,
    write_more=_write_llama,
)
ARCHITECTURES = {
    architecture.model_type: architecture
    for architecture in (
        MARIAN, PEGASUS, BART, MBART, M2M100, ROBERTA, BERT, DISTILBERT, BERT_GENERATION, GPT2, LLAMA,
    )
}  # fmt: skip
ALIASES = {"xlm-roberta": "roberta", "camembert": "roberta", "mistral": "llama"}
"""Architectures that are imported and exported as another one, which computes the same."""


def find(settings: Settings) -> Architecture:
    """The architecture that a config.json names."""
    name = settings.get("model_type")
    architecture = ARCHITECTURES.get(ALIASES.get(str(name), str(name)))
    if architecture is None:
        known = [*ARCHITECTURES, *ALIASES]
        raise FolderError(f"model_type = {name} is not supported.{did_you_mean(str(name), known, 'architectures')}")
    return architecture


def find_for_export(config: ModelConfig, pad: int) -> Architecture:
    """The architecture that computes what a model with this config does; the error names the closest one.

    `pad` is the id of <pad>: RoBERTa numbers positions from it.
    """
    same_family = [architecture for architecture in ARCHITECTURES.values() if architecture.family == config.family]
    if not same_family:
        raise ConfigError(f"no architecture of transformers computes what a model of the family {config.family} does")
    mismatches = [architecture.mismatches(config, pad) for architecture in same_family]
    count, best = min((len(wrong), number) for number, wrong in enumerate(mismatches))
    if count:
        raise ConfigError(
            f"no architecture of transformers computes what this model does; {same_family[best].model_type} comes "
            f"closest and needs {', '.join(mismatches[best])}"
        )
    return same_family[best]
