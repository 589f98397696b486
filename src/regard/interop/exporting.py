"""Export: write a model folder in the format of another library, and compare it with the original."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import __version__
from regard.config import CONFIG, Config, ModelConfig, load_config
from regard.errors import ConfigError, RunError
from regard.folders import atomic_folder, check_apart, check_free, check_replaceable, read_bounded
from regard.folders import verify as verify_files
from regard.interop.architectures import Architecture, find_for_export, resolved
from regard.interop.hf_tokenizer import export_tokenizer
from regard.interop.verification import SENTENCES, THEIR_STOPPING, Verification, exported_stopping, verify
from regard.interop.weights import Converted, to_theirs, write_safetensors
from regard.models.folder import MODEL, load_ensemble, load_weights
from regard.models.transformer import Transformer
from regard.results import Report, Table
from regard.text.tokenizer import FILES as TOKENIZER_FILES
from regard.text.tokenizer import Tokenizers

FORMATS = ("huggingface", "ctranslate2", "onnx")
COLUMNS = ("token.weight", "in_proj.weight", "up_proj.weight", "output.weight")
ROWS = ("out_proj.weight", "out_proj.bias", "down_proj.weight", "down_proj.bias", "norm.weight", "norm.bias")
"""Suffixes of the names of tensors whose columns, or rows, are the dimensions of the hidden states."""


@dataclass(frozen=True)
class Exported(Report):
    """An exported model, and its comparison with the original."""

    folder: Path
    to: str
    what: str
    """The class of transformers, the precision for CTranslate2, or the names of the graphs."""
    verification: Verification

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "to": self.to,
            "what": self.what,
            "verification": self.verification.to_dict(),
        }

    def tables(self) -> list[Table]:
        rows = [["folder", str(self.folder)], ["verification", str(self.verification)]]
        return [Table(["", ""], rows, f"exported to {self.to} ({self.what})", left=True)]


def export(
    folder: str | Path,
    out: str | Path,
    *,
    to: str = "huggingface",
    quantization: str = "float32",
    force: bool = False,
    sentences: int = SENTENCES,
) -> Exported:
    """Write a model for another library: huggingface, ctranslate2 or onnx; `quantization` is for ctranslate2.

    If that library is installed, both models compute `sentences`; a difference above the tolerance is an error.
    Nothing is written after an error.
    """
    folder, out = Path(folder), Path(out)
    if to not in FORMATS:
        raise ConfigError(f"there is no export to {to}, only to {', '.join(FORMATS)}")
    if quantization != "float32" and to != "ctranslate2":
        raise ConfigError(f"quantization is only for ctranslate2, and this is an export to {to}")
    config = load_config(folder)
    check_apart(out, folder)
    if not force:
        check_free(out)
    if to == "ctranslate2":
        from regard.interop.ctranslate2 import export_ctranslate2

        verification = export_ctranslate2(folder, out, quantization=quantization, force=force, sentences=sentences)
        return Exported(out, to, quantization, verification)
    if to == "onnx":
        return _export_onnx(folder, out, force=force, sentences=sentences)
    return _export_huggingface(folder, out, config, force=force, sentences=sentences)


def _export_onnx(folder: Path, out: Path, *, force: bool, sentences: int) -> Exported:
    from regard.interop.onnx import DECODER, ENCODER, verify_onnx, write_onnx

    (model,), tokenizers, config = load_ensemble(folder, "cpu", ("transformer",), "is not exported to ONNX")
    assert isinstance(model, Transformer)
    model = model.float()
    with atomic_folder(out, force=force) as new:
        write_onnx(model, new)
        _write_json(new / "generation_config.json", _generation(tokenizers, config))
        export_tokenizer(tokenizers, config.model, new)
        compared = verify_onnx(model, folder, new, tokenizers, config, sentences)
        _check(compared, folder)
        (new / "README.md").write_text(_card(folder, out, "onnx", "onnxruntime", compared), encoding="utf-8")
        check_replaceable(out, new)
    return Exported(out, "onnx", f"{ENCODER} and {DECODER}", compared)


def _export_huggingface(folder: Path, out: Path, config: Config, *, force: bool, sentences: int) -> Exported:
    verify_files(folder, only=TOKENIZER_FILES)
    tokenizers, tensors, model = Tokenizers.load(folder), load_weights(folder), resolved(config.model)
    if model.family == "transformer" and model.positions == "sinusoidal":
        model, tensors = dataclasses.replace(model, positions="sinusoidal_halves"), _sort_halves(tensors, model.size)
    architecture = find_for_export(model, tokenizers.source.special.pad)
    class_name, theirs = architecture.head(model), _tensors(architecture, model, tensors)
    dtype = next(iter(theirs.values())).dtype
    with atomic_folder(out, force=force) as new:
        write_safetensors(new / MODEL, theirs)
        settings = architecture.write(model) | _special_ids(tokenizers, model)
        _write_json(new / CONFIG, settings | {"dtype": str(dtype).removeprefix("torch.")})
        if model.family != "bert":
            _write_json(new / "generation_config.json", _generation(tokenizers, config))
        export_tokenizer(tokenizers, model, new)
        compared = verify(folder, new, class_name, tokenizers, config, sentences)
        _check(compared, folder)
        card = _card(folder, out, "transformers", f"`{class_name}`", compared)
        (new / "README.md").write_text(card, encoding="utf-8")
        check_replaceable(out, new)
    return Exported(out, "huggingface", class_name, compared)


def _check(compared: Verification, folder: Path) -> None:
    if not compared.reason and not compared.holds:
        raise RunError(f"the exported model differs from {folder}: {compared}; nothing was written")


def _sort_halves(tensors: Mapping[str, Tensor], size: int) -> dict[str, Tensor]:
    """Reorder the hidden dimensions so that all sines of the positions come first.

    The model computes the same: nothing else in a transformer depends on the order of its hidden dimensions.
    """
    order = torch.cat([torch.arange(0, size, 2), torch.arange(1, size, 2)])
    changed = dict(tensors)
    changed |= {name: tensor[:, order] for name, tensor in tensors.items() if name.endswith(COLUMNS)}
    changed |= {name: tensor[order] for name, tensor in tensors.items() if name.endswith(ROWS)}
    return changed


def _tensors(architecture: Architecture, model: ModelConfig, tensors: Mapping[str, Tensor]) -> dict[str, Converted]:
    """The tensors of the class in transformers: ours converted, and those that only that class has."""
    theirs = dict(to_theirs(architecture.names(model), tensors, model))
    dtype = next(iter(tensors.values())).dtype
    theirs |= {name: tensor.to(dtype) for name, tensor in architecture.added(model).items()}
    if architecture.is_bare(model):
        theirs = {name.removeprefix(architecture.prefix): tensor for name, tensor in theirs.items()}
    return {
        name: Converted(tensor.dtype, tuple(tensor.shape), lambda tensor=tensor: tensor)  # type: ignore[misc]
        for name, tensor in theirs.items()
    }


def _special_ids(tokenizers: Tokenizers, model: ModelConfig) -> dict[str, Any]:
    special = tokenizers.target.special
    size = min(model.vocabulary, model.target_vocabulary_size)  # transformers has one id of <pad> for both sides
    pad = next((side.special.pad for side in (tokenizers.target, tokenizers.source) if side.special.pad < size), 0)
    ids: dict[str, Any] = {"pad_token_id": pad, "eos_token_id": special.end}
    if model.is_translator:
        return ids | {"bos_token_id": None, "decoder_start_token_id": special.start, "forced_eos_token_id": special.end}
    return ids | {"bos_token_id": special.start}


def _generation(tokenizers: Tokenizers, config: Config) -> dict[str, Any]:
    """The contents of generation_config.json; tokens that Regard never generates are suppressed."""
    decode, is_translator = config.decode, config.model.is_translator
    settings = _special_ids(tokenizers, config.model)
    settings["max_new_tokens"] = config.text.max_length if is_translator else config.text.context_length
    settings["suppress_tokens"] = list(tokenizers.target.special.never_generated)
    if is_translator:
        settings |= {"num_beams": decode.beams, "length_penalty": decode.length_penalty}
        settings["early_stopping"] = THEIR_STOPPING[exported_stopping(decode)]
        if decode.first_token:
            settings["forced_bos_token_id"] = tokenizers.target.token_id(decode.first_token)
    if decode.no_repeat_ngram:
        settings["no_repeat_ngram_size"] = decode.no_repeat_ngram
    return {name: value for name, value in settings.items() if value is not None}


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(dict(sorted(values.items())), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _card(folder: Path, out: Path, library: str, what: str, compared: Verification) -> str:
    card = folder / "card.md"
    return (
        f"---\nlibrary_name: {library}\n---\n"
        f"# {out.name}\n\nExported with Regard {__version__} for {what}.\n\n"
        f"## Verification\n\n{compared.sentence}\n"
        + (f"\n{read_bounded(card).decode(errors='replace')}" if card.is_file() else "")
    )
