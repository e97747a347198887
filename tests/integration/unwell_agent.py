"""`python -m tests.integration.unwell_agent LOAD ...`: an `esnoded` that reads this load from its host, whatever it does."""

from __future__ import annotations

import sys

from esnoded import health
from esnoded.__main__ import main

LOAD = float(sys.argv.pop(1))


class ToldHost(health.Sources):
    """All as it is, but for the load."""

    def load_5min(self) -> float:
        return LOAD


if __name__ == "__main__":
    health.Sources = ToldHost  # type: ignore[misc]
    main()
