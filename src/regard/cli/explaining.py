"""The command that looks into a model: explain."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Beams, Device, Force, Json, Threads, free
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.inspection.attribution import Map
    from regard.translation.explain import Looked


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
    beams: Beams = 0,
    force: Force = False,
    device: Device = "auto",
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """What the model looked at, and what its words depend on: a page, a picture for a paper, or the numbers."""
    from regard.cli import tables
    from regard.devices import find_device, use_threads
    from regard.folders import write_file
    from regard.inspection import attribution, drawing
    from regard.translation.explain import look

    if target is not None and not target.strip():
        raise ConfigError("--target is empty: give the translation to explain, or leave it out")
    drawing.check_suffix(out, also=[".json"])
    attribution.check_method(method, kind)
    free(out, force=force)
    use_threads(threads)
    with tables.working("explaining"), warnings.catch_warnings(record=True) as missing:
        warnings.simplefilter("always", UserWarning)
        found = look(folder, sentence, target=target or "", beams=beams, device=find_device(device))
        maps = _maps(found, method, kind, whole=out.suffix == ".html")
        chosen: dict[str, Any] = {"layer": layer, "head": head}
        if out.suffix == ".json":
            write_file(out, json.dumps(_numbers(found, maps[0], **chosen), ensure_ascii=False) + "\n", force=force)
        else:
            name = Path(folder).name
            name = name if name == found.trace.family else f"{name} ({found.trace.family})"
            drawing.draw(found.trace, out, maps=maps, title=name, warned=found.warnings, force=force, **chosen)
    for message in (*(each.message for each in found.warnings), *(each.message for each in missing)):
        print(f"regard: {message}", file=sys.stderr)
    if as_json:
        facts = {"out": str(out), "target": found.trace.target.text, "score": found.trace.score}
        shown = {"method": maps[0].method, "kind": maps[0].kind}
        told = {"warnings": [each._asdict() for each in found.warnings]}
        return print(json.dumps({**facts, **shown, **told}, indent=2, ensure_ascii=False))
    return print(*filter(None, [found.trace.target.text, out]), sep="\n")


def _maps(found: Looked, method: str, kind: str, *, whole: bool) -> list[Map]:
    """The map asked for, and for a page all others after it; without attention a page has what there is."""
    from regard.inspection import attribution

    seen = found.trace
    if not whole:
        return [attribution.explain(seen, method, found.model, kind or None)]
    maps = attribution.explain_all(seen, found.model)
    wanted = (method, kind or attribution.usual_kind(seen))
    first = [each for each in maps if (each.method, each.kind) == wanted]
    if not first and seen.attention:
        first = [attribution.explain(seen, method, found.model, kind or None)]  # which says why it is not there
    return first + [each for each in maps if (each.method, each.kind) != wanted]


def _numbers(found: Looked, shown: Map, layer: int | None, head: int | None) -> dict[str, Any]:
    """The whole trace, which `Trace.load` reads, and the map that a picture would show."""
    where, values = shown.picture(layer, head)
    explanation = {
        "method": shown.method,
        "kind": shown.kind,
        "where": where,
        "rows": shown.rows.words,
        "columns": shown.columns.words,
        "values": [[float(f"{value:.6g}") for value in row] for row in values.tolist()],
    }
    warned = [each._asdict() for each in found.warnings]
    return found.trace.as_json() | {"explanation": explanation, "warnings": warned}
