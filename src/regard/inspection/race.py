"""The page of the lineage race: the claims and whether they hold, BLEU by length, loss over time, attention, sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from regard.inspection import charts, report
from regard.inspection.attribution import Map

MIN_SECONDS_IN_MINUTES = 180  # from here on, time is shown in minutes


def page(results: Mapping[str, Any], maps: Mapping[str, Map | str]) -> str:
    """The results of a race as one HTML file."""
    racers = results["racers"]
    names = [racer["name"] for racer in racers]
    without_attention = {name for name, shown in maps.items() if isinstance(shown, str)}
    seeds = racers[0]["seeds"]
    groups = [
        charts.length_group(buckets[0], buckets)
        for buckets in zip(*(racer["by_length"] for racer in racers), strict=True)
    ]
    bars = "lowest and highest of the seeds" if seeds > 1 else "95 % bootstrap interval"
    few = f" {report.HOLLOW}" if any(group.small for group in groups) else ""
    parts = [
        _claims(results["verdicts"], names, without_attention),
        charts.figure(
            "BLEU by sentence length",
            f"Error bars: {bars}.{few}",
            charts.interval_chart(groups, names, "BLEU", report.LENGTH_AXIS),
        ),
        charts.figure("Loss over time", "Cross-entropy on the validation set, logarithmic scale.", _losses(racers)),
        charts.heatmaps(
            "Attention to the same sentence",
            "Rows: the translation; columns: the source. A stronger colour is a larger weight.",
            maps,
        ),
        _parameters(racers, names),
    ]
    seeds_phrase = "one seed" if seeds == 1 else f"{seeds} seeds"
    about = (
        f"{len(racers)} models of about the same size are trained on the same sentences of 2 to 80 words for "
        f"{results['updates']:,} updates each, and then translate {results['sentences']:,} new ones with greedy search."
        f" {seeds_phrase.capitalize()}, on a {'CPU' if results['device'] == 'cpu' else 'GPU'}."
    )
    return report.page("What attention does for long sentences", about, parts, [], kind="The lineage race")


def _claims(verdicts: Sequence[Mapping[str, Any]], names: Sequence[str], without_attention: set[str]) -> str:
    """The two claims of the papers, each with the models it is about."""
    if not verdicts:
        return ""
    without = [verdict for verdict in verdicts if verdict["name"] in without_attention]
    attending = [verdict for verdict in verdicts if verdict["name"] not in without_attention]
    return (
        '<section class="card"><h2>The claims of the papers, measured</h2>'
        '<div class="scroll" tabindex="0" role="region" aria-label="claims"><table class="data claims"><thead><tr>'
        '<th scope="col">model</th><th scope="col">the claim</th><th scope="col">BLEU</th><th scope="col">change</th>'
        "</tr></thead>"
        + _claim("Without attention, one vector has to hold the whole sentence, however long:", without, names)
        + _claim("With attention, each word is looked up in the source:", attending, names)
        + '</table></div><p class="note">BLEU of the shortest and of the longest sentences, as in the chart below. A'
        " fall counts only if the model translates short sentences well.</p></section>"
    )


def _claim(reason: str, verdicts: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    if not verdicts:
        return ""
    claim = f"{reason} BLEU {escape(verdicts[0]['claim'])}."
    rows = "".join(_verdict(verdict, names) for verdict in verdicts)
    return f'<tbody><tr><th class="claim" colspan="4"><span>{claim}</span></th></tr>{rows}</tbody>'


def _verdict(verdict: Mapping[str, Any], names: Sequence[str]) -> str:
    kind, text = ("yes", "✓ holds") if verdict["holds"] else ("no", "✗ fails")
    change = f"{-verdict['lost']:+.0%}".replace("-", "−") if verdict["lost"] is not None else ""
    return (
        f'<tr><th scope="row">{charts.series_key(names.index(verdict["name"]))}{escape(verdict["name"])}</th>'
        f'<td><span class="verdict {kind}">{text}</span></td>'
        f"<td>{verdict['first']:.1f} → {verdict['last']:.1f}</td><td>{change}</td></tr>"
    )


def _losses(racers: Sequence[Mapping[str, Any]]) -> str:
    seconds = [time for racer in racers for time, _ in racer["curve"]]
    if not seconds:
        return "<p>There was no validation.</p>"
    unit, name = (60, "minutes") if max(seconds) >= MIN_SECONDS_IN_MINUTES else (1, "seconds")
    curves = {racer["name"]: [(time / unit, loss) for time, loss in racer["curve"]] for racer in racers}
    return charts.curve_chart(curves, "loss, nats per token", f"{name} of training")


def _parameters(racers: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    counted = [racer["parameters"] for racer in racers]
    largest = max((count["parts"] for count in counted), key=len)
    parts = list(dict.fromkeys([*largest, *(part for count in counted for part in count["parts"])]))
    head = "".join(f'<th scope="col">{charts.series_key(i)}{escape(name)}</th>' for i, name in enumerate(names))
    rows = "".join(_row(part, [count["parts"].get(part, 0) for count in counted]) for part in parts)
    totals = [count["total"] for count in counted]
    scores = "".join(f"<td>{racer['bleu']:.1f}</td>" for racer in racers)
    return (
        '<section class="card"><h2>Parameters by part</h2>'
        f"<p>The largest model has {max(totals) / min(totals) - 1:.0%} more than the smallest.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="parameters"><table class="data"><thead><tr>'
        f"<th></th>{head}</tr></thead><tbody>{rows}</tbody><tfoot>{_row('all', totals)}"
        f'<tr><th scope="row">BLEU, all lengths</th>{scores}</tr>'
        f'</tfoot></table></div><p class="signature">{report.breakable(racers[0]["signature"])}</p></section>'
    )


def _row(name: str, numbers: Sequence[int]) -> str:
    cells = "".join(f"<td>{number:,}</td>" if number else '<td class="soft">–</td>' for number in numbers)
    return f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
