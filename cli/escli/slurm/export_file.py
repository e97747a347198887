"""`--export-file` of sbatch: variables of a job from a file or an open descriptor, each `NAME=value` ended by NUL."""

from __future__ import annotations

import os

from escli.slurm import frame
from eslurm.compat.errors import whole_number
from eslurm.core.model.request_limits import ENVIRONMENT_BYTES_MAX

FIRST_DESCRIPTOR = 3


def variables_of(name: str) -> dict[str, str]:
    """The variables; a number from 3 on is a descriptor. Raises Failed."""
    number = whole_number(name, 9)
    try:
        with open(number if number >= FIRST_DESCRIPTOR else name, "rb") as file:
            data = file.read(ENVIRONMENT_BYTES_MAX + 1)
    except OSError as error:
        raise frame.Failed(
            f"sbatch: error: Could not open user environment file {name}: {error.strerror}"
        ) from None
    if len(data) > ENVIRONMENT_BYTES_MAX:
        raise frame.Failed(f"sbatch: error: --export-file {name} has more than {ENVIRONMENT_BYTES_MAX} bytes")
    pairs = [os.fsdecode(entry).partition("=") for entry in data.split(b"\0") if entry]
    return {key: value for key, equals, value in pairs if key and equals}
