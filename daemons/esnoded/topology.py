"""Cores of this host with their sockets and NUMA nodes, as the kernel shows them (`/sys/devices/system`)."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

SYSTEM = "/sys/devices/system"
_CPUS_MAX = 8192
_BYTES_MAX = 65_536


class Core(NamedTuple):
    """The CPUs (hardware threads) of a core, its socket and its NUMA node."""

    cpus: tuple[int, ...]
    socket: int = 0
    domain: int = 0


def read_cores(cpus: Collection[int], system: str = SYSTEM) -> tuple[Core, ...]:
    """Cores that these CPUs are of, with no other CPUs, in the order of socket, NUMA node and number.

    What the kernel does not show is alike for all: each CPU is a core.
    """
    domains = _domains(system)
    wanted, found = set(cpus), []
    for cpu in sorted(cpus):
        if cpu not in wanted:
            continue
        topology = f"{system}/cpu/cpu{cpu}/topology"
        mates: tuple[int, ...] = (cpu,)
        for name in ("core_cpus_list", "thread_siblings_list"):
            with suppress(OSError, ValueError):
                mates = tuple(sorted({*parse_cpus(_read(f"{topology}/{name}")), cpu} & wanted))
                break
        socket = 0
        with suppress(OSError, ValueError):
            # Some firmware has none, which is -1.
            socket = max(0, int(_read(f"{topology}/physical_package_id")))
        wanted.difference_update(mates)
        found.append(Core(mates, socket, domains.get(cpu, 0)))
    return tuple(sorted(found, key=lambda core: (core.socket, core.domain, core.cpus)))


def _domains(system: str) -> dict[int, int]:
    """NUMA nodes by CPU."""
    found: dict[int, int] = {}
    with suppress(OSError):
        for name in os.listdir(f"{system}/node"):
            if number := re.fullmatch(r"node(\d{1,5})", name):
                with suppress(OSError, ValueError):
                    cpus = parse_cpus(_read(f"{system}/node/{name}/cpulist"))
                    found |= dict.fromkeys(cpus, int(number[1]))
    return found


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read(_BYTES_MAX)


def parse_cpus(text: str) -> list[int]:
    """The numbers of a list as the kernel writes it: `0-3,8`. Raises ValueError."""
    found: list[int] = []
    for word in text.strip().split(","):
        if word:
            first, _, last = word.partition("-")
            low, high = int(first), int(last or first)
            if not 0 <= low <= high < _CPUS_MAX:
                raise ValueError(f"no list of CPUs: {text[:80]!r}")
            found.extend(range(low, high + 1))
    return found


def format_cpus(cpus: Collection[int]) -> str:
    """The list as the kernel reads it."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
