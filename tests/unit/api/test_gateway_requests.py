"""`--gateways` from the command line to the core's request; what is malformed is refused in one line by both."""

from __future__ import annotations

import pytest

from escli.option_table import rows_of
from escli.options import Parser
from escli.user.draft import SubmitContext, draft_job
from escli.wire import encode
from escli.wire_tables import JOB_REQUEST
from eslurm.api.infos import job_info
from eslurm.api.requests import SpecReader
from eslurm.compat.errors import OptionError
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.gateways import GatewayRequest
from eslurm.core.model.job import Principal, StepEnd
from eslurm.core.model.job_weight import weight
from eslurm.core.model.messages import Refused
from eslurm.v1 import controller_pb2 as pb
from tests.kits.gateways import address, addressed, ends, gateway_world, prepared, started, submit

AROUND = SubmitContext(cwd="/", host="h", umask=18, now_us=1, offset_s=lambda _: 0, environment={})
FULL = [
    "--gateways=2",
    "--gateways-per-node=3",
    "--gateway-file=/s/routes",
    "--gateway-plugin=my.map",
    "--gateway-env=PORT=5000,LEVEL=",
    "--gateway-binary=/opt/forward",
    "--gateway-cleanup",
    "--gateway-quiet",
    "--gateway-debug",
    "--gateway-inherit=no",
]


def drafted(*words: str) -> pb.JobRequest:
    draft = draft_job(Parser(rows_of("essubmit")).parse(list(words)), b"#!/bin/sh\n", "a", (), AROUND)
    return pb.JobRequest.FromString(encode(draft, JOB_REQUEST))


def read(request: pb.JobRequest) -> GatewayRequest | None:
    return SpecReader(Principal("alice", 1000, 1000), ClusterConfig("test")).read(request).gateway


def test_all_options() -> None:
    assert read(drafted(*FULL)) == GatewayRequest(
        2,
        "my.map",
        "/s/routes",
        "/opt/forward",
        (("PORT", "5000"), ("LEVEL", "")),
        3,
        cleanup=True,
        quiet=True,
        debug=True,
        apart=True,
    )
    assert read(drafted("--gateways=1", "--gateway-inherit=YES")) == GatewayRequest(1)
    assert read(drafted("--gateways", "1")) == GatewayRequest(1)
    assert read(drafted()) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--gateway-file=/s/routes", "--gateway-file: '/s/routes' needs gateways: add e.g. --gateways 2"),
        ("--gateway-plugin=plugin2", "--gateway-plugin: 'plugin2' needs gateways"),
        ("--gateway-cleanup", "--gateway-cleanup needs gateways"),
        ("--gateway-debug", "--gateway-debug needs gateways"),
        ("--gateway-inherit=no", "--gateway-inherit: 'no' needs gateways"),
        ("--gateways=1 --gateway-inherit=all", "--gateway-inherit: 'all' is neither yes nor no"),
        ("--gateways=0", "--gateways: '0'"),
        ("--gateways=two", "--gateways: 'two'"),
        ("--gateways=1 --gateways-per-node=0", "--gateways-per-node: '0'"),
        ("--gateways=1 --gateway-file=routes", "--gateway-file: 'routes' is no absolute path of a file"),
        ("--gateways=1 --gateway-file=/s/", "--gateway-file: '/s/' is no absolute path of a file"),
        ("--gateways=1 --gateway-binary=forward", "--gateway-binary: 'forward' is no absolute path"),
        ("--gateways=1 --gateway-plugin=../x", "--gateway-plugin: '../x' is no name of a plug-in"),
        ("--gateways=1 --gateway-env=PORT", "--gateway-env: 'PORT' is no variable"),
        ("--gateways=1 --gateway-env==5", "--gateway-env: '=5' is no variable"),
    ],
)
def test_a_command_refuses(words: str, said: str) -> None:
    with pytest.raises(OptionError) as error:
        drafted(*words.split())
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"count": 0}, "--gateways: '0' is not within 1..1024"),
        ({"count": 2000}, "--gateways: '2000' is not within 1..1024"),
        ({"count": 1, "per_node": 65}, "--gateways-per-node: '65' is not within 1..64"),
        ({"count": 1, "file": "x"}, "--gateway-file: 'x' is no absolute path"),
        ({"count": 1, "file": "/a\nb"}, "--gateway-file: '/a\\nb' is no absolute path"),
        ({"count": 1, "file": "/" + "x" * 5000}, "is longer than 4096 characters"),
        ({"count": 1, "binary": "/a\0b"}, "--gateway-binary"),
        ({"count": 1, "plugin": "x" * 65}, "is no name of a plug-in"),
        ({"count": 1, "env": ["A=1"] * 65}, "more than 64 variables"),
        ({"count": 1, "env": ["A=" + "x" * 300]}, "is longer than 256 characters"),
        ({"count": 1, "env": ["A=\0"]}, "control characters"),
        ({"count": 1, "env": ["1A=2"]}, "is no variable"),
    ],
)
def test_the_api_refuses(fields: dict[str, object], said: str) -> None:
    gateway = pb.GatewayRequest(**fields)  # type: ignore[arg-type]
    with pytest.raises(Refused) as refused:
        read(pb.JobRequest(script=b"#!/bin/sh\n", work_dir="/tmp", gateway=gateway))
    assert said in refused.value.text


def test_large_requests_weigh_more() -> None:
    world = gateway_world()
    env = tuple((f"V{number}", "x" * 250) for number in range(64))
    light, heavy = submit(world), world.submit(gateway=GatewayRequest(1, env=env))
    assert weight(world.job(light).spec) == 1 < weight(world.job(heavy).spec)


def test_what_is_shown() -> None:
    world = gateway_world()
    job_id = submit(world)
    info = job_info(world.state, world.job(job_id), None)
    assert (info.nodes, info.gateways, info.gateway_names, len(info.parts)) == (3, 2, "", 0)
    assert job_id in world.plan()
    world.deliver()
    info = job_info(world.state, world.job(job_id), None)
    assert (info.nodes, info.node_names, info.gateway_names) == (3, "cn[0-2]", "cn[3-4]")
    address(world, job_id, 3)
    info = job_info(world.state, world.job(job_id), None)
    assert info.reason_text == "the daemons of 1 of 2 gateways have told their addresses"
    address(world, job_id, 4)
    info = job_info(world.state, world.job(job_id), None)
    assert info.reason_text == "the routes over its gateways are being written"


def test_a_daemon_that_ended_is_shown() -> None:
    world = gateway_world()
    job_id = prepared(world)
    started(world, job_id)
    assert job_info(world.state, world.job(job_id), None).reason_text == ""
    ends(world, job_id, 3, "gateway", StepEnd(0, 11))
    info = job_info(world.state, world.job(job_id), None)
    assert info.reason_text == "gateway cn3: daemon ended with 139"


def test_gateways_that_failed_are_the_reason_to_wait() -> None:
    world = gateway_world()
    job_id = prepared(world)
    addressed(world, job_id)
    ends(world, job_id, 0, "routes", StepEnd(1, text="plug-in raised"))
    why = "its gateways failed: routes could not be written: 1: plug-in raised"
    assert job_info(world.state, world.job(job_id), None).reason_text == why
    ends(world, job_id, 0, "route_error", StepEnd(0))
    for _ in range(2):
        world.deliver()
    info = job_info(world.state, world.job(job_id), None)
    assert (info.state, info.reason, info.reason_text) == ("PENDING", "BeginTime", why)
