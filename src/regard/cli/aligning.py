"""The align command: word alignments of two files."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.options import Device, Force, Json, OutFile, Source, Target, Threads, check_output, examples
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.text.alignments import Link

Method = Literal["one", "intersection", "union", "grow", "grow-diag", "grow-diag-final", "grow-diag-final-and"]


@examples(
    "regard align runs/en-fr test.en test.fr --out test.links",
    "regard align runs/en-fr test.en test.fr --reverse runs/fr-en --gold test.talp",
)
def align(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model folder that translates SOURCE to TARGET.")],
    source: Source,
    target: Target = None,
    reverse: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="A model of the opposite direction; the alignments of both are symmetrized."
        ),
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Gold alignments, line by line: i-j sure, ipj possible. Prints the AER."),
    ] = None,
    dev: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            metavar="SOURCE TARGET GOLD", help="Choose layer, head, shift and method on these files and save them."
        ),
    ] = None,
    layer: Annotated[str | None, typer.Option(metavar="N or mean", help="The decoder layer, counted from 0.")] = None,
    head: Annotated[str | None, typer.Option(metavar="N or mean", help="The head, counted from 0.")] = None,
    shift: Annotated[
        bool | None,
        typer.Option(
            "--shift/--no-shift", help="Read the step whose input is the word, not the step that predicts it."
        ),
    ] = None,
    method: Annotated[Method | None, typer.Option(help="The symmetrization. By default grow-diag-final.")] = None,
    tag: Annotated[str, typer.Option(metavar="<2fr>", help="A tag before every source, as in training.")] = "",
    out: OutFile = None,
    force: Force = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Align the words of sentence pairs: one line of i-j per pair (words counted from 0). --gold prints the AER."""
    from regard.cli import tables
    from regard.devices import use_threads
    from regard.folders import atomic_file
    from regard.inspection.word_alignment import align as align_files
    from regard.inspection.word_alignment import pharaoh

    if as_json and out is None:
        raise ConfigError("--json prints to standard output, where the alignments go: give --out FILE too")
    check_output(out, source, target or "", str(gold or ""), *(dev or ()), force=force)
    use_threads(threads)
    with ExitStack() as stack:
        file = stack.enter_context(atomic_file(out, force=force)) if out is not None else None
        progress = stack.enter_context(tables.counting_bar("aligning"))
        pairs = 0

        def write(alignment: list[Link]) -> None:
            nonlocal pairs
            pairs += 1
            if file is None:
                print(pharaoh(alignment), flush=True)
            else:
                file.write(f"{pharaoh(alignment)}\n".encode())
            progress(pairs, None)

        result = align_files(
            folder,
            source,
            target,
            reverse=reverse,
            gold=gold,
            dev=dev,
            layer=_number(layer),
            head=_number(head),
            shift=shift,
            method=method,
            tag=tag,
            device=device,
            write=write,
        )
    for note in result.notes:
        print(note, file=sys.stderr)
    if as_json:
        return print(result.to_json())
    for reason, number in result.left_out.items():
        print(f"{number:,} pairs have no alignment: {reason}", file=sys.stderr)
    return print(result.counts, file=sys.stderr) if result.counts is not None else None


def _number(text: str | None) -> int | str | None:
    """A layer or head as a number, or "mean"."""
    return int(text) if text is not None and text.isdecimal() else text
