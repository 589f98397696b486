"""The commands that bring models in from other libraries: import."""

from __future__ import annotations

from typing import Annotated

from regard.cli import tables
from regard.cli.options import Force, Json, argument, examples, option


@examples("regard import opus-mt-en-de runs/opus", "regard import Helsinki-NLP/opus-mt-en-de runs/opus")
def import_(
    source: Annotated[str, argument("SOURCE", "A folder of Hugging Face transformers, or a name of its hub.")],
    folder: Annotated[str, argument("FOLDER", "The model folder to write.")],
    sentences: Annotated[
        int, option("N", "Sentences that are computed here and in transformers, if it is installed.", min=0, max=10_000)
    ] = 20,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Import a model of Hugging Face transformers, and compare it with the original."""
    from regard.interop.importing import import_model

    with tables.working("importing"):
        imported = import_model(source, folder, force=force, sentences=sentences)
    tables.show(imported, as_json=as_json)
