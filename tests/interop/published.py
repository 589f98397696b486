"""Small models of transformers with random settings and weights, saved as published models are."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from regard.corpora.builtin.corpus import sentences

ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu")
Options = dict[str, Any]


@cache
def texts() -> list[str]:
    return [text for pair in sentences(600, seed=3) for text in (pair.source, pair.target)]


def byte_level(folder: Path, specials: dict[str, str], after: tuple[str, ...] = ()) -> dict[str, int]:
    """Write a tokenizer.json; `specials` are its first tokens and the settings that name them."""
    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=list(dict.fromkeys(specials.values())), show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    engine.train_from_iterator(texts()[:400], trainer)
    engine.add_special_tokens(list(after))
    engine.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(specials))
    return engine.get_vocab()


@cache
def _pieces(language: int) -> bytes:
    """A SentencePiece model of one side of the built-in corpus."""
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts()[language::2]), model_writer=model, vocab_size=220, character_coverage=1.0,
        minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


def marian_files(folder: Path, *, shared: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Write SentencePiece models and one vocabulary, or one for each side; returns the vocabularies of both sides."""
    import sentencepiece

    pieces: list[list[str]] = []
    for language, side in enumerate(("source", "target")):
        (folder / f"{side}.spm").write_bytes(_pieces(language))
        processor = sentencepiece.SentencePieceProcessor(model_proto=_pieces(language))
        pieces.append([processor.id_to_piece(number) for number in range(3, processor.vocab_size())])
    sides = [[*pieces[0], *pieces[1]]] if shared else [pieces[0], [*pieces[1], "spare"]]
    vocabularies = []
    for name, tokens in zip(("vocab.json", "target_vocab.json"), sides, strict=False):
        every = dict.fromkeys(["</s>", "<unk>", *tokens, "<pad>"])
        vocabularies.append({token: number for number, token in enumerate(every)})
        (folder / name).write_text(json.dumps(vocabularies[-1]))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "fr"}))
    return vocabularies[0], vocabularies[-1]


def _stacks(pick: random.Random) -> Options:
    """What all translators have."""
    heads, inner = pick.choice((2, 4)), pick.choice((24, 48))
    return {
        "d_model": pick.choice((16, 32)),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_layers": pick.choice((1, 2)),
        "decoder_layers": pick.choice((1, 2)),
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
        "max_position_embeddings": 64,
        "activation_function": pick.choice(ACTIVATIONS),
        "scale_embedding": pick.choice((True, False)),
    }


def marian(pick: random.Random, folder: Path) -> Any:
    options = _stacks(pick)
    options["share_encoder_decoder_embeddings"] = shared = pick.choice((True, True, False))
    ids, target_ids = marian_files(folder, shared=shared)
    return transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=len(ids), decoder_vocab_size=len(target_ids), pad_token_id=ids["<pad>"],
            eos_token_id=ids["</s>"], forced_eos_token_id=ids["</s>"], decoder_start_token_id=target_ids["<pad>"],
            **options,
        )
    )  # fmt: skip


FAIRSEQ = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
BERT = {
    "pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]",
}  # fmt: skip
LANGUAGES = ("en_XX", "fr_XX", "de_DE")


def _ids(vocabulary: dict[str, int], *, start: str = "</s>") -> Options:
    ids = {"bos_token_id": "<s>", "pad_token_id": "<pad>", "eos_token_id": "</s>", "forced_eos_token_id": "</s>"}
    return {name: vocabulary[token] for name, token in (ids | {"decoder_start_token_id": start}).items()}


def pegasus(pick: random.Random, folder: Path) -> Any:
    ids = byte_level(folder, FAIRSEQ)
    config = transformers.PegasusConfig(vocab_size=len(ids), **_ids(ids, start="<pad>"), **_stacks(pick))
    return transformers.PegasusForConditionalGeneration(config)


def bart(pick: random.Random, folder: Path) -> Any:
    ids = byte_level(folder, FAIRSEQ)
    config = transformers.BartConfig(vocab_size=len(ids), **_ids(ids), **_stacks(pick))
    return transformers.BartForConditionalGeneration(config)


def mbart(pick: random.Random, folder: Path) -> Any:
    ids = byte_level(folder, FAIRSEQ, LANGUAGES)
    config = transformers.MBartConfig(vocab_size=len(ids), **_ids(ids), **_stacks(pick))
    return transformers.MBartForConditionalGeneration(config)


def m2m100(pick: random.Random, folder: Path) -> Any:
    import sentencepiece

    (folder / "sentencepiece.bpe.model").write_bytes(_pieces(0))
    processor = sentencepiece.SentencePieceProcessor(model_proto=_pieces(0))
    tokens = [processor.id_to_piece(number) for number in range(3, processor.vocab_size())]
    codes = ["__en__", "__fr__", "__de__"]
    ids = {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *tokens, *codes])}
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "tokenizer_config.json").write_text(json.dumps({"additional_special_tokens": codes}))
    config = transformers.M2M100Config(vocab_size=len(ids), **_ids(ids), **_stacks(pick))
    return transformers.M2M100ForConditionalGeneration(config)


def _encoder(pick: random.Random) -> Options:
    """What all berts have."""
    return {
        "hidden_size": pick.choice((16, 32)),
        "num_hidden_layers": pick.choice((1, 2, 3)),
        "num_attention_heads": pick.choice((2, 4)),
        "intermediate_size": pick.choice((24, 48)),
        "max_position_embeddings": 64,
        "hidden_act": pick.choice(ACTIVATIONS),
        "layer_norm_eps": pick.choice((1e-12, 1e-5)),
    }


def bert(pick: random.Random, folder: Path) -> Any:
    ids = byte_level(folder, BERT)
    config = transformers.BertConfig(
        vocab_size=len(ids), type_vocab_size=pick.choice((1, 2)), pad_token_id=ids["[PAD]"], **_encoder(pick)
    )
    kinds = (transformers.BertForPreTraining, transformers.BertForMaskedLM, transformers.BertModel)
    return pick.choice(kinds)(config)


def roberta(pick: random.Random, folder: Path) -> Any:
    ids = byte_level(folder, FAIRSEQ)
    settings = _encoder(pick) | {"hidden_act": "gelu", "max_position_embeddings": 66, "type_vocab_size": 1}
    ends = {name: number for name, number in _ids(ids).items() if name[:3] in ("bos", "pad", "eos")}
    config = transformers.RobertaConfig(vocab_size=len(ids), **ends, **settings)
    return pick.choice((transformers.RobertaForMaskedLM, transformers.RobertaModel))(config)


def distilbert(pick: random.Random, folder: Path) -> Any:
    ids = byte_level(folder, BERT)
    config = transformers.DistilBertConfig(
        vocab_size=len(ids), dim=pick.choice((16, 32)), n_layers=pick.choice((1, 2)), n_heads=pick.choice((2, 4)),
        hidden_dim=48, max_position_embeddings=64, activation=pick.choice(("gelu", "relu")), pad_token_id=ids["[PAD]"],
    )  # fmt: skip
    return pick.choice((transformers.DistilBertForMaskedLM, transformers.DistilBertModel))(config)


def bert_generation(pick: random.Random, folder: Path) -> Any:
    ids = byte_level(folder, FAIRSEQ)
    ends = {name: number for name, number in _ids(ids).items() if name[:3] in ("bos", "pad", "eos")}
    shape = _encoder(pick) | {"vocab_size": len(ids)} | ends
    encoder = transformers.BertGenerationConfig(**shape)
    decoder = transformers.BertGenerationConfig(
        **shape | {"num_hidden_layers": pick.choice((1, 2))}, is_decoder=True, add_cross_attention=True
    )
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = ids["<s>"], ids["<pad>"], ids["</s>"]
    return transformers.EncoderDecoderModel(config=config)


def gpt2(pick: random.Random, folder: Path) -> Any:
    end = "<|endoftext|>"
    ids = byte_level(folder, {"bos_token": end, "eos_token": end, "unk_token": end})
    config = transformers.GPT2Config(
        vocab_size=len(ids), n_embd=pick.choice((16, 32)), n_layer=pick.choice((1, 2, 3)), n_head=pick.choice((2, 4)),
        n_inner=pick.choice((None, 48)), n_positions=96, activation_function=pick.choice(ACTIVATIONS),
        bos_token_id=ids[end], eos_token_id=ids[end], tie_word_embeddings=pick.choice((True, True, False)),
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def llama(pick: random.Random, folder: Path) -> Any:
    ids = byte_level(folder, {name: FAIRSEQ[name] for name in ("unk_token", "bos_token", "eos_token")})
    heads = pick.choice((2, 4))
    config = transformers.LlamaConfig(
        vocab_size=len(ids), hidden_size=pick.choice((16, 32)), num_hidden_layers=pick.choice((1, 2, 3)),
        num_attention_heads=heads, num_key_value_heads=pick.choice((1, 2, heads)), intermediate_size=48,
        max_position_embeddings=96, tie_word_embeddings=pick.choice((True, False)), bos_token_id=ids["<s>"],
        eos_token_id=ids["</s>"], rms_norm_eps=pick.choice((1e-5, 1e-6)),
        rope_parameters={"rope_type": "default", "rope_theta": pick.choice((10000.0, 5e5))},
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


MODELS: dict[str, Callable[[random.Random, Path], Any]] = {
    "marian": marian, "pegasus": pegasus, "bart": bart, "mbart": mbart, "m2m100": m2m100, "bert": bert,
    "roberta": roberta, "distilbert": distilbert, "bert_generation": bert_generation, "gpt2": gpt2, "llama": llama,
}  # fmt: skip


def publish(kind: str, seed: int, folder: Path) -> Any:
    """Save a random model of an architecture; returns it. Every parameter is away from its starting value."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    model = MODELS[kind](random.Random(f"{kind}/{seed}"), folder)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name or parameter.requires_grad:  # sinusoids are not learned
                parameter.add_(0.2 * torch.randn_like(parameter))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    return model.eval()
