"""`eslurm up` and `status` with stand-ins for the daemons: what is started, refused, ended and kept."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from escli.local import ports
from escli.local.main import main
from escli.local.up import bring_up
from eslurm.config.file import read_config
from eslurm.security.site_keys import read_ring, read_site_keys
from tests.support.ports import free_run
from tests.unit.cli.local.fakes import Fakes

EVERYONE = ["agent1", "agent2", "esctld", "sat1", "sat2"]


def test_up_starts_everything_and_says_what_to_do(fakes: Fakes) -> None:
    answer = fakes.up()

    assert answer.code == 0, answer.err
    assert sorted(fakes.pids()) == EVERYONE
    assert "nodes cn[01-04]" in answer.out
    assert f"export ESLURM_STATE_DIR={fakes.layout.directory}" in answer.out
    for name in EVERYONE:
        assert f"{name} is ready" in answer.err
    assert "4 of 4 nodes are up" in answer.err


def test_what_up_makes_is_closed_to_others_and_valid(fakes: Fakes) -> None:
    fakes.up("-n", "4", "--cores", "3", "--satellites", "1", "--agents", "1")

    layout = fakes.layout
    assert stat.S_IMODE(layout.directory.stat().st_mode) == (0o700 if os.geteuid() != 0 else 0o711)
    assert stat.S_IMODE((layout.directory / "site.key").stat().st_mode) == 0o600
    assert not (layout.directory / "cluster.key").exists()
    assert read_site_keys(layout.directory).cluster == read_ring(layout.directory / "site.pub").cluster
    config = read_config(layout.config_file)
    assert [(section.names, section.cores) for section in config.nodes] == [("cn[01-04]", 3)]
    assert config.cluster.operators == [os.getuid()]
    assert sorted(fakes.pids()) == ["agent1", "esctld", "sat1"]


def test_up_with_a_standby(fakes: Fakes) -> None:
    answer = fakes.up("--controllers", "2")

    assert answer.code == 0, answer.err
    assert sorted(fakes.pids()) == [*EVERYONE[:3], "esctld-c2", *EVERYONE[3:]]
    assert "controller main, and c2 to take over" in answer.out
    assert answer.err.index("esctld is ready") < answer.err.index("esctld-c2 is ready")
    started = json.loads(fakes.up("--controllers", "2", "--json").out)
    directory = fakes.layout.directory
    assert started["sockets"] == [str(directory / "esctld.sock"), str(directory / "esctld-c2.sock")]
    daemons = json.loads(fakes("status", "--json").out)["daemons"]
    roles = {daemon["name"]: daemon["role"] for daemon in daemons}
    assert (roles["esctld"], roles["esctld-c2"], roles["sat1"]) == ("leader", "standby", "")
    table = fakes("status").out.splitlines()
    assert [line.split()[:4] for line in table[2:5]] == [
        ["DAEMON", "STATE", "ROLE", "PID"],
        ["esctld", "running", "leader", str(fakes.pids()["esctld"])],
        ["esctld-c2", "(esctld)", "running", "standby"],
    ]


def test_a_dead_controller_is_no_reason_not_to_answer(fakes: Fakes) -> None:
    fakes.up("--controllers", "2")
    fakes.kill("esctld")

    status = json.loads(fakes("status", "--json").out)

    assert status["state"] == "degraded"
    assert status["controller"]["nodes_up"] == 4
    assert fakes.up().code == 0
    assert json.loads(fakes("status", "--json").out)["state"] == "up"


def test_controllers_come_and_go_while_the_cluster_is_down(fakes: Fakes) -> None:
    fakes.up()
    answer = fakes.up("--controllers", "2")
    assert answer.code == 2
    assert "--controllers: 2 is not what the cluster" in answer.err
    assert "eslurm down" in answer.err
    fakes("down")

    assert fakes.up("--controllers", "3").code == 0
    listens = {one.name: one.listen for one in fakes.record().standbys}
    assert sorted(listens) == ["c2", "c3"]
    fakes("down")
    assert fakes.up("--controllers", "2").code == 0
    assert {one.name: one.listen for one in fakes.record().standbys} == {"c2": listens["c2"]}
    assert fakes.up().code == 0
    assert fakes("down", "--purge").code == 0


def test_the_store_is_chosen_once_and_its_password_not_shown(fakes: Fakes) -> None:
    url = "postgresql://ada:secret@db/eslurm"
    assert fakes.up("--store", url).code == 0
    assert read_config(fakes.layout.config_file).controller.store_url == url
    assert fakes.up("--store", url).code == 0

    answer = fakes.up("--store", "postgresql://ada:secret@elsewhere/eslurm")
    assert answer.code == 2
    assert "--store: the cluster in" in answer.err
    assert "secret" not in answer.err
    assert "--store: is not a URL" in fakes.up("--store", "my-database").err


def test_up_twice_says_already_running_and_touches_nothing(fakes: Fakes) -> None:
    fakes.up()
    before, pids = fakes.files(), fakes.pids()

    answer = fakes.up()

    assert answer.code == 0
    assert "already running" in answer.out
    assert fakes.pids() == pids
    assert fakes.files() == before


def test_up_with_json_tells_the_same_to_programs(fakes: Fakes) -> None:
    first, second = json.loads(fakes.up("--json").out), json.loads(fakes.up("--json").out)

    assert sorted(first["started"]) == EVERYONE
    assert not first["already_running"]
    assert second["already_running"]
    assert second["started"] == []
    assert second["socket"] == str(fakes.layout.socket)
    assert sorted(daemon["name"] for daemon in second["daemons"]) == EVERYONE


def test_up_starts_only_what_is_missing(fakes: Fakes) -> None:
    fakes.up()
    before = fakes.pids()
    fakes.kill("sat2")

    answer = fakes.up()

    assert answer.code == 0, answer.err
    after = fakes.pids()
    assert after.pop("sat2") != before.pop("sat2")
    assert after == before


def test_options_that_contradict_the_cluster_are_refused(fakes: Fakes) -> None:
    fakes.up()
    before = fakes.files()
    for words in (["-n", "5"], ["--cores", "99"], ["--satellites", "3"], ["--agents", "1"]):
        answer = fakes.up(*words)
        assert answer.code == 2
        assert f"{words[1]} is not what the cluster" in answer.err
    assert fakes.up("-n", "4", "--satellites", "2", "--agents", "2").code == 0
    assert fakes.files() == before


def test_programs_around_jobs_are_kept_and_only_have_to_agree_after_that(fakes: Fakes) -> None:
    answer = fakes.up("--prolog", "bin/prolog", "--epilog", "/site/epilog")
    assert answer.code == 0, answer.err
    agent = read_config(fakes.layout.config_file).agent
    assert (agent.prolog, agent.epilog) == (os.path.abspath("bin/prolog"), "/site/epilog")
    assert fakes.up("--epilog", "/site/epilog").code == 0
    other = fakes.up("--epilog", "/other")
    assert other.code == 2 and "set agent.epilog in" in other.err


def test_a_port_in_use_is_named_and_nothing_is_started(fakes: Fakes) -> None:
    fakes.up()
    fakes("down")
    port = ports.port_of(read_config(fakes.layout.config_file).satellite[0].listen)
    with socket.create_server(("127.0.0.1", port)):
        answer = fakes.up()

    assert answer.code == 1
    assert f"sat1: port {port} is in use" in answer.err
    assert "--port-base" in answer.err
    assert fakes.record().daemons == ()


def test_port_base_moves_a_cluster_that_is_down(fakes: Fakes) -> None:
    fakes.up()
    assert fakes.up("--port-base", "2000").code == 2
    fakes("down")
    base = free_run(5)

    answer = fakes.up("--port-base", str(base))

    assert answer.code == 0, answer.err
    listens = {ports.port_of(daemon.listen) for daemon in fakes.record().daemons}
    assert listens == set(range(base, base + 5))
    assert fakes.up("--port-base", str(base)).code == 0
    fakes("down")

    base = free_run(6)
    assert fakes.up("--port-base", str(base), "--controllers", "2").code == 0
    listens = {ports.port_of(daemon.listen) for daemon in fakes.record().daemons}
    assert listens == set(range(base, base + 6))


def test_a_taken_port_base_leaves_nothing_behind(fakes: Fakes) -> None:
    base = free_run(5)
    with socket.create_server(("127.0.0.1", base + 4)):
        answer = fakes.up("--port-base", str(base))

    assert answer.code == 2
    assert f"port {base + 4} is in use" in answer.err
    assert fakes.files() == {}


def test_a_daemon_that_dies_at_its_start_is_shown_with_its_log(fakes: Fakes) -> None:
    fakes.modes["essatd"] = "dies"

    answer = fakes.up()

    assert answer.code == 1
    assert "sat1 ended before it was ready" in answer.err or "sat2 ended before it was ready" in answer.err
    assert "essatd: the dog ate my spool" in answer.err
    assert fakes.record().daemons == ()
    fakes.modes["essatd"] = "works"
    assert fakes.up().code == 0


def test_a_failed_start_spares_what_ran_before(fakes: Fakes) -> None:
    fakes.up()
    fakes.kill("agent1")
    fakes.modes["esnoded"] = "dies"
    before = fakes.pids()

    assert fakes.up().code == 1
    before.pop("agent1")
    assert fakes.pids() == before
    assert fakes("status").code == 1


def test_a_daemon_that_is_never_ready_is_ended_after_the_timeout(fakes: Fakes) -> None:
    fakes.modes["esnoded"] = "sleeps"

    answer = fakes("up", "--detach", "--timeout", "1")

    assert answer.code == 1
    assert "not ready within 1 s" in answer.err
    assert "--timeout" in answer.err
    assert fakes.record().daemons == ()


def test_nodes_that_do_not_come_up_are_an_error(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    class Half:
        nodes, nodes_up = 4, 2

    def ping(_socket: object) -> type[Half]:
        # All daemons are ready by then; and now it has taken too long.
        monkeypatch.setattr("escli.local.up.time", SimpleNamespace(monotonic=lambda: math.inf))
        return Half

    monkeypatch.setattr("escli.local.controller.ping", ping)

    answer = fakes.up()

    assert answer.code == 1
    assert "2 of 4 nodes are up" in answer.err
    assert "not all nodes came up within 20 s" in answer.err
    assert fakes.record().daemons == ()


def test_a_program_that_does_not_exist(fakes: Fakes) -> None:
    programs = dict.fromkeys(fakes.modes, ("/nonexistent/daemon",))

    assert main(["up", "--detach", "--state-dir", str(fakes.layout.directory)], programs) == 1
    assert fakes.record().daemons == ()


def test_a_new_group_of_nodes_gets_an_agent_of_its_own(fakes: Fakes) -> None:
    fakes.up()
    fakes("down")
    before = fakes.record().agents
    with fakes.layout.config_file.open("a") as file:
        file.write('\n[[nodes]]\nnames = "big[1-2]"\ncores = 8\nmemory_mib = 1000\n')

    assert fakes.up().code == 0
    agents = fakes.record().agents
    assert agents[:2] == before
    assert (agents[2].name, agents[2].nodes) == ("agent3", "big[1-2]")
    assert "agent3" in fakes.pids()


def test_an_edit_of_a_running_cluster_is_pointed_out(fakes: Fakes) -> None:
    fakes.up()
    with fakes.layout.config_file.open("a") as file:
        file.write("# more\n")

    assert "was changed since it started" in fakes.up().out


def test_a_broken_configuration_is_refused(fakes: Fakes) -> None:
    fakes.up()
    fakes("down")
    text = fakes.layout.config_file.read_text()
    for broken, said in (
        (text + "[[partition", "is not valid TOML"),
        (text.replace("cores =", "corse ="), "corse"),
        (text.replace('[cluster]\nname = "', '[cluster]\nname = "x'), "put the name back"),
        (text.split("[[nodes]]")[0], "there are none"),
    ):
        fakes.layout.config_file.write_text(broken)
        answer = fakes.up()
        assert answer.code == 2
        assert said in answer.err
        assert len(answer.err.splitlines()) == 1
    fakes.layout.config_file.unlink()
    assert fakes.up().code == 2


def test_an_interrupted_creation_is_taken_up_again(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            "escli.local.settings.write_site_keys",
            lambda *_: (_ for _ in ()).throw(OSError("power cut")),
        )
        with pytest.raises(OSError, match="power cut"):
            fakes.up()

    assert fakes.up().code == 0


def test_status_of_all_kinds(fakes: Fakes) -> None:
    answer = fakes("status")
    assert answer.code == 3
    assert "no cluster in" in answer.err

    fakes.up()
    answer = fakes("status")
    assert answer.code == 0
    assert "is up." in answer.out
    assert "nodes 4 of 4 up; jobs 0 running, 1 pending" in answer.out

    fakes.kill("sat1")
    answer = fakes("status")
    assert answer.code == 1
    assert "is degraded." in answer.out
    assert "dead" in answer.out

    fakes("down")
    answer = fakes("status")
    assert answer.code == 3
    assert "is down" in answer.out


def test_status_as_json(fakes: Fakes) -> None:
    fakes.up()

    status = json.loads(fakes("status", "--json").out)

    assert status["state"] == "up"
    assert status["controller"]["nodes_up"] == 4
    assert {daemon["name"]: daemon["pid"] for daemon in status["daemons"]} == fakes.pids()
    assert all(daemon["rss_mib"] > 0 and daemon["running"] for daemon in status["daemons"])


def test_a_directory_of_a_newer_version_or_another_owner_is_left_alone(fakes: Fakes) -> None:
    fakes.up()
    fakes("down")
    for changes, said in (
        ({"version": "99.0.0"}, "was made by eslurm 99.0.0"),
        ({"format": 7, "version": "0.0.9"}, "was made by eslurm 0.0.9"),
        ({"owner_uid": os.getuid() + 1}, f"is the cluster of user id {os.getuid() + 1}"),
    ):
        original = fakes.layout.record_file.read_bytes()
        fakes.edit_record(**changes)
        before = fakes.files()
        for command in ("up", "down", "status"):
            answer = fakes(command)
            assert answer.code == 2
            assert said in answer.err
        assert fakes.files() == before
        fakes.layout.record_file.write_bytes(original)


def test_running_daemons_of_an_older_version_must_be_stopped_first(fakes: Fakes) -> None:
    fakes.up()
    fakes.edit_record(version="0.0.1")

    answer = fakes.up()

    assert answer.code == 1
    assert "stop it first (eslurm down)" in answer.err
    assert fakes("down").code == 0
    assert fakes.up().code == 0


def test_a_damaged_record_is_refused(fakes: Fakes) -> None:
    fakes.up()
    fakes("down")
    original = fakes.layout.record_file.read_bytes()
    fakes.layout.record_file.write_bytes(original[:40])

    assert fakes.up().code == 2
    fakes.layout.record_file.write_bytes(original)


def test_interruption_while_starting_ends_what_was_started(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bring_up_interrupted(*arguments: object) -> object:
        interrupts = arguments[3]
        interrupts.request()  # type: ignore[attr-defined]
        return bring_up(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("escli.local.main.bring_up", bring_up_interrupted)

    answer = fakes.up()

    assert answer.code == 130
    assert answer.err == "eslurm: interrupted\n"
    assert fakes.record().daemons == ()


def test_usage_errors_are_one_line(fakes: Fakes) -> None:
    for words in (
        ["up", "-n", "0"],
        ["up", "-n", "many"],
        ["up", "--nodse", "3"],
        ["sideways"],
        ["up", "extra"],
    ):
        answer = fakes(*words)
        assert answer.code == 2
        assert len(answer.err.splitlines()) == 1
        assert "--help" in answer.err


def test_a_removed_directory_can_be_made_again(fakes: Fakes) -> None:
    fakes.up()
    fakes("down")
    shutil.rmtree(fakes.layout.directory)

    assert fakes.up().code == 0


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "up" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("eslurm (eslurm) ")


def test_default_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ESLURM_STATE_DIR", "/tmp/es-nothing-here")

    assert main(["status"]) == 3
    assert "/tmp/es-nothing-here" in capsys.readouterr().err
