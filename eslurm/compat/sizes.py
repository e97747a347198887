"""Amounts of memory as `--mem` reads them (`4G`, `512M`, `800`) and as tables show them."""

from __future__ import annotations

from eslurm.compat.errors import OptionError, whole_number
from eslurm.core.model import request_limits as limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_UNIT_KIB: Mapping[str, int] = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3, "": 1024}


def parse_memory(text: str, option: str = "--mem") -> int:
    """Memory in MiB; a number alone is MiB, K is rounded up. 0 means all of a node's. Raises OptionError."""
    upper = text.upper()
    stem = upper.removesuffix("IB") if upper.endswith(("KIB", "MIB", "GIB", "TIB")) else upper
    if len(stem) > 1 and stem[-1] == "B" and stem[-2] in "KMGT":
        stem = stem[:-1]
    unit = stem[-1] if stem and stem[-1] in "KMGT" else ""
    number = whole_number(stem[: len(stem) - len(unit)], 15)
    if number < 0:
        raise OptionError(
            option,
            text,
            "is not an amount of memory",
            f"use e.g. {option} 4G (K, M, G or T; M when none is given)",
        )
    mib = -(-number * _UNIT_KIB[unit] // 1024)
    if mib > limits.MEMORY_MAX_MIB:
        raise OptionError(option, text, "is more than an exbibyte", f"use e.g. {option} 4G")
    return mib


def format_memory(mib: int) -> str:
    """`4G`, `1536M`: the largest unit that keeps it whole."""
    for unit, size in (("T", 1024**2), ("G", 1024)):
        if mib and mib % size == 0:
            return f"{mib // size}{unit}"
    return f"{mib}M"
