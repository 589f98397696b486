"""The commands import and export, for models of other libraries."""

from __future__ import annotations

from typing import Annotated, Literal

from regard.cli import options, tables
from regard.cli.options import argument, examples, option

Quantization = Literal["float32", "float16", "int8", "int8_float32"]
Sentences = Annotated[int, option("N", "Sentences on which both models are compared.", min=0, max=10_000)]


@examples(
    "regard import opus-mt-en-de runs/opus", "regard import Helsinki-NLP/opus-mt-en-de runs/opus --valid v.en v.de"
)
def import_(
    source: Annotated[str, argument("MODEL", "A Hugging Face model folder, or the name of a model on the hub.")],
    folder: Annotated[str, argument("OUT", "The model folder to write.")],
    *,
    valid: Annotated[options.Pair, option("SOURCE TARGET", "Validation files, to score and calibrate it.")] = None,
    tag: options.Tag = "",
    to: Annotated[str, option("TOKEN", "The language code that every translation starts with, such as fra_Latn.")] = "",
    sentences: Sentences = 20,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Import a model of Hugging Face transformers, and compare it with the original."""
    arguments = options.without(locals(), "as_json")
    from regard.evaluation.importing import import_model

    with tables.working("importing"):
        imported = import_model(**arguments)
    tables.show(imported, as_json=as_json)


@examples("regard export runs/en-fr out", "regard export runs/en-fr out --to ctranslate2 --quantization int8")
def export(
    folder: Annotated[str, argument("FOLDER", "The model folder to export.")],
    out: Annotated[str, argument("OUT", "The folder to write.")],
    *,
    to: Annotated[Literal["huggingface", "ctranslate2", "onnx"], option(None, "The library.")] = "huggingface",
    quantization: Annotated[
        Quantization, option("PRECISION", "For CTranslate2: float32, float16, int8 or int8_float32.")
    ] = "float32",
    sentences: Sentences = 20,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Export a model to another library, and compare it with the original."""
    arguments = options.without(locals(), "as_json")
    from regard.interop import exporting

    with tables.working("exporting"):
        exported = exporting.export(**arguments)
    tables.show(exported, as_json=as_json)
