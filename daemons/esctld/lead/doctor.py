"""`esctl doctor`, the controller's side: it measures, and `eslurm.core.doctor` judges.

Invariant: one examination at a time, in slices of at most `SLICE_S`, on the committed view and the state between two
batches, so that it delays no other work; later callers get the same answer. A failed check is a finding, too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec

from esctld.lead.consistency_check import STORE, RowComparison
from esctld.lead.log_export import stored_bases
from eslurm import __version__
from eslurm.core.dispatch.satellite_pool import Satellite
from eslurm.core.doctor import allocations, federation, guests, host, orphans, places, transfers
from eslurm.core.doctor.finding import ERROR, Finding, Sliced
from eslurm.core.model.facts import decode_fact
from eslurm.core.state import rows
from eslurm.core.state.cluster import State
from eslurm.core.state.view import View
from eslurm.ports.api import Caller
from eslurm.ports.link import Link
from eslurm.ports.store import LoggedFact, LogPruned, StoreError, StoreReader
from eslurm.telemetry.clocks import wall_us
from eslurm.v1 import controller_pb2 as pb

log = logging.getLogger("esctld.doctor")

SLICE_S = 0.002
DISK_PATIENCE_S = 5.0
LOG_FACTS_LOOKED_AT = 1_000
FINDINGS_PER_CHECK_MAX = 200

_FDS = Path("/proc/self/fd")


class DoctorInputs(msgspec.Struct, frozen=True):
    """The doctor's inputs besides the state. `keys` reads files."""

    name: str
    epoch: int
    owner: str
    disks: Sequence[Path]
    keys: Callable[[int], Sequence[host.KeyFile]]
    satellites: Callable[[], Iterable[Satellite]]
    links: Callable[[], Iterable[Link]]
    problems: Callable[[], Mapping[int, Sequence[str]]]
    federation: Callable[[], Awaitable[federation.Federated]] | None = None
    """Of a member of a federation."""


class Doctor:
    """Answers Doctor. The dispatcher's owner calls `watch` with every committed batch."""

    def __init__(self, state: State, view: View, store: StoreReader, around: DoctorInputs) -> None:
        self._state = state
        self._view = view
        self._store = store
        self._around = around
        self.watch = orphans.Watch()
        self._under_way: asyncio.Task[pb.DoctorReply] | None = None
        self._slice_ends_s = 0.0

    async def call(self, request: pb.DoctorRequest, caller: Caller) -> pb.DoctorReply:
        """Examine the cluster, or wait for the examination that is under way."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.get_running_loop().create_task(self.examine(), name="doctor")
        # A cancelled waiter does not end it for the others.
        return await asyncio.shield(self._under_way)

    async def close(self) -> None:
        """Cancel the examination under way."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)

    async def examine(self) -> pb.DoctorReply:
        """All checks, one after another."""
        state, around = self._state, self._around
        now_us = wall_us()
        self._slice_ends_s = time.perf_counter() + SLICE_S
        checks: list[tuple[tuple[str, ...], Callable[[], Awaitable[list[Finding]]]]] = [
            ((allocations.RECORDS,), lambda: self._sliced(allocations.check_records(state))),
            ((allocations.ALLOCATIONS,), lambda: self._sliced(allocations.check_allocations(state))),
            ((orphans.ORPHANS,), lambda: self._sliced(self.watch.check(state, now_us))),
            ((orphans.ENDINGS,), lambda: self._sliced(orphans.check_endings(state, now_us))),
            ((places.NODES,), lambda: self._sliced(places.check_nodes(state, now_us))),
            ((places.HEALTH,), lambda: self._sliced(places.check_health(state, around.problems()))),
            (
                (places.SATELLITES,),
                lambda: self._sliced(places.check_satellites(around.satellites(), now_us)),
            ),
            (
                (places.VERSIONS, places.CLOCKS),
                lambda: self._sliced(places.check_peers(self._peers(), __version__)),
            ),
            ((host.FILES, host.DISK, host.KEY, host.CLOCK), self._host),
            ((host.LOG, host.CONTROLLERS), self._log),
            ((STORE,), self._drift),
        ]
        if around.federation is not None:
            of_cells = (
                federation.FEDERATION,
                federation.CELLS,
                federation.USAGE,
                federation.ETCD,
                transfers.TRANSFERS,
                guests.GUESTS,
            )
            checks.append((of_cells, self._federated))
        findings: list[Finding] = []
        for names, check in checks:
            findings += await self._guarded(names[0], check)
        return pb.DoctorReply(
            findings=[
                pb.Finding(
                    check=one.check, severity=one.severity, what=one.what, text=one.text, advice=one.advice
                )
                for one in findings
            ],
            checks=[name for names, _ in checks for name in names],
            revision=self._view.revision,
            now_us=now_us,
        )

    async def _guarded(self, name: str, check: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
        """A bounded number of a check's findings; its failure is one, too."""
        try:
            found = await check()
        except StoreError as error:
            advice = "the job store has to answer first: see the controller's log"
            return [Finding(name, ERROR, "store", f"this check could not be made: {error}", advice)]
        except Exception as error:
            log.exception("check %s has failed", name)
            text = f"this check broke off: {type(error).__name__}: {error}"
            return [Finding(name, ERROR, "controller", text, "a defect of the controller: see its log")]
        if len(found) <= FINDINGS_PER_CHECK_MAX:
            return found
        left_out = len(found) - FINDINGS_PER_CHECK_MAX
        rest = Finding(name, ERROR, "cluster", f"{left_out} more findings of this kind")
        return [*found[:FINDINGS_PER_CHECK_MAX], rest]

    # ---- slices ----

    async def _sliced(self, check: Sliced) -> list[Finding]:
        found = []
        for one in check:
            if one is not None:
                found.append(one)
            elif time.perf_counter() >= self._slice_ends_s:
                await self._rest()
        return found

    async def _pause(self) -> None:
        if time.perf_counter() >= self._slice_ends_s:
            await self._rest()

    async def _rest(self) -> None:
        # As long as the slice was: an examination takes at most half of the loop.
        await asyncio.sleep(SLICE_S)
        self._slice_ends_s = time.perf_counter() + SLICE_S

    # ---- measuring ----

    def _peers(self) -> list[places.Peer]:
        found = []
        for link in self._around.links():
            peer = link.peer
            name = peer.process.rpartition(".")[0] or peer.process
            found.append(places.Peer(peer.role, name, peer.build, peer.skew_us))
        return found

    async def _host(self) -> list[Finding]:
        around = self._around
        disks = [await _disk(path) for path in around.disks]
        measured = host.Host(
            wall_us=wall_us(),
            state_us=self._view.now_us,
            files_open=len(os.listdir(_FDS)),
            files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            disks=disks,
            keys=await asyncio.to_thread(around.keys, wall_us()),
        )
        return await self._sliced(host.check_host(measured))

    async def _federated(self) -> list[Finding]:
        assert self._around.federation is not None
        found = await self._around.federation()
        findings = []
        for check in (
            federation.check_federation,
            federation.check_cells,
            federation.check_usage,
            federation.check_store,
        ):
            findings += await self._sliced(check(found))
        for between in (transfers.check_transfers, guests.check_guests):
            late = between(self._view.transfers, found.view, self._view.now_us)
            findings += await self._sliced(late)
        return findings

    async def _log(self) -> list[Finding]:
        around = self._around
        revision_min = self._view.revision
        row = await self._store.leader(around.owner)
        # What is being committed may be in the store already and in the view not yet.
        revision_max = self._state.revision
        last, gap, unreadable = await self._log_end(row.revision)
        ends = host.LogEnds(
            name=around.name,
            epoch=around.epoch,
            revision_min=revision_min,
            revision_max=revision_max,
            row_holder=row.holder,
            row_epoch=row.epoch,
            row_revision=row.revision,
            last=last,
            gap=gap,
            unreadable=unreadable,
            is_whole=await self._begins([1, *await self._cuts()]) is not None,
        )
        return await self._sliced(host.check_log(ends))

    async def _cuts(self) -> list[int]:
        """The revisions that follow a base state."""
        return [base.revision + 1 for base in await stored_bases(self._store, self._around.owner)]

    async def _begins(self, revisions: Sequence[int]) -> int | None:
        """The first of these revisions from which on the log is stored."""
        for revision in revisions:
            try:
                async with aclosing(self._store.load_facts(self._around.owner, revision, 1)) as facts:
                    async for _ in facts:
                        break
                return revision
            except LogPruned:
                continue
        return None

    async def _log_end(self, head: int) -> tuple[int, int, int]:
        """(last revision up to the head, first missing near the end, first there that cannot be decoded); 0: none."""
        near = max(head - LOG_FACTS_LOOKED_AT + 1, 1)
        start = await self._begins([near, *(cut for cut in await self._cuts() if cut > near)])
        if start is None:
            return 0, 0, 0
        expected, last, gap, unreadable = start, 0, 0, 0
        async with aclosing(self._store.load_facts(self._around.owner, start)) as facts:
            async for chunk in facts:
                for fact in chunk:
                    await self._pause()
                    if fact.revision > head:
                        return last, gap, unreadable
                    if fact.revision != expected and not gap:
                        gap = expected
                    expected, last = fact.revision + 1, fact.revision
                    if not unreadable and not _is_fact(fact):
                        unreadable = fact.revision
        return last, gap, unreadable

    async def _drift(self) -> list[Finding]:
        def settings() -> bytes | None:
            # The state is ahead of the store while a batch is being committed.
            if self._state.revision != self._view.revision:
                return None
            return rows.encode(rows.settings_of(self._state))

        return await RowComparison(
            self._store, self._around.owner, self._view, settings, self._pause
        ).findings()


def _is_fact(fact: LoggedFact) -> bool:
    try:
        decode_fact(fact.kind, fact.version, fact.blob)
    except msgspec.MsgspecError:
        return False
    return True


async def _disk(path: Path) -> host.Disk:
    """Free space. A file system that hangs blocks one thread, not the loop."""
    try:
        async with asyncio.timeout(DISK_PATIENCE_S):
            found = await asyncio.to_thread(os.statvfs, path)
    except (TimeoutError, OSError):
        return host.Disk(str(path), None)
    return host.Disk(str(path), found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
