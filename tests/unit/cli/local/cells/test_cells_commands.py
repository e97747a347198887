"""`eslurm up --cells`, `status` and `down` with stand-ins for all daemons, the etcd's included."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from escli.errors import ClusterError, Interrupted
from escli.interrupts import Interrupts
from escli.local import processes
from escli.local.cells.beside import each
from escli.local.cells.down import take_down_cells
from escli.local.cells.etcd import find_program, planned_of
from escli.local.cells.plan import CellsLayout
from escli.local.cells.up import bring_up_cells
from escli.local.plan import Programs
from escli.local.settings import Wishes
from tests.unit.cli.local.fakes import FAKE, Answer, Fakes

NAMES = ("alpha", "beta", "gamma")
KINDS = ("esctld", "essatd", "esnoded", "etcd")


def programs_with(mode: str = "works") -> Programs:
    return {kind: (sys.executable, str(FAKE), mode, kind) for kind in KINDS}


class Cells(Fakes):
    """The commands on a federation of stand-ins."""

    def __init__(self, state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(state_dir, capsys)
        self.modes["etcd"] = "works"
        self.cells = CellsLayout(state_dir)

    def alive(self) -> dict[str, int]:
        """Daemons that run, by cell (the etcds under etcd)."""
        found = {}
        for name, layout in [("etcd", self.cells.store), *((name, self.cells.cell(name)) for name in NAMES)]:
            record = layout.find_record()
            daemons = () if record is None else record.daemons
            found[name] = sum(processes.is_alive(daemon.identity) for daemon in daemons)
        return found

    def status(self) -> Answer:
        return self("status")


@pytest.fixture
def cells(
    state_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cells]:
    for name in ("ESLURM_STATE_DIR", "ESLURM_SOCKET", "ESLURM_ETCD"):
        monkeypatch.delenv(name, raising=False)
    cells = Cells(state_dir / "c", capsys)
    yield cells
    with Interrupts() as interrupts, contextlib.suppress(FileNotFoundError):
        take_down_cells(
            cells.cells, None, keep_jobs=False, purge=True, tell=lambda _: None, interrupts=interrupts
        )


def test_cells_come_up_are_shown_and_go_down(cells: Cells) -> None:
    came = cells.up("--cells", "3", "-n", "12")
    assert came.code == 0, came.err
    assert "Federation local is up: 3 cells." in came.out
    assert "  beta   beta-cn[01-04]\n" in came.out
    assert cells.alive() == {"etcd": 1, "alpha": 3, "beta": 3, "gamma": 3}
    # Commands that are given the directory find the first cell.
    assert os.readlink(cells.layout.socket) == "alpha/esctld.sock"
    assert not list(cells.cells.store.directory.glob("*.ready"))
    for own in (cells.cells, cells.cells.store, *map(cells.cells.cell, NAMES)):
        assert own.directory.stat().st_mode & 0o077 == (0o011 if os.geteuid() == 0 else 0)
    for key in (*cells.layout.directory.glob("etcd/*.key"), *cells.layout.directory.glob("*/etcd.key")):
        assert key.stat().st_mode & 0o037 == 0

    told = cells.status()
    assert told.code == 0
    assert told.out.splitlines()[0] == f"Federation local ({cells.layout.directory}) is up."
    rows = {line.split()[0]: line.split()[1:] for line in told.out.splitlines() if line[:1].isalpha()}
    assert rows["gamma"][:5] == ["up", "member", "4/4", "0/1", "3/3"]
    assert rows["etcd1"][:2] == ["(etcd)", "running"]
    # A cell passes no command of root's on.
    direct = "/beta esinfo` asks beta" if os.geteuid() == 0 else "/NAME chooses another cell"
    assert f"ESLURM_STATE_DIR={cells.layout.directory}{direct}" in told.out
    found = json.loads(cells("status", "--json").out)
    assert [one["name"] for one in found["cells"]] == list(NAMES)
    assert found["state"] == "up" and found["etcd"][0]["running"]

    again = cells.up()
    assert again.code == 0
    assert "is already running: 3 cells" in again.out
    went = cells("down")
    assert (
        went.out
        == f"The federation is down (10 daemons ended); its jobs are kept in {cells.layout.directory}.\n"
    )
    assert sum(cells.alive().values()) == 0
    assert cells.status().code == 3
    assert "was down already" in cells("down").out


def test_options_that_do_not_fit_change_nothing(cells: Cells, state_dir: Path) -> None:
    assert cells.up("--cells", "3", "-n", "3").code == 0
    before = cells.alive()
    for words, told in (
        (("--cells", "4"), "--cells: 4 is not what the federation in"),
        (("--cells", "3", "-n", "4"), "--nodes: 4 is not what"),
        (("--etcds", "3"), "--etcds: 3 is not what"),
        (("--cells", "3", "--emulate", "10"), "--emulate: cannot go with --cells"),
        (("--store", "sqlite:///x"), "--store: cannot go with --cells"),
    ):
        answer = cells.up(*words)
        assert answer.code == 2 and told in answer.err, answer
    assert cells.alive() == before
    shown = cells("chaos", "show")
    assert shown.code == 2 and "holds a federation of several cells: name one with --state-dir" in shown.err
    assert "--cell: 'delta' is no cell" in cells("down", "--cell", "delta").err
    assert cells("down", "--cell", "beta", "--purge").code == 2
    assert cells.alive() == before


def test_a_plain_cluster_is_no_federation(fakes: Fakes) -> None:
    fakes.up()
    answer = fakes.up("--cells", "2")
    assert answer.code == 2 or "there is no program etcd" in answer.err
    assert fakes("down", "--cell", "beta").code == 2
    empty = fakes("up", "-d", "--etcds", "1", "--state-dir", f"{fakes.layout.directory}2")
    assert empty.code == 2


def test_one_cell_goes_down_and_comes_back(cells: Cells) -> None:
    assert cells.up("--cells", "3", "-n", "3").code == 0
    went = cells("down", "--cell", "beta")
    assert "Cell beta is down (3 daemons ended)" in went.out
    assert cells.alive() == {"etcd": 1, "alpha": 3, "beta": 0, "gamma": 3}
    assert cells.status().code == 1
    came = cells.up()
    assert came.code == 0
    assert "beta is up" in came.err and "alpha is up" not in came.err
    assert cells.alive()["beta"] == 3


def test_a_cell_that_does_not_come_up_leaves_the_others(cells: Cells) -> None:
    assert cells.up("--cells", "3", "-n", "3").code == 0
    cells("down")
    plan = cells.cells.find_plan()
    assert plan is not None and plan.cells[1].wishes.cell is not None
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", plan.cells[1].wishes.cell.ports[0]))
        taken.listen()
        half = cells.up()
        assert half.code == 1
        assert "1 of 3 cells did not come up: beta: esctld: port" in half.err
        assert (
            "(alpha, gamma and etcd are up; `eslurm up` tries the rest again, `eslurm down` stops all)"
            in half.err
        )
        assert cells.alive() == {"etcd": 1, "alpha": 3, "beta": 0, "gamma": 3}
    assert cells.up().code == 0
    assert cells.alive()["beta"] == 3


def test_an_etcd_that_does_not_come_up_is_told_with_its_log(cells: Cells) -> None:
    cells.modes["etcd"] = "dies"
    answer = cells.up("--cells", "3", "-n", "3")
    assert answer.code == 1
    assert "etcd1 ended before it was ready" in answer.err and "the dog ate my spool" in answer.err
    assert sum(cells.alive().values()) == 0
    # What was made so far is gone on with.
    cells.modes["etcd"] = "works"
    assert cells.up().code == 0
    assert cells.alive() == {"etcd": 1, "alpha": 3, "beta": 3, "gamma": 3}


@pytest.mark.parametrize("word", ["etcd1 is ready", "is up (1 of 3"])
def test_an_interrupted_start_ends_its_own_daemons(cells: Cells, word: str) -> None:
    with Interrupts() as interrupts:

        def hear(line: str) -> None:
            if word in line:
                interrupts.request()

        with pytest.raises(Interrupted):
            bring_up_cells(cells.cells, "3", None, Wishes(nodes=3), programs_with(), interrupts, hear, 20)
    assert sum(cells.alive().values()) == 0
    assert cells.up().code == 0
    assert sum(cells.alive().values()) == 10


def test_a_start_that_was_killed_is_gone_on_with(cells: Cells) -> None:
    """At any point: what is there is used, what is missing is made."""
    assert cells.up("--cells", "3", "-n", "3").code == 0
    cells("down")
    (cells.cells.cell("gamma").record_file).unlink()
    (cells.layout.socket).unlink()
    for path in sorted(cells.cells.cell("gamma").directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (cells.cells.store.record_file).unlink()
    assert cells.up().code == 0
    assert sum(cells.alive().values()) == 10
    assert (cells.cells.cell("gamma").directory / "etcd.key").exists()


def test_purge_removes_everything_but_what_is_not_its_own(cells: Cells) -> None:
    assert cells.up("--cells", "3", "-n", "3").code == 0
    photo = cells.cells.cell("beta").directory / "photo.jpg"
    photo.write_bytes(b"x")
    answer = cells("down", "--purge")
    assert answer.code == 2 and "holds photo.jpg, which is not the federation's" in answer.err
    assert sum(cells.alive().values()) == 10
    photo.unlink()
    assert cells("down", "--purge").code == 0
    assert not cells.layout.directory.exists()
    assert "No cluster" in cells("down").out


def test_without_the_program_the_way_out_is_told(tmp_path: Path, cells: Cells) -> None:
    with pytest.raises(ClusterError) as caught:
        find_program({"PATH": str(tmp_path)})
    del cells.modes["etcd"]
    os.environ["ESLURM_ETCD"] = str(tmp_path)
    try:
        answer = cells.up("--cells", "2")
    finally:
        del os.environ["ESLURM_ETCD"]
    assert answer.code == 2
    assert f"ESLURM_ETCD={tmp_path} is no program" in answer.err
    for told in (caught.value.text, answer.err):
        assert "`sh scripts/system_packages.sh` or `apt-get install etcd-server` installs it" in told
        assert "ESLURM_ETCD" in told
    assert not cells.layout.directory.exists()
    own = tmp_path / "my-etcd"
    own.touch(mode=0o755)
    assert find_program({"ESLURM_ETCD": str(own)}) == str(own)


def test_the_environment_changes_nothing_of_etcd(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    """etcd takes variables for its options."""
    monkeypatch.setenv("ETCD_LISTEN_CLIENT_URLS", "http://0.0.0.0:2379")
    assert cells.up("--cells", "3", "-n", "3").code == 0
    pid = cells.cells.store.get_record().daemons[0].identity.pid
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"NOTIFY_SOCKET=" in environ and b"ETCD_" not in environ


def test_each_etcd_asks_for_certificates_at_both_ports(cells: Cells) -> None:
    assert cells.up("--cells", "3", "--etcds", "3", "-n", "3").code == 0
    plan = cells.cells.find_plan()
    assert plan is not None
    for planned in planned_of(cells.cells, plan):
        words = dict(word.removeprefix("--").split("=", 1) for word in planned.arguments)
        assert words["client-cert-auth"] == words["peer-client-cert-auth"] == "true"
        assert words["trusted-ca-file"] != words["peer-trusted-ca-file"]
        urls = [value for name, value in words.items() if name.endswith("-urls")]
        assert len(urls) == 4 and all(url.startswith("https://127.0.0.1:") for url in urls)
        assert Path(words["data-dir"]).stat().st_mode & 0o777 == 0o700
        assert words["quota-backend-bytes"] == str(256 << 20)
        assert (words["auto-compaction-mode"], words["auto-compaction-retention"]) == ("periodic", "10m")


def test_plain_clusters_load_nothing_of_it() -> None:
    program = "import sys, escli.local.main; sys.exit(any('local.cells' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_child_that_is_killed_is_an_error() -> None:
    ends = {}

    def work(name: str, interrupts: Interrupts, tell: object) -> bytes:
        if name == "b":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "c":
            raise ValueError("odd")
        return name.encode()

    with Interrupts() as interrupts:
        was_interrupted = each(
            ["a", "b", "c", "d"],
            work,
            interrupts,
            goes_on=False,
            on_end=ends.__setitem__,
            on_progress=lambda _: None,
        )
    assert not was_interrupted
    assert ends["a"].get() == b"a" and ends["d"].get() == b"d"
    assert ends["b"].error == "its process was killed"
    assert ends["c"].error == "ValueError: odd" and "ValueError: odd" in ends["c"].tail[-1]
