"""Log lines. Goal: ids become fields, floods become counts, and no secret leaves, in either form."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from eslurm.telemetry import logs
from eslurm.telemetry.logs import BURST, PER_S, SUMMARY_EVERY_S, LogCounts, LogHandler

KEY = "5e" * 16


class Log:
    """A logger of its own with a clock that a test moves."""

    def __init__(self, form: str = "text") -> None:
        self.now_s = 0.0
        self.stream = io.StringIO()
        self.counts = LogCounts()
        self.handler = LogHandler(self.stream, self.counts, lambda: self.now_s)
        self.handler.setFormatter(logs.formatter(form))
        self.to = logging.Logger("esctld.test", logging.DEBUG)
        self.to.addHandler(self.handler)

    def lines(self) -> list[str]:
        """The lines written since the last look."""
        text = self.stream.getvalue()
        self.stream.seek(0)
        self.stream.truncate()
        return text.splitlines()

    def objects(self) -> list[dict[str, object]]:
        """The same as JSON."""
        return [json.loads(line) for line in self.lines()]


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """Restore the hidden words and the fields of every line at the test's end."""
    secrets, always = list(logs._secrets), dict(logs._always)
    yield
    logs._secrets[:] = secrets
    logs._always.clear()
    logs._always.update(always)


def test_text_is_for_people() -> None:
    log = Log()
    log.to.warning("broadcast %s: node %d is suspect: %s", 7, 12, "no answer")
    (line,) = log.lines()
    assert line.endswith("WARNING esctld.test: broadcast 7: node 12 is suspect: no answer")


def test_json_has_the_ids_that_are_known() -> None:
    log = Log("json")
    logs.set_always(role="leader", daemon="esctld")
    log.to.info("job %d, attempt %d of %s: 100%% sure, epoch %d", 17, 2, "ada", 5)
    log.to.info("nothing of the kind: %s", "x", extra={"trace": "00-ab", "broadcast": 9})
    logs.set_always(daemon=None)
    log.to.error("node %s was refused", "cn01")
    first, second, third = log.objects()
    assert {
        name: first[name] for name in ("job", "attempt", "epoch", "role", "daemon", "level", "logger")
    } == {
        "job": 17,
        "attempt": 2,
        "epoch": 5,
        "role": "leader",
        "daemon": "esctld",
        "level": "info",
        "logger": "esctld.test",
    }
    assert first["message"] == "job 17, attempt 2 of ada: 100% sure, epoch 5"
    assert str(first["at"]).endswith("Z")
    assert (second["trace"], second["broadcast"]) == ("00-ab", 9)
    assert (third["node"], "daemon" in third) == ("cn01", False)


@pytest.mark.parametrize("form", logs.FORMS)
def test_a_message_is_one_line_whatever_is_in_it(form: str) -> None:
    log = Log(form)
    log.to.info("job %d is called %s", 1, "a\n2026-01-01 ERROR forged: b")
    assert len(log.lines()) == 1


@pytest.mark.parametrize("form", logs.FORMS)
def test_no_secret_leaves(form: str) -> None:
    log = Log(form)
    logs.hide(KEY.encode())
    try:
        raise ValueError(f"bad key {KEY} at postgresql://es:hunter2@db/x")
    except ValueError:
        log.to.exception("could not use %s and %s", KEY, "postgresql://es:hunter2@db/x")
    text = "\n".join(log.lines())
    assert KEY not in text and "hunter2" not in text
    assert text.count("***") >= 4 and "postgresql://es:***@db/x" in text


@pytest.mark.parametrize("form", logs.FORMS)
@pytest.mark.parametrize(
    "token", ["es2." + "Ab_-" * 30, "es1." + "A" * 60, "eyJhbGciOiJub25l.eyJz-_dWI.c2ln", "eyJhb.eyJz."]
)
def test_no_token_leaves(form: str, token: str) -> None:
    log = Log(form)
    log.to.info("a call with %s, authorization: Bearer %s", token, token)
    text = "\n".join(log.lines())
    assert token not in text and text.count("***") == 2 and "a call with" in text


def test_a_flood_is_counted_not_written() -> None:
    log = Log()
    for number in range(BURST + 30):
        log.to.warning("peer %d is gone", number)
    log.to.warning("another kind")
    lines = log.lines()
    assert len(lines) == BURST + 1 and lines[-1].endswith("another kind")
    assert log.counts.left_out == 30
    assert log.counts.by_level["warning"] == BURST + 31


def test_what_was_left_out_is_told_of_with_the_next_one() -> None:
    log = Log("json")
    for _ in range(BURST + 30):
        log.to.warning("gone")
    log.now_s = 1 / PER_S
    log.to.warning("gone")
    assert log.objects()[-1]["left_out"] == 30


def test_what_was_left_out_last_is_told_of_in_the_end() -> None:
    log = Log()
    for number in range(BURST + 3):
        log.to.error("peer %d is gone", number)
    log.lines()
    log.now_s = SUMMARY_EVERY_S
    log.to.info("something else")
    other, last = log.lines()
    assert other.endswith("something else")
    assert last.endswith(f"peer {BURST + 2} is gone (2 like it were left out)")
    for number in range(BURST):
        log.to.error("peer %d is gone", number)
    log.lines()
    log.handler.close()
    assert log.lines()[-1].endswith("left out)")


def test_debugging_is_written_as_a_whole() -> None:
    log = Log()
    for _ in range(3 * BURST):
        log.to.debug("step")
    assert len(log.lines()) == 3 * BURST and not log.counts.left_out


def test_kinds_are_bounded() -> None:
    log = Log()
    for number in range(2 * logs.KINDS_MAX):
        log.to.info(f"made by hand {number}")
    assert len(log.handler._kinds) == logs.KINDS_MAX


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_line_moves_the_readers_cursor(form: str) -> None:
    """Goal: what a user wrote does nothing to the terminal of whoever reads the log, in messages and in tracebacks."""
    log = Log(form)
    try:
        raise ValueError("c\x1b[2J\rd\x9b")
    except ValueError:
        log.to.exception("user %s\tsaid", "a\x1b]0;title\x07\x9b31m\rb\u202e")
    (text, *more) = log.stream.getvalue().split("\n")
    assert all(char.isprintable() or char == "\t" for char in text + "".join(more))
    if form == "json":
        assert json.loads(text)["message"] == "user a\x1b]0;title\x07\x9b31m\rb\u202e\tsaid", (
            "as data it is whole"
        )
    else:
        assert r"a\x1b]0;title\x07\x9b31m\rb\u202e" in text
