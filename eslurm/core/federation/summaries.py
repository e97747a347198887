"""A cell's summary for the others: its classes of nodes, what is free, what is expected to become free.

`NodeClasses` reads the last committed state, `Summaries` decides when to write: at a change that matters, but not more often
than configured, and every WRITE_US at the latest, so others can tell an old word. Each write is conditional on this
controller's own `alive` word: a former leader overwrites nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from eslurm.core.federation.actions import Failure, StoredEntry, SwapAnswer, SwapKeys, Write
from eslurm.core.federation.membership import AGAIN_US, ECHO_US, Membership, Standing
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.swapping import Entries, Result, Swap
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
        self.problem = ""
        self._every_us = int(config.summary_min_s * 1e6)
        self._membership = membership
        self._mirror = mirror
        self._key = membership.own.summary_key
        self._latest: Summary | None = None
        self._written: Summary | None = None
        self._written_us = 0
        self._entry: StoredEntry | None = None
        self._seq = 0
        self._read_at_us = 0
        self._swap_at_us = 0
        self._echo_at_us: int | None = None
        self._swap: Swap | None = None

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
        self._take_result(now_us, draw)
        if self._swap is None and now_us >= self._swap_at_us and self._is_due(now_us):
            self._begin()
        return self._swap.tick(now_us, draw) if self._swap is not None else None

    def due_us(self, now_us: int) -> int | None:
        """Time at which `tick` or `wants` next has something, unless an event comes before."""
        times = [self._read_at_us, self._swap_at_us, self._written_us + WRITE_US, self._echo_at_us or 0]
        if self._swap is not None:
            times.append(self._swap.due_us or 0)
        return min((at for at in times if at > now_us), default=None)

    def swapped(self, action: SwapKeys, answer: SwapAnswer) -> None:
        """The answer to a swap of this machine; others are ignored."""
        if self._swap is not None:
            self._swap.swapped(action, answer)

    def failed(self, action: SwapKeys, failure: Failure) -> None:
        """The call failed."""
        if self._swap is not None:
            self._swap.failed(action, failure)

    # ---- within ----

    def _is_due(self, now_us: int) -> bool:
        latest, written = self._latest, self._written
        if latest is None or self._membership.standing is not Standing.MEMBER:
            return False
        if self._echo_at_us is not None and now_us >= self._echo_at_us:
            self._echo_at_us = None
            if self._entry is not None and self._mirror.revision < self._entry.version:
                self._mirror.doubt()
        held = self._held()
        if written is None or held is None or held.lease != self._membership.lease:
            return True
        if now_us >= self._written_us + WRITE_US:
            return True
        return now_us >= self._written_us + self._every_us and _differs(written, latest)

    def _begin(self) -> None:
        if self._latest is None:
            return
        self._seq += 1
        summary = msgspec.structs.replace(self._latest, epoch=self._membership.epoch, seq=self._seq)
        change = _Write(self._membership, self._key, summary)
        known = {self._key: self._held(), self._membership.own.alive_key: self._membership.alive_entry}
        self._swap = Swap(change, known)

    def _held(self) -> StoredEntry | None:
        if self._entry is not None and self._entry.version > self._mirror.revision:
            return self._entry
        return self._mirror.words.get(self._key)

    def _take_result(self, now_us: int, draw: float) -> None:
        swap = self._swap
        if swap is None or swap.result is None:
            return
        self._swap = None
        if swap.revision:
            self._entry = swap.current.get(self._key)
        self._swap_at_us = now_us + self._every_us
        if swap.result is Result.DONE and isinstance(swap.change, _Write):
            self.problem = ""
            self._written = swap.change.summary
            self._written_us = now_us
            self._echo_at_us = now_us + ECHO_US
        elif swap.result is Result.FAILED and swap.failure is not None:
            self.problem = swap.failure.text or swap.failure.problem.value
            self._swap_at_us = now_us + int(AGAIN_US * (1 + draw) / 2)


class _Write:
    """Replace the summary while this controller is the one that says that the cell is alive."""

    def __init__(self, membership: Membership, key: str, summary: Summary) -> None:
        self.keys = (key, membership.own.alive_key)
        self.summary = summary
        self._membership = membership
        self._key = key
        self._value = _fitted(summary)

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """None unless the word that the cell is alive is this controller's."""
        if not self._membership.is_alive_word(current[self._membership.own.alive_key]) or self.is_mine(
            current
        ):
            return ()
        return (Write(self._key, self._value, self._membership.lease),)

    def is_mine(self, current: Entries) -> bool:
        """This value: epoch and sequence are in it."""
        entry = current[self._key]
        return entry is not None and entry.value == self._value


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
