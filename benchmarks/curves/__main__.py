"""`python -m benchmarks.curves [e32 e64 e65 e69]`: draw the curves and their tables into `docs/results/`.

Invariant: only what lies between a curve's two marks in `curves.md` is replaced; the words around them are
people's, and are to be read again when a table changes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.curves import ablation, ratios, satellites, slope

CURVES: dict[str, Callable[[Path], Iterator[str]]] = {
    "e32": slope.make,
    "e64": ablation.make,
    "e65": ratios.make,
    "e69": satellites.make,
}
RESULTS = Path(__file__).parents[2] / "docs" / "results"
DOCUMENT = "curves.md"
EXIT_USAGE = 2


def main(names: list[str], results: Path = RESULTS) -> int:
    """Make the named curves, or all; returns the exit code."""
    unknown = [name for name in names if name not in CURVES]
    if unknown:
        sys.stderr.write(f"curves: no curve {' '.join(unknown)}: use {' '.join(CURVES)}\n")
        return EXIT_USAGE
    document = results / DOCUMENT
    for name in names or CURVES:
        began_s = time.process_time()
        lines = list(CURVES[name](results))
        document.write_text(replaced(document.read_text(encoding="utf-8"), name, lines), encoding="utf-8")
        print(f"{name}: {time.process_time() - began_s:.1f} s of CPU time")
    return 0


def replaced(text: str, name: str, lines: list[str]) -> str:
    """The document with these lines as the table of one curve. Raises ValueError when its marks are missing."""
    opening, closing = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = text.partition(opening)
    _, ended, after = rest.partition(closing)
    if not (found and ended):
        raise ValueError(f"{DOCUMENT} has no marks for {name}")
    return "\n".join([f"{before}{opening}", *lines, "", f"{closing}{after}"])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
