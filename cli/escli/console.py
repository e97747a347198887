"""Output of `eslurm`: results on standard output, notes beside them on standard error."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

COMMAND = "eslurm"


def tell(line: str) -> None:
    """A line beside the result, on standard error."""
    sys.stdout.flush()
    sys.stderr.write(f"{COMMAND}: {line}\n")
    sys.stderr.flush()


def say(text: str) -> None:
    """A line of the result."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def to_json(value: Any) -> str:
    """One JSON object, indented."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
