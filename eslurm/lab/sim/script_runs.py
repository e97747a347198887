"""The scripts of a simulated cluster as its hosts see them: place, resources, duration.

Independent of agents and runners, whose state is checked against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from eslurm.core.model.protocol import JobLaunch
from eslurm.core.model.step_key import StepKey
from eslurm.core.resources.vector import CORES
from eslurm.lab.sim.host import Host
from eslurm.ports.step_runner import StepOutcome


class Clock:
    """Time limit and run time of a script by its orders, independent of the runner's own account."""

    def __init__(self, begun_us: int, limit_us: int) -> None:
        self.limit_us = limit_us
        self._begun_us = begun_us
        self._still_us = 0
        self._still_since_us: int | None = None

    def set_limit(self, now_us: int, limit_us: int) -> None:
        """Another limit from now on; too late for a script that is being ended by the old one."""
        if not 0 < self.limit_us <= self.used_us(now_us):
            self.limit_us = limit_us

    def stand_still(self, now_us: int, *, is_still: bool) -> None:
        """It stands still from now on, or goes on."""
        if is_still and self._still_since_us is None:
            self._still_since_us = now_us
        elif not is_still and self._still_since_us is not None:
            self._still_us += now_us - self._still_since_us
            self._still_since_us = None

    @property
    def is_still(self) -> bool:
        """Check whether it stands still."""
        return self._still_since_us is not None

    def used_us(self, now_us: int) -> int:
        """Run time in microseconds."""
        until_us = now_us if self._still_since_us is None else self._still_since_us
        return until_us - self._begun_us - self._still_us


class Run:
    """One script that ran, or runs: what the host knows of it.

    `usage` is what it uses by node, `lent` the cores that it does not use while it stands still.
    """

    __slots__ = (
        "clock",
        "device_parts",
        "devices",
        "disturbed",
        "host",
        "key",
        "lent",
        "outcome",
        "parts",
        "shares_node",
        "unused",
        "usage",
    )

    def __init__(self, host: Host, key: StepKey, launch: JobLaunch, clock: Clock) -> None:
        self.clock = clock
        self.host = host
        self.key = key
        self.usage: dict[int, tuple[int, ...]] = {}
        self.parts: dict[int, dict[int, tuple[int, ...]]] = {}
        """By node what each part uses there."""
        self.shares_node = False
        """Two parts of the job are on one node."""
        for group in launch.groups:
            for start, length in group.runs:
                for number in range(start, start + length):
                    before = self.usage.get(number)
                    self.parts.setdefault(number, {})[group.component] = group.amounts
                    self.shares_node |= before is not None
                    self.usage[number] = group.amounts if before is None else _sum(before, group.amounts)
        self.devices = launch.devices
        self.device_parts = launch.device_parts
        self.lent: dict[int, int] = {}
        self.unused: dict[int, int] = {}
        """By node the cores that its application leaves to others."""
        self.outcome: StepOutcome | None = None
        self.disturbed = False


def _sum(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(left + right for left, right in zip_longest(one, other, fillvalue=0))


class Occupancy:
    """Resources used by the scripts on each node together: never more than its total, and no device twice."""

    def __init__(self) -> None:
        self._used: dict[int, list[int]] = {}
        self._devices: dict[tuple[int, str, int], StepKey] = {}

    def take(self, run: Run, totals: Sequence[tuple[int, ...]]) -> str:
        """A script begins; what is wrong with that, if anything."""
        for number, amounts in run.usage.items():
            used = self._used.setdefault(number, [0] * len(totals[number]))
            for at, amount in enumerate(amounts):
                used[at] += amount
                if used[at] > totals[number][at]:
                    return f"node {number} runs {used[at]} of {totals[number][at]} in resource {at}"
        given: set[tuple[int, str, int]] = set()
        for number, resource, devices in run.devices:
            # Those of a node that was given up before it began are another's by now.
            for device in devices if number in run.usage else ():
                if (number, resource, device) in given:
                    return f"device {resource} {device} of node {number} is given to two parts of {run.key}"
                given.add((number, resource, device))
                other = self._devices.setdefault((number, resource, device), run.key)
                if other is not run.key:
                    return (
                        f"device {resource} {device} of node {number} is given to {run.key}, it is {other}'s"
                    )
        return ""

    def add(self, run: Run, amounts: Mapping[int, tuple[int, ...]], totals: Sequence[tuple[int, ...]]) -> str:
        """A script that runs gets nodes; what is wrong with that, if anything."""
        for number, more in amounts.items():
            if number in run.usage:
                return f"{run.key} gets node {number}, which it uses"
            run.usage[number] = more
            used = self._used.setdefault(number, [0] * len(totals[number]))
            for at, amount in enumerate(more):
                used[at] += amount
                if used[at] > totals[number][at]:
                    return f"node {number} runs {used[at]} of {totals[number][at]} in resource {at}, {run.key} grows"
        return ""

    def give_back(self, run: Run, number: int) -> None:
        """A script uses a node no more."""
        amounts = run.usage.pop(number, ())
        for at, amount in enumerate(amounts):
            self._used[number][at] -= amount
        if number in run.lent:
            self._used[number][CORES] += run.lent.pop(number)
        unused = run.unused.pop(number, 0) if amounts else 0
        if unused:
            self._used[number][CORES] += unused
        for node, resource, devices in run.devices:
            for device in devices if node == number else ():
                if self._devices.get((node, resource, device)) is run.key:
                    del self._devices[node, resource, device]

    def give_part_back(self, run: Run, part: int) -> None:
        """A finished part uses nodes that it shares no more; those that it has alone go one by one."""
        for number, amounts in run.parts.items():
            if part not in amounts or len(amounts) == 1 or number not in run.usage:
                continue
            mine = amounts.pop(part)
            run.usage[number] = _sum(run.usage[number], tuple(-amount for amount in mine))
            for at, amount in enumerate(mine):
                self._used[number][at] -= amount
            for (node, resource, devices), owner in zip(run.devices, run.device_parts, strict=True):
                for device in devices if (node, owner) == (number, part) else ():
                    if self._devices.get((node, resource, device)) is run.key:
                        del self._devices[node, resource, device]

    def lend(self, run: Run) -> None:
        """A script stands still: others may have its cores, nothing else."""
        if not run.lent:
            run.lent = {
                number: amounts[CORES] - run.unused.get(number, 0) for number, amounts in run.usage.items()
            }
            for number, cores in run.lent.items():
                self._used[number][CORES] -= cores

    def leave(self, run: Run, number: int, cores: int, totals: Sequence[tuple[int, ...]]) -> str:
        """A script runs nothing on so many of its cores; what is wrong when it takes some back, if anything."""
        if number not in run.usage:
            return ""
        used = self._used[number]
        used[CORES] -= cores - run.unused.get(number, 0)
        run.unused[number] = cores
        if used[CORES] > totals[number][CORES]:
            return f"node {number} runs {used[CORES]} of {totals[number][CORES]} in resource {CORES}, {run.key} uses its own"
        return ""

    def go_on(self, run: Run, totals: Sequence[tuple[int, ...]]) -> str:
        """A script goes on with its cores; what is wrong with that, if anything."""
        lent, run.lent = run.lent, {}
        for number, cores in lent.items():
            used = self._used[number]
            used[CORES] += cores
            if used[CORES] > totals[number][CORES]:
                return f"node {number} runs {used[CORES]} of {totals[number][CORES]} in resource {CORES}, {run.key} goes on"
        return ""
