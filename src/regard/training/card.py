"""The card: what a model is, what it was made from, and how good it is."""

from __future__ import annotations

from typing import Any

from regard.accounting import count
from regard.config import Config
from regard.training.data import Data
from regard.training.loop import Progress


def model_card(config: Config, progress: Progress, scores: dict[str, Any], data: Data, command: str) -> str:
    """`card.md`."""
    counted = count(config)
    lines = [
        f"# {config.model.family}, {counted.total:,} parameters",
        "",
        "Trained with Regard:",
        "",
        f"    {command}",
        "",
        "| | |",
        "|---|---|",
        f"| examples to train on | {len(data.train[0]):,} |",
        f"| examples to validate with | {len(data.valid):,} |",
        f"| cleaning | {data.train[0].record['report']['text']} |",
        f"| updates | {progress.update:,} (best at {progress.best_update:,}) |",
        f"| target tokens seen | {progress.tokens:,} |",
        f"| tokenizer | {config.text.tokenizer}, {data.sides.source.size:,} tokens |",
        "",
        "| on the validation set | score | signature |",
        "|---|---:|---|",
    ]
    for name, score in scores.items():
        value, signature = (score["score"], score["signature"]) if isinstance(score, dict) else (score, "nats a token")
        lines.append(f"| {name} | {value:.4g} | {signature.replace('|', ' ')} |")
    lines += ["", "| part | parameters |", "|---|---:|", *(f"| {part} | {n:,} |" for part, n in counted.parts.items())]
    return "\n".join(lines) + "\n"
