"""The rules a log is replayed under: the configuration that the core decides by, and the records of a file.

Records are what `esctl load` takes. Users and groups of a log are numbers: `u12` and `g3` here, in records as in jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import msgspec

from eslurm.calendar import SiteCalendar, UnknownZone
from eslurm.compat.errors import OptionError
from eslurm.compat.policies import read_change
from eslurm.compat.policy_keys import Site
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.messages import PolicyChange
from eslurm.core.plan.cycle.priority import weighs
from eslurm.lab.workloads.machine import Machine
from eslurm.lab.workloads.swf import Header

Settings: TypeAlias = Sequence[tuple[str, str]]


class RulesError(Exception):
    """The rules cannot be what was written; the text is one line."""


class Rules(msgspec.Struct, frozen=True):
    """A configuration, and records as (kind, name, settings) in the order of their file. `zone` is that of cron strings."""

    config: ClusterConfig
    records: tuple[tuple[str, str, Settings], ...] = ()
    zone: str = "UTC"

    def names(self, kind: str) -> frozenset[str]:
        """The records of a kind."""
        return frozenset(name for one, name, _ in self.records if one == kind)

    @property
    def bind(self) -> bool:
        """Check whether jobs' owners matter: for records, or for weights of priorities."""
        return bool(self.records) or weighs(self.config.priority)

    @property
    def route(self) -> bool:
        """Check whether records choose jobs' partitions: then only they decide whether jobs fit there."""
        keys = [key for kind, _, settings in self.records if kind == "defaults" for key, _ in settings]
        return any(key.lower().endswith("partition") for key in keys)

    def changes(self, now_us: int) -> tuple[PolicyChange, ...]:
        """The records as messages to the controller, read at that time. Raises `RulesError`."""
        site = Site(now_us, calendar_of(self.zone).offset_s, _gid_of, "g{}".format)
        try:
            return tuple(
                read_change("set", kind, name, settings, site) for kind, name, settings in self.records
            )
        except OptionError as error:
            raise RulesError(str(error)) from None


@cache
def calendar_of(zone: str) -> SiteCalendar:
    """The calendar of a zone, with what it has worked out already: the next run asks for the same. Raises `UnknownZone`."""
    return SiteCalendar(zone)


def plain_config(machine: Machine) -> ClusterConfig:
    """The configuration of a machine that has none: its nodes in one partition."""
    topology = machine.topology
    nodes = tuple(
        NodeConfig(name, total) for name, total in zip(topology.names, topology.totals, strict=True)
    )
    names = tuple(node.name for node in nodes)
    return ClusterConfig(cluster="log", nodes=nodes, partitions=(Partition(machine.partition, names, True),))


def zone_of(header: Header) -> str:
    """The time zone that a log names, if there is such a one."""
    zone = header.find("TimeZoneString") or "UTC"
    try:
        calendar_of(zone)
    except UnknownZone:
        return "UTC"
    return zone


def _gid_of(name: str) -> str:
    """`g12` is the log's group 12. Raises `KeyError` for what is no group of a log."""
    if name[:1] != "g" or not (name[1:].isascii() and name[1:].isdigit()):
        raise KeyError(name)
    return str(int(name[1:]))
