"""The command that aligns: links of words out, and how right they are."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Force, Json, Source, Target, Threads, check_output
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.inspection.word_alignment import Direction, Texts
    from regard.text.alignments import Gold, Link

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="A model folder that translates SOURCE to TARGET.")]


def align(
    folder: Folder,
    source: Source,
    target: Target = None,
    reverse: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A model of the other direction, asked as well.")
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Gold links, line for line: i-j sure, ipj possible.")
    ] = None,
    dev: Annotated[
        tuple[str, str, str],
        typer.Option(metavar="SOURCE TARGET GOLD", help="Choose by these how attention is read, and keep it."),
    ] = ("", "", ""),
    layer: Annotated[str, typer.Option(metavar="N or mean", help="The decoder layer to read, from 0.")] = "",
    head: Annotated[str, typer.Option(metavar="N or mean", help="The head to read, from 0.")] = "",
    shift: Annotated[
        bool | None, typer.Option("--shift/--no-shift", help="Read the step that takes a word, not the one before.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="How links of target and source words are joined: grow-diag-final, union, one, ...")
    ] = "",
    apart: Annotated[
        bool | None, typer.Option("--apart/--together", help="Two models draw links one by one, or as one.")
    ] = None,
    tag: Annotated[str, typer.Option(metavar="<2fr>", help="Put before every source, as in training.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write here instead of to standard output.")] = None,
    force: Force = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """A line of links i-j for every pair, words counted from 0 between blanks; with --gold, their error rate."""
    from regard.cli import tables
    from regard.devices import find_device, use_threads
    from regard.documents.formats import read_pairs
    from regard.inspection.word_alignment import Direction

    asked = _asked(layer, head, shift=shift, method=method, apart=apart)
    if dev[0] and asked:
        raise ConfigError(f"--dev chooses the {next(iter(asked))}, and --{next(iter(asked))} says it: give one of them")
    if as_json and out is None:
        raise ConfigError("--json reports on standard output, where the links go: give --out FILE too")
    check_output(out, source, target or "", str(gold or ""), *dev, force=force)
    use_threads(threads)
    forward = Direction.load(folder, find_device(device), tag=tag)
    backward = Direction.load(reverse, find_device(device)) if reverse is not None else None
    texts, right = _beside(read_pairs(source, target), gold)
    with tables.working("choosing how attention is read"):
        if dev[0]:
            _choose(dev, (folder, forward), (reverse, backward))
        elif backward is not None and not asked and not (forward.settled and backward.settled):
            texts = _agree(texts, forward, backward)
    for direction in filter(None, (forward, backward)):
        direction.settings = replace(direction.settings, **asked)
        direction.settings.check()
        direction.left_out.clear()  # what was counted while choosing
    with tables.counting_bar("aligning") as tell:
        facts = _write(texts, right, (forward, backward), (out, force), tell)
    left_out = forward.left_out | backward.left_out if backward is not None else forward.left_out
    facts |= {"left_out": dict(left_out), "reading": asdict(forward.settings)}
    facts |= {"reverse": asdict(backward.settings)} if backward is not None else {}
    if as_json:
        return print(json.dumps(facts, indent=2))
    for reason, number in left_out.items():
        print(f"{number:,} {'pair has' if number == 1 else 'pairs have'} no links: {reason}", file=sys.stderr)
    if gold is not None:
        print(_percent(facts), file=sys.stderr)
    return None


def _asked(layer: str, head: str, **other: Any) -> dict[str, Any]:
    """What the user said of the reading."""
    numbers = {
        name: int(text) if text.isdecimal() else text for name, text in (("layer", layer), ("head", head)) if text
    }
    return numbers | {name: value for name, value in other.items() if value not in (None, "")}


def _beside(pairs: Iterable[Any], gold: Path | None) -> tuple[Iterator[Texts], deque[Gold] | None]:
    """The texts, and the gold links of those that were drawn and not yet compared."""
    from regard.text.alignments import read_gold

    if gold is None:
        return ((pair.source, pair.target) for pair in pairs), None
    waiting: deque[Gold] = deque()

    def drawn() -> Iterator[Texts]:
        for pair, links in read_gold(pairs, gold):
            waiting.append(links)
            yield pair.source, pair.target

    return drawn(), waiting


def _choose(
    dev: tuple[str, str, str], one: tuple[Path, Direction], other: tuple[Path | None, Direction | None]
) -> None:
    """By gold links; the choice is kept in the folders."""
    from regard.documents.formats import read_pairs
    from regard.inspection.word_alignment import choose, choose_method
    from regard.text.alignments import read_gold

    known = list(read_gold(read_pairs(dev[0], dev[1]), Path(dev[2])))
    texts, gold = [(pair.source, pair.target) for pair, _ in known], [links for _, links in known]
    (folder, forward), (reverse, backward) = one, other
    choose(forward, texts, gold)
    if reverse is not None and backward is not None:
        choose(backward, [(target, source) for source, target in texts], gold, turned=True)
        backward.settings.save(reverse)
        print(f"{reverse} is read by {backward.settings.words}", file=sys.stderr)
    found = choose_method(texts, gold, forward, backward)
    forward.settings.save(folder)
    print(f"{folder} is read by {forward.settings.words}; {dev[0]}: {_percent(found.as_dict())}", file=sys.stderr)


def _agree(texts: Iterator[Texts], forward: Direction, backward: Direction) -> Iterator[Texts]:
    """By how well both directions agree on the first pairs, which are given back."""
    from regard.inspection.word_alignment import SAMPLE, choose_by_agreement

    first = list(islice(texts, SAMPLE))
    agreed = choose_by_agreement(first, forward, backward)
    said = f"{forward.settings.words}, and back by {backward.settings.words}"
    print(f"read by {said}: they agree on {agreed:.1%} of their links", file=sys.stderr)
    return chain(first, texts)


def _write(
    texts: Iterator[Texts],
    gold: deque[Gold] | None,
    directions: tuple[Direction, Direction | None],
    where: tuple[Path | None, bool],
    tell: Callable[[int, int | None], None],
) -> dict[str, Any]:
    """Line for line, and what was found."""
    from regard.folders import atomic_file
    from regard.inspection.alignment import AlignmentCounts, count_matches
    from regard.inspection.word_alignment import align as aligned

    total, counts = AlignmentCounts(), {"pairs": 0, "links": 0}

    def lines() -> Iterator[str]:
        nonlocal total
        for links in aligned(texts, *directions):
            counts["pairs"] += 1
            counts["links"] += len(links)
            tell(counts["pairs"], None)
            if gold is not None:
                total = total.plus(count_matches(links, gold.popleft()))
            yield _line(links)

    out, force = where
    if out is None:
        for line in lines():
            print(line, flush=True)
    else:
        with atomic_file(out, force=force) as written:
            for line in lines():
                written.write(f"{line}\n".encode())
    return counts | (total.as_dict() if gold is not None else {})


def _line(links: Iterable[Link]) -> str:
    return " ".join(f"{source}-{target}" for source, target in links)


def _percent(facts: dict[str, Any]) -> str:
    """`AER 8.4 %, precision 93.1 %, recall 90.2 %`"""
    named = {"aer": "AER", "precision": "precision", "recall": "recall"}
    return ", ".join(f"{name} {100 * facts[key]:.1f} %" for key, name in named.items())
