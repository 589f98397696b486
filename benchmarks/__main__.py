"""make bench: every measurement, or those named, with their options: python -m benchmarks training --updates 20."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

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
    options = {name[2:]: _value(word) for name, word in zip(words[::2], words[1::2], strict=True)}
    results = [importlib.import_module(f"benchmarks.{name.replace('-', '_')}").main(**options) for name in asked]
    return 0 if all(results) else 1


def _value(word: str) -> Any:
    """A number or true or false where it is one, else the word."""
    try:
        return json.loads(word)
    except ValueError:
        return word


if __name__ == "__main__":
    sys.exit(run())
