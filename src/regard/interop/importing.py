"""Import: write a model of Hugging Face transformers as a model folder, and compare it with the original."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from regard import __version__
from regard.config import CONFIG, Config, DecodeConfig, TextConfig
from regard.counting import count
from regard.errors import ConfigError, FolderError, RunError, did_you_mean
from regard.folders import (
    atomic_folder,
    check_apart,
    check_free,
    check_replaceable,
    read_bounded,
    read_json,
    write_checksums,
)
from regard.interop import verification
from regard.interop.architectures import Architecture, find, resolved
from regard.interop.hf_tokenizer import import_tokenizers, read_table
from regard.interop.weights import Source, read_weights, to_ours, write_safetensors
from regard.models import build
from regard.models.folder import CARD, VALIDATION, save_model
from regard.results import Report, Table
from regard.text.tokenizer import SOURCE_FILE, TARGET_FILE, TRANSFORMERS_FILE, Tokenizer, Tokenizers

KINDS = {"BPE": "bpe", "Unigram": "unigram", "WordPiece": "wordpiece", "WordLevel": "words"}
HUB_FILES = ("*.json", "*.safetensors", "pytorch_model*.bin", "*.model", "*.spm", "*.txt", "README.md", "LICENSE*")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Imported(Report):
    """An imported model, and its comparison with the original."""

    folder: Path
    architecture: str
    parameters: int
    left_out: tuple[str, ...]
    """Parts of the original that Regard does not have, such as a next-sentence head."""
    verification: verification.Verification
    scores: Mapping[str, Any] = field(default_factory=dict)
    """bleu and chrf of the validation sentences, if there are any."""
    confidence: str = ""
    """Whether translations have a confidence; empty for a model that does not translate."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "architecture": self.architecture,
            "parameters": self.parameters,
            "left_out": list(self.left_out),
            "verification": self.verification.to_dict(),
            "scores": dict(self.scores),
            "confidence": self.confidence,
        }

    def tables(self) -> list[Table]:
        rows = [
            ["folder", str(self.folder)],
            ["parameters", f"{self.parameters:,}"],
            ["verification", str(self.verification)],
        ]
        rows[2:2] = [["left out", part] for part in self.left_out]
        rows += [[name, f"{score['score']:.1f}"] for name, score in self.scores.items()]
        rows += [["confidence", self.confidence]] if self.confidence else []
        return [Table(["", ""], rows, f"imported {self.architecture}", left=True)]


class Measured(NamedTuple):
    """The scores and the calibration of an imported translator."""

    scores: Mapping[str, Any] = {}
    confidence: str = "null: import with --valid SOURCE TARGET, which calibrates it"
    card: str = ""
    """The scores as text."""


def convert(
    source: str | Path,
    folder: str | Path,
    *,
    first_token: str,
    validation: str = "",
    measure: Callable[[Path], Measured] = lambda _: Measured(),
    force: bool,
    sentences: int,
) -> Imported:
    """Import a model, compare it with the original, and measure it; `validation` is its validation.jsonl."""
    folder = Path(folder)
    if not force:
        check_free(folder)
    origin, place = str(source), _download(str(source)) if _is_hub_id(str(source)) else Path(source)
    if not place.is_dir():
        raise FolderError(
            f"There is no folder {place}. Give a Hugging Face folder, or the name of a model on its hub such as a/b"
        )
    check_apart(folder, place)
    settings = read_json(place / CONFIG, optional=True)
    if not isinstance(settings, dict):
        raise FolderError(f"{place} is not a Hugging Face model: it has no {CONFIG} with settings")
    if not {"model_type", "architectures"} & set(settings):
        raise FolderError(f"{place / CONFIG} names no model_type: it is not from Hugging Face transformers")
    architecture = find(settings)
    weights = Source(read_weights(place), architecture.prefix, place)
    try:
        model_config = resolved(architecture.read(settings, weights.tensors))
    except FolderError as error:
        raise FolderError(f"{place / CONFIG}: {error}") from error
    except (AttributeError, TypeError, ValueError, ZeroDivisionError) as error:
        raise FolderError(f"{place / CONFIG}: a setting has a value of the wrong type: {error}") from error
    shapes = {name: tuple(tensor.shape) for name, tensor in build(model_config, "meta").named_parameters()}
    tensors = to_ours(architecture.names(model_config), weights, shapes, model_config)
    assert set(tensors) == set(shapes)
    left_out = _check_unused(architecture, weights)
    files = import_tokenizers(place, read_table(place / "generation_config.json") | settings)
    tokenizers = _tokenizers(files)
    decode = _decode_config(place, settings, tokenizers.target, model_config.is_translator)
    if not model_config.is_translator and (first_token or validation):
        raise ConfigError(f"{origin} is a {model_config.family}: --valid and --to are for models that translate")
    if first_token and tokenizers.target.token_id(first_token) is None:
        raise ConfigError(f"{origin} has no language {first_token}.{did_you_mean(first_token, tokenizers.target.tags)}")
    config = Config(
        model=model_config,
        text=_text_config(tokenizers, model_config.max_positions if model_config.has_position_table else 0),
        decode=replace(decode, first_token=first_token or decode.first_token),
    )
    total = count(config).total
    with atomic_folder(folder, force=force) as new:
        texts = files | ({VALIDATION: validation} if validation else {})
        save_model(new, lambda path: write_safetensors(path, tensors), config, texts, force=True)
        compared = verification.verify(new, place, architecture.head(model_config), tokenizers, config, sentences)
        if not compared.reason and not compared.holds:
            raise RunError(f"the imported model differs from {origin}: {compared}; nothing was written")
        scores, confidence, scored = measure(new) if model_config.is_translator else Measured(confidence="")
        if scored:
            write_checksums(new, exclude=(CONFIG,))  # the measurement has written files
        card = _card(folder, origin, place, architecture, total, left_out, compared, scored)
        (new / CARD).write_text(card, encoding="utf-8")
        check_replaceable(folder, new)
    return Imported(folder, architecture.model_type, total, left_out, compared, scores, confidence)


def _check_unused(architecture: Architecture, weights: Source) -> tuple[str, ...]:
    """The parts that are left out; raise an error for a tensor that is neither used nor known."""
    left_out: dict[str, None] = {}
    for name in weights.tensors:
        if name in weights.used or (architecture.unused and re.fullmatch(architecture.unused, name)):
            continue
        what = next((what for pattern, what in architecture.left_out.items() if re.fullmatch(pattern, name)), None)
        if what is None:
            raise FolderError(
                f"{weights.where} has the tensor {name}, which is not part of a {architecture.model_type} with its "
                "config.json"
            )
        left_out[what] = None
    return tuple(left_out)


def _tokenizers(files: dict[str, str]) -> Tokenizers:
    source = Tokenizer(files[SOURCE_FILE])
    return Tokenizers(source, Tokenizer(files[TARGET_FILE]) if TARGET_FILE in files else source)


def _text_config(tokenizers: Tokenizers, positions: int) -> TextConfig:
    longest = TextConfig().max_length
    return TextConfig(
        tokenizer=KINDS.get(tokenizers.source.kind, "bpe"),  # type: ignore[arg-type]
        vocabulary=tokenizers.source.size,
        shared=tokenizers.shared,
        max_length=min(longest, positions - 1) if positions else longest,
        context_length=min(TextConfig().context_length, positions) if positions else TextConfig().context_length,
    )


def _decode_config(place: Path, settings: dict[str, Any], target: Tokenizer, is_translator: bool) -> DecodeConfig:
    """The decode settings, from generation_config.json or, in older folders, config.json."""
    values = settings | read_table(place / "generation_config.json")
    fields = {"num_beams": "beams", "length_penalty": "length_penalty", "no_repeat_ngram_size": "no_repeat_ngram"}
    chosen = {ours: values[theirs] for theirs, ours in fields.items() if values.get(theirs) is not None}
    if is_translator:
        stopping = values.get("early_stopping") or False
        chosen["early_stopping"] = {True: "yes", False: "no"}[stopping] if isinstance(stopping, bool) else stopping
    first = values.get("forced_bos_token_id")
    if first is not None:
        if not isinstance(first, int) or not 0 <= first < target.size:
            raise FolderError(f"{place}: forced_bos_token_id = {first} is not the id of a token")
        (chosen["first_token"],) = target.tokens([first])
    try:
        return DecodeConfig(**chosen)
    except ConfigError as error:
        raise FolderError(f"{place}: {error}") from error


def _card(
    folder: Path,
    origin: str,
    place: Path,
    architecture: Architecture,
    total: int,
    left_out: tuple[str, ...],
    compared: verification.Verification,
    scored: str,
) -> str:
    licence, name = _licence(place), origin if _is_hub_id(origin) else place.resolve().name
    lines = [
        f"# {folder.name}",
        "",
        f"A {architecture.model_type} of {total:,} parameters, {_languages(place)}imported from `{name}` with "
        f"Regard {__version__}.",
        "",
        f"Licence of the original: {licence or 'its folder does not say'}.",
        "",
        "## Verification",
        "",
        compared.sentence,
    ]
    if left_out:
        lines += ["", f"Left out, because Regard has no part for it: {', '.join(left_out)}."]
    if scored:
        lines += ["", "## Scores", "", scored]
    readme = place / "README.md"
    if readme.is_file():
        lines += ["", "## Card of the original", "", _body(read_bounded(readme).decode(errors="replace"))]
    return "\n".join(lines) + "\n"


def _languages(place: Path) -> str:
    """The language pair of a model, in the words from which `regard serve` reads it; empty if unknown."""
    values = read_table(place / TRANSFORMERS_FILE)
    pair = [values.get(name) for name in ("source_lang", "target_lang")]
    return f"which translates from {pair[0]} to {pair[1]}, " if all(isinstance(name, str) for name in pair) else ""


def _licence(place: Path) -> str:
    readme = place / "README.md"
    if readme.is_file():
        text = read_bounded(readme).decode(errors="replace")
        if found := re.match(r"---\n.*?^license: *([^\n]+)$.*?^---", text, re.S | re.M):
            return found[1].strip().strip("'\"")
    return "in its file LICENSE" if (place / "LICENSE").is_file() else ""


def _body(text: str) -> str:
    """A model card without its front matter, with its headings one level lower."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S).strip()
    return re.sub(r"^#", "##", text, flags=re.M)


# The hub


def _is_hub_id(source: str) -> bool:
    return not os.path.exists(source) and HUB_ID.fullmatch(source) is not None


def _download(name: str) -> Path:
    """Download a model of the hub into the cache of huggingface_hub, and return its folder."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ConfigError(
            f"There is no folder {name}; to download a model of this name: pip install huggingface_hub"
        ) from error
    try:
        return Path(snapshot_download(name, allow_patterns=list(HUB_FILES)))
    except Exception as error:  # of several libraries
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise FolderError(f"There is no folder {name}, and the hub could not be reached for it: {reason}") from error
