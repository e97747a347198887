"""A sealed command permits its own start on a host, and an agent cannot make more of it. Each case is one misfit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eslurm.core.model.gateways import GatewayRequest, GatewayStep
from eslurm.core.model.job import Principal
from eslurm.core.model.protocol import Command, Heartbeat, LaunchStep, NodeGroup, Prepare, SetTime, Start
from eslurm.core.model.request import PartSpec, Request
from eslurm.core.model.step_key import GATEWAY_STEP, ROUTE_ERROR_STEP, ROUTE_STEP, StepKey
from eslurm.security.sealing import Purpose
from eslurm.security.site_keys import Ring, new_site, write_ring
from eslurm.telemetry.clocks import wall_us
from esnoded.procd import wire as wire_of_procd
from esnoded.procd.credential import TOLERANCE_US, NotAllowed, Seals, UserNotAllowed, Warrants
from esnoded.procd.launches import Launches
from esnoded.procd.options import Options, read_options
from esnoded.procd.request_checks import RequestChecks
from esnoded.procd.scripts import Scripts
from esnoded.procd.server import Procd
from esnoded.stepd import wire
from esnoded.stepd.place import Place
from esnoded.stepd.processes import Processes
from esnoded.stepd.server import Server
from esnoded.stepd.terms import read_spec
from tests.kits.stepd_credentials import KEY, SCRIPT, SITE, launch, order, sealed

NOW_US = 1_000_000_000
STEP = msgspec.structs.replace(KEY, step=0, node=4)
FIRST = NodeGroup(((3, 1),), (1,), 1)
SECOND = NodeGroup(((4, 1),), (1,), 2)


def warrants(**users: Any) -> Warrants:
    return Warrants(SITE.ring, Options("cn[3-4]", "", **users), 0)


def tasks(**changes: Any) -> LaunchStep:
    made = LaunchStep(
        job_id=7,
        attempt=1,
        step=0,
        groups=(FIRST, SECOND),
        argv=("hostname",),
        environment_hash=launch().spec.environment_hash,
        work_dir="/tmp",
        endpoint="127.0.0.1:4711",
        cookie=b"c" * 32,
        tasks=3,
        launch=launch(),
    )
    return msgspec.structs.replace(made, **changes)


def as_user(uid: int) -> Prepare:
    return Prepare(launch(user=Principal("u", uid, 100)), start=True)


def test_a_good_one_says_whose_process_it_is() -> None:
    allowed = warrants().launch(KEY, sealed(expires_us=NOW_US), NOW_US)
    assert (allowed.launch, allowed.node_name, allowed.until_us) == (launch(), "cn3", NOW_US + TOLERANCE_US)
    assert allowed.tasks == 1
    assert warrants().launch(KEY, sealed(Start(7, 1, launch()), expires_us=NOW_US), NOW_US).request is None
    allowed = warrants().launch(STEP, sealed(tasks(), expires_us=NOW_US), NOW_US)
    assert allowed.request == tasks() and (allowed.node_name, allowed.tasks) == ("cn4", 2)


CASES: list[tuple[str, dict[str, Any], StepKey, str]] = [
    ("another site's key", {"site": new_site("c", 9)}, KEY, "not of this site: unknown key"),
    ("another purpose", {"purpose": Purpose.TOKEN}, KEY, "not of this site: the signature"),
    ("another cluster", {"cluster": "d"}, KEY, "of cluster 'd'"),
    ("not for the node", {"nodes": ((4, 9),)}, KEY, "not for node number 3"),
    ("out of date", {"expires_us": NOW_US - TOLERANCE_US - 1}, KEY, "ended 60 s ago"),
    ("never in date", {"expires_us": 0}, KEY, "ended"),
    ("another host's node", {"body": Prepare(launch(node_names="xn[3-4]"), start=True)}, KEY, "node xn3"),
    ("no start", {"body": Prepare(launch())}, KEY, "starts nothing"),
    ("a start without a launch", {"body": Start(7, 1)}, KEY, "starts nothing"),
    ("no launch at all", {"body": Heartbeat(0)}, KEY, "starts nothing"),
    ("a step without a launch", {"body": tasks(launch=None)}, STEP, "starts nothing"),
    ("a start of another job", {"body": Start(8, 1, launch())}, KEY, "another step"),
    ("a step of another job", {"body": tasks(job_id=8)}, STEP, "another step"),
    ("a job asked for as another", {}, StepKey(8, 1, -1, 3), "another step"),
    ("another attempt", {}, StepKey(7, 2, -1, 3), "another step"),
    ("a script asked for as a step", {}, StepKey(7, 1, 0, 3), "another step"),
    ("a step asked for as another", {"body": tasks()}, StepKey(7, 1, 1, 4), "another step"),
    ("a step asked for as the script", {"body": tasks()}, StepKey(7, 1, -1, 3), "another step"),
    ("the script on a second node", {}, StepKey(7, 1, -1, 4), "not the first"),
    ("a node that is none of the job's", {"nodes": ((0, 99),)}, StepKey(7, 1, -1, 9), "not the first"),
    ("a step on another node", {"body": tasks(groups=(FIRST,))}, STEP, "no part in it"),
    (
        "a step without tasks",
        {"body": tasks(groups=(msgspec.structs.replace(SECOND, tasks=0),))},
        STEP,
        "has 0 tasks",
    ),
    ("a user that cannot be", {"body": as_user(2**32 - 1)}, KEY, "4294967295 is not an id"),
    ("root", {"body": as_user(0)}, KEY, "root are refused"),
    ("a service", {"body": as_user(999)}, KEY, "below 1000"),
]


@pytest.mark.parametrize(
    ("fields", "key", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any], key: StepKey, said: str) -> None:
    given = {"expires_us": NOW_US} | fields
    with pytest.raises(NotAllowed, match=said):
        warrants().launch(key, sealed(**given), NOW_US)


DAEMON, ROUTES = StepKey(7, 1, GATEWAY_STEP, 4), StepKey(7, 1, ROUTE_STEP, 3)
GATEWAYS = {
    "parts": (PartSpec(), PartSpec("gateways", "gateway")),
    "components": (Request(), Request()),
    "groups": (FIRST, NodeGroup(((4, 1),), (2,), 2, 1)),
    "gateway": GatewayRequest(1),
}
"""Node 3 is the job's, node 4 its gateway."""


def of_gateways(key: StepKey, **changes: Any) -> LaunchStep:
    group = NodeGroup(((key.node, 1),), (2,), 2 if key == DAEMON else 1, int(key == DAEMON))
    made = tasks(step=key.step, groups=(group,), component=group.component, gateway=GatewayStep(), argv=())
    return msgspec.structs.replace(made, **{"launch": launch(**GATEWAYS)} | changes)


def test_steps_of_gateways_are_let_in_on_their_nodes() -> None:
    for key, count in ((DAEMON, 2), (ROUTES, 1), (msgspec.structs.replace(ROUTES, step=ROUTE_ERROR_STEP), 1)):
        allowed = warrants().launch(key, sealed(of_gateways(key), expires_us=NOW_US), NOW_US)
        assert allowed.tasks == count and allowed.request is not None


@pytest.mark.parametrize(
    ("key", "body", "said"),
    [
        (DAEMON, of_gateways(DAEMON, launch=launch(**GATEWAYS | {"gateway": None})), "has no gateways"),
        (DAEMON, of_gateways(DAEMON, gateway=None), "has no gateways"),
        (
            DAEMON,
            of_gateways(DAEMON, launch=launch(**GATEWAYS | {"parts": (PartSpec(),) * 2})),
            "no gateway of",
        ),
        (DAEMON, of_gateways(ROUTES), "another step"),
        (StepKey(7, 1, GATEWAY_STEP, 3), of_gateways(StepKey(7, 1, GATEWAY_STEP, 3)), "no gateway of"),
        (StepKey(7, 1, ROUTE_STEP, 4), of_gateways(StepKey(7, 1, ROUTE_STEP, 4)), "not the first"),
        (StepKey(7, 1, -7, 3), of_gateways(StepKey(7, 1, -7, 3)), "another step"),
        (DAEMON, Prepare(launch(**GATEWAYS), start=True), "another step"),
    ],
)
def test_steps_of_gateways_are_no_way_to_other_nodes_or_jobs(key: StepKey, body: Any, said: str) -> None:
    with pytest.raises(NotAllowed, match=said):
        warrants().launch(key, sealed(body, expires_us=NOW_US), NOW_US)


SEVERAL = {
    "parts": (PartSpec(), PartSpec("booster")),
    "components": (Request(), Request()),
    "groups": (NodeGroup(((3, 2),), (4,), 1), NodeGroup(((4, 1), (5, 1)), (2,), 2, 1)),
    "node_names": "cn[3-4],xn5",
}
"""Two parts that share node 4: part 0 holds 4 cores there, part 1 holds 2."""


def in_part(component: int, cpus_per_task: int, group: NodeGroup, **changes: Any) -> LaunchStep:
    """A step with one task on each node of the group."""
    return tasks(
        component=component,
        cpus_per_task=cpus_per_task,
        groups=(group,),
        launch=launch(**(SEVERAL | changes)),
    )


OF_0, OF_1 = NodeGroup(((4, 1),), (1,), 1), NodeGroup(((4, 1),), (1,), 1, 1)


def test_a_step_of_one_part_is_let_in_by_what_its_part_holds() -> None:
    for component, cores, group in ((0, 4, OF_0), (1, 2, OF_1)):
        body = in_part(component, cores, group)
        allowed = warrants().launch(STEP, sealed(body, expires_us=NOW_US), NOW_US)
        assert (allowed.node_name, allowed.names) == ("cn4", ("cn3", "cn4", "xn5"))
    start = sealed(Prepare(launch(**SEVERAL), start=True), expires_us=NOW_US)
    assert warrants().launch(KEY, start, NOW_US).node_name == "cn3"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (in_part(1, 3, OF_1), "3 cores for node number 4, where part 1 holds 2"),
        (in_part(0, 5, OF_0), "5 cores for node number 4, where part 0 holds 4"),
        (in_part(1, 1, msgspec.structs.replace(OF_1, tasks=3)), "3 cores for node number 4"),
        (in_part(2, 1, OF_1), "none of part 2"),
        (in_part(-1, 1, OF_1), "none of part -1"),
        (in_part(0, 1, OF_0, groups=SEVERAL["groups"][1:]), "none of part 0"),
        (in_part(1, 1, OF_1, groups=(FIRST, msgspec.structs.replace(OF_1, amounts=()))), "part 1 holds 0"),
    ],
)
def test_a_step_of_one_part_takes_no_share_of_another_one(body: LaunchStep, said: str) -> None:
    with pytest.raises(NotAllowed, match=said):
        warrants().launch(STEP, sealed(body, expires_us=NOW_US), NOW_US)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (in_part(0, 1, OF_0, groups=(OF_0, msgspec.structs.replace(OF_1, component=2))), "other parts"),
        (in_part(1, 1, OF_1, components=(Request(),)), "other parts than its 2"),
        (in_part(1, 1, OF_1, devices=((4, "gpu", (0,)),), device_parts=(1, 1)), "of which parts"),
    ],
)
def test_the_supervisor_refuses_a_launch_that_does_not_describe_its_parts(
    body: LaunchStep, said: str
) -> None:
    with pytest.raises(NotAllowed, match=said):
        read_spec(order(sealed(body, expires_us=NOW_US), key=STEP))


def test_a_credential_of_another_node_under_the_same_signature_is_of_no_use() -> None:
    runs = (((3, 1),), ((4, 1),))
    commands = [
        Command("c", "main", 1, 5, 0, run, (1,), NOW_US, Prepare(launch(), start=True)) for run in runs
    ]
    ours, theirs = SITE.seal_together(Purpose.COMMAND, [msgspec.msgpack.encode(one) for one in commands])
    checks = warrants()
    assert checks.launch(KEY, ours, NOW_US).node_name == "cn3"
    with pytest.raises(NotAllowed, match="not for node number 3"):
        checks.launch(KEY, theirs, NOW_US)
    body = msgspec.msgpack.encode(commands[0])
    with pytest.raises(NotAllowed, match="not of this site"):
        checks.launch(KEY, theirs[: -len(body)] + body, NOW_US)


def test_every_bit_counts() -> None:
    good = sealed(expires_us=NOW_US)
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1
        with pytest.raises(NotAllowed):
            warrants().launch(KEY, bytes(bad), NOW_US)
    for text in (b"", b"x", good[:40], *SITE.seal_together(Purpose.COMMAND, [b"nonsense"])):
        with pytest.raises(NotAllowed):
            warrants().launch(KEY, text, NOW_US)


@pytest.mark.parametrize("uid", [0, 999])
def test_who_is_kept_out_is_told_apart_from_a_credential_that_does_not_fit(uid: int) -> None:
    with pytest.raises(UserNotAllowed):
        warrants().launch(KEY, sealed(as_user(uid), expires_us=NOW_US), NOW_US)
    with pytest.raises(NotAllowed) as refused:
        warrants().launch(KEY, sealed(expires_us=0), NOW_US)
    assert not isinstance(refused.value, UserNotAllowed)


def test_root_is_let_in_by_root_alone() -> None:
    good = sealed(as_user(0), expires_us=NOW_US)
    assert warrants(allow_root_jobs=True).launch(KEY, good, NOW_US).launch.spec.user.uid == 0
    assert warrants(min_uid=5).launch(KEY, sealed(as_user(5), expires_us=NOW_US), NOW_US)


# ---- the checks: one launch for each credential, and its blobs ----


@pytest.fixture
def place(state_dir: Path) -> Place:
    made = Place(state_dir / "a")
    made.prepare()
    write_ring(state_dir / "site.pub", SITE.ring)
    made.write_options(Options("cn[3-4]", str(state_dir / "site.pub"), allow_root_jobs=True, min_uid=0))
    return made


def mine(**changes: Any) -> Prepare:
    """As this process's user, who can be given a script without root's help."""
    return Prepare(launch(user=Principal("me", os.getuid(), os.getgid()), **changes), start=True)


class Opened:
    """A checks and its record, as one `procd` has them."""

    def __init__(self, place: Place) -> None:
        self.launches = Launches(place.launches, "boot")
        self.launches.rewrite()
        self.scripts = Scripts(place.scripts)
        self.checks = RequestChecks(place.options, place.ring, self.scripts, self.launches)

    def close(self) -> None:
        os.close(self.launches._fd)
        os.close(self.scripts._fd)


@pytest.fixture
def opened(place: Place) -> Iterator[Opened]:
    made = Opened(place)
    yield made
    made.close()


def test_the_step_is_what_the_credential_says(opened: Opened, place: Place) -> None:
    spec = opened.checks.admit(order(sealed(mine(arguments=("a",), time_limit_s=60, umask=0o077)))).make(0)
    assert Path(spec.argv[0]).read_bytes() == SCRIPT and Path(spec.argv[0]).parent == Path(place.scripts)
    assert spec.argv[1:] == ("a",) and spec.uid == os.getuid() and spec.cwd == "/tmp" and spec.stdout == "out"
    assert (spec.time_limit_us, spec.umask, spec.env["ESLURM_SOCKET"]) == (60_000_000, 0o077, "/door")


def test_the_supervisor_reads_the_step_that_its_tasks_build(opened: Opened) -> None:
    for asked in (order(sealed(mine())), order(sealed(tasks(launch=mine().launch)), key=STEP)):
        built = opened.checks.admit(asked).make(0)
        read = read_spec(asked)
        assert read.argv[1:] == built.argv[1:]
        assert msgspec.structs.replace(read, argv=built.argv, env=built.env) == built


@pytest.mark.parametrize(
    "changes", [{"script": b"#!/bin/sh\nid\n"}, {"script": b""}, {"environment": b"A=b\0"}]
)
def test_other_blobs_are_refused(changes: dict[str, Any], opened: Opened) -> None:
    with pytest.raises(NotAllowed, match="is not the one"):
        opened.checks.admit(order(sealed(mine()), **changes))
    assert opened.checks.admit(order(sealed(mine()))), "it did not count"


def test_a_credential_starts_its_step_once_also_after_a_restart(opened: Opened, place: Place) -> None:
    again = order(sealed(mine()))
    admitted = opened.checks.admit(again)
    opened.checks.begin(admitted)
    for act in (lambda: opened.checks.admit(again), lambda: opened.checks.begin(admitted)):
        with pytest.raises(NotAllowed, match="launched before"):
            act()
    opened.launches.rewrite()
    opened.close()
    opened.__init__(place)  # type: ignore[misc]
    with pytest.raises(NotAllowed, match="launched before"):
        opened.checks.admit(again)


def test_no_process_is_started_for_an_allocation(opened: Opened) -> None:
    held = launch(no_script=True, script_hash=b"", node_names="cn[3-4]")
    credential = sealed(Prepare(held, start=True))
    with pytest.raises(NotAllowed, match="script is not the one"):
        opened.checks.admit(order(credential))
    admitted = opened.checks.admit(order(credential, script=b""))
    assert (admitted.tasks, admitted.warns) == (0, False)
    assert read_spec(order(credential, script=b"")).tasks == 0
    channel: Any = None
    procd = Procd(channel, opened.checks, opened.launches, "instance")
    opened.checks.release(KEY)
    answer, _ = procd.handle(wire_of_procd.Admit(order(credential, script=b"")), ())
    assert isinstance(answer, wire_of_procd.Done)
    for asked in (wire_of_procd.Spawn(KEY, 0), wire_of_procd.Spawn(KEY, 0, seconds_left=1)):
        refused, _ = procd.handle(asked, ())
        assert isinstance(refused, wire_of_procd.Refused), refused


def test_a_step_that_was_admitted_in_time_does_not_begin_when_its_credential_has_ended(
    opened: Opened,
) -> None:
    admitted = opened.checks.admit(order(sealed(mine())))
    with pytest.raises(NotAllowed, match="has ended before it was started"):
        opened.checks.begin(msgspec.structs.replace(admitted, until_us=wall_us() - 1))
    opened.checks.begin(admitted)


def test_a_limit_is_lengthened_by_a_sealed_command_of_a_later_revision(opened: Opened) -> None:
    hour = 3_600_000_000
    server, processes = Server.__new__(Server), Processes.__new__(Processes)
    processes._seals = Seals(Ring.from_sealed(opened.checks.refresh()[1]))
    server._processes, server._limits = processes, {}

    def ask(limit_us: int, credential: bytes = b"") -> None:
        server._check_limit(wire.SetLimit(1, KEY, limit_us, credential), hour)

    ask(hour // 2)
    for limit_us in (2 * hour, 0):
        with pytest.raises(NotAllowed, match="sealed command"):
            ask(limit_us)
    longer = sealed(SetTime(7, 1, 7200), revision=8)
    for _ in range(2):
        # The agent says it again after each restart.
        ask(2 * hour, longer)
    with pytest.raises(NotAllowed, match="sets a time limit of 7200 s"):
        ask(3 * hour, longer)
    with pytest.raises(NotAllowed, match="later command"):
        ask(3 * hour, sealed(SetTime(7, 1, 10_800), revision=7))
    with pytest.raises(NotAllowed, match="does not set"):
        ask(3 * hour, sealed(SetTime(8, 1, 10_800), revision=9))


def test_other_keys_are_trusted_when_present_ones_vouch_for_them(opened: Opened, place: Place) -> None:
    waiting = SITE.with_next(2)
    credential = sealed(mine(), site=waiting.with_next_signing())
    with pytest.raises(NotAllowed, match="unknown key"):
        opened.checks.admit(order(credential))
    with pytest.raises(NotAllowed, match="not replaced"):
        opened.checks.trust(new_site("c", 3).ring.sealed)
    opened.checks.trust(waiting.ring.sealed)
    assert opened.checks.admit(order(credential))
    opened.checks.release(KEY)
    opened.close()
    opened.__init__(place)  # type: ignore[misc]
    assert opened.checks.admit(order(credential)), "it is kept"


def test_what_root_says_counts_from_the_next_connection_on(opened: Opened, place: Place) -> None:
    options = read_options(place.options)
    place.write_options(msgspec.structs.replace(options, nodes="cn4"))
    opened.checks.refresh()
    with pytest.raises(NotAllowed, match="cn3"):
        opened.checks.admit(order(sealed(mine())))
