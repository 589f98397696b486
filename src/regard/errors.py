"""The exceptions:

RegardError
├── RequestError       the request was wrong: exit 2, one line, no traceback
│   ├── ConfigError    an option, a preset or a recipe
│   ├── InputError     a tensor or a text handed to a function
│   ├── DataError      a corpus or one of its files
│   └── FolderError    a model folder
└── RunError           the request was right and the run failed: exit 1
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path


class RegardError(Exception):
    """The base class of all errors that Regard raises; `exit_code` is the exit code of the command line."""

    exit_code = 1


class RequestError(RegardError, ValueError):
    """The request was wrong; the message says what is wrong, where, and how to fix it."""

    exit_code = 2


class ConfigError(RequestError):
    """An option, a preset or a recipe is wrong."""


class InputError(RequestError):
    """A tensor or a text is not what the function takes."""


class DataError(RequestError):
    """A corpus or one of its files is wrong."""


class FolderError(RequestError):
    """A model folder is missing, damaged or of another kind."""


class RunError(RegardError):
    """The request was right; the run failed."""


def refuse_options(options: Mapping[str, object], reason: str) -> None:
    """Raise a ConfigError if one of these options is set: it would have no effect."""
    for name, value in options.items():
        if value:
            raise ConfigError(f"{name} {reason}: leave it out")


def plain_message(message: str) -> str:
    """A message of pydantic about a wrong value, in plain words."""
    message = message.replace("Value error, ", "").replace("Field required", "it is missing")
    return re.sub(r"Input should (.+?)(, unable to .*)?$", r"it must \1", message)


def other_tool_advice(section: str, name: str) -> str:
    """What to use here instead of a name of another tool, from habits.toml: ` Use --beams N`; "" for other names."""
    habits = tomllib.loads(Path(__file__).with_name("habits.toml").read_text(encoding="utf-8"))
    tables = (table for sections, table in habits.items() if section in sections.split())
    return next((f" {line}" for table in tables for names, line in table.items() if name.lower() in names.split()), "")


def did_you_mean(name: str, known: Iterable[str], section: str = "") -> str:
    """` Did you mean X?` when one of the known names is close, else ` Known: ...`, ready to end a message.

    For a name in `section` of habits.toml, its line there.
    """
    if section and (advice := other_tool_advice(section, name.rpartition(".")[2])):
        return advice
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f" Did you mean {close[0]}?" if close else f" Known: {', '.join(names)}."
