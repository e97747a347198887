"""The section [mail]: what sends mail, and what cannot work."""

from __future__ import annotations

import pytest

from eslurm.config.file import cluster_config, parse_config
from eslurm.config.mail import MailSection, domain_of, sender_of, smtp_server
from eslurm.config.problems import ConfigError

BASE = "[cluster]\nname = 'site'\n[[nodes]]\nnames = 'cn1'\ncores = 1\nmemory_mib = 1\n[mail]\n"


def sends(text: str) -> bool:
    return cluster_config(parse_config((BASE + text).encode(), "site.toml")).sends_mail


def test_what_sends_mail() -> None:
    assert not sends("") and not sends("domain = 'example.org'")
    assert sends("program = '/usr/sbin/sendmail'") and sends("smtp = '[::1]:25'\nfrom = 'a@b'")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("program = 'sendmail'", "mail.program: 'sendmail' is not an absolute path"),
        ("program = '/a'\nsmtp = 'h:25'", "excludes mail.program"),
        ("smtp = 'h:25'", "needs a domain"),
        ("smtp = 'h'\ndomain = 'b'", "is not HOST:PORT"),
        ("smtp = 'h:99999'\ndomain = 'b'", "is not HOST:PORT"),
        ("smtp = 'h x:25'\ndomain = 'b'", "is not HOST:PORT"),
        ("domain = '-b'", "is no domain"),
        ("from = '-f@b'", "is no plain mail address"),
        ('from = "a@b\\nBcc: c"', "is no plain mail address"),
        ("sender = 'a@b'", "mail.sender is no key"),
        ("user_hourly_max = -1", "user_hourly_max"),
    ],
)
def test_what_cannot_work(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        sends(text)


def test_addresses() -> None:
    assert smtp_server("[::1]:25") == ("::1", 25) and smtp_server("mail.b:2525") == ("mail.b", 2525)
    assert sender_of(MailSection()) == "eslurm" and sender_of(MailSection(domain="b")) == "eslurm@b"
    assert (
        domain_of(MailSection(sender="a@c")) == "c"
        and sender_of(MailSection(sender="a@c", domain="b")) == "a@c"
    )
