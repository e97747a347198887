"""Accounting queries: the store filters by the rows' columns, this module by the rest.

Invariant: pages cover all matches, once; an empty page is the last one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from eslurm.api.infos import attempt_info
from eslurm.core.control.privacy import Visibility
from eslurm.ports.store import AccountingQuery, Store
from eslurm.v1 import controller_pb2 as pb

PAGE_DEFAULT = 1000
PAGE_MAX = 10_000
_ATTEMPT_BITS = 32


async def account(
    store: Store,
    owner: str,
    request: pb.AccountingRequest,
    sight: Visibility,
    alias: Mapping[int, int],
) -> pb.AccountingReply:
    """One page of visible attempts, in order of jobs and attempts, and the start of the next one (0: none).

    `alias` are the jobs of parts' ids; the parts of an attempt are on one page.
    """
    for ref in request.jobs:
        ref.job_id = alias.get(ref.job_id, ref.job_id)
    wanted = _tasks_wanted(request)
    query = _query(request)
    reply = pb.AccountingReply()
    if sight.only_user:
        # The store has an index of users; what it does not find costs nothing.
        if query.user not in ("", sight.only_user):
            return reply
        query = msgspec.structs.replace(query, user=sight.only_user)
    while True:
        page = await store.accounting(owner, query)
        infos = (attempt_info(row) for row in page.attempts if sight.run(row.user, row.account))
        reply.attempts.extend(info for info in infos if _is_wanted(info, wanted))
        if page.next is None:
            return reply
        if reply.attempts:
            reply.next_page = page.next[0] << _ATTEMPT_BITS | page.next[1]
            return reply
        query = msgspec.structs.replace(query, after=page.next)


def _query(request: pb.AccountingRequest) -> AccountingQuery:
    page = request.page
    return AccountingQuery(
        user=request.user,
        job_ids=sorted({ref.job_id for ref in request.jobs}),
        since_us=request.since_us,
        until_us=request.until_us,
        states=list(request.states),
        limit=min(request.limit or PAGE_DEFAULT, PAGE_MAX),
        after=(page >> _ATTEMPT_BITS, page & (1 << _ATTEMPT_BITS) - 1) if page else None,
        partition=request.partition,
        name=request.name,
    )


def _tasks_wanted(request: pb.AccountingRequest) -> dict[int, set[int]]:
    """The requested tasks of arrays of which not all are requested."""
    wanted: dict[int, set[int]] = {}
    for ref in request.jobs:
        if ref.HasField("task"):
            wanted.setdefault(ref.job_id, set()).add(ref.task)
    for ref in request.jobs:
        if not ref.HasField("task"):
            wanted.pop(ref.job_id, None)
    return wanted


def _is_wanted(info: pb.AttemptInfo, wanted: dict[int, set[int]]) -> bool:
    tasks = wanted.get(info.array_job_id or info.job_id)
    return tasks is None or (info.HasField("array_task") and info.array_task in tasks)
