"""A cluster of root's: no process that speaks with the network is root's, and none of them reaches what is another's."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from escli.local.eslurm import main
from escli.local.record import ClusterRecord
from eslurm.security import ledger
from eslurm.security.account import Account
from eslurm.security.home import CONTROLLER, make_home, share
from eslurm.security.ownership import UnsafeFile
from eslurm.security.site_keys import new_site, read_site_keys, write_site_keys
from tests.integration.conftest import made
from tests.integration.test_up import Cluster, cluster
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S, ROOT
from tests.security.conftest import STRANGER
from tests.security.test_launch_credentials import as_uid

__all__ = ["cluster"]

ONE, OTHER = Account(61_310, 61_310), Account(61_311, 61_311)
KEPT_BY_ROOT = {"esnoded", "esnoded.stepd"}
"""The keeper beside an agent; and `procd`, which has the command line of the supervisor beside it."""


def status_of(pid: str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def daemons_of(name: str, directory: Path) -> list[tuple[str, set[int], str]]:
    """Each process of the cluster: its program, its user ids, its capabilities."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            marked = f"ESLURM_CLUSTER={name}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
            # What outlives an agent has no mark, and works below its directory.
            marked |= f"{directory}/".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            status = status_of(pid)
        except OSError:
            continue
        if marked and "-m" in words:
            uids = {int(uid) for uid in status["Uid"].split()}
            found.append((words[words.index("-m") + 1], uids, status["CapPrm"] + status["CapEff"]))
    return found


def record_of(cluster: Cluster) -> ClusterRecord:
    return msgspec.json.decode((cluster.directory / "cluster.json").read_bytes(), type=ClusterRecord)


@pytest.mark.parametrize("user", ["0", "root", "61310:0"])
@pytest.mark.parametrize("program", ["esctld", "essatd", "esestd"])
def test_root_is_no_user_for_a_daemon(program: str, user: str, state_dir: Path) -> None:
    config = state_dir / "eslurm.toml"
    config.write_text(
        '[cluster]\nname = "c"\n[[nodes]]\nnames = "cn1"\ncores = 1\nmemory_mib = 1\n[[partition]]\nname = "main"\n'
    )
    words = {
        "esctld": ["--config", str(config)],
        "essatd": ["--cluster", "c", "--listen", "127.0.0.1:0", "--controllers", "127.0.0.1:1"],
        "esestd": ["--config", str(config), "--controller-socket", "/nonexistent"],
    }[program]
    ran = subprocess.run(
        [sys.executable, "-P", "-m", program, *words, "--state-dir", str(state_dir / "s"), "--user", user],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in (".", "daemons", "cli"))},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert "is root, which the daemon is not to be: name another user" in ran.stderr
    assert not (state_dir / "s").exists()


def test_only_what_starts_jobs_is_root(as_root: None, cluster: Cluster) -> None:
    cluster.up("--controllers", "2")
    record = record_of(cluster)
    users = {
        "esnoded": record.daemon_uid,
        "esnoded.stepd": record.daemon_uid,
        "essatd": record.satellite_uid,
        "esctld": record.controller_uid,
        "esestd": record.controller_uid,
    }
    assert len({0, *users.values()}) == 4, "three users, none of them root"
    seen = daemons_of(record.cluster, cluster.directory)
    assert {program for program, *_ in seen} >= {"esctld", "essatd", "esnoded"}
    for program, uids, capabilities in seen:
        if uids != {0}:
            assert uids == {users[program]}, program
            assert int(capabilities, 16) == 0, program
    assert {program for program, uids, _ in seen if uids == {0}} == KEPT_BY_ROOT
    for program in KEPT_BY_ROOT:
        # One of each beside one that is not root, for two agents.
        owners = [uids for name, uids, _ in seen if name == program]
        assert sorted(map(max, owners)) == [0, 0, record.daemon_uid, record.daemon_uid], program
    cluster.finish("echo ran > ran")
    assert (cluster.work / "ran").read_text() == "ran\n"


def test_each_reaches_its_own_files_alone(as_root: None, cluster: Cluster) -> None:
    cluster.up()
    record, home = record_of(cluster), cluster.directory
    secret = [
        *(home / "site.key", home / "eslurm.toml"),
        *(home / "controller" / "esctld.db", home / "controller" / "identity.key"),
    ]
    identities = [home / "sat1" / "satellite" / "identity.key", home / "agent1" / "agent" / "identity.key"]
    for uid in (record.daemon_uid, record.satellite_uid, STRANGER):
        for path in secret:
            assert as_uid(uid, path.read_bytes) == "PermissionError", (uid, path)
    assert as_uid(record.controller_uid, (home / "site.key").read_bytes) != "PermissionError"
    for uid, path in (
        (record.daemon_uid, identities[0]),
        (record.satellite_uid, identities[1]),
        (record.controller_uid, identities[0]),
        (record.controller_uid, identities[1]),
    ):
        assert as_uid(uid, path.read_bytes) == "PermissionError"
    for uid, own in (
        (record.satellite_uid, "sat1/satellite"),
        (record.controller_uid, "controller"),
        (record.daemon_uid, "agent1/agent"),
    ):
        # What root looks up stays where root has put it.
        assert as_uid(uid, lambda own=own: os.rename(home / own, home / "away")) == "PermissionError"  # type: ignore[misc]
        assert as_uid(uid, lambda: os.symlink("/etc", home / "sat1" / "link")) == "PermissionError"
        assert as_uid(uid, lambda: (home / "site.key").write_bytes(b"")) == "PermissionError"
    pids = [cluster.pid_of("esctld"), cluster.pid_of("agent1")]
    for uid in (record.satellite_uid, STRANGER):
        for pid in pids:
            assert as_uid(uid, lambda pid=pid: os.kill(pid, 9)) == "PermissionError"  # type: ignore[misc]


def test_a_cluster_whose_controller_was_root_s_keeps_its_jobs(as_root: None) -> None:
    with made(LiveCluster, nodes=1, agents=1, satellites=1) as old:
        job = old.submit("--wrap", "true")
        assert old.end(job) == "COMPLETED"
        for name in ("esctld", "sat0"):
            old.terminate(name)
            old.daemons[name].words += ["--user", f"{ONE.uid}:{ONE.gid}"]
        # As a site does whose configuration the controller shall read.
        share(old.directory / "eslurm.toml", ONE)
        old.start()
        assert f" {job} " in old.run("esacct").out
        assert old.end(old.submit("--wrap", "true")) == "COMPLETED"
        assert not (old.directory / "esctld.db").exists()
        with closing(sqlite3.connect(old.directory / "controller" / "esctld.db")) as store:
            assert store.execute("PRAGMA quick_check").fetchone() == ("ok",)


def test_root_follows_nothing_that_the_daemon_s_user_has_put_there(as_root: None, state_dir: Path) -> None:
    victim = state_dir / "victim"
    victim.write_text("root's own")
    (state_dir / "identity.key").write_bytes(b"secret")
    names = {"moved": ["store", "models"], "copied": ["identity.key"], "linked": ["door.sock"]}
    home = make_home(state_dir, "own", ONE, **names)
    assert as_uid(ONE.uid, (home / "identity.key").read_bytes) == "b'secret'"

    def plant() -> None:
        os.unlink(home / "identity.key")
        os.symlink(victim, home / "identity.key")
        os.symlink(state_dir, home / "models")
        os.mkfifo(home / "fifo")
        (home / "below").mkdir()
        os.symlink(victim, home / "below" / "victim")
        (home / "below" / "plain").write_text("plain")

    assert as_uid(ONE.uid, plant) == "None"
    # The same user again, then another one, which gets what is plain and nothing else.
    make_home(state_dir, "own", ONE, **names)
    make_home(state_dir, "own", OTHER, **names)
    assert victim.read_text() == "root's own" and victim.stat().st_uid == 0
    assert state_dir.stat().st_uid == 0
    assert (home / "identity.key").read_bytes() == b"secret"
    assert (home / "below" / "plain").stat().st_uid == OTHER.uid
    assert as_uid(ONE.uid, lambda: os.listdir(home / "below")) == "PermissionError"
    # A store of root's takes no place that a user has filled.
    (state_dir / "models").mkdir()
    with pytest.raises(ValueError, match="are both there"):
        make_home(state_dir, "own", OTHER, **names)
    assert (state_dir / "models").stat().st_uid == 0


def test_a_directory_of_the_user_s_in_the_place_of_root_s_is_refused(as_root: None, state_dir: Path) -> None:
    elsewhere = state_dir / "elsewhere"
    elsewhere.mkdir()
    os.symlink(elsewhere, state_dir / "own")
    with pytest.raises(OSError):
        make_home(state_dir, "own", ONE)
    assert elsewhere.stat().st_uid == 0


def test_what_a_controller_has_entered_is_read_with_care(as_root: None, state_dir: Path) -> None:
    state_dir.chmod(0o711)
    home = make_home(state_dir, CONTROLLER, ONE)
    good = ledger.Issued("0a" * 16, "agent", "cn1", "0b" * 8, 1)
    ledger.append(state_dir, good)
    ledger.open_for(state_dir, ONE)

    def enter() -> None:
        ledger.append(home, msgspec.structs.replace(good, names="cn2"))
        ledger.append(home, msgspec.structs.replace(good, names="cn3\x1b[2J"))
        ledger.append(home, msgspec.structs.replace(good, serial="no number"))

    assert as_uid(ONE.uid, enter) == "None"
    assert [one.names for one in ledger.read(state_dir)] == ["cn1", "cn2"]
    assert as_uid(ONE.uid, lambda: len(ledger.read(state_dir))) == "2"
    secret = state_dir / "secret"
    secret.write_text("root's own")
    for plant in (lambda: os.symlink(secret, home / "members"), lambda: os.mkfifo(home / "members")):
        assert as_uid(ONE.uid, lambda: os.unlink(home / "members")) == "None"
        assert as_uid(ONE.uid, plant) == "None"
        with pytest.raises(UnsafeFile):
            ledger.read(state_dir)


def test_hosts_are_revoked_beside_a_controller_that_is_not_root(as_root: None) -> None:
    with made(LiveCluster, nodes=1, agents=1, satellites=1) as site:
        site.terminate("esctld")
        site.daemons["esctld"].words += ["--user", f"{ONE.uid}:{ONE.gid}"]
        share(site.directory / "eslurm.toml", ONE)
        site.start()
        assert main(["keys", "revoke", "sat0", "--state-dir", str(site.directory)]) == 0
        log = site.directory / "sat0.log"
        site.until(lambda: "was revoked" in log.read_text(), "the satellite hears of it")
        site.until((site.directory / "controller" / "revoked").exists, "the controller keeps it")


def test_new_site_keys_stay_readable_for_the_controller_alone(as_root: None, state_dir: Path) -> None:
    state_dir.chmod(0o711)
    site = new_site("c", 1)
    write_site_keys(state_dir, site)
    path = state_dir / "site.key"
    assert as_uid(ONE.uid, path.read_bytes) == "PermissionError"
    share(path, ONE)
    write_site_keys(state_dir, site.with_next(2))
    assert (path.stat().st_mode & 0o7777, path.stat().st_uid, path.stat().st_gid) == (0o640, 0, ONE.gid)
    assert as_uid(ONE.uid, lambda: read_site_keys(state_dir).revision) == "2"
    assert as_uid(OTHER.uid, path.read_bytes) == "PermissionError"
    # A group that root's file got by itself is no reader.
    path.chmod(0o600)
    write_site_keys(state_dir, site.with_next(2))
    assert path.stat().st_mode & 0o7777 == 0o600
