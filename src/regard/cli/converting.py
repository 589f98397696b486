"""The commands import and export, for models of other libraries."""

from __future__ import annotations

from typing import Annotated, Literal

from regard.cli import tables
from regard.cli.options import Force, Json, Tag, argument, examples, option


@examples(
    "regard import opus-mt-en-de runs/opus",
    "regard import Helsinki-NLP/opus-mt-en-de runs/opus --valid valid.en valid.de",
)
def import_(
    source: Annotated[str, argument("MODEL", "A Hugging Face model folder, or the name of a model on the hub.")],
    folder: Annotated[str, argument("OUT", "The model folder to write.")],
    *,
    valid: Annotated[
        tuple[str, str] | None,
        option("SOURCE TARGET", "Validation files: their translations are scored, and calibrate confidence."),
    ] = None,
    tag: Tag = "",
    to: Annotated[str, option("TOKEN", "The language code that every translation starts with, such as fra_Latn.")] = "",
    sentences: Annotated[int, option("N", "Sentences on which both models are compared.", min=0, max=10_000)] = 20,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Import a model of Hugging Face transformers, and compare it with the original."""
    from regard.evaluation.importing import import_model

    with tables.working("importing"):
        imported = import_model(source, folder, valid=valid, tag=tag, to=to, force=force, sentences=sentences)
    tables.show(imported, as_json=as_json)


@examples("regard export runs/en-fr out", "regard export runs/en-fr out --to ctranslate2 --quantization int8")
def export(
    folder: Annotated[str, argument("FOLDER", "The model folder to export.")],
    out: Annotated[str, argument("OUT", "The folder to write.")],
    to: Annotated[
        Literal["huggingface", "ctranslate2", "onnx"], option(None, "The library to export to.")
    ] = "huggingface",
    quantization: Annotated[
        Literal["float32", "float16", "int8", "int8_float32"],
        option("PRECISION", "For CTranslate2: float32, float16, int8 or int8_float32."),
    ] = "float32",
    sentences: Annotated[int, option("N", "Sentences on which both models are compared.", min=0, max=10_000)] = 20,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Export a model to another library, and compare it with the original."""
    from regard.interop import exporting

    with tables.working("exporting"):
        exported = exporting.export(folder, out, to=to, quantization=quantization, sentences=sentences, force=force)
    tables.show(exported, as_json=as_json)
