"""The command line: one function per command; each reads a config, calls one function and prints its result."""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from types import FrameType
from typing import Annotated, Any, cast

import typer

from regard.cli import aligning, counting, data, evaluating, explaining, stories, training, translating
from regard.errors import RegardError

app = typer.Typer(
    name="regard",
    help="Train your own sequence models: check the data, count the parameters, train, translate.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

FULL = "out of GPU memory: end what else holds it, or use --device cpu"
USAGE: Any = typer.BadParameter.__bases__[
    0
]  # whatever is wrong with the words of a command; typer may bring its own click


def _version(asked: bool) -> None:
    if asked:
        from regard import __version__

        print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    """Train your own sequence models: check the data, count the parameters, train, translate."""


for command in (
    *(data.check, training.train, evaluating.evaluate, evaluating.compare, translating.translate),
    *(explaining.explain, aligning.align, translating.generate, translating.fill, translating.embed),
    *(counting.count, stories.demo, stories.lineage),
):
    app.command()(command)
app.add_typer(data.data, name="data")


def _out_of_memory(error: RuntimeError) -> bool:
    if "torch" not in sys.modules:
        return False
    from regard.memory import is_full

    return is_full(error)


heard: list[int] = []
"""The signals that asked the program to stop."""


def stop(number: int, frame: FrameType | None) -> None:
    """What SIGTERM and Ctrl-C do: what is half-written goes, and the program ends.

    At once where a module is being loaded, of which nothing is written: libraries that are interrupted there swallow
    it, and go on half made.
    """
    heard.append(number)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(128 + number)
        frame = frame.f_back
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def _answer() -> int | None:
    try:
        return cast(int | None, app(standalone_mode=False))
    except Exception as error:
        # Python's own locks, and libraries, make errors of their own of a signal that finds them
        if heard or isinstance(error.__context__, KeyboardInterrupt):
            raise SystemExit(128 + (heard or [signal.SIGINT])[0]) from None
        raise


def main() -> None:
    """The program: errors we raise become one line and their exit code; `REGARD_DEBUG=1` shows the traceback."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as of what a shell runs in the background
            signal.signal(number, stop)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # as all text that is read, in any locale
    try:
        sys.exit(_answer())
    except (typer.Abort, KeyboardInterrupt):
        raise SystemExit(130) from None
    except USAGE as error:
        if message := error.format_message():  # nothing where the help was shown
            print(f"regard: {message}", file=sys.stderr)
        raise SystemExit(2) from None
    except RegardError as error:
        if os.environ.get("REGARD_DEBUG"):
            raise
        print(f"regard: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except RuntimeError as error:
        if os.environ.get("REGARD_DEBUG") or not _out_of_memory(error):
            raise
        print(f"regard: {FULL}", file=sys.stderr)
        raise SystemExit(1) from None
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


if __name__ == "__main__":
    main()
