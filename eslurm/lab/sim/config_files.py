"""The versions of a simulated cluster's configuration file, the copy on each controller's host, and what is in force.

A digest is the number of its version. Invariants, checked when a fact is durable: what is in force is a version as it was
written, and never one before the last; a node's number is given once, to one name.
"""

from __future__ import annotations

from eslurm.core.model import facts
from eslurm.core.model.config import ClusterConfig
from eslurm.lab.sim.violation import require

DIGEST_BYTES = 16


class ConfigFiles:
    """One cluster's. Hosts are named by their controllers."""

    def __init__(self, config: ClusterConfig) -> None:
        self._versions = [config]
        self._copies: dict[str, int] = {}
        self._given: dict[int, str] = {}
        self.in_force = -1
        """The version that is in force; -1 before the first."""
        self.taken_live = 0
        """Number of versions that a leader has taken without a start."""

    @property
    def newest(self) -> int:
        """The last version that was written."""
        return len(self._versions) - 1

    @property
    def names_in_force(self) -> frozenset[str]:
        """Nodes that are in force."""
        return frozenset(node.name for node in self._versions[max(0, self.in_force)].nodes)

    @property
    def has_removed(self) -> bool:
        """Check whether a node was removed by some version."""
        names = {node.name for node in self._versions[-1].nodes}
        return any(node.name not in names for config in self._versions for node in config.nodes)

    def write(self, config: ClusterConfig) -> None:
        """An administrator writes another version."""
        self._versions.append(config)

    def copy_to(self, host: str) -> None:
        """The newest version is put on a host."""
        self._copies[host] = self.newest

    def on(self, host: str) -> tuple[ClusterConfig, bytes]:
        """The file of a host, and its digest."""
        version = self._copies.get(host, self.newest)
        return self._versions[version], version.to_bytes(DIGEST_BYTES)

    def on_accepted(self, fact: facts.ConfigAccepted) -> None:
        """A configuration is in force, durably."""
        # Nothing was read: nodes that had left with jobs are let go of.
        version = int.from_bytes(fact.digest) if fact.digest else self.in_force
        require(
            version >= self.in_force,
            f"version {version} of the configuration follows version {self.in_force}: an older file came back",
        )
        wanted = [node.name for node in self._versions[version].nodes]
        found = [node.name for node in fact.config.nodes]
        require(found == wanted, f"version {version} has the nodes {wanted}, in force are {found}")
        for name, number in fact.numbers:
            known = self._given.get(number)
            require(known is None, f"number {number} of node {known} is given to {name}")
            self._given[number] = name
        self.in_force = version
