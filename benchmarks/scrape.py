"""One look at the metrics that a program serves."""

from __future__ import annotations

import urllib.request

TIMEOUT_S = 30.0


def scraped(url: str, prefix: str) -> float:
    """The sum of all samples at /metrics of `url` whose lines begin so."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=TIMEOUT_S) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(prefix))
