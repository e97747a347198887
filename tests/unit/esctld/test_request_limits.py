"""Each limit of a request, driven through the command and through the door: both take the most and refuse one more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest

from escli.option_table import rows_of
from escli.options import Parser, Words
from escli.user.draft import SubmitContext, draft_job
from escli.user.job_parts import command_parts
from escli.user.pack_file import read_pack
from eslurm.api.requests import SpecReader
from eslurm.compat.errors import OptionError
from eslurm.compat.moments import civil_from_days
from eslurm.compat.script import check_script
from eslurm.core.model import request_limits as limits
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import Refused, SubmitJobs, Submitted
from eslurm.core.model.pack import PackDraft
from eslurm.core.model.request import Request
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import ROOT, World
from tests.unit.core.control.jobs.test_submission import spec

AROUND = SubmitContext(cwd="/w", host="h", umask=0, now_us=0, offset_s=lambda _us: 0, environment={})
SCRIPT = b"#!/bin/sh\n"
GIB = 1024
DAY_US = 86_400_000_000
MINUTE_S = 60


class Field(NamedTuple):
    """A limit by name, what stands for `n` in a command's words and in a request, and the least step above the limit."""

    limit: str
    words: Callable[[int], Sequence[str]]
    fields: Callable[[int], Mapping[str, Any]]
    step: int = 1


def option(long: str, text: Callable[[int], str] = str) -> Callable[[int], Sequence[str]]:
    return lambda n: [f"--{long}={text(n)}"]


def part(**of: Callable[[int], Any]) -> Callable[[int], Mapping[str, Any]]:
    return lambda n: {"components": [pb.ResourceRequest(**{name: one(n) for name, one in of.items()})]}


def field(name: str, value: Callable[[int], Any] = int) -> Callable[[int], Mapping[str, Any]]:
    return lambda n: {name: value(n)}


def text_of(n: int) -> str:
    return "x" * n


def path_of(n: int) -> str:
    return "/" + "x" * (n - 1)


def names_of(n: int) -> list[str]:
    return [f"r{number}" for number in range(n)]


def amounts(name: str, items: int) -> list[pb.ResourceAmount]:
    return [pb.ResourceAmount(name=name, items=items)]


def all_of(n: int) -> list[pb.ResourceAmount]:
    return [pb.ResourceAmount(name=name, items=1) for name in names_of(n)]


def day_of(at_us: int) -> str:
    year, month, day = civil_from_days(at_us // DAY_US)
    return f"{year:04}-{month:02}-{day:02}T00:00:00"


def expression(n: int) -> str:
    return "&".join(["a" * 50] * (n // 51 + 1))[:n].removesuffix("&").ljust(n, "a")


def clock_of(seconds: int) -> str:
    return f"{seconds // 86_400}-{seconds // 3600 % 24}:{seconds // MINUTE_S % 60}:{seconds % 60}"


def ranges(n: int, step: int = 1) -> list[pb.TaskRange]:
    return [pb.TaskRange(first=2 * number, last=2 * number, step=step) for number in range(n)]


def gateways(**makers: Callable[[int], Any]) -> Callable[[int], dict[str, Any]]:
    """A request for gateways with these fields."""
    return lambda n: {
        "gateway": pb.GatewayRequest(**{"count": 1, **{name: make(n) for name, make in makers.items()}})
    }


def variables_of(n: int) -> list[str]:
    return [f"A{number}=1" for number in range(n)]


FIELDS = (
    Field("GATEWAYS_MAX", option("gateways"), gateways(count=int)),
    Field(
        "GATEWAYS_PER_NODE_MAX",
        lambda n: [f"--gateways-per-node={n}", "--gateways=1"],
        gateways(per_node=int),
    ),
    Field(
        "GATEWAY_PLUGIN_CHARS_MAX",
        lambda n: [f"--gateway-plugin={text_of(n)}", "--gateways=1"],
        gateways(plugin=text_of),
    ),
    Field(
        "GATEWAY_ENV_MAX",
        lambda n: [f"--gateway-env={','.join(variables_of(n))}", "--gateways=1"],
        gateways(env=variables_of),
    ),
    Field(
        "GATEWAY_ENV_CHARS_MAX",
        lambda n: [f"--gateway-env=A={text_of(n - 2)}", "--gateways=1"],
        gateways(env=lambda n: [f"A={text_of(n - 2)}"]),
    ),
    Field("NAME_CHARS_MAX", option("job-name", text_of), field("name", text_of)),
    Field("NAME_CHARS_MAX", option("account", text_of), field("account", text_of)),
    Field("NAME_CHARS_MAX", option("qos", text_of), field("qos", text_of)),
    Field("NAME_CHARS_MAX", option("reservation", text_of), field("reservation", text_of)),
    Field("PARTITION_CHARS_MAX", option("partition", text_of), field("partition", text_of)),
    Field("COMMENT_CHARS_MAX", option("comment", text_of), field("comment", text_of)),
    Field("PATH_CHARS_MAX", option("output", path_of), field("output", path_of)),
    Field("PATH_CHARS_MAX", option("error", path_of), field("error", path_of)),
    Field("PATH_CHARS_MAX", option("input", path_of), field("input", path_of)),
    Field("PATH_CHARS_MAX", option("chdir", path_of), field("work_dir", path_of)),
    Field("PATH_CHARS_MAX", option("warn-script", path_of), field("warn_script", path_of)),
    Field("ARGUMENTS_MAX", lambda n: ["run", *["y"] * n], field("arguments", lambda n: ["y"] * n)),
    Field("ARGUMENT_BYTES_MAX", lambda n: ["run", text_of(n)], field("arguments", lambda n: [text_of(n)])),
    Field("NODE_NAME_CHARS_MAX", option("nodelist", text_of), part(include=lambda n: [text_of(n)])),
    Field("NODE_NAME_CHARS_MAX", option("exclude", text_of), part(exclude=lambda n: [text_of(n)])),
    Field("NODES_NAMED_MAX", option("nodelist", lambda n: f"r[0-{n - 1}]"), part(include=names_of)),
    Field("NODES_NAMED_MAX", option("exclude", lambda n: f"r[0-{n - 1}]"), part(exclude=names_of)),
    Field("RESOURCE_CHARS_MAX", option("gres", text_of), part(per_node=lambda n: amounts(text_of(n), 1))),
    Field("RESOURCE_CHARS_MAX", option("licenses", text_of), part(wide=lambda n: amounts(text_of(n), 1))),
    Field("RESOURCES_MAX", option("gres", lambda n: ",".join(names_of(n))), part(per_node=all_of)),
    Field("RESOURCES_MAX", option("licenses", lambda n: ",".join(names_of(n))), part(wide=all_of)),
    Field("COUNT_MAX", option("ntasks"), part(tasks=int)),
    Field("COUNT_MAX", option("nodes"), part(nodes_min=int, nodes_max=int)),
    Field("COUNT_MAX", option("ntasks-per-node"), part(tasks_per_node=int)),
    Field("COUNT_MAX", option("cpus-per-task"), part(cpus_per_task=int)),
    Field("COUNT_MAX", option("gres", lambda n: f"gpu:{n}"), part(per_node=lambda n: amounts("gpu", n))),
    Field("COUNT_MAX", option("gpus-per-task"), part(per_task=lambda n: amounts("gpu", n))),
    Field("COUNT_MAX", option("licenses", lambda n: f"a:{n}"), part(wide=lambda n: amounts("a", n))),
    Field("COUNT_MAX", option("rset", lambda n: f"ncpus={n}"), part(chunks=lambda n: [pb.Chunk(cores=n)])),
    Field("CONSTRAINT_CHARS_MAX", option("constraint", expression), part(constraint=expression)),
    Field("MEMORY_MAX_MIB", option("mem"), part(memory_per_node_mib=int)),
    Field("MEMORY_MAX_MIB", option("mem-per-cpu"), part(memory_per_cpu_mib=int)),
    Field(
        "CHUNKS_MAX",
        option("rset", lambda n: "+".join(f"1:ncpus={number + 1}" for number in range(n))),
        part(chunks=lambda n: [pb.Chunk(cores=number + 1) for number in range(n)]),
    ),
    Field(
        "DEPENDENCIES_MAX",
        option("dependency", lambda n: "afterok:" + ":".join(str(job + 1) for job in range(n))),
        field("dependencies", lambda n: [pb.Dependency(kind="afterok", job_id=job + 1) for job in range(n)]),
    ),
    Field(
        "DEPENDENCY_DELAY_MAX_S",
        option("dependency", lambda n: f"after:1+{n // MINUTE_S}"),
        field("dependencies", lambda n: [pb.Dependency(kind="after", job_id=1, delay_s=n)]),
        MINUTE_S,
    ),
    Field(
        "ARRAY_PARTS_MAX",
        option("array", lambda n: ",".join(str(2 * at) for at in range(n))),
        field("array", ranges),
    ),
    Field(
        "ARRAY_TASKS_MAX",
        option("array", lambda n: f"0-{n - 1}"),
        field("array", lambda n: [pb.TaskRange(first=0, last=n - 1, step=1)]),
    ),
    Field(
        "ARRAY_TASK_MAX", option("array"), field("array", lambda n: [pb.TaskRange(first=n, last=n, step=1)])
    ),
    Field(
        "ARRAY_STRIDED_MAX",
        option("array", lambda n: f"0-{2 * (n - 1)}:2"),
        field("array", lambda n: [pb.TaskRange(first=0, last=2 * (n - 1), step=2)]),
    ),
    Field("TIME_LIMIT_MAX_S", option("time", clock_of), field("time_limit_s")),
    Field("WARN_BEFORE_MAX_S", option("signal", lambda n: f"USR1@{n}"), field("warn_before_s")),
    Field("MOMENT_MAX_US", option("begin", day_of), field("begin_us"), DAY_US),
    Field("MOMENT_MAX_US", option("start-at", day_of), field("start_at_us"), DAY_US),
    Field("MOMENT_MAX_US", option("deadline", day_of), field("deadline_us"), DAY_US),
)
OF_THE_CORE = {"nice": "NICE_MAX", "priority": "PRIORITY_MAX"}
ELSEWHERE = {
    "NODE_LIST_CHARS_MAX": "tests/unit/api/test_requests.py: of a step over several cells",
    "REFERENCES_MAX": "tests/unit/api: entries of a call, whatever it asks",
    "REASON_CHARS_MAX": "of nodes and satellites: no part of a submission",
    "ARGUMENTS_BYTES_MAX": "below: the arguments together",
    "ENVIRONMENT_BYTES_MAX": "below: the environment",
    "SCRIPT_BYTES_MAX": "below: the script",
    "PARTS_MAX": "below: the parts of a job",
    "PACK_MEMBERS_MAX": "below: the jobs of a pack",
    "PACK_DELAY_MAX_S": "below: the delays of a pack",
    "SPECS_BYTES_MAX": "tests/unit/api/test_requests.py: the jobs of a call together",
    "COMMAND_BYTES_MAX": "tests/unit/esctld/lead/test_command_sizes.py: what becomes of a launch",
}


def by_command(words: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """The error of `essubmit`; empty: none."""
    around = AROUND
    if environment is not None:
        around = SubmitContext(
            cwd="/w", host="h", umask=0, now_us=0, offset_s=lambda _us: 0, environment=environment
        )
    try:
        given = Parser(rows_of("essubmit"), options_end_at_first_word=True).parse(words)
        draft = draft_job(given, SCRIPT, "name", given.rest[1:], around)
    except OptionError as error:
        return str(error)
    assert not by_door(draft), "the door takes what the command sends"
    return ""


def by_door(fields: Mapping[str, Any]) -> str:
    """The API server's error; empty: none."""
    given = {"script": SCRIPT, "work_dir": "/tmp", **fields}
    try:
        job = pb.JobRequest(**given)
        SpecReader(Principal("alice", 1000, 1000), ClusterConfig("test")).read(job)
    except (Refused, ValueError) as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("one", FIELDS, ids=lambda one: f"{one.limit}-{one.words(2)[0].split('=')[0]}")
def test_command_and_door_draw_the_same_line(one: Field) -> None:
    most = getattr(limits, one.limit)
    if one.limit == "MOMENT_MAX_US":
        # The last day that can be written; the moment after it cannot.
        assert by_command(one.words(most - one.step)) == "" == by_door(one.fields(most))
        assert by_command([one.words(0)[0].replace("1970", "10000")])
        assert by_door(one.fields(most + 1))
        return
    assert (by_command(one.words(most)), by_door(one.fields(most))) == ("", "")
    assert by_command(one.words(most + one.step))
    assert by_door(one.fields(most + 1))


@pytest.mark.parametrize(("name", "limit"), OF_THE_CORE.items())
def test_command_and_core_draw_the_same_line(name: str, limit: str) -> None:
    most = getattr(limits, limit)
    for value, is_taken in ((most, True), (most + 1, False)):
        assert (by_command([f"--{name}={value}"]) == "") is is_taken
        job = msgspec.structs.replace(spec(), user=ROOT, **{name: value})
        answer = World(allow_root_jobs=True, min_uid=0).send(SubmitJobs((job,)))
        assert isinstance(answer, Submitted if is_taken else Refused)


def test_script_arguments_and_environment_as_a_whole() -> None:
    check_script(SCRIPT.ljust(limits.SCRIPT_BYTES_MAX, b"#"), "run.sh")
    with pytest.raises(OptionError):
        check_script(SCRIPT.ljust(limits.SCRIPT_BYTES_MAX + 1, b"#"), "run.sh")
    assert not by_door({"script": SCRIPT.ljust(limits.SCRIPT_BYTES_MAX, b"#")})
    assert by_door({"script": SCRIPT.ljust(limits.SCRIPT_BYTES_MAX + 1, b"#")})
    half = limits.ARGUMENTS_BYTES_MAX // 2 - 1
    for arguments, is_taken in ((["x" * half] * 2, True), (["x" * half, "x" * (half + 1)], False)):
        assert (by_command(["run", *arguments]) == "") is is_taken
        assert (by_door({"arguments": arguments}) == "") is is_taken
    assert by_command([], {"A": "x" * limits.ENVIRONMENT_BYTES_MAX})
    assert by_door({"environment": b"x" * (limits.ENVIRONMENT_BYTES_MAX + 1)})
    assert not by_door({"environment": b"x" * limits.ENVIRONMENT_BYTES_MAX})


def test_command_door_and_core_take_as_many_parts() -> None:
    for parts, is_taken in ((limits.PARTS_MAX, True), (limits.PARTS_MAX + 1, False)):
        parser = Parser(rows_of("essubmit"), options_end_at_first_word=True)
        words = " : ".join(["-n1"] * parts).split()
        with (
            contextlib.nullcontext()
            if is_taken
            else pytest.raises(OptionError, match="at most 128 are possible")
        ):
            assert len(command_parts(parser.parse(words), parser)) == parts
        assert (by_door({"components": [pb.ResourceRequest()] * parts}) == "") is is_taken
        job = msgspec.structs.replace(spec(), user=ROOT, components=(Request(),) * parts)
        answer = World(cores=limits.PARTS_MAX, allow_root_jobs=True, min_uid=0).send(SubmitJobs((job,)))
        assert isinstance(answer, Submitted if is_taken else Refused)


@pytest.mark.parametrize(
    ("members", "delay_s", "is_taken"),
    [
        (limits.PACK_MEMBERS_MAX, 0, True),
        (limits.PACK_MEMBERS_MAX + 1, 0, False),
        (2, limits.PACK_DELAY_MAX_S, True),
        (2, limits.PACK_DELAY_MAX_S + 1, False),
    ],
)
def test_command_and_core_take_the_same_packs(members: int, delay_s: int, is_taken: bool) -> None:
    lines = ["--wrap true", *["--delay=1 --wrap true"] * (members - 2), f"--delay={delay_s} --wrap true"]
    parser = Parser(rows_of("essubmit"), options_end_at_first_word=True)
    data = "\n".join(lines).encode()
    with contextlib.nullcontext() if is_taken else pytest.raises(OptionError):
        assert len(read_pack(data, "file", Words(), parser, frozenset())) == members
    world = World(nodes=members, cores=4, allow_root_jobs=True, min_uid=0)
    jobs = (msgspec.structs.replace(spec(), user=ROOT),) * members
    answer = world.send(SubmitJobs(jobs, (PackDraft(0, (*[0] * (members - 1), delay_s)),)))
    assert isinstance(answer, Submitted if is_taken else Refused)


def test_every_limit_is_driven() -> None:
    table = {name for name, value in vars(limits).items() if name.isupper() and isinstance(value, int)}
    assert set(limits.LINE_CHARS_MAX.values()) <= {getattr(limits, name) for name in table}
    assert table == {one.limit for one in FIELDS} | set(OF_THE_CORE.values()) | set(ELSEWHERE)
