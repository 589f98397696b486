"""Small models of transformers with random settings and weights, saved as published models are."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
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


def _byte_level(folder: Path, specials: dict[str, str], after: tuple[str, ...] = ()) -> dict[str, int]:
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


def _marian_files(folder: Path) -> dict[str, int]:
    import sentencepiece

    tokens = ["</s>", "<unk>"]
    for language, side in enumerate(("source", "target")):
        (folder / f"{side}.spm").write_bytes(_pieces(language))
        processor = sentencepiece.SentencePieceProcessor(model_proto=_pieces(language))
        tokens += [processor.id_to_piece(number) for number in range(3, processor.vocab_size())]
    ids = {token: number for number, token in enumerate(dict.fromkeys([*tokens, "<pad>"]))}
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "fr"}))
    return ids


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
    ids = _marian_files(folder)
    options = _stacks(pick)
    options["share_encoder_decoder_embeddings"] = pick.choice((True, True, False))
    return transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=len(ids), pad_token_id=ids["<pad>"], eos_token_id=ids["</s>"], forced_eos_token_id=ids["</s>"],
            decoder_start_token_id=ids["<pad>"], **options,
        )
    )  # fmt: skip


MODELS: dict[str, Callable[[random.Random, Path], Any]] = {"marian": marian}


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


def some_texts(count: int) -> Iterator[str]:
    return islice(texts(), count)
