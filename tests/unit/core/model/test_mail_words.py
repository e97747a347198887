"""Plain mail addresses and user names, and all that is none."""

from __future__ import annotations

import pytest

from eslurm.core.model.mail_words import addresses_of, events_of, is_address


@pytest.mark.parametrize(
    "text",
    ["ada", "_svc", "ada.lovelace+jobs@example.org", "a@b", "A-1=x@mail-1.example.co.uk", "u" * 64, "a@1.2"],
)
def test_addresses(text: str) -> None:
    assert is_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        "@example.org",
        "ada@",
        "-oQ/tmp",
        "-f@example.org",
        "+x@example.org",
        ".ada@example.org",
        "ada@-example.org",
        "ada@example-.org",
        "ada@example..org",
        "ada@.org",
        "ada@@example.org",
        "ada@b@c",
        "|/bin/sh",
        "/etc/passwd",
        ":include:/etc/passwd",
        '"ada lovelace"@example.org',
        "ada@[127.0.0.1]",
        "ada lovelace",
        "ada\r\nBcc: eve@example.org",
        "ada@example.org\n",
        "ada\0@example.org",
        "ada%eve@example.org",
        "host!ada",
        "<ada@example.org>",
        "ada;reboot",
        "$(reboot)",
        "`reboot`",
        "adä@example.org",
        "ada@exämple.org",
        "u" * 65,
        "u" * 65 + "@example.org",
        "a@" + ".".join(["x" * 60] * 5),
    ],
)
def test_what_is_none(text: str) -> None:
    assert not is_address(text)


def test_lists() -> None:
    assert addresses_of("") == () and events_of("") == ()
    assert addresses_of("a,b@c,a") == ("a", "b@c")
    assert events_of("end,begin,end") == ("end", "begin")
