"""The terminal: results as tables a person reads; `rich` is imported only when one is drawn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from regard.counting import HARDWARE, Bytes, Count, Duration, Part, Scale, Work

if TYPE_CHECKING:
    from rich.console import Group
    from rich.progress import TaskID
    from rich.table import Table


def count_table(counted: Count, built: dict[str, int] | None = None) -> Table:
    """Parameters by part with the formula beside each number; beside those, what the built model has."""
    from rich.table import Table
    from rich.text import Text

    title = Text(f"{counted.name}: {counted.total:,} parameters")  # a name may hold brackets
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("part")
    table.add_column("formula", style="dim")
    table.add_column("parameters", justify="right")
    if built is not None:
        table.add_column("built", justify="right")
    for part in counted.tree:
        _add(table, part, 0, built)
    row = ["total", "", f"{counted.total:,}"] + ([f"{sum(built.values()):,}"] if built is not None else [])
    table.add_section()
    table.add_row(*row, style="bold")
    return table


def _add(table: Table, part: Part, depth: int, built: dict[str, int] | None) -> None:
    formula = part.formula
    if part.times > 1:
        formula = f"{part.times} × ({formula})" if formula else f"{part.times} × {part.each:,}"
    row = ["  " * depth + part.name, formula, f"{part.total:,}"]
    if built is not None:
        row.append(f"{built[part.name]:,}" if depth == 0 else "")
    table.add_row(*row, style="bold" if depth == 0 else None)
    for inner in part.parts:
        _add(table, inner, depth + 1, built)


def cost_table(done: Work, needed: Bytes, took: Duration | None, *, batch: int, precision: str) -> Table:
    """What training costs: operations, memory, time."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    pair = f"{done.source} source and {done.target} target tokens" if done.source else f"{done.target} tokens"
    table.add_row("operations a token", flops(done.forward / done.target), f"forward, in a sentence of {pair}")
    table.add_row("", flops(done.training / done.target), "training: forward and twice that back")
    table.add_row("weights", size(needed.weights), precision if precision == "fp32" else "fp32 masters and bf16 copies")
    table.add_row("gradients", size(needed.gradients), "fp32")
    table.add_row("optimizer", size(needed.optimizer), "Adam's two averages, fp32")
    table.add_row("activations", size(needed.activations), f"about, for a batch of {batch} sentences of {pair}")
    table.add_row("training in all", size(needed.training), "")
    if needed.cache_per_token:
        table.add_row("cache a token", size(needed.cache_per_token), "keys and values of each hypothesis in decoding")
    if needed.cache_per_source_token:
        table.add_row("memory a source token", size(needed.cache_per_source_token), "kept once a sentence in decoding")
    if took is not None:
        share = f"{took.utilisation:.0%} of the peak of {took.devices} × {took.hardware}"
        note = f"{took.tokens:,.0f} target tokens at {share}"
        table.add_row("time", time(took.seconds), note)
        table.add_row("", f"{took.tokens_per_second:,.0f}", "target tokens a second")
        card = HARDWARE[took.hardware]
        fits = "fits into" if needed.training <= card.memory * 1e9 else "does not fit into"
        table.add_row("", f"{card.memory:g} GB", f"of memory each; this batch {fits} one ({card.source})")
        if took.price:
            table.add_row("cost", f"{took.device_hours * took.price:,.2f}", f"at {took.price:g} an hour a device")
    return table


def scale_table(scales: Sequence[Scale], *, hardware: str, batch: int, link: float) -> Table:
    """An update on more and more devices."""
    from rich.table import Table

    title = f"one update of {batch:,} sentences; each {hardware} sends {link:g} GB/s"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("GPUs", "weights", "an update", "computing", "tokens a second", "memory each", ""):
        table.add_column(name, justify="left" if name in ("weights", "") else "right", no_wrap=True)
    for each in scales:
        fits = "" if each.memory <= HARDWARE[hardware].memory * 1e9 else "too much"
        milliseconds = 1000 * each.seconds
        table.add_row(
            "" if each.sharded else f"{each.devices:,}",
            "divided" if each.sharded else "on each",
            f"{milliseconds:,.1f} ms" if milliseconds < 100 else f"{milliseconds:,.0f} ms",
            f"{each.compute / each.seconds:.0%}",
            f"{each.tokens / each.seconds:,.0f}",
            size(each.memory),
            fits,
        )
    return table


def corpora_table(rows: Sequence[Mapping[str, str]]) -> Table:
    """Named corpora: what they are and where they would come from."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("languages", no_wrap=True)
    table.add_column("where", no_wrap=True)
    table.add_column("size")
    table.add_column("licence", style="dim")
    for row in rows:
        unverified = " (not verified)" if row["checksum"] == "not verified" else ""
        table.add_row(row["name"], row["languages"], row["where"], row["size"] + unverified, row["licence"])
    return table


METRICS = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}


def evaluation_tables(found: Mapping[str, Any]) -> Group:
    """What `regard evaluate` found of translations: scores, by length, by frequency, warnings, terms."""
    from rich.console import Group
    from rich.text import Text

    scores = _scores_table()
    scores.add_column("", style="bold", no_wrap=True)
    scores.add_column("score", justify="right", style="bold", no_wrap=True)
    scores.add_column("95 % interval", justify="right", no_wrap=True)
    scores.add_column("signature", style="dim", overflow="fold")
    for name in filter(found.__contains__, METRICS):
        score = found[name]
        interval, signature = f"{score['low']:z.2f} to {score['high']:z.2f}", score["signature"].replace("|", " ")
        scores.add_row(METRICS[name], f"{score['score']:.2f}", interval, signature)
    parts: list[Any] = [scores, "", _intervals("BLEU by words of the reference", "sentences", [
        (_span(each), each["sentences"], each["bleu"], each["low"], each["high"], each["small"])
        for each in found["by_length"]
    ]), "", _intervals(f"F-measure of words by how often they are in {found['frequencies_from']}", "words", [
        (_span(each), each["words"], 100 * each["f1"], 100 * each["low"], 100 * each["high"], each["words"] < 30)
        for each in found["by_frequency"] if each["words"]
    ])]  # fmt: skip
    if "warnings" in found:
        counted = ", ".join(f"{kind} {number:,}" for kind, number in found["warnings"].items()) or "none"
        parts += ["", Text.assemble(("warnings  ", "bold"), counted, (f"  of {found['sentences']:,} sentences", "dim"))]
    if "confidence" in found:
        parts.append(Text.assemble(("confidence  ", "bold"), f"{found['confidence']:.0%}", ("  on average", "dim")))
    if "terms" in found:
        parts.append(Text.assemble(("terms  ", "bold"), _terms_line(found["terms"])))
    return Group(*parts)


def _terms_line(terms: Mapping[str, Any]) -> str:
    told = f"{terms['accuracy']:.1%} of {terms['terms']:,} in {terms['sentences']:,} sentences"
    helped = terms.get("with_glossary")
    if not helped:
        return told
    bleu = f"BLEU of these {helped['bleu']:.1f}, without {helped['bleu_without']:.1f}"
    return f"{told}; {helped['accuracy']:.1%} with the glossary ({bleu})"


NARROW = 64  # columns below which tables are set tight


def _narrow() -> bool:
    from rich.console import Console

    return Console().width < NARROW


def _scores_table(title: str = "") -> Table:
    """A table to be filled; in a narrow terminal its columns are one blank apart, not two."""
    from rich.table import Table
    from rich.text import Text

    heading = Text(title, "bold") if title else None
    return Table(title=heading, title_justify="left", box=None, pad_edge=False, collapse_padding=_narrow())


BARS = 24  # characters of a drawn interval


def _intervals(title: str, unit: str, rows: Sequence[tuple[str, int, float, float, float, bool]]) -> Table:
    """Values with their intervals, each drawn on the same line from 0 to 100; grey where there is little to go by.

    The drawing is left out where the terminal has no room for it.
    """
    from rich.console import Console

    def filled(*, draws: bool) -> Table:
        table = _scores_table(title)
        for name in ("", unit, ""):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("95 % interval", justify="right")
        if draws:
            table.add_column("0" + "100".rjust(BARS - 1), no_wrap=True)
        table.add_column("", no_wrap=True)
        for label, number, value, low, high, small in rows:
            interval = _between(low, high, small, " to ")
            drawn = [_drawn(value, low, high) if interval != TOO_FEW else ""] if draws else []
            cells = (label, f"{number:,}", f"{value:.1f}", interval, *drawn, "few" if small else "")
            table.add_row(*cells, style="dim" if small else None)
        return table

    table, console = filled(draws=False), Console()
    return filled(draws=True) if console.measure(table).maximum + 2 + BARS <= console.width else table


TOO_FEW = "too few"


def _between(low: float, high: float, small: bool, sign: str) -> str:
    """`87.7 to 93.5`; of so few that resampling tells them not apart there is no interval."""
    return TOO_FEW if small and high - low < 0.05 else f"{low:z.1f}{sign}{high:z.1f}"


def _drawn(value: float, low: float, high: float) -> str:
    """`  ├──●─┤ `"""
    first, here, last = (min(max(round(number / 100 * (BARS - 1)), 0), BARS - 1) for number in (low, value, high))
    line = [" "] * BARS
    line[first : last + 1] = "─" * (last - first + 1)
    line[first], line[last] = "├", "┤"
    line[here] = "●"
    return "".join(line).rstrip()


def _span(bucket: Mapping[str, Any]) -> str:
    first, last = bucket["from"], bucket["to"]
    return f"{first}+" if last is None else f"{first}" if first == last else f"{first}–{last}"


def perplexity_table(found: Mapping[str, Any]) -> Table:
    """What a text cost a language model, and what the number depends on."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    cut = f"in windows of {found['window']:,} tokens without overlap"
    if "masked" in found:
        cut += f", {found['masked']:.0%} of them hidden, drawn with seed {found['seed']}"
    table.add_row("perplexity", f"{found['perplexity']:,.2f}", f"a token, {cut}")
    table.add_row("", f"{found['nats']:.4f}", f"nats a token, over {found['guessed']:,} of {found['tokens']:,}")
    if "perplexity_per_word" in found:
        table.add_row("", f"{found['perplexity_per_word']:,.2f}", f"a word, of {found['words']:,}, line ends counted")
    if "bits_per_character" in found:
        table.add_row("", f"{found['bits_per_character']:.4f}", f"bits a character, of {found['characters']:,}")
    return table


def comparison_tables(found: Mapping[str, Any]) -> Group:
    """What `regard compare` found: all systems, each against the first, by length, n-grams, sentences."""
    from rich.console import Group
    from rich.text import Text

    first = found["systems"][0]["name"]
    scores = _scores_table()
    scores.add_column("", style="bold", no_wrap=True)
    scores.add_column("system", overflow="fold", min_width=len("system"))
    scores.add_column("score", justify="right", no_wrap=True)
    scores.add_column("95 % interval", justify="right", overflow="fold", no_wrap=not _narrow())
    for name in ("p\nrand.", "p\nboot.") if _narrow() else ("p, randomised", "p, bootstrap"):
        scores.add_column(name, justify="right", no_wrap=True)
    for name, title in METRICS.items():
        for place, system in enumerate(found["systems"]):
            score = system[name]
            apart = score["score"] != found["systems"][0][name]["score"]  # of equals p is small too, and means nothing
            chances = [score.get(f"p_{test}") for test in ("randomisation", "bootstrap")]
            told = [
                Text(
                    "" if chance is None else f"{chance:.4f}", "green" if apart and chance and chance < 0.05 else "dim"
                )
                for chance in chances
            ]
            interval = f"{score['low']:z.1f} to {score['high']:z.1f}"
            scores.add_row("" if place else title, Text(system["name"]), f"{score['score']:z.2f}", interval, *told)
        scores.add_section()
    note = f"p: how likely chance alone sets a system so far apart from {first}; green below 0.05"
    lengths = _scores_table("BLEU by words of the reference")
    lengths.add_column("", justify="right", no_wrap=True)
    lengths.add_column("sentences", justify="right", no_wrap=True)
    for system in found["systems"]:
        lengths.add_column(Text(system["name"]), justify="right", overflow="fold")
    for bucket in found["by_length"]:
        values = [
            f"{each['bleu']:z.1f} [dim]({_between(each['low'], each['high'], bucket['small'], '–')})[/dim]"
            for each in bucket["systems"]
        ]
        lengths.add_row(_span(bucket), f"{bucket['sentences']:,}", *values, style="dim" if bucket["small"] else None)
    against = [part for each in found["against"] for part in _against(each)]
    return Group(scores, Text(note, "dim"), "", lengths, *against)


def _against(each: Mapping[str, Any]) -> list[Any]:
    """One system against the baseline: how often better, which n-grams, and the sentences furthest apart."""
    from rich.padding import Padding
    from rich.text import Text

    better, equal, worse = (f"{each[kind]:,}" for kind in ("better", "equal", "worse"))
    counted = f": nearer to the reference in {better} sentences, as near in {equal}, further in {worse}"
    parts: list[Any] = ["", Text.assemble((f"{each['system']} against {each['baseline']}", "bold"), counted)]
    for name, kind in ((each["system"], "ngrams"), (each["baseline"], "baseline_ngrams")):
        listed = ", ".join(f"“{one['words']}” {one['here']}:{one['there']}" for one in each[kind][:8]) or "nothing"
        parts.append(Padding(Text.assemble((f"right only or mostly in {name}  ", "cyan"), listed), (0, 0, 0, 2)))
    gains = [one for one in each["different"] if one["gap"] > 0][:2]
    losses = [one for one in each["different"] if one["gap"] < 0][:2]
    for one in (*gains, *losses):
        colour = "green" if one["gap"] > 0 else "red"
        head = Text.assemble((f"{one['gap']:+.0f} chrF", colour), (f"  line {one['line']:,}", "dim"))
        lines = (Text.assemble(("  + ", "dim"), one["text"]), Text.assemble(("  - ", "dim"), one["baseline_text"]))
        parts += [Padding(part, (0, 0, 0, 2)) for part in (head, *lines)]
    return parts


def show(found: Table | Group) -> None:
    """Print what was drawn."""
    from rich.console import Console

    Console(highlight=False).print(found)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A sign of life while something takes long, on a terminal only."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


@contextmanager
def counting_bar(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar with rate and time left for so many of so many, if that is known, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    rate = TextColumn("{task.fields[rate]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=None, rate="")
        begun = perf_counter()

        def tell(done: int, total: int | None) -> None:
            speed = f"{done / max(perf_counter() - begun, 1e-3):,.0f} a second"
            bar.update(task, completed=done, total=total, rate=speed)

        yield tell


@contextmanager
def racing() -> Iterator[Callable[[Sequence[tuple[str, str, int]], int], None]]:
    """A bar for each of several runs side by side, by name, where it stands and its update; elsewhere lines."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:>16}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}
        known: dict[str, str] = {}

        def tell(runs: Sequence[tuple[str, str, int]], updates: int) -> None:
            for name, state, update in runs:
                if not console.is_terminal and known.get(name, "waiting") != state:
                    print(f"{name}: {state}", file=sys.stderr, flush=True)
                known[name] = state
                if name not in tasks:
                    tasks[name] = bar.add_task(name, total=updates, state=state)
                done = updates if state == "finished" else update
                bar.update(tasks[name], completed=done, state=state)

        yield tell


@contextmanager
def download_bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar with rate and time left for each file that is fetched, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def tell(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield tell


def scores_line(scores: Mapping[str, Any]) -> str:
    """`BLEU 41.2, chrF 63.0, loss 1.43`"""
    names = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "calibration": "calibration error"}
    values = {name: score["score"] if isinstance(score, Mapping) else score for name, score in scores.items()}
    return ", ".join(f"{names.get(name, name)} {value:.4g}" for name, value in reversed(values.items()))


def flops(number: float) -> str:
    for unit in ("", "k", "M", "G", "T", "P"):
        if number < 1000:
            return f"{number:.3g} {unit}FLOP"
        number /= 1000
    return f"{number:.3g} EFLOP"


def size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} PB"


def time(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} seconds"
