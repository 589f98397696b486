"""The explain command: what a model attended to, and what its output depends on."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.options import Beams, Device, Force, Json, Threads, check_output, examples, parse_path

Method = Literal["attention", "rollout", "value", "gradient", "ablation"]


@examples(
    'regard explain runs/en-fr "The agreement was signed." --out why.html',
    'regard explain runs/en-fr "The agreement was signed." --method gradient --out why.png',
)
def explain(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A model folder, or several joined by +.")],
    sentence: Annotated[str, typer.Argument(help="The source; for a gpt the prompt, for a bert the text.")],
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", parser=parse_path, metavar="FILE", help="A page (.html), a figure (.png, .svg) or .json."
        ),
    ],
    target: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Explain this translation instead of the model's output.")
    ] = None,
    method: Annotated[
        Method, typer.Option(help="The attribution method; an .html page shows all of them.")
    ] = "attention",
    kind: Annotated[
        Literal["cross", "encoder", "decoder"] | None,
        typer.Option(help="The attention to show. By default cross; for a bert encoder, for a gpt decoder."),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The layer, counted from 0. By default the second-to-last.")
    ] = None,
    head: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The head, counted from 0. By default all combined.")
    ] = None,
    beams: Beams = None,
    force: Force = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Show what the model attended to and what its output depends on, as a page, a figure or numbers."""
    from regard.cli import tables
    from regard.devices import use_threads
    from regard.inspection import drawing
    from regard.translation.explain import explain as explain_sentence

    drawing.check_suffix(out, also=[".json"])
    check_output(out, force=force)
    use_threads(threads)
    with tables.working("explaining"), warnings.catch_warnings(record=True) as missing_fonts:
        warnings.simplefilter("always", UserWarning)
        view = explain_sentence(
            folder,
            sentence,
            target=target,
            method=method,
            kind=kind,
            layer=layer,
            head=head,
            beams=beams,
            device=device,
        )
        view.save(out, force=force)
    for message in [*(warning.message for warning in view.warnings), *(warning.message for warning in missing_fonts)]:
        print(f"regard: {message}", file=sys.stderr)
    if as_json:
        return print(json.dumps({"out": str(out), **view.to_dict()}, indent=2, ensure_ascii=False))
    return print(*filter(None, [view.trace.target.text, out]), sep="\n")
