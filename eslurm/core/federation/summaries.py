"""A cell's summary for the others: its classes of nodes, what is free, what is expected to become free.

`NodeClasses` reads the last committed state, `Summaries` decides when to write: at a change that matters, but not more often
than configured, and every WRITE_US at the latest, so others can tell an old word. Each write is conditional on this
controller's own `alive` word: a former leader overwrites nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from eslurm.core.federation.actions import Failure, SwapAnswer, SwapKeys
from eslurm.core.federation.membership import Membership, Standing
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.own_word import OwnWord
from eslurm.core.federation.values import encode
from eslurm.core.model.amounts import Vector
from eslurm.core.model.federation import CLASSES_MAX, FORMAT, FederationConfig, NodeClass, Summary
from eslurm.core.model.node import is_usable
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.resources.bits import mask_of
from eslurm.core.resources.vector import WIDTH
from eslurm.core.state.view import View

WRITE_US: Final = 10_000_000
CHANGE_PERCENT: Final = 5
READ_US_PER_NODE: Final = 250
"""Least time between two readings for each node: readings cost about a thousandth of the time."""
HORIZON_S: Final = (60, 300, 900, 3_600, 14_400, 43_200, 86_400)
Horizon: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
HORIZON_US: Final = 5_000_000
"""Least time between two readings of the plan."""


class NodeClasses:
    """The kinds of nodes that a cell shows. Make it anew when `is_of` denies; nodes of hidden partitions are left out.

    Beyond `most` kinds the smaller ones become one, which says what each of its nodes has at least.
    """

    def __init__(self, view: View, most: int = CLASSES_MAX) -> None:
        self._topology = view.topology
        self._config = view.config
        hidden = {partition.name for partition in view.config.partitions if partition.role}
        found: dict[_Kind, list[int]] = {}
        masks = {name: mask for name, mask in view.topology.partitions.items() if name not in hidden}
        for position in range(view.topology.size):
            inside = tuple(sorted(name for name, mask in masks.items() if mask >> position & 1))
            if inside:
                kind = view.topology.totals[position], tuple(view.topology.features_on(position)), inside
                found.setdefault(kind, []).append(position)
        self._kinds = _merged(found, most)

    def is_of(self, view: View) -> bool:
        """Check whether these are the nodes of the view."""
        return self._topology is view.topology and self._config is view.config

    def read(self, view: View, now_us: int, horizon: Horizon = ()) -> Summary:
        """The summary of a view. Epoch and sequence are those of the writer, see `Summaries`; `now_us` is UTC."""
        classes = tuple(self._class(view, kind, positions) for kind, positions in self._kinds)
        return Summary(
            FORMAT,
            max(1, view.epoch),
            0,
            now_us,
            classes,
            view.pending_count,
            view.active_count,
            horizon,
            view.revision,
        )

    def horizon(self, profile: ResourceProfile) -> Horizon:
        """Numbers of nodes of each class that the plan leaves free at some instants to come."""
        masks = [mask_of(positions, self._topology.size) for _, positions in self._kinds]
        points = []
        for after_s in HORIZON_S:
            at_us = profile.now_us + after_s * 1_000_000
            idle = profile.room(at_us, at_us + 1).idle
            points.append((after_s, tuple((idle & mask).bit_count() for mask in masks)))
        return tuple(points)

    def _class(self, view: View, kind: _Kind, positions: Sequence[int]) -> NodeClass:
        total, features, partitions = kind
        free = cores_free = 0
        for position in positions:
            number = self._topology.numbers[position]
            if is_usable(view.nodes[number]):
                free += number not in view.jobs_on
                cores_free += min(view.free[number][0], total[0])
        extra = tuple(
            (name, total[index])
            for index, name in enumerate(self._topology.resources)
            if index >= WIDTH and index < len(total) and total[index]
        )
        return NodeClass(total[0], total[1], extra, features, partitions, len(positions), free, cores_free)


class Summaries:
    """Writes this cell's summary. Feed it with what `NodeClasses` reads, with answers, and `tick` it."""

    def __init__(self, config: FederationConfig, membership: Membership, mirror: Mirror) -> None:
        self._every_us = int(config.summary_min_s * 1e6)
        self._membership = membership
        self._word = OwnWord(
            membership, mirror, membership.own.summary_key, every_us=self._every_us, is_leased=True
        )
        self._latest: Summary | None = None
        self._begun: Summary | None = None
        self._written: Summary | None = None
        self._seq = 0
        self._read_at_us = 0

    @property
    def problem(self) -> str:
        """Why the last one was not written; empty: it was."""
        return self._word.failure

    def wants(self, now_us: int) -> bool:
        """Check whether to read the state again: this cell is a member and the last reading is old enough."""
        return self._membership.standing is Standing.MEMBER and now_us >= self._read_at_us

    def show(self, summary: Summary, now_us: int) -> None:
        """Take the cell's present summary; `now_us` is monotonic."""
        nodes = sum(one.total for one in summary.classes)
        self._latest = summary
        self._read_at_us = now_us + max(self._every_us, nodes * READ_US_PER_NODE)

    def tick(self, now_us: int, draw: float) -> SwapKeys | None:
        """The next request to the store, given once. `draw` is of [0, 1), for pauses."""
        if self._word.settle(now_us, draw):
            self._written = self._begun
        if self._latest is not None and self._word.may_write(now_us) and self._is_due(self._latest, now_us):
            self._seq += 1
            self._begun = msgspec.structs.replace(self._latest, epoch=self._membership.epoch, seq=self._seq)
            self._word.write(_fitted(self._begun))
        return self._word.tick(now_us, draw)

    def due_us(self, now_us: int) -> int | None:
        """Time at which `tick` or `wants` next has something, unless an event comes before."""
        times = [self._read_at_us, self._word.written_us + WRITE_US, self._word.due_us(now_us) or 0]
        return min((at for at in times if at > now_us), default=None)

    def swapped(self, action: SwapKeys, answer: SwapAnswer) -> None:
        """The answer to a swap of this machine; others are ignored."""
        self._word.swapped(action, answer)

    def failed(self, action: SwapKeys, failure: Failure) -> None:
        """The call failed."""
        self._word.failed(action, failure)

    def _is_due(self, latest: Summary, now_us: int) -> bool:
        written = self._written
        if written is None or not self._word.is_there or now_us >= self._word.written_us + WRITE_US:
            return True
        return now_us >= self._word.written_us + self._every_us and _differs(written, latest)


_Kind: TypeAlias = tuple[Vector, tuple[str, ...], tuple[str, ...]]


def _merged(found: dict[_Kind, list[int]], most: int) -> list[tuple[_Kind, list[int]]]:
    kinds = sorted(found.items(), key=lambda kind: -len(kind[1]))
    if len(kinds) <= most:
        return kinds
    kept, rest = kinds[: most - 1], kinds[most - 1 :]
    least = tuple(min(amounts) for amounts in zip(*(total for (total, _, _), _ in rest), strict=True))
    features = set.intersection(*(set(words) for (_, words, _), _ in rest))
    partitions = set.intersection(*(set(names) for (_, _, names), _ in rest))
    positions = sorted(position for _, inside in rest for position in inside)
    return [*kept, ((least, tuple(sorted(features)), tuple(sorted(partitions))), positions)]


def _fitted(summary: Summary) -> bytes:
    """The bytes of a summary, without what makes it too large: first the horizon, then words, then the smallest classes."""
    bare = tuple(
        msgspec.structs.replace(one, extra=(), features=(), partitions=()) for one in summary.classes
    )
    for smaller in (
        summary,
        msgspec.structs.replace(summary, horizon=()),
        msgspec.structs.replace(summary, horizon=(), classes=bare),
    ):
        try:
            return encode(smaller)
        except ValueError:
            continue
    return encode(msgspec.structs.replace(summary, horizon=(), classes=bare[:1]))


def _differs(old: Summary, new: Summary) -> bool:
    """Check for a change that others are to hear of soon."""
    if len(old.classes) != len(new.classes):
        return True
    pairs = zip(old.classes, new.classes, strict=True)
    return any(_has_moved(one, other) for one, other in pairs)


def _has_moved(old: NodeClass, new: NodeClass) -> bool:
    if msgspec.structs.replace(new, free=old.free, cores_free=old.cores_free) != old:
        return True
    if (old.free == 0) != (new.free == 0) or (old.cores_free == 0) != (new.cores_free == 0):
        return True
    cores = max(1, new.total * new.cores)
    return (
        abs(new.free - old.free) * 100 > CHANGE_PERCENT * new.total
        or abs(new.cores_free - old.cores_free) * 100 > CHANGE_PERCENT * cores
    )
