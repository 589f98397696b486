"""The count command: parameters by part, operations, memory, time and cost."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import (
    Json,
    Values,
    numbers,
)
from regard.errors import ConfigError, FolderError, RunError


def count(
    model: Annotated[str, typer.Argument(metavar="PRESET, RECIPE or FOLDER", help="What to count.")],
    values: Values = [],  # noqa: B006 - typer copies it
    source: Annotated[int, typer.Option(min=1, max=10**6, help="Source tokens of a sentence.")] = 32,
    target: Annotated[
        int, typer.Option(min=0, help="Target tokens; 0: 32, or the whole context of a bert or gpt.")
    ] = 0,
    batch: Annotated[int, typer.Option(min=1, max=10**9, help="Sentences in a batch.")] = 32,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "bf16",
    hardware: Annotated[str, typer.Option(help="Time on this: h200, h100, a100, l4, v100, t4, rtx4090, rtx3090.")] = "",
    tokens: Annotated[float, typer.Option(min=1, help="Target tokens to train on.")] = 1e9,
    utilisation: Annotated[float, typer.Option(help="Share of the hardware's peak that is reached.")] = 0.3,
    devices: Annotated[int, typer.Option(min=1, max=10**9, help="How many of them.")] = 1,
    price: Annotated[float, typer.Option(min=0, help="What one costs an hour, for the cost.")] = 0.0,
    gpus: Annotated[
        str, typer.Option(metavar="8,64,512", help="An update on so many, weights whole on each or divided.")
    ] = "",
    link: Annotated[float, typer.Option(help="Of --gpus: the GB/s each can send to the others.")] = 50.0,
    build: Annotated[bool, typer.Option("--build", help="Build it too, nothing allocated, and compare.")] = False,
    as_json: Json = False,
) -> None:
    """Parameters by part, operations, memory and time, before anything is built."""
    from regard import counting
    from regard.config import find_config, is_folder

    config = find_config(model).with_values(values)
    shape = config.model
    counted = counting.Count(model, shape, counting.count(config).tree)
    on_disk = counting.stored(Path(model)) if is_folder(Path(model)) else None
    if on_disk is not None and not values and on_disk != counted.total:
        raise FolderError(
            f"{model}/model.safetensors holds {on_disk:,} parameters and its config.json describes {counted.total:,}: "
            "one of the two is not of this model"
        )
    length = target or (shape.max_positions if shape.family in ("bert", "gpt") else 32)
    longest = max(length, source if shape.family == "transformer" else 0)
    if shape.has_position_table and longest > shape.max_positions:
        raise ConfigError(f"a sentence of {longest} tokens is longer than model.max_positions ({shape.max_positions})")
    done = counting.work(shape, source, length)
    needed = counting.memory(shape, counted.total, batch, done.source, length, precision)
    took = None
    if price and not hardware:
        raise ConfigError("--price needs --hardware NAME, to know how long it would take")
    if hardware:
        took = counting.duration(
            done,
            hardware=hardware,
            tokens=tokens,
            utilisation=utilisation,
            precision=precision,
            devices=devices,
            price=price,
        )
    scales = []
    if gpus and not hardware:
        raise ConfigError("--gpus needs --hardware NAME, to know how fast one is")
    for devices, sharded in itertools.product(numbers("--gpus", gpus, "8,64,512"), (False, True)):
        rates: dict[str, Any] = {"precision": precision, "utilisation": utilisation, "link": link}
        machines: dict[str, Any] = {"devices": devices, "sharded": sharded, "hardware": hardware, "batch": batch}
        scales.append(counting.scale(counted, done, needed, **machines, **rates))
    built = _built(counted) if build else None
    if as_json:
        answer: dict[str, Any] = {"name": model, "parameters": counted.as_dict(), "flops": done.as_dict()}
        answer["memory"] = {"precision": precision, "batch": batch, **needed.as_dict()}
        answer |= {"time": took.as_dict()} if took else {}
        answer |= {"scale": [each.as_dict() for each in scales]} if scales else {}
        answer |= {"built": {"total": sum(built.values()), "parts": built}} if built is not None else {}
        answer |= {"stored": on_disk} if on_disk is not None else {}
        return print(json.dumps(answer, indent=2, allow_nan=False))
    from rich.console import Console

    from regard.cli import tables

    console = Console(highlight=False)
    console.print(tables.count_table(counted, built))
    for remark in counted.remarks:
        console.print(f"[dim]•[/dim] {remark}")
    console.print()
    console.print(tables.cost_table(done, needed, took, batch=batch, precision=precision))
    if scales:
        console.print()
        console.print(tables.scale_table(scales, hardware=hardware, batch=batch, link=link))
    return None


def _built(counted: Any) -> dict[str, int]:
    """Parameters of the model built on the meta device, under the names of the formula's parts."""
    from regard.models import build

    try:
        sizes = {name: p.numel() for name, p in build(counted.config, "meta").named_parameters()}
    except RuntimeError as error:
        raise ConfigError(f"a model of these sizes cannot be built: {str(error).splitlines()[0]}") from error
    built = {part.name: sum(n for name, n in sizes.items() if name.startswith(part.where)) for part in counted.tree}
    if built != counted.parts or sum(sizes.values()) != counted.total:
        raise RunError(f"the built model has {sum(sizes.values()):,} parameters: the formula is wrong, please tell us")
    return built
