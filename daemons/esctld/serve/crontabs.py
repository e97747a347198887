"""The calls `Crontab` and `SetCrontab`: a user's crontab, shown to the user and to operators."""

from __future__ import annotations

import asyncio
from typing import Protocol

from msgspec.structs import replace

from esctld.lead.dispatcher import Dispatcher
from eslurm.api import requests
from eslurm.compat.cron import parse_cron
from eslurm.compat.errors import OptionError
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.control.rights import is_operator
from eslurm.core.model.crontab import ENTRIES_MAX, Crontab
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import Changed, CronJob, Message, RefusalCode, Refused, SetCrontab
from eslurm.ports.api import Caller
from eslurm.ports.store import BlobRow
from eslurm.v1 import controller_pb2 as pb

SCHEDULE_CHARS_MAX = 256
READ_SLICE = 10
"""Lines that are read before others have their turn."""


class Decides(Protocol):
    """The part of the service that commits messages."""

    async def decide(self, message: Message, caller: Caller, blobs: tuple[BlobRow, ...] = ()) -> BatchAnswer:
        """The durable answer to a message."""
        ...

    def new_trace(self) -> bytes:
        """A trace id for the jobs of one call."""
        ...


class Crontabs:
    """Answers both calls."""

    def __init__(self, dispatcher: Dispatcher, service: Decides) -> None:
        self._dispatcher = dispatcher
        self._service = service

    async def show(self, request: pb.CrontabRequest, caller: Caller) -> pb.CrontabReply:
        """The committed crontab; one without text when there is none. Raises `Refused`."""
        who = caller.principal
        crontab = self._of(request.user, who)
        if crontab is None:
            return pb.CrontabReply(user=request.user or who.name)
        lines = [pb.CrontabLine(line=one.line, job_id=one.job_id) for one in crontab.lines]
        return pb.CrontabReply(user=crontab.user, text=crontab.text, lines=lines)

    async def set(self, request: pb.SetCrontabRequest, caller: Caller) -> pb.ChangeReply:
        """Replace or remove a crontab, once that is durable. Raises `Refused`."""
        who = caller.principal
        present = self._of(request.user, who)
        uid, user = (who.uid, who.name) if self._is_own(request.user, who) else (-1, request.user)
        if present is not None:
            uid, user = present.uid, present.user
        elif uid < 0:
            raise Refused(RefusalCode.NOT_FOUND, f"{request.user} has no crontab")
        if len(request.jobs) > ENTRIES_MAX:
            raise _refused(f"{len(request.jobs)} lines in one crontab are more than {ENTRIES_MAX}")
        reader = requests.SpecReader(who, self._dispatcher.state.config, self._service.new_trace())
        jobs = []
        for at, one in enumerate(request.jobs, 1):
            jobs.append(_job(one, reader))
            if not at % READ_SLICE:
                await asyncio.sleep(0)
        message = SetCrontab(who, uid, user, request.text, tuple(jobs))
        answer = await self._service.decide(message, caller, reader.blobs.rows)
        assert isinstance(answer, Changed)
        return pb.ChangeReply(count=answer.count, revision=self._dispatcher.view.revision)

    def _of(self, user: str, who: Principal) -> Crontab | None:
        """The crontab of a user by name or number; empty: of the caller. Raises `Refused` for others' but to operators."""
        if not self._is_own(user, who) and not is_operator(self._dispatcher.view, who):
            raise Refused(
                RefusalCode.DENIED, f"the crontab of {user}: only its user and operators may see or remove it"
            )
        for crontab in self._dispatcher.view.all_of(Crontab):
            if (
                crontab.uid == who.uid
                if self._is_own(user, who)
                else user in (crontab.user, str(crontab.uid))
            ):
                return crontab
        return None

    @staticmethod
    def _is_own(user: str, who: Principal) -> bool:
        return user in ("", who.name, str(who.uid))


def _job(one: pb.CronJob, reader: requests.SpecReader) -> CronJob:
    if len(one.schedule) > SCHEDULE_CHARS_MAX:
        raise _refused(f"line {one.line}: its times are longer than {SCHEDULE_CHARS_MAX} characters")
    try:
        schedule = parse_cron(one.schedule, f"line {one.line}").text
        spec = reader.read(one.job)
    except OptionError as error:
        raise _refused(str(error)) from None
    except Refused as refused:
        raise Refused(refused.code, f"line {one.line}: {refused.text}") from None
    return CronJob(one.line, replace(spec, cron=schedule), one.first)


def _refused(text: str) -> Refused:
    return Refused(RefusalCode.INVALID, text)
