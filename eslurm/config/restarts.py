"""The keys of a file that a running controller does not take: those that differ from what the process was started with.

Invariant: each key of the file is either live (`core.control.config_changes`) or named here when it differs, so that no
change is silently without effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eslurm.config.sections import Config
from eslurm.core.control.config_changes import NUMBERS

LIVE_SECTIONS: Final = frozenset({"nodes", "login", "partition", "resource", "node_rule", "switch", "module"})


def restart_keys(started: Config, read: Config) -> tuple[str, ...]:
    """Keys, as section.key, whose values differ and count from the next start on."""
    return tuple(_keys(started, read))


def _keys(started: Config, read: Config) -> Iterator[str]:
    for section in Config.__struct_fields__:
        before, after = getattr(started, section), getattr(read, section)
        if section in LIVE_SECTIONS or before == after:
            continue
        if isinstance(before, list):
            yield section
            continue
        kind = type(before)
        for key, written in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
            is_live = section == "policy" and key in NUMBERS
            if not is_live and getattr(before, key) != getattr(after, key):
                yield f"{section}.{written}"
