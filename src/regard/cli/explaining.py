"""The command that looks into a model: explain."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import Beams, Device, Force, Json, Threads, check_output
from regard.errors import ConfigError


def explain(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A model folder, or several joined by +.")],
    sentence: Annotated[str, typer.Argument(help="What to translate; of a gpt the prompt, of a bert the text.")],
    *,
    out: Annotated[Path, typer.Option(metavar="X.html", help="A page; .png and .svg: a picture; .json: the numbers.")],
    target: Annotated[str | None, typer.Option(metavar="TEXT", help="Explain this translation, not its own.")] = None,
    method: Annotated[
        str, typer.Option(help="attention, rollout, value, gradient or ablation; a page has all, and opens with it.")
    ] = "attention",
    kind: Annotated[
        str, typer.Option(help="cross, encoder or decoder: whose attention; else the one that fits the family.")
    ] = "",
    layer: Annotated[int | None, typer.Option(min=0, help="Counted from 0; else the one that aligns best.")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="Counted from 0; else all heads together.")] = None,
    beams: Beams = None,
    force: Force = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """What the model looked at, and what its words depend on: a page, a picture for a paper, or the numbers."""
    from regard.cli import tables
    from regard.devices import find_device, use_threads
    from regard.inspection import attribution, drawing
    from regard.translation.explain import explain as explain_verb

    if target is not None and not target.strip():
        raise ConfigError("--target is empty: give the translation to explain, or leave it out")
    drawing.check_suffix(out, also=[".json"])
    attribution.check_method(method, kind)
    check_output(out, force=force)
    use_threads(threads)
    with tables.working("explaining"), warnings.catch_warnings(record=True) as missing:
        warnings.simplefilter("always", UserWarning)
        options: dict[str, Any] = {"target": target, "method": method, "kind": kind or None, "beams": beams or None}
        view = explain_verb(folder, sentence, layer=layer, head=head, device=find_device(device), **options)
        view.save(out, force=force)
    for message in (*(each.message for each in view.warnings), *(each.message for each in missing)):
        print(f"regard: {message}", file=sys.stderr)
    if as_json:
        return print(json.dumps({"out": str(out), **view.to_dict()}, indent=2, ensure_ascii=False))
    return print(*filter(None, [view.trace.target.text, out]), sep="\n")
