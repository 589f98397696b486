"""The count command: parameters by part, FLOPs, memory, time and cost."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from regard import counting
from regard.cli import tables
from regard.cli.options import Json, Values, examples, numbers


@examples("regard count bert-base", "regard count transformer-big --hardware h200 --batch 8192 --gpus 8,64,512")
def count(
    model: Annotated[str, typer.Argument(metavar="PRESET, RECIPE or FOLDER", help="The model to count.")],
    values: Values = [],  # noqa: B006 - typer copies it
    source: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=10**6, help="Source tokens per sentence. By default 32.")
    ] = None,
    target: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=10**6,
            help="Target tokens per sentence. By default 32; for a bert or gpt its whole context.",
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(metavar="N", min=1, max=10**9, help="Sentences in a batch.")
    ] = counting.BATCH_SENTENCES,
    precision: Annotated[Literal["fp32", "bf16"], typer.Option(help="The precision of matrix products.")] = "bf16",
    hardware: Annotated[
        Literal["h200", "h100", "a100", "l4", "v100", "t4", "rtx4090", "rtx3090"] | None,
        typer.Option(help="Estimate the time on this device."),
    ] = None,
    tokens: Annotated[
        float, typer.Option(metavar="N", min=1, help="Target tokens to train on.")
    ] = counting.TRAINING_TOKENS,
    utilisation: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Model FLOPs utilisation (MFU): the share of peak FLOP/s that is reached."),
    ] = counting.UTILISATION,
    devices: Annotated[int, typer.Option(metavar="N", min=1, max=10**6, help="The number of devices.")] = 1,
    price: Annotated[float | None, typer.Option(min=0, help="The price of one device per hour.")] = None,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="8,64,512", help="Estimate one update on these numbers of GPUs, with DDP and FSDP."),
    ] = None,
    link: Annotated[
        float, typer.Option(metavar="GB/S", help="With --gpus: network bandwidth of each GPU.")
    ] = counting.LINK_BANDWIDTH,
    as_json: Json = False,
) -> None:
    """Count parameters by part, FLOPs, memory and training time; no weights are allocated."""
    result = counting.count(
        model,
        values=values,
        source=source,
        target=target,
        batch=batch,
        precision=precision,
        hardware=hardware,
        tokens=tokens,
        utilisation=utilisation,
        devices=devices,
        price=price,
        gpus=numbers("--gpus", gpus or "", "8,64,512"),
        link=link,
    )
    tables.show(result, as_json=as_json)
