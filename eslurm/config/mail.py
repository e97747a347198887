"""Configuration of the mail that users get about their jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from eslurm.compat.errors import OptionError
from eslurm.core.model.endpoint import split_endpoint
from eslurm.core.model.mail_words import is_address, is_domain


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


def mail_problems(section: MailSection) -> Iterator[OptionError]:
    """The reasons why it cannot work."""
    if section.program and section.smtp:
        yield OptionError("mail.smtp", section.smtp, "excludes mail.program", "name one of them")
    if section.program and (not section.program.startswith("/") or "\0" in section.program):
        yield OptionError(
            "mail.program", section.program, "is not an absolute path", "name the program from / on"
        )
    if section.domain and not is_domain(section.domain):
        yield OptionError("mail.domain", section.domain, "is no domain", "write e.g. example.org")
    if section.sender and not is_address(section.sender):
        yield OptionError(
            "mail.from", section.sender, "is no plain mail address", "write e.g. eslurm@example.org"
        )
    if section.smtp:
        try:
            smtp_server(section.smtp)
        except OptionError as error:
            yield error
        if not domain_of(section):
            yield OptionError(
                "mail.smtp", section.smtp, "needs a domain", 'add e.g. domain = "example.org" for addresses'
            )


def sends_mail(section: MailSection) -> bool:
    """Check whether it sends mail."""
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
    try:
        host, port = split_endpoint(text)
    except ValueError:
        port = 0
    if not port:
        raise OptionError("mail.smtp", text, "is not HOST:PORT", "write e.g. 127.0.0.1:25") from None
    return host, port
