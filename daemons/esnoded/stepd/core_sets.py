"""Cores of jobs on this host: a free core is given to one job until its control group is gone.

Invariants: no core is of two jobs; a job has as many as it asked for, or none and runs on all. The choice takes as few
sockets as it can, then as few NUMA nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from esnoded.topology import Core


class CoreSets:
    """`cores` are all that jobs may have."""

    def __init__(self, cores: Sequence[Core]) -> None:
        self._free = set(cores)
        self._held: dict[str, tuple[Core, ...]] = {}
        self.total = len(self._free)

    @property
    def free(self) -> int:
        """The number of cores that no job has."""
        return len(self._free)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that have cores."""
        return tuple(self._held)

    def take(self, group: str, count: int) -> tuple[Core, ...]:
        """Cores for a job's group; none where too few are free."""
        chosen = choose_cores(sorted(self._free), count)
        if chosen:
            self._held[group] = chosen
            self._free.difference_update(chosen)
        return chosen

    def give_back(self, group: str) -> None:
        """Free the cores of a group that is gone; one that has none changes nothing."""
        self._free.update(self._held.pop(group, ()))


def choose_cores(free: Sequence[Core], count: int) -> tuple[Core, ...]:
    """So many of these cores, close to each other; none where they are too few."""
    if not 0 < count <= len(free):
        return ()
    sockets = _groups(free, lambda core: core.socket)
    chosen: list[Core] = []
    while len(chosen) < count:
        wanted = count - len(chosen)
        fitting = [one for one in sockets if len(one) >= wanted]
        if not fitting:
            # The largest ones make for the fewest.
            largest = max(sockets, key=len)
            sockets.remove(largest)
            chosen += largest
            continue
        # The fewest NUMA nodes, and then the smallest room, which leaves large ones to wide jobs.
        choices = [(_in_socket(one, wanted), len(one)) for one in fitting]
        chosen += min(choices, key=lambda choice: (len({core.domain for core in choice[0]}), choice[1]))[0]
    return tuple(sorted(chosen))


def _in_socket(free: Sequence[Core], count: int) -> list[Core]:
    """So many cores of one socket, which has them, from as few NUMA nodes as can be."""
    domains = _groups(free, lambda core: core.domain)
    chosen: list[Core] = []
    while len(chosen) < count:
        wanted = count - len(chosen)
        fitting = [one for one in domains if len(one) >= wanted]
        best = min(fitting, key=len) if fitting else max(domains, key=len)
        domains.remove(best)
        chosen += best[:wanted]
    return chosen


def _groups(cores: Sequence[Core], key: Callable[[Core], int]) -> list[list[Core]]:
    found: dict[int, list[Core]] = {}
    for core in cores:
        found.setdefault(key(core), []).append(core)
    return [found[number] for number in sorted(found)]
