"""The commands that score: evaluate and compare."""

from __future__ import annotations

from typing import Annotated, Any

from regard.cli import options, tables
from regard.cli.options import argument, examples, flag, option
from regard.config import parse_assignments
from regard.errors import refuse_options
from regard.evaluation.metrics import Tokenizer

Reference = Annotated[list[str], option("FILE", "Reference translations; may be repeated.")]
Lowercase = Annotated[bool, flag("--lowercase", "Ignore case in BLEU and chrF; TER always does.")]
Tokenize = Annotated[
    Tokenizer | None, option(None, "The tokenizer of BLEU. By default that of the reference's script, mostly 13a.")
]


@examples(
    "regard evaluate runs/en-fr --source test.en --reference test.fr --report report.html",
    "regard evaluate --hypothesis mine.fr --reference test.fr --json",
)
def evaluate(
    folder: Annotated[str | None, argument("FOLDER", "A model folder, or several joined by +.")] = None,
    source: Annotated[
        str | None, option("FILE", "The text to translate; for a gpt or bert, the text to score.")
    ] = None,
    reference: Reference = [],  # noqa: B006 - typer copies it
    hypothesis: Annotated[str | None, option("FILE", "Score these translations instead of a model folder.")] = None,
    train: Annotated[str | None, option("FILE", "Target-language training text, for scores by word frequency.")] = None,
    glossary: Annotated[
        str | None, option("TSV", "Report how many terms are translated as the glossary requires.")
    ] = None,
    lowercase: Lowercase = False,
    tokenize: Tokenize = None,
    report: options.Page = None,
    sentences: Annotated[bool, flag("--sentences", "With --json: add the scores of every line.")] = False,
    beams: options.Beams = None,
    values: options.Values = [],  # noqa: B006 - typer copies it
    force: options.Force = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Score translations with BLEU, chrF, chrF++ and TER (sacreBLEU), with confidence intervals and by sentence length.

    A gpt or bert folder is scored by its perplexity on the source text.
    """
    options.check_page(report, source, hypothesis, train, glossary, *reference, force=force)
    from regard.devices import use_threads
    from regard.evaluation.evaluate import Evaluation, is_language_model
    from regard.evaluation.evaluate import evaluate as score

    if folder and is_language_model(folder):
        refuse_options(
            {"--report": report, "--sentences": sentences}, f"is for translations, and {folder} is a language model"
        )
    use_threads(threads)
    settings = _settings(lowercase, tokenize, beams, values, device)
    files: dict[str, Any] = {"hypothesis": hypothesis, "train": train, "glossary": glossary}
    with tables.counting_bar("evaluating") as progress:
        result = score(folder or None, source=source, reference=reference, progress=progress, **files, **settings)
        if report is not None and isinstance(result, Evaluation):
            result.save(report, force=force)
    tables.show(result, as_json=as_json, page=report, **({"sentences": True} if sentences else {}))


@examples(
    "regard compare runs/rnn runs/transformer --source test.en --reference test.fr",
    "regard compare old.fr new.fr --reference test.fr --report compare.html",
)
def compare(
    systems: Annotated[list[str], argument("A B ...", "Model folders or files of translations.")],
    reference: Reference = [],  # noqa: B006 - typer copies it
    source: Annotated[str | None, option("FILE", "The text that model folders translate.")] = None,
    lowercase: Lowercase = False,
    tokenize: Tokenize = None,
    report: options.Page = None,
    beams: options.Beams = None,
    values: options.Values = [],  # noqa: B006 - typer copies it
    force: options.Force = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Compare systems side by side: scores, paired significance tests against the first one, and where they differ."""
    options.check_page(report, source, *reference, *systems, force=force)
    from regard.devices import use_threads
    from regard.evaluation.compare import compare as side_by_side

    use_threads(threads)
    settings = _settings(lowercase, tokenize, beams, values, device)
    with tables.counting_bar("comparing") as progress:
        result = side_by_side(systems, source=source, reference=reference, progress=progress, **settings)
        if report is not None:
            result.save(report, force=force)
    tables.show(result, as_json=as_json, page=report)


def _settings(
    lowercase: bool, tokenize: str | None, beams: int | None, values: list[str], device: str
) -> dict[str, Any]:
    """The arguments that evaluate and compare share."""
    return {
        "lowercase": lowercase,
        "tokenize": tokenize,
        "beams": beams,
        "config": parse_assignments(values),
        "device": device,
    }
