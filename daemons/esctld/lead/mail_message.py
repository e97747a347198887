"""A message about a job as bytes (RFC 5322). Invariant: no value of a user ends a header, or stands in one unencoded."""

from __future__ import annotations

import binascii
import quopri
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime

from eslurm.compat.slurm.mail_text import subject_of, text_of
from eslurm.config.mail import MailSection, domain_of, sender_of
from eslurm.core.model.job import Job
from eslurm.core.model.mail import MailNote
from eslurm.core.model.mail_words import addresses_of, is_address
from eslurm.core.model.units import SECOND_US
from eslurm.ports.mailer import Mail, MailRefused

_PART_BYTES_MAX = 45
"""Of an encoded word, which has at most 75 characters."""


class MailWriter:
    """Writes the messages of one cluster."""

    def __init__(self, section: MailSection, cluster: str) -> None:
        self._domain = domain_of(section)
        self._sender = sender_of(section)
        self._cluster = cluster

    def write(self, job: Job, note: MailNote, names: list[str]) -> Mail:
        """The message of this note; `names` are those of its nodes. Raises `MailRefused` when there is no address."""
        to = self._addresses(job)
        host = self._domain or "localhost"
        # The same id each time that it is sent: who gets it twice can tell.
        headers = {
            "From": self._sender,
            "To": ",\r\n ".join(to),
            "Subject": _encoded(subject_of(job, note)),
            "Date": format_datetime(_time(note.at_us)),
            "Message-ID": f"<eslurm.{job.job_id}.{note.number}.{note.at_us}@{host}>",
            "Auto-Submitted": "auto-generated",
            "MIME-Version": "1.0",
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Transfer-Encoding": "quoted-printable",
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        text = text_of(job, note, names, self._cluster, _moment)
        body = quopri.encodestring(text.encode()).replace(b"\n", b"\r\n")
        return Mail(self._sender, to, head.encode("ascii") + b"\r\n" + body)

    def _addresses(self, job: Job) -> tuple[str, ...]:
        try:
            given = addresses_of(job.spec.mail_user) or (job.spec.user.name,)
        except ValueError as error:
            raise MailRefused(str(error)) from None
        if not all(map(is_address, given)):
            raise MailRefused(f"the user's name {given[0]!r} is no address")
        return tuple([one if "@" in one or not self._domain else f"{one}@{self._domain}" for one in given])


def _encoded(text: str) -> str:
    """A header's value. What is more than plain text is encoded (RFC 2047), and so is what only looks encoded."""
    if text.isascii() and text.isprintable() and "=?" not in text:
        return text
    words = (binascii.b2a_base64(part.encode(), newline=False).decode() for part in _parts(text))
    return "\r\n ".join(f"=?utf-8?b?{word}?=" for word in words)


def _parts(text: str) -> Iterator[str]:
    """The text in parts whose encoded words are short enough, none of them within a character."""
    part = ""
    for char in text:
        if len((part + char).encode()) > _PART_BYTES_MAX:
            yield part
            part = ""
        part += char
    yield part


def _time(us: int) -> datetime:
    return datetime.fromtimestamp(us // SECOND_US, UTC)


def _moment(us: int) -> str:
    return _time(us).strftime("%Y-%m-%d %H:%M:%S UTC")
