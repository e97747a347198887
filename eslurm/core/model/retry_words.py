"""The words and numbers of retries by the server that commands know, too: it imports nothing.

Factors are whole percent.
"""

from __future__ import annotations

TIMEOUT = "timeout"
NODE_FAIL = "node-fail"
OOM = "oom"
CAUSES = (TIMEOUT, NODE_FAIL, OOM)
"""Causes that a job may name, in the words of `--retry-on`."""

RETRIES = 1
"""Retries of a job that names no number: what fails twice by one cause mostly hangs, and each retry may waste as much."""
RETRIES_MAX = 100
"""Unless the site allows less (`policy.retries_max`)."""
SAME_PERCENT = 100
GROW_TIME_PERCENT = 150
GROW_MEMORY_PERCENT = 200
GROW_MAX_PERCENT = 1000
