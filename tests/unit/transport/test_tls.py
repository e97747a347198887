"""Certificates of a process. Goal: what does not fit is one line that names the file, at the start and later; what fits is
taken without a restart, and never half of it."""

from __future__ import annotations

import logging
import ssl
import time
from pathlib import Path

import pytest

from eslurm.transport.tls import LOOK_EVERY_S, SETTLED_S, Tls, TlsError
from eslurm.transport.tls_diagnosis import OTHER_NAMES, SPEAKS_PLAIN, reason_in
from eslurm.transport.tls_options import TlsFiles
from tests.support.certificates import CA, CERTIFICATE, KEPT, KEY, place, replace_file, replace_pair

DAY_S = 86_400
END_2120_S = ssl.cert_time_to_seconds("Jan  1 00:00:00 2120 GMT")
END_2121_S = ssl.cert_time_to_seconds("Jan  1 00:00:00 2121 GMT")
END_2130_S = ssl.cert_time_to_seconds("Jan  1 00:00:00 2130 GMT")


class Clock:
    """Both clocks of a `Tls`; files that a test writes look as old as it says."""

    def __init__(self) -> None:
        self.passed_s = 60.0

    def wall_s(self) -> float:
        return time.time() + self.passed_s

    def clock_s(self) -> float:
        return self.passed_s


def read(files: TlsFiles, clock: Clock | None = None) -> Tls:
    clock = clock or Clock()
    return Tls(files, clock.wall_s, clock.clock_s)


def test_ends_are_told(tmp_path: Path) -> None:
    assert read(place(tmp_path)).ends() == {"certificate": END_2120_S, "ca": END_2130_S}
    assert read(TlsFiles(tmp_path / CA)).ends() == {"ca": END_2130_S}


def test_of_several_authorities_the_first_end_is_told(tmp_path: Path) -> None:
    assert read(place(tmp_path, ca="ca+short-ca")).ends()["ca"] == END_2121_S


@pytest.mark.parametrize(
    ("pair", "ca", "required", "told"),
    [
        ("expired", "ca", False, f"TLS certificate .*{CERTIFICATE} .*expired: get one that is in force"),
        ("stranger", "ca", False, f"TLS certificate .*{CERTIFICATE} is not accepted by .*{CA}: "),
        ("serving", "ca", True, "purpose"),
        (
            "ed25519",
            "ed25519",
            False,
            f"{CERTIFICATE} has a kind of key that gRPC does not take: get one with",
        ),
        ("p521", "p521", True, f"{CERTIFICATE} has a kind of key that gRPC does not take: get one with"),
    ],
)
def test_a_pair_that_nobody_would_accept(
    tmp_path: Path, pair: str, ca: str, required: bool, told: str
) -> None:
    with pytest.raises(TlsError, match=told) as error:
        read(place(tmp_path, pair, ca, required=required))
    assert "\n" not in str(error.value)


def test_a_pair_that_only_calls_needs_no_purpose_or_authority_of_servers(tmp_path: Path) -> None:
    clock = Clock()
    tls = read(place(tmp_path, "calling", only_calls=True), clock)
    assert tls.ends() == {"certificate": END_2120_S, "ca": END_2130_S}
    with pytest.raises(ValueError, match="needs a certificate"):
        tls.server_credentials()
    replace_pair(tmp_path, "renewed")
    clock.passed_s += LOOK_EVERY_S
    assert tls.ends()["certificate"] == END_2121_S
    for required in (False, True):
        with pytest.raises(TlsError, match="is not accepted by"):
            read(place(tmp_path, "calling", required=required))
        with pytest.raises(TlsError, match="purpose"):
            read(place(tmp_path, "calling", "client-ca", required=required))


def test_a_chain_that_only_calls_is_taken(tmp_path: Path) -> None:
    files = place(tmp_path, "calling", only_calls=True)
    whole = b"".join((KEPT / name).read_bytes() for name in ("calling.pem", "client-ca.pem"))
    replace_file(tmp_path / CERTIFICATE, whole)
    assert read(files).ends()["certificate"] == END_2120_S


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ("expired", "expired: get one that is in force and for clients"),
        ("serving", "purpose: get one that is in force and for clients"),
        ("ed25519", "has a kind of key that gRPC does not take"),
        ("p521", "has a kind of key that gRPC does not take"),
    ],
)
def test_a_pair_that_no_server_would_take_for_a_client(tmp_path: Path, pair: str, told: str) -> None:
    with pytest.raises(TlsError, match=f"TLS certificate .*{CERTIFICATE} .*{told}") as error:
        read(place(tmp_path, pair, only_calls=True))
    assert "\n" not in str(error.value)


def test_a_key_that_is_none_of_the_pair_that_calls_is_refused(tmp_path: Path) -> None:
    files = place(tmp_path, "calling", only_calls=True)
    replace_file(tmp_path / KEY, (KEPT / "renewed.key").read_bytes())
    with pytest.raises(TlsError, match=f"{KEY} is not the key of .*{CERTIFICATE}"):
        read(files)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (CERTIFICATE, b"", "are no certificate and key in PEM"),
        (KEY, b"nonsense\n", "are no certificate and key in PEM"),
        (KEY, (KEPT / "renewed.key").read_bytes(), f"{KEY} is not the key of .*{CERTIFICATE}"),
        (CA, b"nonsense\n", f"{CA} is not PEM"),
        (CA, (KEPT / "server.pem").read_bytes(), f"{CA} holds no authority's certificate"),
    ],
)
def test_files_that_hold_something_else(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    files = place(tmp_path)
    replace_file(tmp_path / name, content)
    with pytest.raises(TlsError, match=told) as error:
        read(files)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [CERTIFICATE, KEY, CA])
def test_a_file_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    files = place(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(TlsError, match=f"{name} cannot be read: No such file"):
        read(files)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    files = place(tmp_path)
    (tmp_path / KEY).chmod(0o644)
    with pytest.raises(TlsError, match=f"{KEY} is open to others: chmod 600 "):
        read(files)


def test_a_key_with_a_password_is_refused(tmp_path: Path) -> None:
    files = place(tmp_path)
    replace_file(tmp_path / KEY, (KEPT / "locked.key").read_bytes())
    with pytest.raises(TlsError, match=f"{KEY} has a password"):
        read(files)


def test_a_new_pair_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    tls = read(place(tmp_path), clock)
    before = tls.channel_credentials()
    replace_pair(tmp_path, "renewed")
    assert tls.ends()["certificate"] == END_2120_S, "looked at again too soon"
    clock.passed_s += LOOK_EVERY_S
    with caplog.at_level(logging.INFO):
        assert tls.ends()["certificate"] == END_2121_S
    assert caplog.messages == [f"TLS: {tmp_path / CERTIFICATE} is read anew: good until 2121-01-01"]
    assert tls.revision == 2
    assert tls.channel_credentials() is not before


def test_files_that_were_changed_just_now_are_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    wall_s = [0.0]
    tls = Tls(place(tmp_path), lambda: wall_s[0], clock.clock_s)
    replace_file(tmp_path / CERTIFICATE, (KEPT / "renewed.pem").read_bytes())
    wall_s[0] = (tmp_path / CERTIFICATE).stat().st_ctime + SETTLED_S / 2
    clock.passed_s += LOOK_EVERY_S
    tls.current()
    replace_file(tmp_path / KEY, (KEPT / "renewed.key").read_bytes())
    wall_s[0] = (tmp_path / KEY).stat().st_ctime + 2 * SETTLED_S
    clock.passed_s += LOOK_EVERY_S
    assert tls.ends()["certificate"] == END_2121_S
    assert len(caplog.messages) == 1, "half of a pair was tried"


@pytest.mark.parametrize("pair", ["expired", "stranger"])
def test_a_broken_new_pair_keeps_the_old_one_and_is_told_of_once(
    tmp_path: Path, pair: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    tls = read(place(tmp_path), clock)
    replace_pair(tmp_path, pair)
    for _ in range(3):
        clock.passed_s += LOOK_EVERY_S
        assert tls.ends()["certificate"] == END_2120_S
    (told,) = caplog.messages
    assert told.startswith(
        f"TLS goes on with the former certificate: TLS certificate {tmp_path / CERTIFICATE} "
    )
    replace_pair(tmp_path, "renewed")
    clock.passed_s += LOOK_EVERY_S
    assert tls.ends()["certificate"] == END_2121_S


def test_files_that_go_away_change_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    tls = read(place(tmp_path), clock)
    for name in (CERTIFICATE, KEY, CA):
        (tmp_path / name).unlink()
    clock.passed_s += LOOK_EVERY_S
    assert tls.ends()["certificate"] == END_2120_S
    assert len(caplog.messages) == 1


def test_who_only_calls_has_nothing_to_serve_with(tmp_path: Path) -> None:
    place(tmp_path)
    with pytest.raises(ValueError, match="needs a certificate"):
        read(TlsFiles(tmp_path / CA)).server_credentials()


def test_what_grpc_says_is_put_into_words() -> None:
    failed = "Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1000007d:SSL routines:"
    why = f"{failed}OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: certificate has expired: OK"
    assert reason_in(why).startswith("the certificate there is not trusted (certificate has expired): ")
    wrong = f"{failed}OPENSSL_internal:WRONG_VERSION_NUMBER: Invalid certificate verification context: OK"
    assert reason_in(wrong) == SPEAKS_PLAIN
    assert reason_in("Custom verification check failed: Hostname Verification Check failed.") == OTHER_NAMES
    assert reason_in("Failed to connect to remote host: Connection refused") == ""
