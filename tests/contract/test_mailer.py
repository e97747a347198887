"""The contract of the ways by which mail leaves a controller, on a real mail server and a real program."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from esctld.lead.mailers import ProgramMailer, SmtpMailer
from eslurm.ports.mailer import Mail, Mailer, MailRefused, MailUnavailable
from tests.kits.mail import fake_sendmail, kept, mail_sink
from tests.support.loops import both_loops, run

MESSAGE = b"From: a@example.org\r\nSubject: x\r\n\r\n.\r\n..two\r\nlast\r\n"
MAIL = Mail("eslurm@example.org", ("ada@example.org", "bob@example.org"), MESSAGE)


class Bench:
    """A way on trial, what it handed on, and how to let it fail."""

    def __init__(
        self,
        mailer: Mailer,
        taken: Callable[[], list[tuple[list[str], bytes]]],
        fail: Callable[[bool], None],
        hang: Callable[[], None],
    ) -> None:
        self.mailer = mailer
        self.taken = taken
        self.fail = fail
        self.hang = hang


def _program(directory: Path, deadline_s: float) -> Bench:
    path = fake_sendmail(directory, f". {directory}/how")
    how = directory / "how"
    how.write_text("")

    def taken() -> list[tuple[list[str], bytes]]:
        return [(args[4:], message.replace(b"\n", b"\r\n")) for args, message in kept(directory)]

    return Bench(
        ProgramMailer(str(path), deadline_s=deadline_s),
        taken,
        lambda for_good: _write(how, f"echo no; exit {67 if for_good else 75}"),
        lambda: _write(how, "sleep 1000"),
    )


def _write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture(params=["program", "smtp"])
def bench(request: pytest.FixtureRequest, state_dir: Path) -> Iterator[Callable[[float], Bench]]:
    if request.param == "program":
        yield lambda deadline_s: _program(state_dir, deadline_s)
        return
    with mail_sink() as sink:
        host, _, port = sink.endpoint.partition(":")

        def fail(for_good: bool) -> None:
            sink.answers["RCPT"] = "550 no such user" if for_good else "450 later"

        def hang() -> None:
            sink.answers["MAIL"] = "250-and more"

        yield lambda deadline_s: Bench(
            SmtpMailer(host, int(port), deadline_s), lambda: sink.taken, fail, hang
        )


@both_loops
def test_a_message_arrives_as_it_is(bench: Callable[[float], Bench], uvloop: bool) -> None:
    on = bench(30)
    run(on.mailer.send(MAIL), uvloop=uvloop)
    ((to, message),) = on.taken()
    assert to == list(MAIL.to) and message == MESSAGE


@pytest.mark.parametrize("for_good", [True, False])
def test_failures(bench: Callable[[float], Bench], for_good: bool) -> None:
    on = bench(30)
    on.fail(for_good)
    with pytest.raises(MailRefused if for_good else MailUnavailable):
        run(on.mailer.send(MAIL))
    assert not on.taken()


def test_a_deadline(bench: Callable[[float], Bench]) -> None:
    on = bench(0.2)
    on.hang()
    with pytest.raises(MailUnavailable):
        run(on.mailer.send(MAIL))


def test_a_cancelled_one_leaves_nothing(bench: Callable[[float], Bench]) -> None:
    on = bench(30)
    on.hang()

    async def attempt() -> None:
        task = asyncio.create_task(on.mailer.send(MAIL))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(attempt())


@pytest.mark.parametrize(
    "address", ["-oQ/tmp", "|/bin/sh", "a b", "a\r\nRCPT TO:<eve@x>", "/etc/passwd", "", "a@b@c"]
)
def test_no_address_but_plain_ones(bench: Callable[[float], Bench], address: str) -> None:
    on = bench(30)
    for mail in (Mail("eslurm", ("ada", address), MESSAGE), Mail(address, ("ada",), MESSAGE)):
        with pytest.raises(MailRefused):
            run(on.mailer.send(mail))
    assert not on.taken()


def test_an_absent_server_or_program_is_no_refusal(state_dir: Path) -> None:
    with pytest.raises(MailUnavailable):
        run(SmtpMailer("127.0.0.1", 1, 5).send(MAIL))
    with pytest.raises(MailUnavailable):
        run(ProgramMailer(str(state_dir / "absent")).send(MAIL))
    with pytest.raises(MailUnavailable):
        run(ProgramMailer("/bin/true", "no-such-user").send(MAIL))


@pytest.mark.parametrize("greeting", ["554 go away", "421 busy", "", "no number", "9" * 9999])
def test_a_server_that_is_none(greeting: str) -> None:
    with mail_sink() as sink:
        sink.answers[""] = greeting
        host, _, port = sink.endpoint.partition(":")
        with pytest.raises((MailRefused, MailUnavailable)):
            run(SmtpMailer(host, int(port), 5).send(MAIL))
        assert not sink.taken


def test_one_of_several_recipients_is_enough() -> None:
    with mail_sink() as sink:
        sink.answers["RCPT TO:<BOB"] = "550 no such user"
        host, _, port = sink.endpoint.partition(":")
        run(SmtpMailer(host, int(port)).send(MAIL))
        assert [to for to, _ in sink.taken] == [["ada@example.org"]]


def test_what_a_program_gets(state_dir: Path) -> None:
    path = fake_sendmail(state_dir)
    run(ProgramMailer(str(path)).send(MAIL))
    ((args, _),) = kept(state_dir)
    assert args == ["-i", "-f", "eslurm@example.org", "--", *MAIL.to]
    (env,) = (state_dir / "mails").glob("*.env")
    names = {line.partition("=")[0] for line in env.read_text().splitlines()}
    assert names <= {"PATH", "LC_ALL", "PWD", "SHLVL", "_", "OLDPWD", "f"}
    (uid,) = (state_dir / "mails").glob("*.uid")
    assert int(uid.read_text()) == os.geteuid()
