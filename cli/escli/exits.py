"""The exit codes of all commands, in one table: the reference is generated from it."""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
UNKNOWN_OUTCOME = 4
INTERRUPTED = 130
BROKEN_PIPE = 141

MEANINGS: tuple[tuple[str, str], ...] = (
    ("0", "done"),
    ("1", "refused by the cluster, or at least one of several things could not be done"),
    ("2", "the command line, a script line or a script is wrong; nothing was sent"),
    ("3", "no controller could be reached; nothing was changed"),
    ("4", "no answer in time: the request may or may not have been carried out"),
    ("130", "interrupted (Ctrl-C)"),
    ("141", "the reader of the output went away"),
    (
        "any",
        "`essubmit --wait`, `esrun`, `esattach` and `esalloc` end with the job's, the tasks' or the command's own code; "
        "128 + N when signal N ended them",
    ),
)


def reader_gone() -> int:
    """Write no more output, since nothing reads it; the exit code."""
    import os
    import sys

    # The interpreter flushes stdout once more at its exit and would complain aloud.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    return BROKEN_PIPE
