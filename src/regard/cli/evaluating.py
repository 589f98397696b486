"""The commands that score translations and language models: evaluate and compare."""

from __future__ import annotations

from typing import Annotated

from regard.cli import options, tables
from regard.cli.options import argument, examples, flag, option
from regard.config import Config
from regard.errors import refuse_options
from regard.evaluation.metrics import Tokenizer

Reference = Annotated[list[str], option("FILE", "Reference translations; may be repeated.")]
Lowercase = Annotated[bool, flag("--lowercase", "Ignore case in BLEU and chrF; TER always does.")]
Tokenize = Annotated[Tokenizer | None, option(None, "The tokenizer of BLEU. By default chosen by script.")]


@examples(
    "regard evaluate runs/en-fr --source test.en --reference test.fr --report report.html",
    "regard evaluate --hypothesis mine.fr --reference test.fr --json",
)
def evaluate(
    model: Annotated[str | None, argument("FOLDER", "A model folder, or several joined by +.")] = None,
    source: Annotated[str | None, option("FILE", "The text to translate; for a gpt or bert, to score.")] = None,
    reference: Reference = [],  # noqa: B006 - typer copies it
    hypothesis: Annotated[str | None, option("FILE", "Score these translations instead of a model folder.")] = None,
    train: Annotated[str | None, option("FILE", "Target-language training text, for scores by word frequency.")] = None,
    glossary: Annotated[str | None, option("TSV", "Count the terms that are translated as the glossary says.")] = None,
    lowercase: Lowercase = False,
    tokenize: Tokenize = None,
    report: options.Page = None,
    sentences: Annotated[bool, flag("--sentences", "With --json: add the scores of every line.")] = False,
    beams: options.Beams = None,
    config: options.Values = [],  # noqa: B006 - typer copies it
    force: options.Force = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Score translations with BLEU, chrF, chrF++ and TER (sacreBLEU), with confidence intervals and by sentence length.

    A gpt or bert folder is scored by its perplexity on the source text.
    """
    arguments = options.without(locals(), "report", "sentences", "force", "threads", "as_json")
    options.check_output(report, source, hypothesis, train, glossary, *reference, force=force)
    Config().with_values(config)  # a wrong field is reported before torch is imported
    from regard.devices import use_threads
    from regard.evaluation.evaluate import evaluate as score
    from regard.evaluation.evaluate import is_language_model

    if model and is_language_model(model):
        refused = {"--report": report, "--sentences": sentences}
        refuse_options(refused, f"is for translations, and {model} is a language model")
    use_threads(threads)
    with tables.counting_bar("evaluating") as progress:
        result = score(**arguments, progress=progress)
    more = {"sentences": True} if sentences else {}
    tables.show(result, as_json=as_json, page=report, force=force, **more)


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
    config: options.Values = [],  # noqa: B006 - typer copies it
    force: options.Force = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Compare systems side by side: scores, paired significance tests against the first one, and where they differ."""
    arguments = options.without(locals(), "report", "force", "threads", "as_json")
    options.check_output(report, source, *reference, *systems, force=force)
    Config().with_values(config)
    from regard.devices import use_threads
    from regard.evaluation.compare import compare as side_by_side

    use_threads(threads)
    with tables.counting_bar("comparing") as progress:
        result = side_by_side(**arguments, progress=progress)
    tables.show(result, as_json=as_json, page=report, force=force)
