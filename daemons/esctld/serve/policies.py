"""Policies at the API: texts become typed changes, records become texts again.

Group names are known only here: the core sees their numbers. Invariant: the event loop never waits for the name service,
which may be a directory server.
"""

from __future__ import annotations

import asyncio
import grp
import json
from collections.abc import Mapping

from esctld.lead.dispatcher import Dispatcher
from eslurm.calendar import SiteCalendar
from eslurm.compat.errors import OptionError, nearest, quoted
from eslurm.compat.policies import KEYS, Site, read_change, shown
from eslurm.core.control.privacy import Visibility
from eslurm.core.model.accounts import ALWAYS, Policy, Validity
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import ChangePolicies, PolicyChange, RefusalCode, Refused
from eslurm.core.state.apply_accounts import Other, Record
from eslurm.core.state.boundaries import standing
from eslurm.ports.api import Caller
from eslurm.telemetry.clocks import wall_us
from eslurm.v1 import controller_pb2 as pb

CHANGES_PER_CALL_MAX = 10_000


class Policies:
    """Answers Policies and reads ChangePolicies."""

    def __init__(self, dispatcher: Dispatcher, zone: str) -> None:
        self._dispatcher = dispatcher
        self._zone = zone

    async def show(self, request: pb.PoliciesRequest, caller: Caller) -> pb.PoliciesReply:
        """The committed policies of a kind, or all, in order of kind and name."""
        kinds = [request.kind] if request.kind else list(KEYS)
        if kinds[0] not in KEYS:
            raise _refused(f"kind: {quoted(kinds[0])} is no kind of policy: use one of {', '.join(KEYS)}")
        view = self._dispatcher.view
        sight = Visibility(view, caller.principal)
        seen = [
            (kind, name, record)
            for (kind, name), record in view.records.items()
            if kind in kinds and not isinstance(record, Other) and sight.policy(record)
        ]
        named = [one for one in seen if not request.names or one[1] in request.names]
        if request.names:
            _all_found(request, {name for _, name, _ in named}, [name for _, name, _ in seen])
        named.sort(key=lambda one: (kinds.index(one[0]), one[1]))
        revision, now_us = view.revision, wall_us()
        infos = await asyncio.to_thread(self._infos, named, now_us)
        return pb.PoliciesReply(policies=infos, revision=revision, now_us=now_us)

    async def read(self, request: pb.ChangePoliciesRequest, by: Principal) -> ChangePolicies:
        """The core's message. Raises `Refused` naming the policy, the key and the way out."""
        if not 0 < len(request.changes) <= CHANGES_PER_CALL_MAX:
            raise _refused(f"{len(request.changes)} changes in one call: give 1 to {CHANGES_PER_CALL_MAX}")
        view = self._dispatcher.view
        present = {
            (change.kind, change.name): view.records.get((change.kind, change.name))
            for change in request.changes
        }
        try:
            changes = await asyncio.to_thread(self._read, request, present)
        except OptionError as error:
            raise _refused(str(error)) from None
        return ChangePolicies(by, changes)

    def _infos(self, named: list[tuple[str, str, Policy]], now_us: int) -> list[pb.PolicyInfo]:
        # Its own: the core's is not for other threads.
        calendar = SiteCalendar(self._zone)
        site = _site(calendar, now_us)
        found = []
        for kind, name, record in named:
            validity = getattr(record, "validity", ALWAYS)
            assert isinstance(validity, Validity)
            settings = shown(record, site) | {"state": standing(calendar, validity, now_us)}
            found.append(pb.PolicyInfo(kind=kind, name=name, json=json.dumps(settings)))
        return found

    def _read(
        self, request: pb.ChangePoliciesRequest, present: Mapping[tuple[str, str], Record | None]
    ) -> tuple[PolicyChange, ...]:
        site = _site(SiteCalendar(self._zone), wall_us())
        changes = []
        for change in request.changes:
            now = present[change.kind, change.name]
            settings = [(setting.key, setting.value) for setting in change.settings]
            policy: Policy | None = None if isinstance(now, Other) else now
            changes.append(read_change(change.action, change.kind, change.name, settings, site, policy))
        return tuple(changes)


def _site(calendar: SiteCalendar, now_us: int) -> Site:
    """The context of one call, with caches of its own: each group is looked up once a call."""
    gids: dict[str, str] = {}
    names: dict[str, str] = {}

    def gid_of(name: str) -> str:
        if name not in gids:
            gids[name] = str(grp.getgrnam(name).gr_gid)
        return gids[name]

    def group_of(gid: str) -> str:
        if gid not in names:
            names[gid] = _group_name(gid)
        return names[gid]

    return Site(now_us, calendar.offset_s, gid_of, group_of)


def _group_name(gid: str) -> str:
    try:
        return grp.getgrgid(int(gid)).gr_name
    except (KeyError, ValueError, OverflowError):
        return gid


def _all_found(request: pb.PoliciesRequest, found: set[str], names: list[str]) -> None:
    for name in request.names:
        if name in found:
            continue
        known = sorted(names)
        near = nearest(name, known)
        there = f"did you mean {near}?" if near else f"there are {', '.join(known[:20]) or 'none'}"
        raise Refused(RefusalCode.NOT_FOUND, f"{request.kind} {name}: does not exist: {there}")


def _refused(text: str) -> Refused:
    return Refused(RefusalCode.INVALID, text)
