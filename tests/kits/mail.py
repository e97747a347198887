"""A mail server on loopback and a program like sendmail: both keep what they get."""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path


class MailSink:
    """Keeps (recipients, message) of each mail. `answers` are by the beginning of a command; others are taken."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.taken: list[tuple[list[str], bytes]] = []
        self.commands: list[str] = []
        self.answers: dict[str, str] = {}
        self.grew = threading.Condition()

    def mails(self) -> list[EmailMessage]:
        return [parsed(message) for _, message in self.taken]

    def subjects(self) -> list[str]:
        return [str(mail["Subject"]) for mail in self.mails()]


def parsed(message: bytes) -> EmailMessage:
    """The message as mail readers see it."""
    found = email.message_from_bytes(message, policy=email.policy.default)
    assert isinstance(found, EmailMessage)
    return found


@contextmanager
def mail_sink() -> Iterator[MailSink]:
    sink = MailSink()

    class Session(socketserver.StreamRequestHandler):
        def say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        def handle(self) -> None:
            self.say(sink.answers.get("", "220 sink"))
            to: list[str] = []
            while line := self.rfile.readline().decode().rstrip("\r\n"):
                sink.commands.append(line)
                word = line.upper()
                answer = next(
                    (text for begin, text in sink.answers.items() if begin and word.startswith(begin)), ""
                )
                if answer:
                    self.say(answer)
                elif word.startswith("EHLO"):
                    self.say("250-sink\r\n250 8BITMIME")
                elif word == "DATA":
                    self.say("354 go on")
                    lines = []
                    while (line_of := self.rfile.readline()) not in (b".\r\n", b""):
                        lines.append(line_of[1:] if line_of.startswith(b".") else line_of)
                    with sink.grew:
                        sink.taken.append((to, b"".join(lines)))
                        sink.grew.notify_all()
                    self.say("250 taken")
                elif word == "QUIT":
                    self.say("221 bye")
                    return
                else:
                    if word.startswith("RCPT TO:"):
                        to.append(line[9:-1])
                    self.say("250 ok")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        sink.endpoint = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield sink
        finally:
            server.shutdown()
            thread.join()


def fake_sendmail(directory: Path, text: str = "") -> Path:
    """A program that keeps its arguments, its environment and its input in numbered files below `directory`/mails."""
    mails = directory / "mails"
    mails.mkdir(mode=0o777)
    mails.chmod(0o777)
    path = directory / "sendmail"
    path.write_text(
        f"#!/bin/sh\n{text}\nf=$(mktemp {mails}/XXXXXXXX.tmp) || exit 75\n"
        'printf "%s\\n" "$@" > $f.args\nenv > $f.env\nid -u > $f.uid\ncat > $f\nmv $f ${f%.tmp}.mail\n'
    )
    path.chmod(0o755)
    return path


def kept(directory: Path) -> list[tuple[list[str], bytes]]:
    """(arguments, message) of what the program has got."""
    found = []
    for path in sorted((directory / "mails").glob("*.mail"), key=lambda one: one.stat().st_mtime_ns):
        args = path.with_suffix(".tmp.args").read_text().splitlines()
        found.append((args, path.read_bytes()))
    return found
