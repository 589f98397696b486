"""The commands that show what a model attends to: explain and align."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from regard.cli import options, tables
from regard.cli.options import argument, examples, flag, option, output
from regard.errors import ConfigError, refuse_options

if TYPE_CHECKING:
    from regard.text.alignments import Link

Triple = tuple[str, str, str] | None
Attribution = Literal["attention", "rollout", "value", "gradient", "ablation"]
Kind = Literal["cross", "encoder", "decoder"]
Symmetrization = Literal["one", "intersection", "union", "grow", "grow-diag", "grow-diag-final", "grow-diag-final-and"]


@examples(
    'regard explain runs/en-fr "The agreement was signed." --out why.html',
    'regard explain runs/en-fr "The agreement was signed." --method gradient --out why.png',
)
def explain(
    folder: options.Folder,
    sentence: Annotated[str, argument("SENTENCE", "The source; for a gpt the prompt, for a bert the text.")],
    *,
    out: Annotated[Path, output("FILE", "A page (.html), a figure (.png, .svg) or .json.")],
    target: Annotated[str | None, option("TEXT", "Explain this translation instead of the model's output.")] = None,
    method: Annotated[Attribution, option(None, "The method; an .html page shows all of them.")] = "attention",
    kind: Annotated[Kind | None, option(None, "The attention; for a bert encoder, for a gpt decoder.")] = None,
    layer: Annotated[int | None, option("N", "The layer, from 0. By default the second-to-last.", min=0)] = None,
    head: Annotated[int | None, option("N", "The head, from 0. By default all combined.", min=0)] = None,
    beams: options.Beams = None,
    force: options.Force = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Show what the model attended to and what its output depends on, as a page, a figure or numbers."""
    arguments = options.without(locals(), "folder", "sentence", "out", "force", "threads", "as_json")
    options.check_output(out, force=force)
    from regard.devices import use_threads
    from regard.inspection import drawing
    from regard.translation.explain import explain as explain_sentence

    drawing.check_suffix(out, also=[".json"])
    use_threads(threads)
    with tables.working("explaining"), warnings.catch_warnings(record=True) as missing_fonts:
        warnings.simplefilter("always", UserWarning)
        view = explain_sentence(folder, sentence, **arguments)
        view.save(out, force=force)
    for message in [*(note.message for note in view.warnings), *(warning.message for warning in missing_fonts)]:
        tables.say(f"regard: {message}")
    text = "\n".join(map(str, filter(None, [view.trace.target.text, out])))
    tables.answer({"out": str(out), **view.to_dict()}, text, as_json=as_json)


def _parse_number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


@examples(
    "regard align runs/en-fr test.en test.fr --out test.links",
    "regard align runs/en-fr test.en test.fr --reverse runs/fr-en --gold test.talp",
    "regard align --hypothesis other.links --gold test.talp",
)
def align(
    folder: Annotated[Path | None, argument("FOLDER", "A model folder that translates SOURCE to TARGET.")] = None,
    source: Annotated[str | None, argument("SOURCE", "A text file, or a file with both sides.")] = None,
    target: options.Target = None,
    hypothesis: Annotated[Path | None, option("FILE", "Score these alignments instead of a model folder's.")] = None,
    reverse: Annotated[Path | None, option("FOLDER", "A model of the opposite direction, to align in both.")] = None,
    gold: Annotated[Path | None, option("FILE", "Gold alignments: i-j sure, ipj possible. Prints the AER.")] = None,
    dev: Annotated[
        Triple, option("SOURCE TARGET GOLD", "Choose layer, head, shift and method on these, and save them.")
    ] = None,
    layer: Annotated[Any, option("N or mean", "The decoder layer, counted from 0.", parser=_parse_number)] = None,
    head: Annotated[Any, option("N or mean", "The head, counted from 0.", parser=_parse_number)] = None,
    shift: Annotated[bool | None, flag("--shift/--no-shift", "Read the step whose input is the target word.")] = None,
    method: Annotated[Symmetrization | None, option(None, "The symmetrization. By default grow-diag-final.")] = None,
    tag: options.Tag = "",
    out: options.OutFile = None,
    force: options.Force = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Align the words of sentence pairs: one line of i-j per pair (words counted from 0). --gold prints the AER."""
    arguments = options.without(locals(), "out", "force", "threads", "as_json")
    if hypothesis is not None:
        refuse_options({"--out": out}, "is for the alignments of a model, and --hypothesis is already aligned")
    elif as_json and out is None:
        raise ConfigError("--json prints to standard output, where the alignments go: give --out FILE too")
    options.check_output(out, source, target, gold, *(dev or ()), force=force)
    from regard.devices import use_threads
    from regard.inspection import alignment

    use_threads(threads)
    with tables.output_lines(out, "aligning", force=force) as (write_line, progress):
        pairs = itertools.count(1)

        def write(links: list[Link]) -> None:
            write_line(alignment.pharaoh(links))
            progress(next(pairs), None)

        result = alignment.align(**arguments, write=write)
    if hypothesis is not None or as_json:
        return tables.show(result, as_json=as_json)
    for message in [*result.messages, *(f"no alignment for {n:,} pairs: {why}" for why, n in result.left_out.items())]:
        tables.say(message)
    return tables.say(alignment.format_rates(result.rates)) if result.rates else None
