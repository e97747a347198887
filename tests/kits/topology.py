"""A directory that looks like `/sys/devices/system` of a host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from esnoded.topology import format_cpus


def make_system(directory: Path, cores: Sequence[tuple[int, int]], threads: int = 1) -> None:
    """Cores of these (socket, NUMA node); the second threads have the numbers after those of all first ones."""
    domains: dict[int, list[int]] = {}
    for number, (socket, domain) in enumerate(cores):
        mates = [number + thread * len(cores) for thread in range(threads)]
        domains.setdefault(domain, []).extend(mates)
        for cpu in mates:
            topology = directory / f"cpu/cpu{cpu}/topology"
            topology.mkdir(parents=True)
            (topology / "core_cpus_list").write_text(format_cpus(mates) + "\n")
            (topology / "physical_package_id").write_text(f"{socket}\n")
    for domain, cpus in domains.items():
        (directory / f"node/node{domain}").mkdir(parents=True)
        (directory / f"node/node{domain}/cpulist").write_text(format_cpus(cpus) + "\n")
    (directory / "node/possible").write_text("0\n")
