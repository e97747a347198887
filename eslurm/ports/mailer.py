"""The way by which a leading controller sends mail. `tests/contract/test_mailer.py` proves the contract.

Invariant: addresses are plain mail addresses (`core.model.mail_words`), and nothing of a message is a command.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class Mail(msgspec.Struct, frozen=True):
    """A whole message (RFC 5322, lines ended by CR LF, ASCII) and its envelope."""

    sender: str
    to: tuple[str, ...]
    message: bytes


class MailRefused(Exception):
    """The message will never be taken; the text says why."""


class MailUnavailable(Exception):
    """The message was not taken, as far as is known, and may be later; the text says why."""


class Mailer(Protocol):
    """Sends mail."""

    async def send(self, mail: Mail) -> None:
        """Hand it on. Cancelled, it may have been handed on. Raises `MailRefused` and `MailUnavailable`."""
