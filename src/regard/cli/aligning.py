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
        Path | None, typer.Option(metavar="FOLDER", help="A model of the other direction, which is used as well.")
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
            "--shift/--no-shift", help="Read the step that takes a word as input, not the one that writes it."
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
    """Align words: one line of i-j for every pair, words counted from 0 between spaces; with --gold their AER."""
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

        def write(links: list[Link]) -> None:
            nonlocal pairs
            pairs += 1
            if file is None:
                print(pharaoh(links), flush=True)
            else:
                file.write(f"{pharaoh(links)}\n".encode())
            progress(pairs, None)

        found = align_files(
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
    for note in found.notes:
        print(note, file=sys.stderr)
    if as_json:
        return print(found.to_json())
    for reason, number in found.left_out.items():
        print(f"{number:,} pairs have no alignment: {reason}", file=sys.stderr)
    return print(found.counts, file=sys.stderr) if found.counts is not None else None


def _number(text: str | None) -> int | str | None:
    """A layer or head as a number, or "mean"."""
    return int(text) if text is not None and text.isdecimal() else text
