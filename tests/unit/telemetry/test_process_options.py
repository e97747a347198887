"""The options that all daemons share. Goal: what cannot be is one clear line and exit status 2, before anything starts."""

from __future__ import annotations

import os

import pytest

from eslurm.telemetry.process import EXIT_CANNOT_START, listening, logging_to_stderr


def test_an_address_is_looked_at() -> None:
    assert listening("127.0.0.1:9464") == "127.0.0.1:9464"
    assert listening("") == ""


def test_what_is_no_address_ends_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        listening("9464")
    assert ended.value.code == EXIT_CANNOT_START
    assert capsys.readouterr().err == "--metrics-listen: '9464' is no address: write HOST:PORT\n"


def test_grpc_writes_no_lines_of_its_own_unless_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_VERBOSITY", "")
    monkeypatch.delenv("GRPC_VERBOSITY")
    logging_to_stderr("info")
    assert os.environ["GRPC_VERBOSITY"] == "NONE"
    monkeypatch.setenv("GRPC_VERBOSITY", "INFO")
    logging_to_stderr("info")
    assert os.environ["GRPC_VERBOSITY"] == "INFO"


@pytest.mark.parametrize(
    ("level", "form", "option"), [("loud", "text", "--log-level"), ("info", "xml", "--log-format")]
)
def test_unknown_words_end_the_start(
    level: str, form: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        logging_to_stderr(level, form)
    assert ended.value.code == EXIT_CANNOT_START
    assert capsys.readouterr().err.startswith(f"{option}: ")
