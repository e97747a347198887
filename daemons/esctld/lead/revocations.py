"""Revoked memberships at the leader: facts first, then the sealed list for the links.

Revocations in a controller's file (`eslurm keys revoke`) become facts, and the facts become the list, sealed by the
signing key. Invariant: a later list holds all serials of the earlier ones, whichever controller sealed it, because
revisions and serials come from the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from esctld.lead.joining import Change
from esctld.lead.site import LOOK_S, Member, SiteSigner
from esctld.lead.tokens import read_id
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.hostlist import holds
from eslurm.core.model.member import SERIAL_BYTES, Revocation
from eslurm.core.model.messages import Message, RefusalCode, Refused, RevokeJoinTokens, RevokeMembers
from eslurm.core.state.cluster import State
from eslurm.ports.api import Caller
from eslurm.security import ledger
from eslurm.security.files import UnsafeFile
from eslurm.security.revocation import seal_revoked
from eslurm.security.sealing import BadSeal
from eslurm.v1 import controller_pb2 as pb

log = logging.getLogger("esctld.revocations")

WHICH_MAX = 1_000
SERIAL_DIGITS_MIN = 8
BY_FILE = "eslurm keys"

Request = Callable[[Message], Awaitable[BatchAnswer]]


class Revocations:
    """One per leader. `settle` once before links are taken, then `run`."""

    def __init__(
        self,
        state: State,
        site: SiteSigner,
        member: Member,
        directory: Path,
        request: Request,
        change: Change,
    ) -> None:
        self._state = state
        self._site = site
        self._member = member
        self._directory = directory
        self._request = request
        self._change = change
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Follow the file until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._member.has_new_list():
                await self.settle()

    async def settle(self) -> None:
        """Bring facts, list and file into agreement."""
        async with self._turn:
            try:
                await self._learn()
                self._publish()
            except (UnsafeFile, BadSeal, OSError) as error:
                log.error("the former list of revoked memberships stays in force: %s", error)

    async def _learn(self) -> None:
        """Turn serials of the file that are not in the log into a fact."""
        serials, revision = self._member.read_list()
        fresh = serials - self._state.members.revoked.keys()
        if not fresh and revision <= self._state.revoked_revision:
            return
        issued = {
            bytes.fromhex(one.serial): one for one in await asyncio.to_thread(ledger.read, self._directory)
        }
        found = []
        for serial in sorted(fresh):
            one = issued.get(serial)
            found.append(Revocation(serial, one.role if one else "", one.names if one else "", BY_FILE, 0))
        answer = await self._request(RevokeMembers(None, tuple(found), revision))
        if isinstance(answer, Refused):
            log.error("revoked memberships could not be recorded: %s", answer.text)

    def _publish(self) -> None:
        """Seal the log's list, and send it to all neighbours."""
        credentials = self._member.credentials
        if self._state.revoked_revision > credentials.revoked.revision:
            serials = frozenset(self._state.members.revoked)
            credentials.learn_revoked(seal_revoked(self._site.keys, self._state.revoked_revision, serials))

    # ---- administrators ----

    async def revoke(self, request: pb.RevokeMembersRequest, caller: Caller) -> pb.ChangeReply:
        """Revoke memberships by serial or name, and join tokens by id."""
        if not request.which and not request.join_ids:
            raise Refused(RefusalCode.INVALID, "nothing to revoke is named: give a host's name or a serial")
        if len(request.which) + len(request.join_ids) > WHICH_MAX:
            raise Refused(
                RefusalCode.INVALID, f"more than {WHICH_MAX} things to revoke in one call: split them"
            )
        if request.join_ids:
            return await self._change(
                RevokeJoinTokens(caller.principal, tuple(map(_join_id, request.join_ids))), caller
            )
        known = {one.serial: one for one in await self._known()}
        found: dict[bytes, Revocation] = {}
        problems: list[pb.Problem] = []
        for word in request.which:
            matching = _matching(list(known.values()), word)
            if not matching:
                text = (
                    "is no member's name and no membership's serial: see esctl node list, eslurm keys members"
                )
                problems.append(pb.Problem(what=word[:200], code="not_found", text=text))
            found.update((one.serial, one) for one in matching)
        own = self._member.serial
        if own in found:
            raise Refused(
                RefusalCode.CONFLICT,
                "that is the controller that leads: hand over first (esctl takeover), then revoke it",
            )
        reply = pb.ChangeReply()
        if found:
            reply = await self._change(RevokeMembers(caller.principal, tuple(found.values())), caller)
            await self.settle()
        reply.problems.extend(problems)
        return reply

    async def _known(self) -> list[Revocation]:
        """Memberships that may be revoked: the log's, and those issued on this host."""
        issued = await asyncio.to_thread(ledger.read, self._directory)
        members = self._state.members
        found = [Revocation(bytes.fromhex(one.serial), one.role, one.names, "", 0) for one in issued]
        found += [Revocation(one.serial, one.role, one.names, "", 0) for one in members.issued.values()]
        return [one for one in found if one.serial not in members.revoked]


def _matching(known: list[Revocation], which: str) -> list[Revocation]:
    """The memberships of a serial (or its beginning) or of a host's name; a whole serial counts even if issued elsewhere."""
    digits = which.lower()
    if len(digits) >= SERIAL_DIGITS_MIN:
        found = [one for one in known if one.serial.hex().startswith(digits)]
        if found:
            return found
    named = [one for one in known if holds(one.names, which)]
    if named or len(digits) != 2 * SERIAL_BYTES:
        return named
    try:
        return [Revocation(bytes.fromhex(digits), "", "", "", 0)]
    except ValueError:
        return []


def _join_id(text: str) -> bytes:
    return read_id(text, f"join token {text[:64]!r}", "esctl node token list")
