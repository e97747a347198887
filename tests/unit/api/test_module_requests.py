"""`--module NAME`: a feature and, where only one partition is in the module, that partition."""

from __future__ import annotations

import pytest

from eslurm.api.requests import SpecReader
from eslurm.core.model.config import ClusterConfig, Module, NodeConfig, Partition
from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.messages import Refused
from eslurm.core.model.parts import partition_of
from eslurm.v1 import controller_pb2 as pb

OF = {"cn1": "cluster", "cn2": "cluster", "bn1": "booster", "gw1": "gw"}
CONFIG = ClusterConfig(
    "test",
    nodes=tuple(NodeConfig(name, (4, 1024), (module,), module=module) for name, module in OF.items()),
    partitions=(
        Partition("all", ("cn1", "cn2", "bn1"), default=True),
        Partition("short", ("cn1",)),
        Partition("long", ("cn1", "cn2")),
        Partition("fast", ("bn1",)),
        Partition("gateways", ("gw1",), role="gateway"),
    ),
    modules=(Module("cluster"), Module("booster", "booster"), Module("gw", "gateway")),
)


def read(*parts: pb.ResourceRequest, config: ClusterConfig = CONFIG, **fields: object) -> JobSpec:
    job = pb.JobRequest(script=b"#!/bin/sh\n", work_dir="/tmp", components=parts, **fields)  # type: ignore[arg-type]
    return SpecReader(Principal("alice", 1000, 1000), config).read(job)


def part(module: str, **fields: object) -> pb.ResourceRequest:
    return pb.ResourceRequest(tasks=1, cpus_per_task=1, module=module, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "constraint", "partition", "job_partition", "means"),
    [
        ("booster", "", "", "", ("booster", "fast")),
        ("booster", "ib|!old", "", "", ("(ib|!old)&booster", "fast")),
        ("booster", "", "all", "", ("booster", "all")),
        ("booster", "", "", "all", ("booster", "all")),
        ("cluster", "", "", "", ("cluster", "")),
        ("", "ib", "", "", ("ib", "")),
    ],
)
def test_what_it_means(
    module: str, constraint: str, partition: str, job_partition: str, means: tuple[str, str]
) -> None:
    spec = read(part(module, constraint=constraint, partition=partition), partition=job_partition)
    assert (spec.components[0].constraint, spec.partition) == means


def test_each_part_has_its_own() -> None:
    spec = read(part("cluster", partition="long"), part("booster"))
    assert [request.constraint for request in spec.components] == ["cluster", "booster"]
    assert [partition_of(spec, number) for number in range(2)] == ["long", "fast"]


@pytest.mark.parametrize(
    ("module", "config", "said"),
    [
        ("boster", CONFIG, "--module: 'boster' is no module: did you mean booster?"),
        ("x", CONFIG, "--module: 'x' is no module: use one of cluster, booster"),
        (
            "gw",
            CONFIG,
            "--module: 'gw' is a module of gateways, where no job runs: use one of cluster, booster",
        ),
        (
            "gw",
            ClusterConfig("test"),
            "--module: 'gw' is no module: none is configured, use --partition or --constraint",
        ),
    ],
)
def test_other_words_are_refused(module: str, config: ClusterConfig, said: str) -> None:
    with pytest.raises(Refused) as refused:
        read(part(module), config=config)
    assert refused.value.text == said
