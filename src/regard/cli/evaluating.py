"""The commands that score: evaluate and compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import Beams, Device, Force, Json, Threads, Values, check_page, numbers
from regard.errors import ConfigError, DataError

Reference = Annotated[list[str], typer.Option(metavar="FILE", help="What is right, line by line; may be repeated.")]
Lowercase = Annotated[bool, typer.Option("--lowercase", help="Do not mind case in BLEU and chrF; TER never does.")]
Tokenize = Annotated[str, typer.Option(help="Of BLEU: 13a, intl, none, char, zh, ja-mecab or ko-mecab.")]
Lengths = Annotated[str, typer.Option(metavar="10,20,30", help="The last number of words in each bucket of length.")]
Page = Annotated[Path | None, typer.Option(metavar="X.html", help="Write the report as a page.")]


def evaluate(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A model folder, or several joined by +.")] = "",
    source: Annotated[str, typer.Option(metavar="FILE", help="What is translated; of a gpt or bert, the text.")] = "",
    reference: Reference = [],  # noqa: B006 - typer copies it
    hypothesis: Annotated[str, typer.Option(metavar="FILE", help="Score these translations, no folder.")] = "",
    train: Annotated[str, typer.Option(metavar="FILE", help="Target text to count frequencies of words in.")] = "",
    glossary: Annotated[Path | None, typer.Option(metavar="TSV", help="How many of its terms come out.")] = None,
    lowercase: Lowercase = False,
    tokenize: Tokenize = "13a",
    lengths: Lengths = "10,20,30,40,60",
    report: Page = None,
    sentences: Annotated[bool, typer.Option("--sentences", help="With --json: the scores of every line too.")] = False,
    beams: Beams = None,
    values: Values = [],  # noqa: B006 - typer copies it
    force: Force = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """BLEU, chrF and TER as sacreBLEU has them, with intervals and by length; of a gpt or bert, perplexity."""
    from regard.cli import tables
    from regard.devices import find_device, use_threads
    from regard.evaluation.evaluate import evaluate as score
    from regard.evaluation.evaluate import read_test
    from regard.evaluation.metrics import check_ends
    from regard.evaluation.pages import evaluation_page
    from regard.evaluation.systems import terms, written
    from regard.folders import clear_os_errors, write_file
    from regard.translation.glossary import Glossary

    system = _only(folder, hypothesis)
    use_threads(threads)
    if folder and _family(folder) in ("gpt", "bert"):
        given = {
            "--report": report, "--glossary": glossary, "--train": train, "--sentences": sentences, "--beams": beams,
            "--set": values, "--lowercase": lowercase, "--reference": reference if source else reference[1:],
        }  # fmt: skip
        _refuse(given, f"is of translations, and {folder} is a language model")
        return _perplexity(folder, source or "".join(reference[:1]), find_device(device), as_json)
    if hypothesis:
        _refuse({"--beams": beams, "--set": values}, "is of a search, and --hypothesis is translated already")
    if not reference:
        raise ConfigError("give what is right with --reference FILE")
    check_page(report, source, hypothesis, train, str(glossary or ""), *reference, force=force)
    ends = numbers("--lengths", lengths, "10,20,30")
    check_ends(ends)
    sources, references = read_test(source) if source else None, [read_test(path) for path in reference]
    if glossary and sources is None:
        raise ConfigError("--glossary needs --source FILE, to know where its terms are")
    if train:
        with clear_os_errors(Path(train), "read"), open(train, "rb"):
            pass
    known = Glossary.read(glossary, None) if glossary else None
    _check_test(source, sources, reference, references, tokenize)
    with tables.counting_bar("translating") as progress:
        asked: dict[str, Any] = {"device": find_device(device), "beams": beams, "values": values}
        found = written(system, sources, **asked, progress=progress)
    _check_lines(system, found.texts, reference, references)
    how: dict[str, Any] = {"lowercase": lowercase, "tokenize": tokenize}
    with tables.working("scoring"):
        scored = score(
            found.texts,
            references,
            sources=sources,
            warned=found.warned,
            confidences=found.confidences,
            train=train or None,
            terms=terms(known, sources or [], references, found, beams=beams or 0, **how)
            if known is not None
            else None,
            ends=ends,
            **how,
        )
        if report is not None:
            about = f"{len(found.texts):,} sentences of {source or hypothesis} against {', '.join(reference)}"
            page = evaluation_page(scored, found, system=system, beams=beams or 0, about=about, tokenize=tokenize)
            write_file(report, page, force=force)
    facts = {"system": system, **scored.as_dict(sentences=sentences)}
    return _shown(facts, tables.evaluation_tables, as_json)


def _only(folder: str, hypothesis: str) -> str:
    """The one system that is scored."""
    from regard.evaluation.systems import is_model

    if folder and hypothesis:
        raise ConfigError("a folder translates --source, and --hypothesis is translated already: give one of them")
    if hypothesis and is_model(hypothesis):
        raise ConfigError(
            f"--hypothesis ({hypothesis}) is a folder: a model is given without it, and translates --source"
        )
    if not folder and not hypothesis:
        raise ConfigError("give a model folder to translate --source with, or --hypothesis FILE to score")
    return folder or hypothesis


def _refuse(given: dict[str, Any], why: str) -> None:
    """Options that would be passed over."""
    for flag, value in given.items():
        if value:
            raise ConfigError(f"{flag} {why}: leave it out")


def _check_test(
    source: str, sources: list[str] | None, paths: list[str], references: list[list[str]], tokenize: str
) -> None:
    """What would be found wrong after hours of translating is found now."""
    from regard.evaluation.metrics import make_metric, seed

    seed()
    make_metric("bleu", tokenize=tokenize)
    if sources is not None:
        _check_lines(source, sources, paths, references)


def _check_lines(name: str, texts: list[str], paths: list[str], references: list[list[str]]) -> None:
    """Refuse references of another number of lines, by the names of the files."""
    for path, lines in zip(paths, references, strict=True):
        if len(lines) != len(texts):
            raise DataError(f"{path} has {len(lines):,} lines and {name} {len(texts):,}: line for line")


def _family(folder: str) -> str:
    from regard.models.folder import load_config

    return load_config(Path(folder)).model.family if "+" not in folder or Path(folder).exists() else ""


def _perplexity(folder: str, text: str, device: Any, as_json: bool) -> None:
    from regard.cli import tables
    from regard.evaluation.perplexity import of_folder

    if not text:
        raise ConfigError(f"{folder} is a language model: give a text with --source FILE")
    with tables.counting_bar("reading") as progress:
        found = of_folder(Path(folder), text, device, progress)
    _shown({"system": folder, **found.as_dict()}, tables.perplexity_table, as_json)


def _shown(facts: dict[str, Any], table: Any, as_json: bool) -> None:
    """As JSON, or as a person reads it."""
    if as_json:
        return print(json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False))
    from regard.cli import tables

    return tables.show(table(facts))


def compare(
    systems: Annotated[list[str], typer.Argument(metavar="A B ...", help="Model folders or files of translations.")],
    reference: Reference = [],  # noqa: B006 - typer copies it
    source: Annotated[str, typer.Option(metavar="FILE", help="What folders translate.")] = "",
    lowercase: Lowercase = False,
    tokenize: Tokenize = "13a",
    lengths: Lengths = "10,20,30,40,60",
    report: Page = None,
    beams: Beams = None,
    values: Values = [],  # noqa: B006 - typer copies it
    force: Force = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Systems side by side, each tested against the first as sacreBLEU does, and where they differ."""
    from regard.cli import tables
    from regard.devices import find_device, use_threads
    from regard.evaluation.compare import compare as side_by_side
    from regard.evaluation.evaluate import read_test
    from regard.evaluation.metrics import check_ends
    from regard.evaluation.pages import comparison_page
    from regard.evaluation.systems import is_model, written
    from regard.folders import write_file

    if not reference:
        raise ConfigError("give what is right with --reference FILE")
    if len(systems) < 2:
        raise ConfigError("one system cannot be compared: give two or more")
    if len(set(systems)) < len(systems):
        raise ConfigError(f"{' '.join(systems)}: a system is named twice")
    if all(Path(system).is_file() for system in systems):
        _refuse({"--beams": beams, "--set": values}, "is of a search, and these files are translated already")
    check_page(report, source, *reference, *systems, force=force)
    use_threads(threads)
    ends = numbers("--lengths", lengths, "10,20,30")
    check_ends(ends)
    sources, references = read_test(source) if source else None, [read_test(path) for path in reference]
    _check_test(source, sources, reference, references, tokenize)
    how: dict[str, Any] = {"device": find_device(device), "beams": beams, "values": values}
    short = [Path(system).name for system in systems]
    names = dict(zip(systems if len(set(short)) < len(short) else short, systems, strict=True))
    found = {}
    for name, system in sorted(names.items(), key=lambda item: is_model(item[1])):  # files first: they may be wrong
        with tables.counting_bar(f"translating with {name}") as progress:
            found[name] = written(system, sources, **how, progress=progress)
        _check_lines(system, found[name].texts, reference, references)
    with tables.working("comparing"):
        found = {name: found[name] for name in names}
        texts = {name: each.texts for name, each in found.items()}
        facts = side_by_side(texts, *references, lowercase=lowercase, tokenize=tokenize, ends=ends)
        facts = {"paths": names, **facts}
        if report is not None:
            about = f"{facts['sentences']:,} sentences against {', '.join(reference)}"
            page = comparison_page(facts, found, sources=sources, references=references, beams=beams or 0, about=about)
            write_file(report, page, force=force)
    return _shown(facts, tables.comparison_tables, as_json)
