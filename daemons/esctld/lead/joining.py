"""Hosts that join over the network, at the leader: requests of strangers, and decisions of administrators.

The core decides and the log records members; here a committed membership is sealed. Invariants: an answer reveals nothing
to a host that has not proved its key, nor of a token to one that has not proved its secret; a membership is in this
directory's ledger before its host has it; a token's secret stands in the reply to its maker and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, cast

from esctld.lead.site import SiteSigner
from eslurm.api.audit import CallAudit
from eslurm.compat.errors import OptionError
from eslurm.compat.hostlist import expand
from eslurm.core.control.commit_pipeline import InboxFull, NotNow, Unsettled
from eslurm.core.control.members import check_wish
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.control.waiting_members import Asked, Denied, NoRoom, WaitingHosts
from eslurm.core.model.hostlist import fold, holds, unfold
from eslurm.core.model.member import (
    JOIN_TOKEN,
    MEMBER,
    NAMES_CHARS_MAX,
    NAMES_MAX,
    SERIAL_BYTES,
    JoinToken,
    Member,
)
from eslurm.core.model.messages import (
    ApproveHost,
    CreateJoinToken,
    JoinHost,
    JoinTokenMade,
    Message,
    RefusalCode,
    Refused,
)
from eslurm.core.state.cluster import State
from eslurm.core.state.view import View
from eslurm.links.join_server import BUSY, ISSUED, PENDING, REFUSED, plain_reply
from eslurm.ports.api import Caller, Status
from eslurm.ports.store import StoreUnavailable
from eslurm.security import ledger
from eslurm.security.files import UnsafeFile
from eslurm.security.joining import (
    FINGERPRINT_DIGITS,
    Conversation,
    JoinSecret,
    fingerprint,
    prove_answer,
    seal_answer,
)
from eslurm.security.membership import Membership, Role, issue
from eslurm.telemetry.clocks import wall_us
from eslurm.v1 import controller_pb2 as pb
from eslurm.v1 import join_pb2

log = logging.getLogger("esctld.joining")

LIFE_S: Final = 3600
USES: Final = 1
ROLE: Final = "agent"
ASK_AGAIN_S: Final = 2.0
WAIT_AGAIN_S: Final = 5.0
"""Seconds between requests of a waiting host: all hosts at one address together stay below the address's rate."""
FULL_AGAIN_S: Final = 10.0
UNPROVED: Final = "the host has not proved that it holds its key"
BAD_TOKEN: Final = (
    "the join token is not known, has ended, or was not proved: have another one made "  # nosec B105 # a text for people
    "(esctl node token create)"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_NOBODY: Final = bytes(32)

Request = Callable[[Message], Awaitable[BatchAnswer]]
Decide = Callable[[Message, Caller], Awaitable[BatchAnswer]]
Change = Callable[[Message, Caller], Awaitable[pb.ChangeReply]]


class Joining:
    """Implements `join_server.JoinAnswerer`, and the calls of administrators.

    `request` gives the durable answer to a message from the network, `decide` and `change` those to a caller's.
    """

    def __init__(
        self,
        state: State,
        view: View,
        site: SiteSigner,
        site_dir: Path,
        directory: Path,
        audit: CallAudit,
        request: Request,
        decide: Decide,
        change: Change,
    ) -> None:
        self._state = state
        self._view = view
        self._site = site
        self._site_dir = site_dir
        self._directory = directory
        self._audit = audit
        self._request = request
        self._decide = decide
        self._change = change
        self._waiting = WaitingHosts()
        self._entered: set[str] | None = None
        self._entering = asyncio.Lock()

    # ---- hosts ----

    async def answer(
        self,
        request: join_pb2.JoinRequest,
        conversation: Conversation,
        proof: join_pb2.JoinProof,
        proof_frame: bytes,
        address: str,
    ) -> join_pb2.JoinReply:
        """See `JoinAnswerer`. The reason of a refusal stands in the audit log, too."""
        if not conversation.is_signed(request.public, proof.signature):
            return self._refused(address, UNPROVED)
        token: JoinToken | None = None
        if request.token_id:
            token = self._find_token(request.token_id)
            known = token.secret_hash if token is not None else _NOBODY
            if not conversation.is_proved(known, proof.token_proof) or token is None:
                return self._refused(address, BAD_TOKEN)
        try:
            names = checked_names(request.names, "--nodes")
            check_wish(request.role, names)
            member = self._member_of(request.public, request.role, names)
            if member is None and token is None:
                return self._wait(request.role, names, request.public, address)
            if member is None and token is not None:
                member = await self._let_in(token, request, names, address)
            assert member is not None
            self._waiting.leave(request.public)
            sealed = await self._issue(member)
        except (OptionError, Refused) as refused:
            return self._refused(address, str(refused))
        except (InboxFull, NotNow, Unsettled, StoreUnavailable):
            return plain_reply(BUSY, "the job store does not answer at present", ASK_AGAIN_S)
        except (OSError, UnsafeFile) as error:
            log.error("a membership cannot be entered in the ledger: %s", error)
            return plain_reply(BUSY, "the controller cannot issue memberships at present", FULL_AGAIN_S)
        answer = join_pb2.JoinAnswer(state=ISSUED, membership=sealed, ring=self._site.ring.sealed)
        encoded = answer.SerializeToString()
        answered = conversation.answered(proof_frame, encoded)
        return join_pb2.JoinReply(
            answer=encoded,
            token_proof=prove_answer(token.secret_hash, answered) if token is not None else b"",
            seals=seal_answer(self._site.keys, answered),
        )

    def _refused(self, address: str, reason: str) -> join_pb2.JoinReply:
        self._audit.on_refused("Join", address, Status.PERMISSION_DENIED, reason)
        return plain_reply(REFUSED, reason)

    def _find_token(self, identifier: bytes) -> JoinToken | None:
        record = self._view.records.get((JOIN_TOKEN, identifier.hex()))
        is_good = isinstance(record, JoinToken) and record.expires_us > wall_us()
        return cast(JoinToken, record) if is_good else None

    def _member_of(self, public: bytes, role: str, names: str) -> Member | None:
        """The committed membership of a key, when it is the requested one."""
        serial = self._state.members.of_key.get(public)
        found = self._view.records.get((MEMBER, serial.hex())) if serial is not None else None
        fits = isinstance(found, Member) and (found.role, found.names) == (role, names)
        return cast(Member, found) if fits else None

    def _wait(self, role: str, names: str, public: bytes, address: str) -> join_pb2.JoinReply:
        try:
            asked = self._waiting.ask(role, names, public, address, wall_us())
        except Denied:
            return self._refused(address, "an administrator has denied this request")
        except NoRoom as error:
            return plain_reply(
                BUSY, f"{error}: ask with a join token (esctl node token create)", FULL_AGAIN_S
            )
        if asked.since_us == asked.seen_us:
            log.info("%s %s at %s asks to join: esctl node pending", role, names[:200], address)
        return plain_reply(PENDING, "an administrator has to approve: esctl node approve", WAIT_AGAIN_S)

    async def _let_in(
        self, token: JoinToken, request: join_pb2.JoinRequest, names: str, address: str
    ) -> Member:
        serial = secrets.token_bytes(SERIAL_BYTES)
        message = JoinHost(token.id, request.role, names, request.public, serial, address)
        answer = await asyncio.shield(asyncio.ensure_future(self._request(message)))
        if isinstance(answer, Refused):
            raise answer
        member = self._member_of(request.public, request.role, names)
        if member is None:
            raise Refused(RefusalCode.CONFLICT, "the membership was revoked meanwhile")
        self._audit.on_joined(
            address,
            f"{member.role} {member.names} serial={member.serial.hex()} token={token.id.hex()}",
            token.by,
        )
        return member

    async def _issue(self, member: Member) -> bytes:
        """The membership, sealed by the signing key; entered into the ledger first."""
        keys = self._site.keys
        serial = member.serial.hex()
        role = cast(Role, member.role)
        async with self._entering:
            if self._entered is None:
                known = await asyncio.to_thread(ledger.read, self._site_dir)
                self._entered = {one.serial for one in known}
            if serial not in self._entered:
                entry = ledger.Issued(serial, role, member.names, keys.signing.id.hex(), member.since_us)
                await asyncio.to_thread(ledger.append, self._directory, entry)
                self._entered.add(serial)
        return issue(
            keys, Membership(keys.cluster, member.serial, role, member.names, member.public, member.since_us)
        )

    # ---- administrators ----

    async def create(self, request: pb.CreateJoinTokenRequest, caller: Caller) -> pb.CreateJoinTokenReply:
        """Make a join token. Its secret is returned once: a retry whose first answer was lost is refused."""
        try:
            names = checked_names(request.names, "--nodes") if request.names else ""
        except OptionError as error:
            raise Refused(RefusalCode.INVALID, str(error)) from None
        secret = JoinSecret.new()
        message = CreateJoinToken(
            *(caller.principal, secret.id, secret.hash, request.role or ROLE, names),
            *(request.uses or USES, request.life_s or LIFE_S),
        )
        made = await self._decide(message, caller)
        assert isinstance(made, JoinTokenMade)
        if made.id != secret.id:
            raise Refused(
                RefusalCode.CONFLICT,
                f"join token {made.id.hex()} was made by an earlier try whose answer was lost: revoke it (esctl node "
                f"token revoke {made.id.hex()}) and have another one made",
            )
        return pb.CreateJoinTokenReply(token=secret.text, id=made.id.hex(), expires_us=made.expires_us)

    async def show(self, _request: pb.JoinsRequest, _caller: Caller) -> pb.JoinsReply:
        """Waiting hosts, valid join tokens, and members that joined over the network."""
        return pb.JoinsReply(
            pending=[
                pb.PendingJoin(
                    role=one.role,
                    names=one.names,
                    fingerprint=fingerprint(one.public),
                    address=one.address,
                    since_us=one.since_us,
                )
                for one in self._waiting.all(wall_us())
            ],
            tokens=[
                pb.JoinTokenInfo(
                    id=one.id.hex(),
                    role=one.role,
                    names=one.names,
                    uses_left=one.uses_left,
                    issued_us=one.issued_us,
                    expires_us=one.expires_us,
                    by=one.by,
                )
                for one in self._view.all_of(JoinToken)
            ],
            members=[
                pb.MemberInfo(
                    serial=one.serial.hex(),
                    role=one.role,
                    names=one.names,
                    fingerprint=fingerprint(one.public),
                    since_us=one.since_us,
                    by=one.by,
                    address=one.address,
                    join_id=one.token.hex(),
                )
                for one in self._view.all_of(Member)
            ],
        )

    async def settle(self, request: pb.DecideJoinRequest, caller: Caller) -> pb.ChangeReply:
        """Approve or deny a waiting host."""
        name, digits = request.name, request.fingerprint.replace(":", "").lower()
        waiting = [
            one
            for one in self._waiting.all(wall_us())
            if name and (one.names == name or holds(one.names, name))
        ]
        fitting = [one for one in waiting if fingerprint(one.public) == digits]
        if request.deny:
            return self._deny(name, fitting if digits else waiting)
        if len(digits) != FINGERPRINT_DIGITS:
            raise Refused(
                RefusalCode.INVALID,
                f"a fingerprint of {len(digits)} digits is none: give the {FINGERPRINT_DIGITS} that the host itself "
                "shows (--fingerprint)",
            )
        if not fitting:
            if any(fingerprint(one.public) == digits for one in self._view.all_of(Member)):
                return pb.ChangeReply(notes=[f"{name[:200]} is a member already"])
            raise Refused(RefusalCode.NOT_FOUND, _not_waiting(name, waiting))
        one = fitting[0]
        serial = secrets.token_bytes(SERIAL_BYTES)
        message = ApproveHost(caller.principal, one.role, one.names, one.public, serial, one.address)
        return await self._change(message, caller)

    def _deny(self, name: str, found: list[Asked]) -> pb.ChangeReply:
        if not found:
            raise Refused(RefusalCode.NOT_FOUND, _not_waiting(name, []))
        for one in found:
            self._waiting.deny(one, wall_us())
        return pb.ChangeReply(count=len(found))


def checked_names(text: str, option: str) -> str:
    """Check a host list. Raises `OptionError`."""
    if not 0 < len(text) <= NAMES_CHARS_MAX:
        raise OptionError(
            option, text[:64], f"has {len(text)} characters, 1 to {NAMES_CHARS_MAX} are possible", "fold it"
        )
    names = expand(text, option, NAMES_MAX)
    strange = next((name for name in names if not _NAME.fullmatch(name)), "")
    folded = fold(names)
    if strange or len(set(names)) != len(names) or unfold(folded) != names or len(folded) > NAMES_CHARS_MAX:
        raise OptionError(
            option, text[:64], "is no list of different host names", "use e.g. cn[0001-0004,0007],login1"
        )
    return folded


def _not_waiting(name: str, waiting: list[Asked]) -> str:
    if waiting:
        return (
            f"{name[:200]} waits with another key: compare the fingerprint that the host itself shows with "
            "esctl node pending, and deny the host if they differ"
        )
    return f"no host {name[:200]!r} waits to join: see esctl node pending"
