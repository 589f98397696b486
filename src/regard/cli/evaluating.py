"""The commands that score: evaluate and compare."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from regard.cli.options import Beams, Device, Force, Json, Page, Threads, Values, check_page, examples, numbers

Reference = Annotated[list[str], typer.Option(metavar="FILE", help="Reference translations; may be repeated.")]
Lowercase = Annotated[bool, typer.Option("--lowercase", help="Ignore case in BLEU and chrF; TER always does.")]
Tokenize = Annotated[
    Literal["13a", "intl", "none", "char", "zh", "ja-mecab", "ko-mecab"] | None,
    typer.Option(help="The tokenizer of BLEU. By default 13a."),
]
Lengths = Annotated[
    str | None, typer.Option(metavar="10,20,30", help="Upper limits of the length buckets, in reference words.")
]


@examples(
    "regard evaluate runs/en-fr --source test.en --reference test.fr --report report.html",
    "regard evaluate --hypothesis mine.fr --reference test.fr --json",
)
def evaluate(
    folder: Annotated[
        str | None, typer.Argument(metavar="FOLDER", help="A model folder, or several joined by +.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="FILE", help="The text to translate; for a gpt or bert, the text to score.")
    ] = None,
    reference: Reference = [],  # noqa: B006 - typer copies it
    hypothesis: Annotated[
        str | None, typer.Option(metavar="FILE", help="Score these translations instead of a model folder.")
    ] = None,
    train: Annotated[
        str | None, typer.Option(metavar="FILE", help="Target-language training text, for scores by word frequency.")
    ] = None,
    glossary: Annotated[
        str | None, typer.Option(metavar="TSV", help="Report how many terms are translated as the glossary requires.")
    ] = None,
    lowercase: Lowercase = False,
    tokenize: Tokenize = None,
    lengths: Lengths = None,
    report: Page = None,
    sentences: Annotated[bool, typer.Option("--sentences", help="With --json: add the scores of every line.")] = False,
    beams: Beams = None,
    values: Values = [],  # noqa: B006 - typer copies it
    force: Force = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Score translations with BLEU, chrF and TER (sacreBLEU), with confidence intervals and by sentence length.

    A gpt or bert folder is scored by its perplexity on the source text.
    """
    from regard.cli import tables
    from regard.devices import use_threads
    from regard.evaluation.evaluate import Evaluation, is_language_model, refuse
    from regard.evaluation.evaluate import evaluate as score

    if folder and is_language_model(folder):
        refuse({"--report": report, "--sentences": sentences}, f"is for translations, and {folder} is a language model")
    check_page(report, *filter(None, [source, hypothesis, train, glossary]), *reference, force=force)
    use_threads(threads)
    with tables.counting_bar("evaluating") as progress:
        result = score(
            folder or None,
            source=source,
            reference=reference,
            hypothesis=hypothesis,
            train=train,
            glossary=glossary,
            progress=progress,
            **_options(lowercase, tokenize, lengths, beams, values, device),
        )
        if report is not None and isinstance(result, Evaluation):
            result.save(report, force=force)
    values_shown = result.to_dict(sentences=sentences) if isinstance(result, Evaluation) else result.to_dict()
    tables.show(result, values_shown, as_json=as_json)


@examples(
    "regard compare runs/rnn runs/transformer --source test.en --reference test.fr",
    "regard compare old.fr new.fr --reference test.fr --report compare.html",
)
def compare(
    systems: Annotated[list[str], typer.Argument(metavar="A B ...", help="Model folders or files of translations.")],
    reference: Reference = [],  # noqa: B006 - typer copies it
    source: Annotated[str | None, typer.Option(metavar="FILE", help="The text that model folders translate.")] = None,
    lowercase: Lowercase = False,
    tokenize: Tokenize = None,
    lengths: Lengths = None,
    report: Page = None,
    beams: Beams = None,
    values: Values = [],  # noqa: B006 - typer copies it
    force: Force = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Compare systems side by side: scores, paired significance tests against the first one, and where they differ."""
    from regard.cli import tables
    from regard.devices import use_threads
    from regard.evaluation.compare import compare as side_by_side

    check_page(report, *filter(None, [source]), *reference, *systems, force=force)
    use_threads(threads)
    with tables.counting_bar("comparing") as progress:
        options = _options(lowercase, tokenize, lengths, beams, values, device)
        result = side_by_side(systems, source=source, reference=reference, progress=progress, **options)
        if report is not None:
            result.save(report, force=force)
    tables.show(result, as_json=as_json)


def _options(
    lowercase: bool, tokenize: str | None, lengths: str | None, beams: int | None, values: list[str], device: str
) -> dict[str, Any]:
    """The arguments that evaluate and compare share."""
    return {
        "lowercase": lowercase,
        "tokenize": tokenize,
        "lengths": None if lengths is None else numbers("--lengths", lengths, "10,20,30"),
        "beams": beams,
        "config": {name: value for name, _, value in (text.partition("=") for text in values)},
        "device": device,
    }
