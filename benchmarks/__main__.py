"""make bench: every measurement, or those named: python -m benchmarks models."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith(("_", "measure")))


def run() -> int:
    asked = sys.argv[1:] or NAMES
    for name in asked:
        if name not in NAMES:
            print(f"there is no benchmark {name}: {', '.join(NAMES)}", file=sys.stderr)
            return 2
    results = [importlib.import_module(f"benchmarks.{name}").main() for name in asked]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(run())
