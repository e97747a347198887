"""Configuration of the mail that users get about their jobs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from eslurm.compat.errors import OptionError
from eslurm.core.model.mail_words import is_address, is_domain

PORT_MAX = 65_535


class MailSection(msgspec.Struct, forbid_unknown_fields=True):
    """Mail about jobs (`essubmit --mail-type`), sent by the leading controller: by a program, or by SMTP. Without either
    none is sent, and commands say so. Applies at a restart.
    """

    program: str = ""
    """Program that takes a message as sendmail does, e.g. /usr/sbin/sendmail: an absolute path that only root and the
    controller's user can change. It runs as the controller's user, or as `user` where that is root."""
    smtp: str = ""
    """HOST:PORT of a mail server that takes messages from this host without a password, e.g. 127.0.0.1:25."""
    sender: str = msgspec.field(default="", name="from")
    """Address that messages come from; empty: eslurm, in `domain`."""
    domain: str = ""
    """Domain of users whose address is only their name; empty: that of `from`, or their names alone."""
    user: str = "nobody"
    """User of the program where the controller runs as root."""
    user_hourly_max: Annotated[int, Meta(ge=0, le=1_000_000)] = 200
    """Most messages that the jobs of one user send in an hour; further ones are left out. 0: no limit."""


def check_mail(section: MailSection) -> bool:
    """Check whether it sends mail. Raises `OptionError` when it cannot work."""
    if section.program and section.smtp:
        raise OptionError("mail.smtp", section.smtp, "excludes mail.program", "name one of them")
    if section.program and (not section.program.startswith("/") or "\0" in section.program):
        raise OptionError(
            "mail.program", section.program, "is not an absolute path", "name the program from / on"
        )
    if section.smtp:
        smtp_server(section.smtp)
    if section.domain and not is_domain(section.domain):
        raise OptionError("mail.domain", section.domain, "is no domain", "write e.g. example.org")
    if section.sender and not is_address(section.sender):
        raise OptionError(
            "mail.from", section.sender, "is no plain mail address", "write e.g. eslurm@example.org"
        )
    if section.smtp and not domain_of(section):
        raise OptionError(
            "mail.smtp", section.smtp, "needs a domain", 'add e.g. domain = "example.org" for addresses'
        )
    return bool(section.program or section.smtp)


def domain_of(section: MailSection) -> str:
    """The domain of users' addresses; empty: none is known."""
    return section.domain or section.sender.partition("@")[2]


def sender_of(section: MailSection) -> str:
    """The address that messages come from."""
    if section.sender:
        return section.sender
    domain = domain_of(section)
    return f"eslurm@{domain}" if domain else "eslurm"


def smtp_server(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` or `[ADDRESS]:PORT`. Raises `OptionError`."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= len(str(PORT_MAX)) else 0
    if not host or not host.isprintable() or " " in host or not 0 < number <= PORT_MAX:
        raise OptionError("mail.smtp", text, "is not HOST:PORT", "write e.g. 127.0.0.1:25")
    return host, number
