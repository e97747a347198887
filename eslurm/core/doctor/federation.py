"""The federation: this cell's standing, the other cells, the etcd that they share, and the way to it.

Equal names of nodes in two cells are not looked for: a cell's summary counts nodes and does not name them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from eslurm.core.doctor.finding import ERROR, WARNING, Finding, Sliced
from eslurm.core.model.units import SECOND_US
from eslurm.core.model.wording import counted

if TYPE_CHECKING:
    # A cluster that is no member loads none of it.
    from eslurm.core.federation.usage import OtherUsage
    from eslurm.core.federation.view import CellView, FederationView

FEDERATION: Final = "federation"
CELLS: Final = "cells"
ETCD: Final = "etcd"
USAGE: Final = "shared usage"

OLD_WORD_US: Final = 30 * SECOND_US
"""Cells write every ten seconds at least."""
OLD_USAGE_US: Final = 300 * SECOND_US
"""Cells that share their usage write it every minute at least."""
CLOCK_WARNED_US: Final = 60 * SECOND_US
ANSWERS_PER_LEASE: Final = 4
"""A lease is kept that often in its life: an answer must not take longer than the time between two."""
SIZE_WARNED_BYTES: Final = 3 << 29
QUOTA_BYTES: Final = 2 << 30
"""etcd's own quota where none is set."""
_MIB: Final = 1 << 20


class StoreMember(Protocol):
    """A server of the store, see `ports.kv.KvMember`."""

    @property
    def endpoint(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def alarms(self) -> tuple[str, ...]: ...
    @property
    def error(self) -> str: ...


class Federated(msgspec.Struct, frozen=True):
    """The findings. `answer_us`: time that a read took which the servers agree on, None: no answer (`problem` says why).

    `open_endpoints` are on other hosts and speak no TLS; `is_anybody`: other hosts' are reached without a certificate and
    without a user.
    """

    view: FederationView
    wall_us: int
    lease_s: float
    members: Sequence[StoreMember] = ()
    answer_us: int | None = None
    problem: str = ""
    open_endpoints: Sequence[str] = ()
    is_anybody: bool = False
    usage: Sequence[OtherUsage] = ()
    """Words of other cells about usage; none where this cell's fair share counts its own alone."""
    usage_problem: str = ""
    """Why this cell's own was not written last."""


def check_federation(found: Federated) -> Sliced:
    """Check this cell's standing, and what the store has that cannot be used."""
    view = found.view
    own = f"cell {view.cell}"
    standing = view.standing.value
    if standing in ("away", "joining", "refused", "superseded"):
        problem = found.problem or view.problem or "it has no lease yet"
        yield Finding(FEDERATION, ERROR, own, f"{standing}: {problem}", _STANDING_ADVICE.get(standing, ""))
    elif view.problem:
        yield Finding(FEDERATION, WARNING, own, f"{standing}, but {view.problem}", _WRITE_ADVICE)
    for one in view.unreadable:
        yield None
        yield Finding(FEDERATION, WARNING, f"key {one.key}", one.reason, _VALUE_ADVICE)
    if view.skipped:
        text = f"{counted(view.skipped, 'key')} of the store {'is' if view.skipped == 1 else 'are'} left out"
        yield Finding(FEDERATION, WARNING, own, text, _VALUE_ADVICE)


_STANDING_ADVICE = {
    "away": "let etcd answer from this host; a store that was restored or replaced: `esctl federation rejoin`",
    "joining": "look again in a moment; then see the controller's log",
    "refused": "the text has the way out; until then the cell works alone",
    "superseded": "another controller of this cell leads: see `esinfo --controllers`",
}
_WRITE_ADVICE = "see the findings on etcd; the cell's figures get old until then"
_VALUE_ADVICE = "written by a newer release or another program: bring the releases together, or remove the key with etcdctl"


def check_cells(found: Federated) -> Sliced:
    """Check the other cells: silent ones, old words, clocks, faulty records."""
    own_is_member = found.view.standing.value == "member"
    for cell in found.view.cells:
        yield None
        what = f"cell {cell.name}"
        if own_is_member and cell.state.value == "silent":
            since = f" for {cell.silent_us // SECOND_US} s" if cell.silent_us is not None else ""
            yield Finding(CELLS, WARNING, what, f"its lease has ended, it is silent{since}", _SILENT_ADVICE)
        if own_is_member and cell.state.value == "alive":
            yield from _of_alive(found, cell, what)
        if cell.problem and cell.state.value != "unknown":
            yield Finding(CELLS, WARNING, what, cell.problem, "see `esctl federation status` in both cells")


_SILENT_ADVICE = (
    "see whether its controllers run and reach etcd; one that is gone for good: remove its key below cells/"
)


def _of_alive(found: Federated, cell: CellView, what: str) -> Iterator[Finding]:
    if cell.age_us is not None and cell.age_us > OLD_WORD_US:
        text = f"its lease is kept, and its last word is {cell.age_us // SECOND_US} s old"
        yield Finding(
            CELLS, WARNING, what, text, "its writes fail: see `esctl doctor` there, and etcd's alarms"
        )
    elif cell.summary is not None and cell.age_us is not None and cell.name != found.view.cell:
        apart_us = cell.summary.at_us + cell.age_us - found.wall_us
        if abs(apart_us) > CLOCK_WARNED_US:
            text = (
                f"its clock is {abs(apart_us) // SECOND_US} s {'ahead of' if apart_us > 0 else 'behind'} ours"
            )
            yield Finding(
                CELLS, WARNING, what, text, "set the clocks of both controllers by one source of time (NTP)"
            )


def check_usage(found: Federated) -> Sliced:
    """Check the usage that fair share counts: words that are old, or count nothing, and this cell's own."""
    if found.usage_problem:
        text = f"its usage is not written: {found.usage_problem}"
        yield Finding(USAGE, WARNING, f"cell {found.view.cell}", text, _WRITE_ADVICE)
    for one in found.usage:
        yield None
        # One whose keys are not trusted is an administrator's choice.
        is_judged = one.usage is not None or not one.is_readable
        if one.problem and is_judged:
            yield Finding(
                USAGE, WARNING, f"cell {one.cell}", f"its usage does not count: {one.problem}", _COUNT_ADVICE
            )
        elif one.age_us > OLD_USAGE_US and is_judged:
            text = (
                f"its usage is {one.age_us // SECOND_US} s old, more than {OLD_USAGE_US // SECOND_US} s: fair share counts"
                " what it was, and lets it fade"
            )
            yield Finding(USAGE, WARNING, f"cell {one.cell}", text, _USAGE_ADVICE)


_COUNT_ADVICE = "see `esctl shares` in both cells: releases, and half_life_s in [priority], have to agree"
_USAGE_ADVICE = 'see `esctl doctor` there: whether it is alive and reaches etcd; federation.fair_share is "sum" in it, too'


def check_store(found: Federated) -> Sliced:
    """Check the servers of the store, their alarms and sizes, the time of an answer, and who may reach them."""
    for member in found.members:
        yield None
        what = f"etcd {member.endpoint}"
        if member.error:
            yield Finding(ETCD, WARNING, what, f"does not answer: {member.error}", _MEMBER_ADVICE)
        elif member.size_bytes >= SIZE_WARNED_BYTES and "NOSPACE" not in member.alarms:
            text = f"has {member.size_bytes // _MIB} MiB of data; where no quota is set, it takes {QUOTA_BYTES // _MIB} MiB"
            yield Finding(ETCD, WARNING, what, text, _SPACE_ADVICE)
    # Each server names the alarms of all.
    alarms = {alarm for member in found.members for alarm in member.alarms}
    if "NOSPACE" in alarms:
        text = "its quota is reached (alarm NOSPACE): leases are kept, nothing else is written"
        yield Finding(ETCD, ERROR, "etcd", text, _SPACE_ADVICE)
    for alarm in sorted(alarms - {"NOSPACE"}):
        advice = "replace the damaged member (docs/guide/federation.md); `etcdctl alarm list` names it"
        yield Finding(ETCD, ERROR, "etcd", f"alarm {alarm}: a member's data are damaged", advice)
    if found.members and found.answer_us is None:
        yield Finding(ETCD, ERROR, "etcd", f"no answer to a read: {found.problem}", _QUORUM_ADVICE)
    elif found.answer_us is not None and found.answer_us * ANSWERS_PER_LEASE > found.lease_s * SECOND_US:
        every_s = found.lease_s / ANSWERS_PER_LEASE
        text = f"answers in {found.answer_us / SECOND_US:.1f} s; a lease of {found.lease_s:g} s is kept every {every_s:g} s"
        yield Finding(ETCD, WARNING, "etcd", text, "give etcd a faster disk, or raise federation.lease_s")
    for endpoint in found.open_endpoints:
        text = "is on another host and speaks no TLS: the network reads and writes what cells agree on"
        yield Finding(ETCD, WARNING, f"etcd {endpoint}", text, "use https:// (federation.ca)")
    if found.is_anybody:
        text = "asks neither for a certificate nor for a user: each host that reaches it writes what cells agree on"
        advice = (
            "start etcd with --client-cert-auth (federation.certificate), or with users (federation.user)"
        )
        yield Finding(ETCD, WARNING, "etcd", text, advice)


_MEMBER_ADVICE = (
    "see whether it runs and is reached from here; one that is lost: replace it (docs/guide/federation.md)"
)
_SPACE_ADVICE = (
    "compact, defragment, disarm: etcdctl compact, defrag, alarm disarm (docs/guide/federation.md)"
)
_QUORUM_ADVICE = "more than half of the members have to run and reach each other"
