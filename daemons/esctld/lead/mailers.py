"""Ways by which mail leaves the controller: a program like sendmail, or a mail server by SMTP.

Invariants: an address that is no plain one is not handed on, whatever was checked before. Each message has a deadline.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import sys
from collections.abc import Callable
from contextlib import suppress

from esctld.lead.program_runner import ProgramRun
from eslurm.config.mail import MailSection, smtp_server
from eslurm.core.model.job import StepEnd
from eslurm.core.model.mail_words import is_address
from eslurm.core.model.units import SECOND_US
from eslurm.ports.mailer import Mail, Mailer, MailRefused, MailUnavailable
from eslurm.ports.program_runner import Program
from eslurm.security.ownership import UnsafeFile, check_program

DEADLINE_S = 30.0
_GRACE_S = 2.0
_AS_USER = (
    "import os, sys; uid, gid = map(int, sys.argv[1:3]); os.setgroups([]); os.setresgid(gid, gid, gid); "
    "os.setresuid(uid, uid, uid); os.execv(sys.argv[3], sys.argv[3:])"
)
"""A program of its own: a process with gRPC in it must not run code between fork and exec."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NEVER = frozenset((64, 65, 67, 68, 77))
"""Exit codes of sendmail (sysexits.h) after which the same message is not taken later either: usage, data, user, host,
permission."""
_LINE_BYTES_MAX = 4096
_LINES_MAX = 100
"""Of one answer of a mail server."""


def mailer_of(section: MailSection, deadline_s: float = DEADLINE_S) -> Mailer | None:
    """The configured way; None: no mail is sent."""
    if section.program:
        return ProgramMailer(section.program, section.user if os.geteuid() == 0 else "", deadline_s)
    return SmtpMailer(*smtp_server(section.smtp), deadline_s) if section.smtp else None


def check_mail(mail: Mail) -> None:
    """Raise `MailRefused` for an address that is no plain one."""
    for address in (mail.sender, *mail.to):
        if not is_address(address):
            raise MailRefused(f"{address!r} is no plain mail address")
    if not mail.to:
        raise MailRefused("it has no address")


class ProgramMailer:
    """Starts a program for each message, which reads it; `user` is the one that it runs as, empty: this process's own."""

    def __init__(self, path: str, user: str = "", deadline_s: float = DEADLINE_S) -> None:
        self._path = path
        self._user = user
        self._deadline_us = int(deadline_s * SECOND_US)

    async def send(self, mail: Mail) -> None:
        """See `Mailer.send`."""
        check_mail(mail)
        ended: asyncio.Future[StepEnd] = asyncio.get_running_loop().create_future()
        try:
            run = ProgramRun(self._program(mail), _GRACE_S, _setter(ended))
        except (UnsafeFile, OSError, ValueError, KeyError) as error:
            raise MailUnavailable(f"{self._path} cannot be run: {error}") from None
        try:
            end = await ended
        except asyncio.CancelledError:
            run.forget()
            await run.close()
            raise
        if not end.is_good:
            how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
            text = f"{self._path} failed ({how}){': ' if end.text else ''}{end.text}"
            raise MailRefused(text) if end.exit_code in _NEVER else MailUnavailable(text)

    def _program(self, mail: Mail) -> Program:
        """The program and its input. Raises `UnsafeFile`, OSError, and KeyError: there is no such user."""
        # A single dot ends no message, and what follows -- is no option.
        words = ("-i", "-f", mail.sender, "--", *mail.to)
        path = self._path
        if self._user:
            user = pwd.getpwnam(self._user)
            if not user.pw_uid:
                raise UnsafeFile(f"mail.user: {self._user} is root: name another user")
            words = (
                "-I",
                "-S",
                "-c",
                _AS_USER,
                str(user.pw_uid),
                str(user.pw_gid),
                check_program(path),
                *words,
            )
            path = sys.executable
        # Lines end as they do on this host.
        message = mail.message.replace(b"\r\n", b"\n")
        return Program(path, {"PATH": _PATH, "LC_ALL": "C"}, self._deadline_us, words, message)


def _setter(ended: asyncio.Future[StepEnd]) -> Callable[[StepEnd], None]:
    def over(end: StepEnd) -> None:
        if not ended.done():
            ended.set_result(end)

    return over


class SmtpMailer:
    """Speaks SMTP (RFC 5321) to one server, a connection for each message, without TLS or a password."""

    def __init__(self, host: str, port: int, deadline_s: float = DEADLINE_S) -> None:
        self._host = host
        self._port = port
        self._deadline_s = deadline_s

    async def send(self, mail: Mail) -> None:
        """See `Mailer.send`."""
        check_mail(mail)
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._send(mail)
        except TimeoutError:
            raise MailUnavailable(f"{self._where} did not take it in {self._deadline_s:g} s") from None
        except (OSError, EOFError, ValueError) as error:
            raise MailUnavailable(f"{self._where}: {error or type(error).__name__}") from None

    @property
    def _where(self) -> str:
        return f"{self._host}:{self._port}"

    async def _send(self, mail: Mail) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=_LINE_BYTES_MAX)
        try:
            dialogue = _Dialogue(reader, writer, self._where)
            await dialogue.answer(220)
            await dialogue.say(f"EHLO {mail.sender.partition('@')[2] or 'localhost'}", 250)
            await dialogue.say(f"MAIL FROM:<{mail.sender}>", 250)
            refusals = [text for one in mail.to if (text := await dialogue.recipient(one))]
            if len(refusals) == len(mail.to):
                raise MailRefused(refusals[0])
            await dialogue.say("DATA", 354)
            writer.write(_stuffed(mail.message))
            await dialogue.say(".", 250)
            with suppress(MailRefused, MailUnavailable, OSError, EOFError, ValueError):
                # The message is theirs already.
                await dialogue.say("QUIT", 221)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


class _Dialogue:
    """Commands and answers, one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, where: str) -> None:
        self._reader = reader
        self._writer = writer
        self._where = where

    async def say(self, command: str, expected: int) -> None:
        """Send a command, and expect this answer. Raises `MailRefused` and `MailUnavailable` for another one."""
        self._writer.write(f"{command}\r\n".encode("ascii"))
        await self._writer.drain()
        await self.answer(expected)

    async def recipient(self, address: str) -> str:
        """Name a recipient; returns the refusal, empty: it is taken. Raises `MailUnavailable`."""
        try:
            await self.say(f"RCPT TO:<{address}>", 250)
        except MailRefused as refused:
            return str(refused)
        return ""

    async def answer(self, expected: int) -> None:
        """Read an answer. Raises `MailRefused` (5..) and `MailUnavailable` when it is another one."""
        for _ in range(_LINES_MAX):
            line = await self._reader.readline()
            if not line.endswith(b"\n"):
                raise EOFError("it closed the connection")
            if line[3:4] != b"-":
                break
        code = int(line[:3]) if line[:3].isdigit() else 0
        if code // 10 == expected // 10:
            return
        text = f"{self._where}: {line.decode('ascii', 'replace').strip()[:200]}"
        raise MailRefused(text) if code // 100 == 5 else MailUnavailable(text)


def _stuffed(message: bytes) -> bytes:
    """The message as it is sent: a dot before each line that begins with one, and an end of its last line."""
    message = message if message.endswith(b"\r\n") else message + b"\r\n"
    return (b"\r\n" + message).replace(b"\r\n.", b"\r\n..")[2:]
