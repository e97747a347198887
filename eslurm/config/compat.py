"""The section of the configuration about Slurm's own commands."""

from __future__ import annotations

from typing import Literal

import msgspec


class CompatSection(msgspec.Struct, forbid_unknown_fields=True):
    """Slurm's own commands over this cluster (`eslurm compat install`)."""

    slurm_version: Literal["25.11", "22.05"] = "25.11"
    """The release of Slurm that they are: what `--version` tells, and the form of JSON. Read when they are installed."""
