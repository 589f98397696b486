"""The command line: groups of commands, error messages and exit codes, signal handling."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from io import TextIOWrapper
from types import FrameType
from typing import Annotated, Any

import typer

from regard.cli import converting, evaluating, inspecting, preparing, stories, tables, training, translating
from regard.cli.options import ONE_TEXT, examples
from regard.errors import RegardError, other_tool_advice, plain_message

HELP = "Train, use, measure and inspect sequence models: RNN with attention, Transformer, BERT, GPT."
GROUPS: dict[str, list[Callable[..., None]]] = {
    "Prepare": [preparing.check, preparing.count],  # and the group of commands `data`
    "Train": [training.train, training.distill],
    "Measure": [evaluating.evaluate, evaluating.compare],
    "Use": [translating.translate, translating.generate, translating.fill, translating.embed, translating.serve],
    "Inspect": [inspecting.explain, inspecting.align],
    "Other libraries": [converting.import_, converting.export],
    "Demonstrations": [stories.demo, stories.lineage],
}
USAGE_ERROR: Any = typer.BadParameter.__bases__[0]  # click may be vendored in typer

app = typer.Typer(name="regard", help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        from regard import __version__

        tables.write(f"regard {__version__}")
        raise typer.Exit


@app.callback()
@examples("regard demo", "regard train train.en train.fr --out runs/en-fr", "regard translate runs/en-fr letter.en")
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


for group, functions in GROUPS.items():
    for function in functions:
        app.command(function.__name__.rstrip("_"), rich_help_panel=group)(function)  # `import` is a keyword
app.add_typer(preparing.data, name="data", rich_help_panel="Prepare")


def command_line() -> Any:
    """The root command, with examples in the help and without type names next to flags and arguments."""
    program: Any = typer.main.get_command(app)
    for command in [program, *program.commands.values(), *program.commands["data"].commands.values()]:
        if lines := getattr(command.callback, "examples", ()):
            command.epilog = "\n$ ".join(["Examples:", *lines]).replace("[", "\\[")
        context = typer.Context(command, help_option_names=["--help", "-h"])
        for parameter in [*command.params, command.get_help_option(context)]:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
            elif parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: None
    return program


signals: list[int] = []
"""The signals received so far that ask the program to stop."""


def stop(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM and Ctrl-C: raise an exception, so that unfinished files are deleted.

    During an import the program ends at once: some libraries swallow the exception there and continue half loaded.
    """
    signals.append(number)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"\x1b[?25hstopped\n" if os.isatty(2) else b"stopped\n")  # a live view has hidden the cursor
            os._exit(128 + number)
        frame = frame.f_back
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def main() -> None:
    """Run the program. An error prints one line and sets the exit code; REGARD_DEBUG=1 shows the traceback."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # a shell's background job ignores Ctrl-C
            signal.signal(number, stop)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # in every locale
    try:
        sys.exit(command_line()(prog_name="regard", standalone_mode=False))
    except (typer.Abort, KeyboardInterrupt):
        message, code = "stopped", 130
    except USAGE_ERROR as error:
        message, code = _usage_message(error), 2
    except BrokenPipeError:  # the reader of the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except Exception as error:
        if signals:  # Python's locks and some libraries raise an error of their own when a signal interrupts them
            raise SystemExit(128 + signals[0]) from None
        if os.environ.get("REGARD_DEBUG"):
            raise
        message, code = _message(error), error.exit_code if isinstance(error, RegardError) else 1
    if message:  # a usage error has none if the help was shown
        tables.say("regard: " + message.replace("\n", "\\n"))
    raise SystemExit(code)


def _message(error: Exception) -> str:
    """One line for any error."""
    if isinstance(error, RegardError):
        return str(error)
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # torch's words
        return "out of memory: end other programs, or use a smaller model or batch"
    if "torch" in sys.modules:
        from regard.memory import is_out_of_memory

        if is_out_of_memory(error):
            return "out of GPU memory: end other programs that use the GPU, or use --device cpu"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"an unexpected error, which REGARD_DEBUG=1 shows in full: {type(error).__name__}: {error}"


def _usage_message(error: Any) -> str:
    """The message of a usage error; for an option or command of another tool, with what to type here."""
    message = plain_message(error.format_message())
    command = error.ctx.info_name if error.ctx is not None else ""
    if name := getattr(error, "option_name", None):
        typed = next((word for word in sys.argv if word.startswith(name)), name).partition("=")[0]
        if advice := other_tool_advice(command, typed.lstrip("-").replace("_", "-")):
            return f"{typed} is not an option of {command}.{advice}"
    if message.startswith("No such command"):
        problem, _, suggestion = message.partition(".")
        advice = other_tool_advice("commands", sys.argv[1]) or suggestion or " regard --help lists all commands."
        return f"{problem}.{advice}"
    if message.endswith("requires 2 arguments."):
        return message + ONE_TEXT
    if "unexpected extra argument" in message:
        return f"{message}.{other_tool_advice('arguments', command)}"
    return message
