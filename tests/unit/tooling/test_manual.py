"""Manual pages: every command and daemon has one, with all of its options, and no text is taken for a request."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from escli.help_text import COMMANDS
from escli.local.main import commands
from escli.option_table import rows_of
from escli.options import IGNORED, REFUSED
from scripts import manual
from tests.support.golden import Golden

REQUESTS = re.compile(r"\.(TH|SH|PP|TP|br)( |$)")
ESCAPES = re.compile(r"\\(e|-|&|f[BR]|\((ga|ha|ti|dq|aq))")
PAGES = {page.name: page for page in manual.pages()}


def test_every_command_and_daemon_has_a_page() -> None:
    assert {*COMMANDS, "eslurm", "esctld", "essatd", "esnoded", "esestd"} <= PAGES.keys()
    assert {f"eslurm-{name}" for name in commands.commands} <= PAGES.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_has_every_option_of_its_command(name: str) -> None:
    terms = [term for _, rows in PAGES[name].options for term, _ in rows]
    for row in rows_of(name):
        shown = any(re.search(rf"--{re.escape(row.long)}\b", term) for term in terms)
        assert shown == (row.kind not in (IGNORED, REFUSED)), row.long


@pytest.mark.parametrize("name", ["esctld", "essatd", "esnoded", "esestd"])
def test_a_page_has_the_options_of_a_daemon(name: str) -> None:
    terms = [term for _, rows in PAGES[name].options for term, _ in rows]
    assert PAGES[name].section == 8
    assert any("--state-dir STATE_DIR" in term for term in terms)
    assert PAGES[name].see and name not in PAGES[name].see


@pytest.mark.parametrize("name", PAGES)
def test_nothing_of_a_page_is_a_request_by_accident(name: str) -> None:
    for line in manual.render(PAGES[name]).splitlines():
        assert not line.startswith(".") or REQUESTS.match(line), line
        assert "\\" not in ESCAPES.sub("", line), line


@pytest.mark.parametrize("text", [".SH GONE", "'br", "\\fBbold", ". .", "a\n.SH b", '`x` ^ ~ "q" -o'])
def test_a_text_stands_as_it_is(text: str) -> None:
    shown = manual.plain(text)
    assert "\n" not in shown and not shown.startswith((".", "'"))
    signs = {"e": "\\", "-": "-", "(ga": "`", "(ha": "^", "(ti": "~", "(dq": '"', "(aq": "'", "&": ""}
    back = re.sub(r"\\(e|-|&|\([a-z]{2})", lambda found: signs[found[1]], shown)
    assert back == " ".join(text.split())


def test_the_pages_are_written_where_man_looks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manual.main([str(tmp_path)]) == 0
    assert (tmp_path / "man1" / "essubmit.1").read_text(encoding="utf-8").startswith(".TH ESSUBMIT 1 ")
    assert (tmp_path / "man8" / "esnoded.8").is_file()
    assert f"man -M {tmp_path} essubmit" in capsys.readouterr().out
    assert manual.main([]) == 2


def test_the_source_of_one_page(golden: Golden) -> None:
    golden("manual/escancel.1", manual.render(PAGES["escancel"], version="VERSION"))
