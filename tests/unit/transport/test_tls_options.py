"""The options of TLS. Goal: all that is needed or nothing, from the command line before the configuration."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from eslurm.config.sections import TlsSection
from eslurm.transport.tls_options import TlsFiles, add_tls_options, tls_files

BASE = Path("/var/lib/eslurm")


def given(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_tls_options(parser)
    return parser.parse_args(words)


def test_without_any_there_is_no_tls() -> None:
    assert tls_files(given()) is None
    assert tls_files(given(), TlsSection(), BASE) is None


def test_the_configuration_is_relative_to_the_state_directory_and_options_go_first() -> None:
    section = TlsSection("host.pem", "/etc/host.key", "ca.pem", name="eslurm.test")
    assert tls_files(given(), section, BASE) == TlsFiles(
        BASE / "ca.pem", BASE / "host.pem", Path("/etc/host.key"), False, "eslurm.test"
    )
    words = ("--tls-certificate", "my.pem", "--tls-require-client-certificate", "--tls-name", "n")
    assert tls_files(given(*words), section, BASE) == TlsFiles(
        BASE / "ca.pem", Path("my.pem"), Path("/etc/host.key"), True, "n"
    )


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (("--tls-certificate", "a", "--tls-key", "b"), "--tls-ca"),
        (("--tls-certificate", "a", "--tls-ca", "b"), "--tls-key"),
        (("--tls-ca", "a"), "--tls-certificate"),
        (("--tls-require-client-certificate",), "--tls-certificate"),
        (("--tls-name", "n"), "--tls-certificate"),
    ],
)
def test_half_of_it_is_refused(words: tuple[str, ...], missing: str) -> None:
    with pytest.raises(ValueError, match=f"^{missing} is missing"):
        tls_files(given(*words))


def test_who_only_calls_shows_its_certificate_where_one_is_required() -> None:
    section = TlsSection("host.pem", "host.key", "ca.pem", name="n")
    assert tls_files(given(), section, BASE, listens=False) == TlsFiles(BASE / "ca.pem", name="n")
    assert tls_files(given("--tls-ca", "a"), listens=False) == TlsFiles(Path("a"))
    required = given("--tls-require-client-certificate")
    assert tls_files(required, section, BASE, listens=False) == tls_files(required, section, BASE)
    with pytest.raises(ValueError, match="--tls-ca is missing"):
        tls_files(given("--tls-name", "n"), listens=False)
