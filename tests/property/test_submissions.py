"""A job's request that is written from its spec reads as the same spec: nothing of a job is lost between two cells."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eslurm.api.requests import SpecReader
from eslurm.api.submissions import bid_request, job_request
from eslurm.core.model.config import ClusterConfig, Resource
from eslurm.core.model.job import Dependency, JobSpec
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import ALICE

CONFIG = ClusterConfig(cluster="test", resources=(Resource("gpu"), Resource("licence", wide_total=9)))
SCRIPT, ENVIRONMENT = b"#!/bin/sh\nhostname\n", b"A=1\0"

names = st.text("abcXYZ019_.-", max_size=8)
counts = st.integers(0, 3)
moments = st.integers(0, 2**50)
paths = st.just("") | names.map(lambda name: f"/data/{name}x")
amounts = st.lists(
    st.builds(pb.ResourceAmount, name=st.sampled_from(["gpu", "licence", "fpga"]), items=st.integers(1, 9)),
    max_size=2,
)
constraints = st.sampled_from(["", "a", "a&b", "a|!c", "gpu=2"])
chunks = st.builds(
    pb.Chunk,
    count=counts,
    cores=counts,
    memory_mib=st.integers(0, 99),
    resources=amounts,
    constraint=constraints,
)


@st.composite
def components(draw: st.DrawFn) -> Any:
    nodes = draw(counts)
    return pb.ResourceRequest(
        nodes_min=nodes,
        nodes_max=draw(st.sampled_from([0, nodes, nodes + 2])),
        tasks=draw(st.sampled_from([0, nodes, nodes + 5])),
        cpus_per_task=draw(counts),
        tasks_per_node=draw(counts),
        exclusive=draw(st.booleans()),
        include=draw(st.lists(st.sampled_from(["cn1", "cn2"]), unique=True)),
        exclude=draw(st.lists(st.sampled_from(["cn3"]), unique=True)),
        per_node=draw(amounts),
        per_task=draw(amounts),
        wide=draw(amounts),
        constraint=draw(st.sampled_from(["", "a", "a|!c"])),
        place=draw(st.sampled_from(["", "free", "pack", "scatter"])),
        chunks=draw(st.lists(chunks, max_size=2)),
        partition=draw(names),
        **draw(st.sampled_from([{}, {"memory_per_node_mib": 7}, {"memory_per_cpu_mib": 5}])),
    )


requests = st.builds(
    pb.JobRequest,
    name=names,
    partition=names,
    components=st.lists(components(), max_size=1),
    script=st.just(SCRIPT),
    environment=st.just(ENVIRONMENT),
    work_dir=names.map("/home/{}".format),
    time_limit_s=st.none() | counts,
    output=paths,
    error=paths,
    input=paths,
    truncate_output=st.booleans(),
    begin_us=moments,
    start_at_us=moments,
    deadline_us=moments,
    priority=st.none() | st.integers(0, 99),
    requeue=st.none() | st.booleans(),
    arguments=st.lists(names, max_size=2),
    account=names,
    comment=names,
    umask=st.integers(0, 0o777),
    qos=names,
    reservation=names,
    nice=st.integers(-9, 9),
    warn_signal=st.integers(0, 64),
    warn_before_s=counts,
    warn_batch_only=st.booleans(),
    warn_script=paths,
    traceparent=st.just("")
    | st.binary(min_size=16, max_size=16).map(lambda one: f"00-{one.hex()}-{'1' * 16}-01"),
    dependency_any=st.booleans(),
    no_kill=st.booleans(),
    retry_on=st.sampled_from([[], ["timeout"], ["node-fail"], ["timeout", "node-fail", "oom"]]),
    retries_max=st.integers(0, 100),
)


def read(request: pb.JobRequest) -> JobSpec:
    """The spec as the door of a cell reads it."""
    return SpecReader(ALICE, CONFIG, cell="alpha").read(pb.JobRequest.FromString(request.SerializeToString()))


@settings(deadline=None)
@given(requests)
def test_a_spec_that_is_written_reads_as_itself(request: pb.JobRequest) -> None:
    spec = read(request)
    assert read(job_request(spec, SCRIPT, ENVIRONMENT)) == spec


@settings(deadline=None)
@given(requests)
def test_a_bid_asks_for_the_same_resources_and_tells_nothing_else(request: pb.JobRequest) -> None:
    spec = read(request)
    bid = bid_request(spec)
    asked = read(bid)
    withheld = {
        name: getattr(asked, name)
        for name in ("name", "script_hash", "environment_hash", "work_dir", "arguments", "comment", "trace")
    }
    files = dict.fromkeys(("output", "error", "input", "warn_script"), "")
    assert asked == replace(spec, **withheld, **files, append_output=True)
    assert (bid.name, bid.environment, bid.comment, bid.work_dir) == ("", b"", "", "/")
    assert not bid.arguments and bid.script == b"#!/bin/sh\n" and not bid.traceparent


def test_what_stays_in_the_home_cell_is_left_out() -> None:
    """Dependencies are met when a job is offered, a held one is not offered, and its cells are its home's choice."""
    spec = read(pb.JobRequest(script=SCRIPT, work_dir="/"))
    more = replace(spec, held=True, cells=("any",), dependencies=(Dependency("afterok", 17),))
    assert read(job_request(more, SCRIPT, b"")) == read(job_request(spec, SCRIPT, b""))
