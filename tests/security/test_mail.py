"""Mail leaves by the site's program alone, never as root: another user of the host changes none of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from esctld.lead.mailers import ProgramMailer
from eslurm.ports.mailer import Mail, MailUnavailable
from tests.kits.mail import fake_sendmail, kept
from tests.security.conftest import STRANGER
from tests.support.loops import run

MAIL = Mail("eslurm", ("ada",), b"Subject: x\r\n\r\nsecret\r\n")


@pytest.mark.parametrize("mode", [0o757, 0o775, 0o644])
def test_a_program_that_others_may_change_does_not_run(as_root: None, state_dir: Path, mode: int) -> None:
    path = fake_sendmail(state_dir)
    path.chmod(mode)
    for user in ("", "nobody"):
        with pytest.raises(MailUnavailable):
            run(ProgramMailer(str(path), user).send(MAIL))
    assert not kept(state_dir)


def test_a_program_of_a_stranger_does_not_run(as_root: None, state_dir: Path) -> None:
    path = fake_sendmail(state_dir)
    os.chown(path, STRANGER, STRANGER)
    for user in ("", "nobody"):
        with pytest.raises(MailUnavailable):
            run(ProgramMailer(str(path), user).send(MAIL))
    assert not kept(state_dir)


def test_it_is_not_root_and_has_none_of_its_groups_and_descriptors(as_root: None, state_dir: Path) -> None:
    state_dir.chmod(0o711)
    seen = state_dir / "seen"
    seen.mkdir(mode=0o777)
    seen.chmod(0o777)
    path = fake_sendmail(state_dir, f"id -u > {seen}/ids; id -G >> {seen}/ids; ls /proc/self/fd > {seen}/fds")
    secret = os.open(state_dir, os.O_RDONLY)
    os.set_inheritable(secret, True)
    run(ProgramMailer(str(path), "nobody").send(MAIL))
    os.close(secret)
    assert kept(state_dir)
    uid, groups = (seen / "ids").read_text().split("\n")[:2]
    assert int(uid) != 0 and "0" not in groups.split()
    assert len((seen / "fds").read_text().split()) <= 4


def test_root_is_no_user_for_it(as_root: None, state_dir: Path) -> None:
    path = fake_sendmail(state_dir)
    with pytest.raises(MailUnavailable, match="is root"):
        run(ProgramMailer(str(path), "root").send(MAIL))
