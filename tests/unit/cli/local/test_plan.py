"""From a configuration to daemons: who serves which nodes, on which ports, with which words."""

from __future__ import annotations

import os
import random
import re
import socket
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escli.errors import ClusterError
from escli.local import ports, settings
from escli.local.layout import Layout
from escli.local.plan import assign_nodes, daemons_of, standbys_of, with_ports
from escli.local.record import AgentRecord, ClusterRecord, StandbyRecord, version_key
from escli.local.settings import Wishes
from escli.local.users import with_users
from eslurm.compat.hostlist import expand
from eslurm.config.file import parse_config
from eslurm.config.sections import AgentSection, Config, TlsSection

HERE = Layout(Path("/tmp/es-plan"))


def config_of(*groups: tuple[str, int], satellites: int = 2) -> Config:
    text = '[cluster]\nname = "c"\n[controller]\nlisten = "127.0.0.1:5000"\n'
    for number in range(satellites):
        text += f'[[satellite]]\nname = "s{number}"\nlisten = "127.0.0.1:{5001 + number}"\n'
    for names, cores in groups:
        text += f'[[nodes]]\nnames = "{names}"\ncores = {cores}\nmemory_mib = 100\n'
    return parse_config(text.encode(), "test")


def record_of(*standbys: StandbyRecord) -> ClusterRecord:
    agents = (AgentRecord("agent1", "cn[1-2]", "127.0.0.1:9"),)
    return ClusterRecord(1, "1", "c", 0, 0, 1, agents, standbys=standbys)


def nodes_of(agents: tuple[AgentRecord, ...]) -> list[str]:
    return [agent.nodes for agent in agents]


def test_nodes_are_shared_out_in_neighbourhoods() -> None:
    assert nodes_of(assign_nodes(config_of(("cn[01-16]", 1)), (), 2)) == ["cn[01-08]", "cn[09-16]"]
    assert nodes_of(assign_nodes(config_of(("cn[1-5]", 1)), (), 2)) == ["cn[1-2]", "cn[3-5]"]
    assert nodes_of(assign_nodes(config_of(("cn1", 1)), (), 8)) == ["cn1"]
    assert nodes_of(assign_nodes(config_of(("a[1-4]", 1), ("b[1-2]", 2)), (), 3)) == [
        "a[1-2]",
        "a[3-4]",
        "b[1-2]",
    ]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 20))
def test_every_node_has_exactly_one_agent(sizes: list[int], wanted: int) -> None:
    config = config_of(
        *[(settings.node_names(size).replace("cn", f"g{at}n"), at + 1) for at, size in enumerate(sizes)]
    )
    served = [name for agent in assign_nodes(config, (), wanted) for name in expand(agent.nodes)]
    assert sorted(served) == sorted(name for section in config.nodes for name in expand(section.names))
    assert len(served) == len(set(served))


def test_nodes_stay_where_they_were() -> None:
    first = with_ports(assign_nodes(config_of(("cn[1-4]", 1)), (), 2), [1, 2])
    grown = assign_nodes(config_of(("cn[1-6]", 1)), first, 2)
    assert grown[:2] == first
    assert grown[2] == AgentRecord("agent3", "cn[5-6]", "")
    shrunk = assign_nodes(config_of(("cn[1-3]", 1)), first, 2)
    assert nodes_of(shrunk) == ["cn[1-2]", "cn3"]
    assert nodes_of(assign_nodes(config_of(("cn[1-2]", 1)), first, 2)) == ["cn[1-2]"]


def test_nodes_of_one_agent_must_stay_alike() -> None:
    first = assign_nodes(config_of(("cn[1-2]", 1)), (), 1)
    with pytest.raises(ClusterError, match="make them alike again"):
        assign_nodes(config_of(("cn1", 1), ("cn2", 8)), first, 1)


def test_command_lines() -> None:
    config = config_of(("cn[1-2]", 3))
    controller, first, _, agent = daemons_of(HERE, config, record_of())
    assert controller.arguments == ("--config", "/tmp/es-plan/eslurm.toml", "--state-dir", "/tmp/es-plan")
    assert first.arguments[-1] == "--allow-chaos" and "--allow-chaos" in agent.arguments
    words = dict(zip(first.arguments[:-1:2], first.arguments[1::2], strict=True))
    assert words == {
        "--cluster": "c",
        "--name": "s0",
        "--listen": "127.0.0.1:5001",
        "--controllers": "127.0.0.1:5000",
        "--sockets-max": "64",
        "--state-dir": "/tmp/es-plan/sat1",
    }
    told = [word for word in agent.arguments if word != "--allow-chaos"]
    words = dict(zip(told[::2], told[1::2], strict=True))
    assert words["--satellites"] == "127.0.0.1:5001,127.0.0.1:5002"
    assert (words["--nodes"], words["--cores"], words["--memory-mib"]) == ("cn[1-2]", "3", "100")
    assert words["--min-uid"] == "1000" and "--user" not in words


def test_root_s_daemons_have_the_users_of_the_record() -> None:
    record = msgspec.structs.replace(
        record_of(StandbyRecord("c2", "127.0.0.1:8")),
        daemon_uid=61_200,
        satellite_uid=61_201,
        controller_uid=61_202,
        estimator=True,
    )
    found = daemons_of(HERE, config_of(("cn[1-2]", 3), satellites=1), record)
    assert {one.name: one.arguments[one.arguments.index("--user") + 1] for one in found} == {
        "esctld": "61202:61202",
        "esctld-c2": "61202:61202",
        "sat1": "61201:61201",
        "agent1": "61200",
        "esestd": "61202:61202",
    }


def test_users_of_root_s_daemons_differ_and_stay_while_it_is_up() -> None:
    fresh = record_of()
    chosen = with_users(fresh, is_up=False)
    uids = {chosen.daemon_uid, chosen.satellite_uid, chosen.controller_uid}
    assert len(uids) == 3 and 0 not in uids
    assert with_users(chosen, is_up=False) == chosen
    # Daemons that share files are of one user.
    assert with_users(fresh, is_up=True) == fresh
    older = msgspec.structs.replace(fresh, daemon_uid=61_200)
    assert with_users(older, is_up=False).daemon_uid == 61_200
    own = msgspec.structs.replace(fresh, owner_uid=1000)
    assert with_users(own, is_up=False) == own


def test_satellites_and_agents_are_told_of_tls() -> None:
    config = config_of(("cn[1-2]", 3))
    config.tls = TlsSection("host.pem", "/etc/host.key", "ca.pem", True, "eslurm.test")
    controller, first, _, agent = daemons_of(HERE, config, record_of())
    told = (
        "--tls-certificate",
        "/tmp/es-plan/host.pem",
        "--tls-key",
        "/etc/host.key",
        "--tls-ca",
        "/tmp/es-plan/ca.pem",
    )
    told += ("--tls-require-client-certificate", "--tls-name", "eslurm.test")
    for daemon in (first, agent):
        assert daemon.arguments[2 : 2 + len(told)] == told
    # It reads the configuration itself.
    assert not [word for word in controller.arguments if word.startswith("--tls")]


def test_everybody_knows_all_controllers() -> None:
    standby = StandbyRecord("c2", "127.0.0.1:8")
    main, second, satellite, _, agent = daemons_of(HERE, config_of(("cn[1-2]", 3)), record_of(standby))
    assert (main.name, main.arguments) == (
        "esctld",
        ("--config", "/tmp/es-plan/eslurm.toml", "--state-dir", "/tmp/es-plan"),
    )
    assert (second.name, second.kind, second.listen) == ("esctld-c2", "esctld", "127.0.0.1:8")
    assert second.arguments == (*main.arguments, "--name", "c2", "--listen", "127.0.0.1:8")
    for daemon, option, told in (
        (satellite, "--controllers", "127.0.0.1:5000,127.0.0.1:8"),
        (agent, "--controller", "127.0.0.1:5000,127.0.0.1:8"),
        (agent, "--controller-socket", "/tmp/es-plan/esctld.sock:/tmp/es-plan/esctld-c2.sock"),
    ):
        assert daemon.arguments[daemon.arguments.index(option) + 1] == told


def test_controllers_keep_their_ports_when_others_come_and_go() -> None:
    first = with_ports(standbys_of((), 2), [1])
    assert first == (StandbyRecord("c2", "127.0.0.1:1"),)
    assert standbys_of(first, 3) == (*first, StandbyRecord("c3", ""))
    assert standbys_of(first, 2) == first
    assert standbys_of(first, 1) == ()


def test_node_names_sort() -> None:
    assert settings.node_names(1) == "cn01"
    assert settings.node_names(16) == "cn[01-16]"
    assert settings.node_names(1024) == "cn[0001-1024]"


def test_cluster_names_are_valid_and_differ() -> None:
    one, other = settings.cluster_name(os.getuid()), settings.cluster_name(2**31 - 5)
    assert one != settings.cluster_name(os.getuid())
    for name in (one, other):
        assert re.fullmatch(r"[A-Za-z0-9]+-[0-9a-f]{6}", name)


def test_the_site_s_keys_are_secret_and_written_once(state_dir: Path) -> None:
    settings.write_site_keys(state_dir, "c")
    key = state_dir / "site.key"
    first = key.read_bytes()
    settings.write_site_keys(state_dir, "c")
    assert key.read_bytes() == first
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_moving_ports_keeps_the_rest_of_the_file(state_dir: Path) -> None:
    layout = Layout(state_dir)
    text = settings.compose("c", Wishes(2), 0, [5000, 5001]).replace(
        "[controller]", "[controller]  # at 127.0.0.1:5000"
    )
    layout.config_file.write_text(text)
    config = settings.load_config(layout, "c")

    moved = settings.move_ports(layout, config, [6000, 5000])

    assert (moved.controller.listen, moved.satellite[0].listen) == ("127.0.0.1:6000", "127.0.0.1:5000")
    expected = text.replace('"127.0.0.1:5000"', '"127.0.0.1:6000"').replace(
        '"127.0.0.1:5001"', '"127.0.0.1:5000"'
    )
    assert layout.config_file.read_text() == expected


def test_ports_that_cannot_be_moved_are_left_to_the_user(state_dir: Path) -> None:
    layout = Layout(state_dir)
    text = settings.compose("c", Wishes(2), 0, [5000]).replace(
        '[controller]\nlisten = "127.0.0.1:5000"\n', ""
    )
    layout.config_file.write_text(text)
    with pytest.raises(ClusterError, match="by hand"):
        settings.move_ports(layout, settings.load_config(layout, "c"), [6000])
    assert layout.config_file.read_text() == text


def test_chosen_ports_are_free_different_and_not_ephemeral() -> None:
    chosen = ports.choose(5, None)
    assert len(set(chosen)) == 5
    assert all(ports.is_free(ports.address(port)) for port in chosen)
    assert not set(ports.choose(3, None, chosen)) & set(chosen)


def test_a_chosen_port_is_kept_from_others_and_open_to_a_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    [chosen] = ports.choose(1, None)
    monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: chosen)
    with pytest.raises(ClusterError, match="no free ports"):
        ports.choose(1, None)
    with socket.create_server(("127.0.0.1", chosen)):
        assert not ports.is_free(ports.address(chosen))


def test_a_listening_port_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listen = ports.address(server.getsockname()[1])
        assert not ports.is_free(listen)
    assert ports.is_free(listen)


@pytest.mark.parametrize("base", [1023, 65530])
def test_a_port_base_without_room(base: int) -> None:
    with pytest.raises(ClusterError, match="--port-base"):
        ports.choose(10, base)


def test_versions_in_order() -> None:
    assert version_key("0.9.1") < version_key("0.10") < version_key("1")
    assert version_key("0.2.1rc1") == (0, 2)


def test_agents_are_told_to_give_jobs_cores_of_their_own() -> None:
    config = config_of(("cn[1-2]", 3))
    assert "--bind-cores" not in daemons_of(HERE, config, record_of())[-1].arguments
    config = msgspec.structs.replace(config, agent=AgentSection(bind_cores=True))
    assert "--bind-cores" in daemons_of(HERE, config, record_of())[-1].arguments


def test_agents_are_told_of_the_programs_around_jobs() -> None:
    text = config_of(("cn[1-2]", 3))
    assert not [word for word in daemons_of(HERE, text, record_of())[-1].arguments if "phase" in word]
    section = AgentSection(
        prolog="/p",
        epilog="/e",
        check="/c",
        task_prolog="/t",
        task_epilog="/u",
        gateway_daemon="/g",
        phase_user="job",
        phase_limit_s=9,
    )
    told = daemons_of(HERE, msgspec.structs.replace(text, agent=section), record_of())[-1].arguments
    found = {
        word: told[told.index(word) + 1]
        for word in told
        if word.startswith(("--p", "--e", "--c", "--task", "--g"))
    }
    del found["--cluster"], found["--controller"], found["--cores"], found["--controller-socket"]
    assert found == {
        "--prolog": "/p",
        "--epilog": "/e",
        "--check": "/c",
        "--task-prolog": "/t",
        "--task-epilog": "/u",
        "--gateway-daemon": "/g",
        "--phase-user": "job",
        "--phase-limit": "9",
    }
