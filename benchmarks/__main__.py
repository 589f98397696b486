"""make bench: every measurement, or those named, with their options: python -m benchmarks training --updates 20.

Several run one after the other, each in a process of its own, and end with one table. Those that the hardware or the
data does not allow say so and are left out.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from regard.results import Table

NAMES = sorted(
    path.stem.replace("_", "-")
    for path in Path(__file__).parent.glob("*.py")
    if not path.stem.startswith(("_", "measure"))
)


def run() -> int:
    arguments = sys.argv[1:]
    first = next((place for place, word in enumerate(arguments) if word.startswith("--")), len(arguments))
    asked = arguments[:first] or NAMES
    for name in asked:
        if name not in NAMES:
            print(f"there is no benchmark {name}: {', '.join(NAMES)}", file=sys.stderr)
            return 2
    words = arguments[first:]
    if len(words) % 2 or not all(word.startswith("--") for word in words[::2]):
        print(f"options are pairs, as in --updates 20: {' '.join(words)}", file=sys.stderr)
        return 2
    if len(asked) == 1:
        options = {name[2:]: _value(word) for name, word in zip(words[::2], words[1::2], strict=True)}
        return 0 if importlib.import_module(f"benchmarks.{asked[0].replace('-', '_')}").main(**options) else 1
    if words:
        print(f"options are for one benchmark, and {len(asked)} were asked for: {' '.join(asked)}", file=sys.stderr)
        return 2
    codes, rows = dict[str, int](), list[list[str]]()
    for name in asked:
        command = [sys.executable, "-m", "benchmarks", name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                if line.startswith('{"name"'):
                    rows.append([name, *_row(json.loads(line))])
        codes[name] = process.returncode
    columns = ("benchmark", "measured", "ratio to peer", "asked", "share of ceiling", "good")
    print(Table(columns, rows, left=True))
    print("\n".join(f"{name} ended with code {code}" for name, code in codes.items() if code))
    return 1 if any(codes.values()) else 0


def _row(line: dict[str, Any]) -> list[str]:
    """The cells of a reported line: name, ratio, bound, share of the ceiling, and whether the bound is kept."""
    bounds = [f"{sign} {line[key]:g}" for sign, key in (("≥", "at_least"), ("≤", "at_most")) if key in line]
    ceiling = f"{line['ceiling']:.0%}" if "ceiling" in line else ""
    return [line["name"], f"{line['ratio']:.3g}", " ".join(bounds), ceiling, "yes" if line["good"] else "no"]


def _value(word: str) -> Any:
    """A number or true or false where it is one, else the word."""
    try:
        return json.loads(word)
    except ValueError:
        return word


if __name__ == "__main__":
    sys.exit(run())
