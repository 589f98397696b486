"""Hugging Face tokenizers: convert the tokenizer files of a folder to `tokenizer.json` and back, with the same ids."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Engine

from regard.config import ModelConfig
from regard.errors import FolderError, RegardError
from regard.folders import parse_json, read_bounded, read_json, write_file
from regard.text.tokenizer import NEVER_CHOSEN, SOURCE_FILE, SPECIALS, TARGET_FILE, TRANSFORMERS_FILE, Tokenizers

SPACE = "▁"  # a space in a SentencePiece vocabulary
UNKNOWN_RUN, FOREIGN = "\ue000", "\ue001"  # private-use characters, which no vocabulary has
NORMAL, USER_DEFINED, BYTE = 1, 4, 6  # types of SentencePiece tokens
UNIGRAM = 1  # the type of a SentencePiece model that is not BPE
FAIRSEQ_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
ENCODERS = ("bert", "roberta", "distilbert", "xlm-roberta", "camembert", "electra")
ROLES = {  # special tokens: the setting in tokenizer_config.json, and the usual tokens
    "<pad>": ("pad_token", ("<pad>", "[PAD]")),
    "<s>": ("bos_token", ("<s>", "<|endoftext|>", "<|begin_of_text|>")),
    "</s>": ("eos_token", ("</s>", "<|endoftext|>", "<|end_of_text|>")),
    "<unk>": ("unk_token", ("<unk>", "[UNK]")),
    "<mask>": ("mask_token", ("<mask>", "[MASK]")),
}
LANGUAGE = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]{1,3}|__[a-z]{2,3}__|>>.+<<")  # fra_Latn, fr_XX, __fr__, >>fra<<


def import_tokenizers(source: Path, config: dict[str, Any]) -> dict[str, str]:
    """Convert the tokenizer files of a Hugging Face folder to those of a model folder; all ids stay the same.

    The post-processor of each file names the special tokens: `<s>` is the token that a decoder starts with, or that a
    bert reads before a text.
    """
    try:
        return _import_tokenizers(source, config, _special_names(source))
    except RegardError:
        raise
    except Exception as error:  # the tokenizers library has no class of its own
        raise FolderError(f"the tokenizer of {source} is damaged: {str(error).splitlines()[0]}") from error


def _import_tokenizers(source: Path, config: dict[str, Any], names: dict[str, Any]) -> dict[str, str]:
    if (source / "source.spm").exists():
        shared = _vocabulary(source / "vocab.json")
        separate = source / "target_vocab.json"
        vocabularies = {
            SOURCE_FILE: ("source.spm", shared),
            TARGET_FILE: ("target.spm", _vocabulary(separate) if separate.exists() else shared),
        }
        engines = {name: _from_pieces(source / spm, ids) for name, (spm, ids) in vocabularies.items()}
    else:
        engines = {SOURCE_FILE: _engine(source, config, names)}
        if (source / TARGET_FILE).exists():  # exported by Regard
            engines[TARGET_FILE] = Engine.from_str(read_bounded(source / TARGET_FILE).decode())
    target = engines.get(TARGET_FILE, engines[SOURCE_FILE])
    files = {name: _with_special_tokens(engine, target, config, names, source) for name, engine in engines.items()}
    for name in files:
        if (source / name).exists():  # the tokenizers library changes the last digit of scores
            model = parse_json(read_bounded(source / name))["model"]
            files[name] = _as_json(json.loads(files[name]) | {"model": model})
    return files


def export_tokenizer(tokenizers: Tokenizers, model: ModelConfig, folder: Path) -> None:
    """Write the tokenizer files that `AutoTokenizer` of `transformers` reads; all ids stay the same.

    The prompt of a gpt has no end token, and begins with <s> unless that is also the end token.
    """
    files, special = tokenizers.files(), tokenizers.source.special
    if model.family == "gpt":
        values = json.loads(files[SOURCE_FILE])
        entry = {"id": "<s>", "ids": [special.start], "tokens": tokenizers.source.tokens([special.start])}
        text: list[Any] = [{"Sequence": {"id": "A", "type_id": 0}}]
        if special.start != special.end:
            text.insert(0, {"SpecialToken": {"id": "<s>", "type_id": 0}})
        values["post_processor"] = {
            "type": "TemplateProcessing",
            "single": text,
            "pair": [*text, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": entry},
        }
        files[SOURCE_FILE] = _as_json(values)
    settings = tokenizers.source.transformers_config
    if model.family != "bert" or not model.token_types:
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    if model.has_position_table:
        settings["model_max_length"] = model.max_positions
    files[TRANSFORMERS_FILE] = json.dumps(settings, indent=2) + "\n"
    for name, text_of_file in files.items():
        write_file(folder / name, text_of_file, force=True)


def _engine(source: Path, config: dict[str, Any], names: dict[str, Any]) -> Engine:
    """The tokenizer of a folder that has one for source and target."""
    if (source / "tokenizer.json").exists():
        return Engine.from_str(read_bounded(source / "tokenizer.json").decode())
    if (source / "vocab.txt").exists():
        return _with_added_tokens(_wordpiece(source / "vocab.txt", names), source)
    if (source / "merges.txt").exists():
        return _with_added_tokens(_byte_level(source, names), source)
    for name in ("sentencepiece.bpe.model", "tokenizer.model", "spiece.model"):
        path = source / name
        if path.exists():
            if config.get("model_type") == "m2m_100" and (source / "vocab.json").exists():
                return _with_codes(_from_pieces(path, _vocabulary(source / "vocab.json")), names)
            if name == "sentencepiece.bpe.model":
                return _with_codes(_from_pieces(path, _fairseq_ids(path)), names)
            return _from_pieces(path, {piece.text: number for number, piece in enumerate(read_pieces(path).pieces)})
    raise FolderError(
        f"{source} has no supported tokenizer: tokenizer.json, source.spm with target.spm and vocab.json, "
        "vocab.txt, vocab.json with merges.txt, sentencepiece.bpe.model or tokenizer.model"
    )


def _special_names(source: Path) -> dict[str, Any]:
    """The settings of a tokenizer, with special tokens as plain strings."""
    values = read_table(source / "special_tokens_map.json") | read_table(source / TRANSFORMERS_FILE)
    return {name: value["content"] if _is_token(value) else value for name, value in values.items()}


def read_table(path: Path) -> dict[str, Any]:
    """The settings of a JSON file; an empty dict if there is no file."""
    values = read_json(path, optional=True)
    if values is not None and not isinstance(values, dict):
        raise FolderError(f"{path} is damaged: it is not a table of settings")
    return values or {}


def _is_token(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("content"), str)


def _vocabulary(path: Path) -> dict[str, int]:
    if not path.exists():
        raise FolderError(f"{path} is missing: it has the ids of the tokens")
    values = read_json(path)
    if not isinstance(values, dict) or not all(isinstance(number, int) for number in values.values()):
        raise FolderError(f"{path} is not a table of tokens and their ids")
    return values


def _with_special_tokens(
    engine: Engine, target: Engine, config: dict[str, Any], names: dict[str, Any], source: Path
) -> str:
    """The tokenizer.json with a post-processor that names the special tokens; language codes are not special."""
    ids: dict[str, int | None] = {}
    for role, (setting, usual) in ROLES.items():
        candidates = [names.get(setting), *usual]
        known = [engine.token_to_id(name) for name in candidates if isinstance(name, str)]
        ids[role] = next((number for number in known if number is not None), None)
    is_encoder = config.get("model_type") in ENCODERS
    if is_encoder:
        for role, setting, usual_name in (("<s>", "cls_token", "[CLS]"), ("</s>", "sep_token", "[SEP]")):
            number = engine.token_to_id(str(names.get(setting, usual_name)))
            ids[role] = ids[role] if number is None else number
    elif config.get("is_encoder_decoder"):
        first = config.get("decoder_start_token_id")
        if first is not None and (not isinstance(first, int) or not 0 <= first < target.get_vocab_size()):
            raise FolderError(f"{source}: decoder_start_token_id = {first} is not the id of a token")
        if first is not None and engine.id_to_token(first) == target.id_to_token(first):
            ids["<s>"] = first
    if ids["</s>"] is None:
        raise FolderError(f"{source} does not say which token ends a text: add eos_token to {TRANSFORMERS_FILE}")
    ids["<s>"] = ids["</s>"] if ids["<s>"] is None else ids["<s>"]
    for role, substitute in (("<unk>", "</s>"), ("<pad>", "<unk>"), ("<mask>", "<unk>")):
        ids[role] = ids[substitute] if ids[role] is None else ids[role]
    entries = [(role, number) for role, number in ids.items() if number is not None]
    single = "<s> $A </s>" if is_encoder else "$A </s>"
    pair = "<s> $A </s> $B </s>" if is_encoder else "$A </s> $B </s>"
    engine.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=entries)
    engine.no_padding()
    engine.no_truncation()
    values = json.loads(engine.to_str())
    for entry in values["post_processor"]["special_tokens"].values():
        entry["tokens"] = [engine.id_to_token(entry["ids"][0])]
    named = {name for setting, usual in ROLES.values() for name in (names.get(setting), *usual)}
    for token in values["added_tokens"]:  # others are recognized in text, such as language codes and <|user|>
        token["special"] = token["id"] in ids.values() or token["content"] in named
    return _as_json(values)


def _as_json(values: dict[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, indent=1) + "\n"


# Vocabularies without a tokenizer.json


def _wordpiece(path: Path, names: dict[str, Any]) -> Engine:
    """The tokenizer of a bert."""
    tokens = read_bounded(path).decode().splitlines()
    unknown = names.get("unk_token", "[UNK]")
    engine = Engine(models.WordPiece({token: number for number, token in enumerate(tokens)}, unk_token=unknown))
    engine.normalizer = normalizers.BertNormalizer(
        lowercase=names.get("do_lower_case", True),
        strip_accents=names.get("strip_accents"),
        handle_chinese_chars=names.get("tokenize_chinese_chars", True),
    )
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    special = [names.get(f"{name}_token", f"[{name.upper()}]") for name in ("pad", "unk", "cls", "sep", "mask")]
    engine.add_special_tokens([token for token in special if token in tokens])
    return engine


def _byte_level(source: Path, names: dict[str, Any]) -> Engine:
    """The tokenizer of GPT-2, RoBERTa and BART."""
    lines = read_bounded(source / "merges.txt").decode().splitlines()
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines if line[:9] != "#version:")]
    ids = _vocabulary(source / "vocab.json")
    engine = Engine(models.BPE(ids, [merge for merge in merges if all(merge)]))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(names.get("add_prefix_space", False)))
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens([name for name in (*SPECIALS, "<|endoftext|>") if name in ids])
    return engine


def _with_added_tokens(engine: Engine, source: Path) -> Engine:
    """Add the tokens of added_tokens.json, which must get the ids in that file."""
    path = source / "added_tokens.json"
    for token, number in sorted(_vocabulary(path).items(), key=lambda item: item[1]) if path.exists() else ():
        engine.add_tokens([AddedToken(token, normalized=False)])
        if engine.token_to_id(token) != number:
            raise FolderError(f"{path}: {token!r} has the id {number}, and would be {engine.token_to_id(token)} here")
    return engine


# SentencePiece


class Piece(NamedTuple):
    """A token of a SentencePiece model."""

    text: str
    score: float
    type: int


class Pieces(NamedTuple):
    """The contents of a SentencePiece model."""

    pieces: list[Piece]
    type: int
    byte_fallback: bool
    charsmap: bytes
    add_prefix: bool
    collapse_spaces: bool


def read_pieces(path: Path) -> Pieces:
    """Read a SentencePiece model, which is a protobuf message, without the sentencepiece library."""
    pieces: list[Piece] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    try:
        for field, value in _fields(read_bounded(path)):
            if field == 1:
                values = dict(_fields(value))
                score = struct.unpack("<f", values.get(2, bytes(4)))[0]
                pieces.append(Piece(values[1].decode(), score, values.get(3, NORMAL)))
            elif field == 2:
                trainer = dict(_fields(value))
            elif field == 3:
                normalizer = dict(_fields(value))
    except (IndexError, KeyError, TypeError, ValueError, struct.error) as error:
        raise FolderError(f"{path} is not a SentencePiece model: {error}") from error
    if not pieces:
        raise FolderError(f"{path} is not a SentencePiece model: it has no tokens")
    return Pieces(
        pieces,
        trainer.get(3, UNIGRAM),
        bool(trainer.get(35, 0)),
        normalizer.get(2, b""),
        bool(normalizer.get(3, 1)),
        bool(normalizer.get(4, 1)),
    )


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The numbers and values of the fields of a protobuf message."""
    place = 0

    def varint() -> int:
        nonlocal place
        number = shift = 0
        while True:
            byte = data[place]
            place += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7

    while place < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        if key & 7 not in (1, 2, 5) or place + size > len(data):
            raise ValueError("it is damaged or truncated")
        yield key >> 3, data[place : place + size]
        place += size


def _fairseq_ids(path: Path) -> dict[str, int]:
    """The ids of NLLB and mBART: four special tokens, then the pieces of the model after its first three."""
    tokens = [*FAIRSEQ_SPECIALS, *(piece.text for piece in read_pieces(path).pieces[3:])]
    return {token: number for number, token in enumerate(tokens)}


def _with_codes(engine: Engine, names: dict[str, Any]) -> Engine:
    """Add the language codes of tokenizer_config.json after the other tokens."""
    codes = names.get("extra_special_tokens") or names.get("additional_special_tokens") or []
    texts = [code["content"] if _is_token(code) else str(code) for code in codes]
    engine.add_tokens([AddedToken(code, special=False, normalized=False) for code in texts])
    if names.get("mask_token"):
        engine.add_special_tokens([names["mask_token"]])
    return engine


def _from_pieces(path: Path, ids: dict[str, int]) -> Engine:
    """The tokenizer of a SentencePiece model with these ids; pieces without an id become <unk>."""
    if not path.exists():
        raise FolderError(f"{path} is missing: it has the tokens of one side")
    model = read_pieces(path)
    if "<unk>" not in ids or sorted(ids.values()) != list(range(len(ids))):
        raise FolderError(f"{path}: the ids of its vocabulary must be 0 to {len(ids) - 1} and include <unk>")
    scores = {piece.text: piece.score for piece in model.pieces if piece.type in (NORMAL, USER_DEFINED, BYTE)}
    known = {text for text in scores if len(text) == 1}
    engine = Engine(_unigram(model, ids, scores) if model.type == UNIGRAM else _bpe(model, ids, scores))
    steps: list[Any] = [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    if model.collapse_spaces:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    if not model.byte_fallback and set(ids) - set(scores) - set(SPECIALS):
        # unknown characters in a row are one unknown token, even if the vocabulary has them from the other side
        alphabet = "".join(f"\\x{{{ord(character):x}}}" for character in sorted(known | {" ", SPACE}))
        steps.append(normalizers.Replace(Regex(f"[^{alphabet}]{{2,}}"), UNKNOWN_RUN))
    scheme = "always" if model.add_prefix else "never"
    if model.add_prefix and not model.collapse_spaces:  # Metaspace puts no prefix before a space
        steps.append(normalizers.Prepend(SPACE))
    engine.normalizer = normalizers.Sequence(steps)
    engine.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, scheme, split=model.collapse_spaces)
    bytes_decoder = [decoders.ByteFallback()] if model.byte_fallback else []
    engine.decoder = decoders.Sequence(
        [*bytes_decoder, decoders.Replace(FOREIGN, ""), decoders.Metaspace(SPACE, scheme)]
    )
    engine.add_special_tokens([token for token in SPECIALS if token in ids])
    user_defined = [piece.text for piece in model.pieces if piece.type == USER_DEFINED]
    tags = [token for token in (*ids, *user_defined) if token in user_defined or LANGUAGE.fullmatch(token)]
    engine.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in dict.fromkeys(tags) if tag in ids])
    return engine


def _unigram(model: Pieces, ids: dict[str, int], scores: dict[str, float]) -> models.Model:
    """A unigram model; tokens of the other language get a suffix that no text has, or the lowest score."""
    entries = []
    for token, _ in sorted(ids.items(), key=lambda item: item[1]):
        foreign = token not in scores and len(token) > 1 and token not in SPECIALS and not LANGUAGE.fullmatch(token)
        entries.append((token + FOREIGN if foreign else token, scores.get(token, NEVER_CHOSEN)))
    return models.Unigram(entries, unk_id=ids["<unk>"], byte_fallback=model.byte_fallback)


def _bpe(model: Pieces, ids: dict[str, int], scores: dict[str, float]) -> models.Model:
    """A BPE model with a merge for every way to make a token from two others, sorted by the score of the token."""
    merges: list[tuple[float, int, str, str]] = []
    for token, score in scores.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if token in ids and left in scores and right in scores and left in ids and right in ids:
                merges.append((-score, len(merges), left, right))
    pairs = [(left, right) for _, _, left, right in sorted(merges)]
    return models.BPE(ids, pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=model.byte_fallback)
