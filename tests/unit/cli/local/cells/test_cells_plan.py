"""The plan of a federation: names, shares, ports and users; and what is said about options that do not fit."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path

import pytest

from escli.errors import ClusterError
from escli.local import settings
from escli.local.cells.plan import CellsLayout, check_agreement, draw_plan, names_of, split
from escli.local.settings import Wishes
from eslurm.compat.hostlist import expand
from eslurm.config.file import parse_config


def refusal(call: object, *arguments: object) -> str:
    assert callable(call)
    with pytest.raises(ClusterError) as caught:
        call(*arguments)
    assert caught.value.code == 2
    return caught.value.text


def test_a_number_of_cells_names_them() -> None:
    assert names_of("3") == ("alpha", "beta", "gamma")
    assert names_of("12")[9:] == ("kappa", "c11", "c12")
    assert names_of("a,North-2") == ("a", "North-2")


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "65",
        "99999999",
        "",
        "a",
        "a,",
        "a,a",
        "a,A",
        "a,b c",
        "a,etcd",
        "a,log",
        "a,../b",
        "a,abcdefghijklm",
        "²",
    ],
)
def test_what_are_no_cells(text: str) -> None:
    assert refusal(names_of, text).startswith("--cells: ")


def test_nodes_are_shared_out_evenly() -> None:
    assert split(7, 3) == (3, 2, 2)
    assert split(3, 3) == (1, 1, 1)
    assert sum(split(500, 7)) == 500
    assert refusal(split, 2, 3) == "--nodes: 2 nodes are too few for 3 cells: give at least 3"


@pytest.mark.parametrize("etcds", [1, 3])
def test_cells_share_no_name_and_no_port(etcds: int) -> None:
    plan = draw_plan(names_of("5"), Wishes(nodes=12, controllers=2), etcds)
    configs = []
    for cell in plan.cells:
        assert cell.wishes.cell is not None
        cluster = settings.cluster_name(os.getuid(), cell.name)
        assert cluster.startswith(f"{cell.name}-")
        text = settings.compose(cluster, cell.wishes, 1000, cell.wishes.cell.ports[:2])
        configs.append(parse_config(text.encode(), cell.name))
    names = [name for config in configs for one in config.nodes for name in expand(one.names, "names")]
    assert len(set(names)) == len(names) == plan.nodes == 12
    assert [config.federation.cell for config in configs] == list(plan.names)
    endpoints = [f"https://{member.listen}" for member in plan.members]
    assert all(config.federation.endpoints == endpoints for config in configs)
    listens = [one for member in plan.members for one in (member.listen, member.peer)]
    used = [int(listen.rpartition(":")[2]) for listen in listens]
    used += chain.from_iterable(cell.wishes.cell.ports for cell in plan.cells if cell.wishes.cell)
    # A controller, a standby, a satellite and an agent each.
    assert len(set(used)) == len(used) == 2 * etcds + 5 * 4


def test_ports_from_a_base_follow_each_other() -> None:
    plan = draw_plan(("a", "b"), Wishes(port_base=23_000), 1)
    assert (plan.members[0].listen, plan.members[0].peer) == ("127.0.0.1:23000", "127.0.0.1:23001")
    assert [cell.wishes.cell.ports for cell in plan.cells if cell.wishes.cell] == [
        (23002, 23003, 23004),
        (23005, 23006, 23007),
    ]


def test_daemons_of_root_are_different_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    plan = draw_plan(names_of("20"), Wishes(), 1)
    uids = [plan.uid]
    for cell in plan.cells:
        assert cell.wishes.cell is not None and cell.wishes.cell.uids is not None
        uids += cell.wishes.cell.uids
    assert len(set(uids)) == len(uids) == 61
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    plan = draw_plan(names_of("2"), Wishes(), 1)
    assert plan.uid == 0
    assert all(cell.wishes.cell and cell.wishes.cell.uids is None for cell in plan.cells)


def test_the_file_says_everything(state_dir: Path) -> None:
    layout = CellsLayout(state_dir)
    assert layout.find_plan() is None
    plan = draw_plan(names_of("3"), Wishes(nodes=6, cores=2), 1)
    layout.save_plan(plan)
    assert layout.federation_file.stat().st_mode & 0o777 == 0o600
    assert layout.find_plan() == plan
    check_agreement(layout, plan, None, None, Wishes())
    check_agreement(layout, plan, "alpha,beta,gamma", 1, Wishes(nodes=6, cores=2, agents=1, controllers=1))
    assert "(3: alpha, beta, gamma): leave the option out" in refusal(
        check_agreement, layout, plan, "4", None, Wishes()
    )
    for etcds, wishes, told in (
        (3, Wishes(), "--etcds: 3 is not what the federation"),
        (None, Wishes(nodes=7), "--nodes: 7 is"),
        (None, Wishes(satellites=2), "--satellites: 2 is"),
        (None, Wishes(port_base=5000), "--port-base: 5000 is"),
        (None, Wishes(prolog="/bin/true"), "--prolog: /bin/true is"),
    ):
        assert told in refusal(check_agreement, layout, plan, None, etcds, wishes)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"format": 1}'])
def test_a_damaged_file(state_dir: Path, content: bytes) -> None:
    layout = CellsLayout(state_dir)
    layout.federation_file.write_bytes(content)
    assert "is not a record of a federation" in refusal(layout.find_plan)
    assert layout.federation_file.read_bytes() == content


def test_a_directory_with_something_else_in_it(state_dir: Path) -> None:
    layout = CellsLayout(state_dir)
    (state_dir / "photo.jpg").write_bytes(b"x")
    assert "photo.jpg is there" in refusal(layout.find_plan)
    (state_dir / "cluster.json").write_bytes(b"{}")
    assert "holds a single cluster, which stays one" in refusal(layout.find_plan)
