"""The command line: one function per command; each reads a config, calls one function and prints its result."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.errors import FolderError, RegardError

app = typer.Typer(
    name="regard",
    help="Train, score, look into and serve your own sequence models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, and nothing else there.")]
Values = Annotated[
    list[str], typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="Change a field of the config.")
]


@app.callback()
def _root() -> None:
    """Regard: the attention lineage as one toolkit."""


@app.command()
def count(
    model: Annotated[str, typer.Argument(metavar="PRESET, RECIPE or FOLDER", help="What to count.")],
    values: Values = [],  # noqa: B006 - typer copies it
    source: Annotated[int, typer.Option(min=1, help="Source tokens of a sentence.")] = 32,
    target: Annotated[
        int, typer.Option(min=0, help="Target tokens; 0: 32, or the whole context of a bert or gpt.")
    ] = 0,
    batch: Annotated[int, typer.Option(min=1, help="Sentences in a batch.")] = 32,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "bf16",
    hardware: Annotated[str, typer.Option(help="Time on this: h200, h100, a100, l4, v100, t4, rtx4090, rtx3090.")] = "",
    tokens: Annotated[float, typer.Option(min=1, help="Target tokens to train on.")] = 1e9,
    utilisation: Annotated[float, typer.Option(help="Share of the hardware's peak that is reached.")] = 0.3,
    devices: Annotated[int, typer.Option(min=1, help="How many of them.")] = 1,
    price: Annotated[float, typer.Option(min=0, help="What one costs an hour, for the cost.")] = 0.0,
    build: Annotated[bool, typer.Option("--build", help="Build it too, nothing allocated, and compare.")] = False,
    as_json: Json = False,
) -> None:
    """Parameters by part, operations, memory and time, before anything is built."""
    from regard import accounting
    from regard.config import find_config

    config = find_config(model).with_values(values)
    shape = config.model
    counted = accounting.Count(model, shape, accounting.count(config).tree)
    on_disk = accounting.stored(Path(model)) if Path(model).is_dir() else None
    if on_disk is not None and not values and on_disk != counted.total:
        raise FolderError(
            f"{model}/model.safetensors holds {on_disk:,} parameters and its config.json describes {counted.total:,}: "
            "one of the two is not of this model"
        )
    length = target or (shape.length if shape.family in ("bert", "gpt") else 32)
    done = accounting.work(shape, source, length)
    needed = accounting.memory(shape, counted.total, batch, done.source, length, precision)
    took = None
    if hardware:
        took = accounting.duration(
            done,
            hardware=hardware,
            tokens=int(tokens),
            utilisation=utilisation,
            precision=precision,
            devices=devices,
            price=price,
        )
    built = _built(counted) if build else None
    if as_json:
        answer: dict[str, Any] = {"name": model, "parameters": counted.as_dict(), "flops": done.as_dict()}
        answer["memory"] = {"precision": precision, "batch": batch, **needed.as_dict()}
        answer |= {"time": took.as_dict()} if took else {}
        answer |= {"built": {"total": sum(built.values()), "parts": built}} if built is not None else {}
        answer |= {"stored": on_disk} if on_disk is not None else {}
        return print(json.dumps(answer, indent=2))
    from rich.console import Console

    from regard import terminal

    console = Console(highlight=False)
    console.print(terminal.count_table(counted, built))
    for remark in counted.remarks:
        console.print(f"[dim]•[/dim] {remark}")
    console.print()
    console.print(terminal.cost_table(done, needed, took, batch=batch, precision=precision))
    return None


def _built(counted: Any) -> dict[str, int]:
    """Parameters of the model built on the meta device, under the names of the formula's parts."""
    from regard.models import build

    parameters = {name: p.numel() for name, p in build(counted.config, "meta").named_parameters()}
    return {part.name: sum(n for name, n in parameters.items() if name.startswith(part.where)) for part in counted.tree}


@app.command()
def demo() -> None:
    """What works today, shown on small models built here."""
    from rich.console import Console

    from regard.showcase import show

    show(Console(highlight=False))


def main() -> None:
    """The program: errors we raise become one line and their exit code; `REGARD_DEBUG=1` shows the traceback."""
    try:
        app()
    except RegardError as error:
        if os.environ.get("REGARD_DEBUG"):
            raise
        print(f"regard: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


if __name__ == "__main__":
    main()
