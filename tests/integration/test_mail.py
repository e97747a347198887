"""Mail about jobs with real processes: a mail server and a program on this host, a leader that is killed, hostile names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.integration.conftest import made
from tests.kits.cluster import LiveCluster, daemon_of
from tests.kits.mail import MailSink, fake_sendmail, kept, mail_sink, parsed

NO_MAIL = "this cluster sends no mail, --mail-type has no effect"


def _with(directory: Path, section: str, **options: object) -> LiveCluster:
    options = {"nodes": 1, "agents": 1, "satellites": 1} | options
    return LiveCluster(directory, sections=section.replace("{dir}", str(directory)), **options)  # type: ignore[arg-type]


@contextmanager
def site(more: str = "", **options: object) -> Iterator[tuple[LiveCluster, MailSink]]:
    """A cluster that sends to a mail server."""
    with mail_sink() as sink:
        section = f'[mail]\nsmtp = "{sink.endpoint}"\ndomain = "example.org"\n{more}'
        with made(partial(_with, section=section, **options)) as cluster:
            yield cluster, sink


def arrive(cluster: LiveCluster, sink: MailSink, count: int) -> list[str]:
    """Wait until so many messages have arrived; returns all subjects in their order."""
    cluster.until(lambda: len(sink.taken) >= count or None, f"{count} messages")
    return sink.subjects()


def test_a_job_s_life_by_smtp() -> None:
    with site() as (cluster, sink):
        job = cluster.wrap(
            "echo on; exit 3", "--mail-type", "ALL", "--mail-user", "ada@example.net,bob", "-J", "fluid"
        )
        began, failed = arrive(cluster, sink, 2)
        assert began.startswith(f"Slurm Job_id={job} Name=fluid Began, Queued time 00:00:0")
        assert failed.startswith(f"Slurm Job_id={job} Name=fluid Failed, Run time 00:00:0"), failed
        assert failed.endswith(", FAILED, ExitCode 3")
        to, _ = sink.taken[1]
        assert to == ["ada@example.net", "bob@example.org"]
        mail = sink.mails()[1]
        assert mail["From"] == "eslurm@example.org" and mail["To"] == "ada@example.net, bob@example.org"
        assert mail["Auto-Submitted"] == "auto-generated"
        text = mail.get_content().replace("\r\n", "\n")
        assert (
            "Nodes:      cn0001\n" in text and "State:      FAILED\n" in text and f"slurm-{job}.out\n" in text
        )
        # One that asks for nothing gets nothing, and one that goes well no failure.
        assert cluster.end(cluster.wrap("true")) == "COMPLETED"
        assert cluster.end(cluster.wrap("true", "--mail-type", "FAIL")) == "COMPLETED"
        other = cluster.wrap("true", "--mail-type", "end")
        assert f"Job_id={other} " in arrive(cluster, sink, 3)[2]
        shown = cluster.run("esqueue", "--json", "-j", str(job))
        assert '"mail_user"' in shown.out and "begin,end,fail" in shown.out, shown


def test_names_cannot_leave_their_line() -> None:
    with site() as (cluster, sink):
        name = "Bcc:eve@example.org =?utf-8?q?=0A?= é " + "y" * 200
        cluster.wrap("true", "--mail-type", "END", "-J", name, "--comment", ".")
        arrive(cluster, sink, 1)
        ((to, message),) = sink.taken
        assert len(to) == 1 and "Bcc" not in parsed(message)
        head, _, _ = message.partition(b"\r\n\r\n")
        assert head.isascii() and all(len(line) <= 998 for line in head.split(b"\r\n"))
        assert f"Name={name} Ended" in str(parsed(message)["Subject"])
        for address in ("-oQ/tmp", "a@b\nc@d", "|/bin/sh", "<a@b>"):
            refused = cluster.run("essubmit", "--mail-type=END", f"--mail-user={address}", "--wrap", "true")
            assert refused.code != 0 and "neither a user nor a plain mail address" in refused.err, refused


def test_a_killed_leader_leaves_its_messages_to_the_next_one() -> None:
    with site(controllers=2) as (cluster, sink):
        cluster.wait_standbys()
        sink.answers["MAIL"] = "451 try later"
        job = cluster.wrap("true", "--mail-type", "END")
        assert cluster.end(job) == "COMPLETED"
        cluster.until(lambda: "MAIL FROM:<eslurm@example.org>" in sink.commands or None, "it is tried")
        del sink.answers["MAIL"]
        cluster.kill(daemon_of(cluster.leader()))
        assert f"Job_id={job} " in arrive(cluster, sink, 1)[0]
        words = ("-D", str(cluster.work), "--mail-type", "END", "--wrap", "true")
        ran = cluster.run("essubmit", *words, socket=cluster.sockets[1])
        assert ran.code == 0, ran
        arrive(cluster, sink, 2)
        assert len(sink.taken) == len({mail["Message-ID"] for mail in sink.mails()}) == 2


def test_too_many_of_one_user_are_left_out() -> None:
    with site("user_hourly_max = 2\n") as (cluster, sink):
        for _ in range(4):
            assert cluster.end(cluster.wrap("true", "--mail-type", "END")) == "COMPLETED"
        arrive(cluster, sink, 2)
        cluster.until(
            lambda: "its user has got too many" in (cluster.directory / "esctld.log").read_text() or None,
            "the third is left out",
        )
        assert len(sink.taken) == 2


def test_a_program_gets_messages_and_does_not_run_as_root() -> None:
    def make(directory: Path) -> LiveCluster:
        path = fake_sendmail(directory)
        return _with(directory, f'[mail]\nprogram = "{path}"\nfrom = "jobs@example.org"\n')

    with made(make) as cluster:
        job = cluster.wrap("true", "--mail-type", "END", "--mail-user", "ada")
        mails = cluster.until(lambda: kept(cluster.directory) or None, "the program has it")
        ((args, message),) = mails
        assert args == ["-i", "-f", "jobs@example.org", "--", "ada@example.org"]
        assert f"Job_id={job} " in str(parsed(message)["Subject"])
        (uid,) = (cluster.directory / "mails").glob("*.uid")
        assert int(uid.read_text()) != 0 or os.geteuid() != 0


def test_a_cluster_without_mail_says_so() -> None:
    with made(partial(_with, section="")) as cluster:
        words = ("-D", str(cluster.work), "--wrap", "true")
        ran = cluster.run("essubmit", "--mail-type", "END", *words)
        assert ran.code == 0 and ran.err.count("\n") == 1 and NO_MAIL in ran.err, ran
        assert not cluster.run("essubmit", "--mail-user", "ada", *words).err
        assert not cluster.run("essubmit", "--mail-type", "NONE", *words).err
